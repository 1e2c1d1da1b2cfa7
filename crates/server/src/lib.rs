//! The motion of jitney: sockets, protocols, the engine task that owns the lanes, links to workers.

pub mod call;
mod changes;
pub mod clock;
pub mod deployment;
pub mod embed;
pub mod engine;
pub mod greeting;
mod heavy;
pub mod host;
pub mod http;
pub mod item;
pub mod keys;
pub mod link;
pub mod messages;
pub mod pieces;
pub mod plan;
pub mod profile;
pub mod programs;
pub mod report;
pub mod serve;
pub mod site;
pub mod spawn;
pub mod statistics;
pub mod supervise;
pub mod telemetry;
pub mod tensors;
mod workers;
