//! The access log: one line for a request, or for a share of them.

pub(crate) mod line;
pub mod log;
mod queue;
mod record;
pub(crate) mod timestamp;
