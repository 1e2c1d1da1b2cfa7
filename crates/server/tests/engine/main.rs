//! The real engine task between real calls and fake workers on in-memory links.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod answers;
mod foreign;
mod losses;
mod parts;
mod support;
