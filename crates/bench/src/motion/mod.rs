//! Threads, sockets, timers: carries out a plan.

mod alarm;
mod closed;
mod connection;
mod open;
mod run;
mod thread;
mod thread_life;
mod usage;

pub use run::{Input, Watch, run};
