//! Threads, sockets, timers: carries out a plan.

mod alarm;
mod closed;
mod connection;
mod open;
mod run;
mod thread;

pub use run::{Input, Watch, run};
