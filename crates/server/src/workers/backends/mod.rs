//! Where workers run: on this machine, in this process, or at agents.

pub(crate) mod agents;
pub mod backend;
pub mod inline;
pub mod process;
pub(crate) mod returning;
