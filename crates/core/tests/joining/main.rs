//! Models that work in steps: items join and leave a replica between two of them. Random schedules next to a naive recount, and
//! simulations in virtual time.

mod checks;
mod figures;
#[path = "../batching/random.rs"]
#[expect(dead_code, reason = "the other simulation uses the rest")]
mod random;
mod schedules;
mod simulator;
mod stories;
mod world;
