//! Open sets: items join and leave a replica between two steps of its model, or at any time where they run side by side. Random
//! schedules next to a naive recount, and simulations in virtual time.

mod checks;
mod figures;
#[path = "../batching/random.rs"]
#[expect(dead_code, reason = "the other simulation uses the rest")]
mod random;
mod schedules;
mod side_by_side;
mod simulator;
mod stories;
mod world;
