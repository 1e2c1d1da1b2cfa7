//! The way to a replica on another machine and back. No clocks are compared: the worker says how long it had a batch, the front
//! knows for how long the batch was away, and the rest is the two ways.

use std::collections::VecDeque;
use std::time::Duration;

/// Batches that are remembered.
const REMEMBERED: usize = 16;
/// Fewer bytes than these, there and back, say nothing about the bandwidth.
const MANY_BYTES: u64 = 1_000_000;

/// The rests of the last batches. A rest is too long where a frame waited behind another, never too short: the least one counts.
#[derive(Clone, Debug, Default)]
pub struct LinkWay {
    rests: VecDeque<(f64, u64)>,
    round_trip_s: f64,
    s_per_byte: f64,
    bytes: u64,
}

impl LinkWay {
    /// A batch of so many bytes, there and back, was away for `rest` longer than its worker had it.
    pub fn learn(&mut self, rest: Duration, bytes: u64) {
        if self.rests.len() == REMEMBERED {
            self.rests.pop_front();
        }
        self.rests.push_back((rest.as_secs_f64(), bytes));
        self.bytes = bytes;
        let least = |rests: &mut dyn Iterator<Item = f64>| rests.min_by(f64::total_cmp).unwrap_or(0.0);
        let small = least(&mut self.rests.iter().filter(|one| one.1 < MANY_BYTES).map(|one| one.0));
        let large = self.rests.iter().filter(|one| one.1 >= MANY_BYTES);
        self.s_per_byte = least(&mut large.map(|&(rest, bytes)| (rest - small).max(0.0) / bytes as f64));
        let s_per_byte = self.s_per_byte;
        self.round_trip_s = least(&mut self.rests.iter().map(|one| (one.0 - one.1 as f64 * s_per_byte).max(0.0)));
    }

    /// There and back without bytes, in seconds; 0 until something was measured.
    pub fn round_trip_s(&self) -> f64 {
        self.round_trip_s
    }

    /// What a byte more adds, in seconds; 0 while no large batch was moved.
    pub fn s_per_byte(&self) -> f64 {
        self.s_per_byte
    }

    /// There and back with the bytes of the last batch.
    pub fn both_ways(&self) -> Duration {
        Duration::from_secs_f64(self.round_trip_s + self.s_per_byte * self.bytes as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_batches_give_the_round_trip_and_large_ones_the_bandwidth() {
        let mut way = LinkWay::default();
        for n in 0..40u64 {
            let bytes = if n % 2 == 0 { 100 } else { 8_000_000 };
            let waited = Duration::from_millis(n % 5);
            way.learn(Duration::from_millis(20) + Duration::from_secs_f64(bytes as f64 * 1e-9) + waited, bytes);
        }
        assert!((0.02..0.0205).contains(&way.round_trip_s()), "{}", way.round_trip_s());
        assert!((0.9e-9..1.3e-9).contains(&way.s_per_byte()), "{}", way.s_per_byte());
        assert!((0.027..0.031).contains(&way.both_ways().as_secs_f64()), "{:?}", way.both_ways());
    }

    #[test]
    fn a_way_that_grows_is_believed_after_some_batches() {
        let mut way = LinkWay::default();
        for ms in [1, 50] {
            (0..REMEMBERED).for_each(|_| way.learn(Duration::from_millis(ms), 100));
            assert!((way.round_trip_s() * 1e3 - ms as f64).abs() < 0.1, "{}", way.round_trip_s());
        }
    }
}
