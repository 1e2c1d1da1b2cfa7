//! The HTTP front: bytes to calls and answers to bytes. Admission, deadlines, priorities and cancellation are met behind
//! `Deployment::open`, the same for every protocol.

mod batch;
mod body;
mod coding;
mod connection;
mod cors;
mod door;
mod dropping;
mod fault;
mod form;
mod gate;
mod grpc;
mod headers;
mod input;
mod intake;
mod limits;
mod listen;
mod media;
mod native;
mod object;
mod oip;
mod openai;
mod openapi;
mod origin;
mod outcomes;
mod pages;
mod payload;
mod problem;
pub(crate) mod refusing;
mod render;
mod schema;
mod service;
mod socket;
mod turn;
mod untaken;
mod upload;

pub(crate) use batch::most_items;
pub use listen::{Listener, bind, check_reach, is_loopback, serve};
pub(crate) use socket::Stream;
