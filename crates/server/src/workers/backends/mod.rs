//! Where workers run: on this machine, in this process, at agents, or in a Ray cluster.

pub(crate) mod agents;
pub mod backend;
pub(crate) mod children;
pub mod inline;
pub mod process;
pub(crate) mod ray;
pub(crate) mod returning;
