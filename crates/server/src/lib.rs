//! The motion of jitney: sockets, protocols, the engine task that owns the lanes, links to workers.

pub mod call;
pub mod deployment;
pub mod http;
pub mod item;
pub mod site;
pub mod telemetry;
