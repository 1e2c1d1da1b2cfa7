//! A program's end of its connection to a server.

pub mod calls;
pub mod entrance;
mod incoming;
mod line;
mod parts;
pub mod remote;
mod sending;
