//! The engine inside and beside a program, as Python sees it.

pub(crate) mod engine;
mod log;
pub(crate) mod mailbox;
mod values;
mod waiting;
