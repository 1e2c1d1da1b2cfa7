//! A program's end of its connection to a server.

pub mod calls;
pub mod entrance;
mod line;
pub mod remote;
