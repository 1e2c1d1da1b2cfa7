//! The frame format and both ends of a link: what is written is read, and what is damaged is refused.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod ends;
mod frames;
mod leases;
mod streams;
mod support;
