//! The rules of jitney: who may enter, what shares a batch, when it leaves, who is answered what.
//!
//! Nothing here does I/O, reads a clock, spawns or knows Python: time is an argument, decisions are
//! return values. That is what lets the same code run in production, in property tests and in a simulation.

pub mod admission;
pub mod auto;
pub mod bulk;
pub mod ceilings;
pub mod curve;
pub mod explanation;
pub mod forecast;
pub mod group_key;
pub mod lane;
pub mod lanes;
pub mod load;
pub mod manifest;
pub mod metrics;
pub mod moves;
pub mod options;
pub mod outcome;
pub mod pace;
pub mod paces;
pub mod policy;
pub mod quarantine;
pub mod replica;
pub mod request;
pub mod riders;
pub mod rules;
pub mod scheduler;
pub mod supervisor;
pub mod time;
pub mod traffic;
