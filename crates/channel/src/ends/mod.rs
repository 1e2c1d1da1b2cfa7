//! The ends of a connection: the front, an agent, a worker.

pub(crate) mod acceptor;
pub(crate) mod blocking;
pub(crate) mod challenge;
pub(crate) mod config;
pub(crate) mod dial;
pub(crate) mod socket;
pub(crate) mod stream;
