//! The HTTP front over real sockets, with an engine that is a closure.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod arrays;
mod batch;
mod catalogue;
mod counting;
mod floods;
mod framing;
mod gate;
mod live;
mod memory;
mod openai;
mod openai_texts;
mod pages;
mod requests;
mod slow;
mod support;
mod versions;
