//! Answers that are sent part by part.

pub(crate) mod body;
pub(crate) mod events;
pub(crate) mod form;
pub(crate) mod lines;
pub(crate) mod raw;
