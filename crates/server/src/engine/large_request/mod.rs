//! Requests of many items: they enter the queue piece by piece, in turns with others.

pub mod pieces;
pub(crate) mod turns;
