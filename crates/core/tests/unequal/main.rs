//! Replicas that differ in speed and distance, and that come and go, in virtual time. The scheduler is the one of production. All
//! gates are counts and ratios; everything is seeded. Run one with `--nocapture` to see its table.

mod comings;
mod factors;
#[expect(dead_code, reason = "the other simulations draw more kinds of numbers")]
#[path = "../batching/random.rs"]
mod random;
mod scale;
mod stragglers;
mod ways;
mod world;
