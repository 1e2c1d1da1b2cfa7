//! The rule that chooses how many replicas there are, next to two threshold rules whose settings are chosen in hindsight, in
//! virtual time. Batches are learned by the learner of production. Everything is seeded: the same figures every time. Run with
//! `--nocapture` to see the tables.

#![expect(clippy::print_stdout, reason = "tables for people")]

mod chain;
mod gates;
mod oracle;
mod pool;
#[path = "../batching/random.rs"]
mod random;
mod rules;
mod scenarios;
mod sweep;
mod world;
