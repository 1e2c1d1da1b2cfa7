//! The server's end of the connections of programs. A program may call models and nothing else: it can never be a worker.

pub mod admission;
pub(crate) mod asks;
pub(crate) mod connection;
mod line;
mod newcomers;
mod session;
mod stream;
mod under_way;
mod window;
