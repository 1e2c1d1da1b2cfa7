//! `jitney worker`: starts, watches and ends workers on this machine by the word of a front on another one.

mod children;
mod connection;
pub mod program;
