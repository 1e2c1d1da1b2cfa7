//! A program's end of its connection to a server.

pub mod asks;
pub mod calls;
pub mod entrance;
mod incoming;
mod line;
mod outgoing;
mod parts;
pub mod remote;
mod sending;
