//! Connections: listening, sockets, time-outs, and what is refused or not read.

pub(crate) mod backlog;
pub(crate) mod discard;
pub(crate) mod driver;
pub(crate) mod least_rate;
pub(crate) mod limits;
pub mod listen;
pub(crate) mod services;
pub(crate) mod socket;
pub(crate) mod tls;
pub(crate) mod upload;
