//! The HTTP front: bytes to calls and answers to bytes. Admission, deadlines, priorities and cancellation are met behind
//! `Deployment::open`, the same for every protocol.

mod body;
mod connection;
mod headers;
mod heavy;
mod held;
mod input;
mod limits;
mod listen;
mod media;
mod native;
mod openapi;
mod origin;
mod pages;
mod problem;
mod render;
mod service;
mod socket;
mod untaken;

pub use listen::{Listener, bind, check_reach, is_loopback, serve};
