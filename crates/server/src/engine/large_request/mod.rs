//! Requests of many items: they enter the queue piece by piece, in turns with others.

pub mod pieces;
pub mod replica_count;
pub(crate) mod turns;
