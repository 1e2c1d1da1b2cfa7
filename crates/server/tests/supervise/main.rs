//! The supervisor with real processes: fake workers (`examples/fake_worker.rs`) that live and die on command.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod lives;
mod support;
