//! What a batch of n takes, learned from what batches took. Predictions of waits rest on this alone.

use std::collections::BTreeMap;
use std::time::Duration;

/// Batches that must have been measured before predictions are believed.
const BELIEVED_AFTER: u64 = 3;
/// Weight of a bucket's past: its mean follows a change within about this many batches.
const MEMORY: f64 = 20.0;
/// Weight of the newest batch in what batches took lately.
const RECENT: f64 = 0.125;
/// Once five batches are known, one duration counts as at most this many times what was expected.
const OUTLIER: f64 = 3.0;

#[derive(Clone, Copy, Debug)]
struct Bucket {
    weight: f64,
    items: f64,
    seconds: f64,
}

/// Measured batch durations by size: a mean per size bucket, and a line through the buckets.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    buckets: BTreeMap<u32, Bucket>,
    launch_s: f64,
    item_s: f64,
    recent_s: f64,
    count: u64,
}

impl Pace {
    /// Learns that a batch of `items` occupied a replica for `length`.
    pub fn learn(&mut self, items: usize, length: Duration) {
        if items == 0 {
            return;
        }
        self.count += 1;
        let mut seconds = length.as_secs_f64();
        if self.count > 5 {
            seconds = seconds.min(OUTLIER * self.seconds(items));
        }
        let fresh = Bucket { weight: 0.0, items: items as f64, seconds };
        self.recent_s += (seconds - self.recent_s) * RECENT.max(1.0 / self.count as f64);
        let bucket = self.buckets.entry(index(items)).or_insert(fresh);
        if bucket.weight < 1.5 && bucket.weight > 0.5 && seconds < bucket.seconds / 2.0 {
            bucket.seconds = seconds; // the first batch of this size paid for a warm-up
        }
        bucket.weight = (bucket.weight + 1.0).min(MEMORY);
        bucket.items += (items as f64 - bucket.items) / bucket.weight;
        bucket.seconds += (seconds - bucket.seconds) / bucket.weight;
        self.fit();
    }

    /// Whether enough has been measured to predict.
    pub fn is_known(&self) -> bool {
        self.count >= BELIEVED_AFTER
    }

    /// What a batch of `items` takes.
    pub fn batch(&self, items: usize) -> Duration {
        Duration::from_secs_f64(self.seconds(items.max(1)))
    }

    /// What batches took lately, of whatever size they were.
    pub fn recent(&self) -> Duration {
        Duration::from_secs_f64(self.recent_s)
    }

    fn seconds(&self, items: usize) -> f64 {
        match self.buckets.get(&index(items)) {
            Some(bucket) if bucket.weight >= 3.0 => {
                (bucket.seconds + self.item_s * (items as f64 - bucket.items)).max(0.0)
            }
            _ => self.launch_s + self.item_s * items as f64,
        }
    }

    /// The weighted line. With one size seen nothing is known of the slope; taking it as flat admits too much for one
    /// batch, taking it as proportional would refuse the first burst of every server that was quiet before.
    fn fit(&mut self) {
        let buckets = || self.buckets.values();
        let weight: f64 = buckets().map(|b| b.weight).sum();
        let items = buckets().map(|b| b.weight * b.items).sum::<f64>() / weight;
        let seconds = buckets().map(|b| b.weight * b.seconds).sum::<f64>() / weight;
        let spread: f64 = buckets().map(|b| b.weight * (b.items - items).powi(2)).sum();
        self.item_s = 0.0;
        if self.buckets.len() > 1 && spread > 0.0 {
            let slope = buckets().map(|b| b.weight * (b.items - items) * (b.seconds - seconds)).sum::<f64>() / spread;
            self.item_s = slope.clamp(0.0, seconds / items);
        }
        self.launch_s = (seconds - self.item_s * items).max(0.0);
    }
}

/// Buckets end at 1, 2, 4, 5, 8, 11, 16, 22, 32, …: none straddles a power of two, where padded models jump.
fn index(items: usize) -> u32 {
    (2.0 * (items as f64).log2() - 1e-9).ceil().max(0.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: f64) -> Duration {
        Duration::from_secs_f64(n / 1e3)
    }

    #[test]
    fn it_finds_the_line_of_a_linear_model() {
        let mut pace = Pace::default();
        for items in [1, 8, 64, 1, 8, 64] {
            pace.learn(items, ms(5.0 + 0.1 * items as f64));
        }
        assert!(pace.is_known());
        assert!((pace.batch(32).as_secs_f64() * 1e3 - 8.2).abs() < 0.1, "{:?}", pace.batch(32));
    }

    #[test]
    fn with_one_size_seen_larger_ones_are_taken_to_cost_the_same() {
        let mut pace = Pace::default();
        (0..3).for_each(|_| pace.learn(1, ms(5.0)));
        assert_eq!(pace.batch(64), ms(5.0));
    }

    #[test]
    fn one_outlier_does_not_move_it_far() {
        let mut pace = Pace::default();
        (0..20).for_each(|_| pace.learn(4, ms(10.0)));
        pace.learn(4, ms(10_000.0));
        assert!(pace.batch(4) < ms(12.0));
    }
}
