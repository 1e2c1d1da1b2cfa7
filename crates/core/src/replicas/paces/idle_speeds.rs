//! How fast all idle replicas are together, and how many of each rank there are.

use crate::replicas::paces::replica_pace::{Pace, SLOWEST};

/// A replica like most others counts as this: sums of whole numbers never drift.
pub const USUAL_SPEED: u64 = 1 << 16;
const RANKS: usize = 2 * SLOWEST as usize + 1;

/// The speeds of some replicas.
#[derive(Clone, Copy, Debug, Default)]
pub struct Speeds {
    /// Of all together, where each usual one counts `USUAL_SPEED`.
    pub sum: u64,
    by_rank: [(u32, u64); RANKS],
}

/// What a replica counts.
pub fn speed(factor: f64) -> u64 {
    (USUAL_SPEED as f64 / factor).round() as u64
}

impl Speeds {
    /// A replica joins or leaves.
    pub fn change(&mut self, pace: Pace, joins: bool) {
        let (count, sum) = &mut self.by_rank[(pace.rank + SLOWEST) as usize];
        let speed = speed(pace.factor);
        if joins {
            (*count, *sum, self.sum) = (*count + 1, *sum + speed, self.sum + speed);
        } else {
            (*count, *sum, self.sum) = (*count - 1, *sum - speed, self.sum - speed);
        }
    }

    /// How many are of a rank.
    pub fn count(&self, rank: i8) -> usize {
        self.by_rank[(rank + SLOWEST) as usize].0 as usize
    }

    /// The ranks that have replicas, the fastest first: how many each has, and their mean factor.
    pub fn ranks(&self) -> impl Iterator<Item = (u32, f64)> + '_ {
        let all = self.by_rank.iter().filter(|(count, _)| *count > 0);
        all.map(|&(count, sum)| (count, (USUAL_SPEED * u64::from(count)) as f64 / sum.max(1) as f64))
    }
}
