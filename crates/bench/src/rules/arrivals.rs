//! When requests of an open loop are due: decided before anything is sent, and the same for the same seed.

use super::plan::Arrivals;
use fastrand::Rng;

const SECOND_NS: f64 = 1e9;

/// Instants without end, in order, in nanoseconds since the beginning.
#[derive(Clone, Debug)]
pub struct Schedule {
    arrivals: Arrivals,
    /// Between instants, on the average.
    gap_ns: f64,
    /// Requests at each instant.
    at_once: u32,
    /// Of those, how many are still to come at the present instant.
    left: u32,
    at_ns: f64,
    random: Rng,
}

impl Schedule {
    /// `rate_per_s` counts requests, whether they come alone or in bursts.
    pub fn new(arrivals: Arrivals, rate_per_s: f64, burst: u32, seed: u64) -> Schedule {
        let at_once = if arrivals == Arrivals::Bursts { burst } else { 1 };
        let gap_ns = SECOND_NS / rate_per_s * f64::from(at_once);
        Schedule { arrivals, gap_ns, at_once, left: 0, at_ns: 0.0, random: Rng::with_seed(seed) }
    }

    /// The part of one of several threads: every n-th arrival.
    pub fn share(self, thread: usize, threads: usize) -> impl Iterator<Item = u64> {
        self.skip(thread).step_by(threads)
    }

    fn gap(&mut self) -> f64 {
        match self.arrivals {
            Arrivals::Constant => self.gap_ns,
            // `f64` is below 1, so the logarithm is finite.
            Arrivals::Poisson | Arrivals::Bursts => -(1.0 - self.random.f64()).ln() * self.gap_ns,
        }
    }
}

impl Iterator for Schedule {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.left == 0 {
            self.at_ns += self.gap();
            self.left = self.at_once;
        }
        self.left -= 1;
        Some(self.at_ns as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_NS: u64 = 60_000_000_000;

    fn in_a_minute(arrivals: Arrivals, rate_per_s: f64, burst: u32, seed: u64) -> Vec<u64> {
        Schedule::new(arrivals, rate_per_s, burst, seed).take_while(|&at| at < MINUTE_NS).collect()
    }

    fn gaps(instants: &[u64]) -> Vec<f64> {
        instants.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect()
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    #[test]
    fn every_kind_keeps_its_rate() {
        for arrivals in [Arrivals::Poisson, Arrivals::Constant, Arrivals::Bursts] {
            let count = in_a_minute(arrivals, 500.0, 10, 1).len() as f64;
            // 30,000 expected; bursts of 10 have a standard deviation of √3,000 · 10, less than 2 %.
            assert!((count / 30_000.0 - 1.0).abs() < 0.08, "{arrivals:?}: {count}");
        }
    }

    #[test]
    fn constant_arrivals_are_equally_far_apart() {
        assert!(gaps(&in_a_minute(Arrivals::Constant, 1000.0, 1, 1)).iter().all(|gap| (gap - 1e6).abs() <= 1.0));
    }

    #[test]
    fn gaps_between_strangers_vary_as_much_as_they_last_and_do_not_remember() {
        let gaps = gaps(&in_a_minute(Arrivals::Poisson, 1000.0, 1, 7));
        let average = mean(&gaps);
        let variance = mean(&gaps.iter().map(|gap| (gap - average).powi(2)).collect::<Vec<_>>());
        assert!((variance.sqrt() / average - 1.0).abs() < 0.03);
        // Of exponential gaps 1/e are longer than their mean, also right after a long one.
        let long = |gap: &f64| *gap > average;
        let after_long: Vec<f64> = gaps.windows(2).filter(|two| long(&two[0])).map(|two| two[1]).collect();
        let share = after_long.iter().filter(|&gap| long(gap)).count() as f64 / after_long.len() as f64;
        assert!((share - (-1f64).exp()).abs() < 0.02, "{share}");
    }

    #[test]
    fn a_burst_is_due_at_one_instant() {
        let instants = in_a_minute(Arrivals::Bursts, 100.0, 8, 3);
        let mut sizes: Vec<usize> = instants.chunk_by(|a, b| a == b).map(<[u64]>::len).collect();
        sizes.pop();
        assert!(sizes.len() > 100 && sizes.iter().all(|&size| size == 8));
    }

    #[test]
    fn the_same_seed_gives_the_same_schedule_and_another_another() {
        let schedule = |seed| in_a_minute(Arrivals::Poisson, 50.0, 1, seed);
        assert_eq!(schedule(5), schedule(5));
        assert_ne!(schedule(5), schedule(6));
    }

    #[test]
    fn threads_share_one_schedule_without_loss() {
        let whole = Schedule::new(Arrivals::Bursts, 300.0, 4, 9);
        let mut parts: Vec<u64> = (0..3).flat_map(|thread| whole.clone().share(thread, 3).take(200)).collect();
        parts.sort_unstable();
        assert_eq!(parts, whole.take(600).collect::<Vec<_>>());
    }
}
