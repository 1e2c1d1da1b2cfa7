//! The engine inside a program, and the connection to a shared one, as Python sees them.

pub(crate) mod asks;
pub(crate) mod engine;
mod log;
pub(crate) mod mailbox;
mod reply;
pub(crate) mod stream;
pub(crate) mod trace;
mod values;
mod waiting;
pub(crate) mod watcher;
