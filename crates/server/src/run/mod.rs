//! A server, or an engine inside a program, from settings to end.

pub mod agent;
pub mod embed;
pub mod engine_host;
mod hangup;
mod leftovers;
pub mod serve;
mod service_manager;
pub mod startup_message;
mod worker_ports;
