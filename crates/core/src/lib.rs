//! The rules of jitney: which requests are admitted, which items share a batch, when a batch leaves, what each item is answered.
//!
//! Nothing here does I/O, reads a clock, starts a thread or knows Python: time is an argument, decisions are return values. So
//! the same code runs in production, in property tests and in a simulation.
//!
//! Floors, from the ground: `time`, `request`, `tables`, `config`, `queue`, `learn`, `policy`, `replicas`, `scheduler`,
//! `supervisor`. A module imports only what stands before it:
//!
//! - `time`, `request`: instants; the numbers of items, batches, replicas and groups
//! - `tables`: every outcome and every metric
//! - `config`: options, manifests, rules and limits
//! - `queue`: lanes of waiting items and their order
//! - `learn`: what batches take, how requests arrive
//! - `policy`: when a batch leaves and which items it takes
//! - `replicas`: what each replica holds, and which inputs kill workers; how many there should be
//! - `scheduler`: the state machine of one deployment; its `admission` says which requests may enter
//! - `supervisor`: the life of a worker

pub mod config;
pub mod learn;
pub mod policy;
pub mod queue;
pub mod replicas;
pub mod request;
pub mod scheduler;
pub mod supervisor;
pub mod tables;
pub mod time;
