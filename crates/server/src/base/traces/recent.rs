//! How long the requests of a deployment took in the last minute: what is usual, and what is slow.

use std::array::from_fn;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Bounds of buckets grow by about a fifth: four per doubling, from a microsecond to an hour.
const BUCKETS: usize = 128;
/// Seconds of one of the two windows.
const WINDOW_S: u64 = 30;
/// With fewer requests in the windows nothing is called slow.
const LEAST: u64 = 100;

/// Durations of the last 30 to 60 seconds.
#[derive(Debug)]
pub(crate) struct RecentDurations {
    /// The deployment's latency target.
    pub(crate) target: Option<Duration>,
    counts: [[AtomicU32; BUCKETS]; 2],
    window: AtomicU64,
    /// The second for which the quantiles were computed last.
    second: AtomicU64,
    usual_us: AtomicU64,
    slow_us: AtomicU64,
}

impl RecentDurations {
    /// Without durations yet.
    pub(crate) fn new(target: Option<Duration>) -> RecentDurations {
        RecentDurations {
            target,
            counts: from_fn(|_| from_fn(|_| AtomicU32::new(0))),
            window: AtomicU64::new(0),
            second: AtomicU64::new(u64::MAX),
            usual_us: AtomicU64::new(0),
            slow_us: AtomicU64::new(0),
        }
    }

    /// Adds the duration of a request that was answered in this second of the process.
    pub(crate) fn add(&self, second: u64, length: Duration) {
        let window = second / WINDOW_S;
        let before = self.window.fetch_max(window, Ordering::Relaxed);
        if before < window {
            // Two windows later both are old.
            let old = if window == before + 1 { &self.counts[window as usize % 2..][..1] } else { &self.counts[..] };
            old.iter().flatten().for_each(|count| count.store(0, Ordering::Relaxed));
        }
        self.counts[window as usize % 2][bucket(length)].fetch_add(1, Ordering::Relaxed);
    }

    /// The median, if there were requests.
    pub(crate) fn usual(&self, second: u64) -> Option<Duration> {
        self.refresh(second);
        length(self.usual_us.load(Ordering::Relaxed))
    }

    /// A longer request is slow: the target if there is one, else what 1 of 100 requests exceeds.
    pub(crate) fn slow(&self, second: u64) -> Option<Duration> {
        self.refresh(second);
        self.target.or_else(|| length(self.slow_us.load(Ordering::Relaxed)))
    }

    fn refresh(&self, second: u64) {
        if self.second.swap(second, Ordering::Relaxed) == second {
            return;
        }
        let sums: [u64; BUCKETS] =
            from_fn(|place| self.counts.iter().map(|counts| u64::from(counts[place].load(Ordering::Relaxed))).sum());
        let all: u64 = sums.iter().sum();
        let quantile = |share: f64| {
            let wanted = ((all as f64 * share).ceil() as u64).max(1);
            let mut sum = 0;
            sums.iter().position(|count| {
                sum += count;
                sum >= wanted
            })
        };
        self.usual_us.store(quantile(0.5).map_or(0, middle), Ordering::Relaxed);
        let slow = quantile(0.99).filter(|_| all >= LEAST).map_or(0, |place| middle(place + 1));
        self.slow_us.store(slow, Ordering::Relaxed);
    }
}

fn length(micros: u64) -> Option<Duration> {
    (micros > 0).then(|| Duration::from_micros(micros))
}

/// The bucket of a length of time.
fn bucket(length: Duration) -> usize {
    let micros = u64::try_from(length.as_micros()).unwrap_or(u64::MAX).max(4);
    let octave = micros.ilog2();
    let quarter = (micros >> (octave - 2)) & 3;
    (4 * (octave as usize - 2) + quarter as usize).min(BUCKETS - 1)
}

/// The middle of a bucket, in microseconds.
fn middle(place: usize) -> u64 {
    let width = 1u64 << (place / 4);
    (4 + place as u64 % 4) * width + width / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_a_bucket_is_in_it() {
        for place in 0..BUCKETS - 1 {
            assert_eq!(bucket(Duration::from_micros(middle(place))), place);
        }
        assert_eq!((bucket(Duration::ZERO), bucket(Duration::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn the_median_is_usual_and_one_of_a_hundred_is_slow() {
        let recent = RecentDurations::new(None);
        assert_eq!((recent.usual(0), recent.slow(0)), (None, None));
        (0..99).for_each(|_| recent.add(1, Duration::from_millis(10)));
        assert_eq!(recent.slow(1), None, "too few requests");
        (0..99).for_each(|_| recent.add(2, Duration::from_millis(10)));
        let (usual, slow) = (recent.usual(2).unwrap(), recent.slow(2).unwrap());
        assert!((9..=11).contains(&usual.as_millis()), "{usual:?}");
        assert!(slow > Duration::from_millis(10) && slow < Duration::from_millis(14), "{slow:?}");
    }

    #[test]
    fn old_requests_are_forgotten_and_a_target_wins() {
        let recent = RecentDurations::new(None);
        (0..200).for_each(|_| recent.add(1, Duration::from_secs(5)));
        recent.add(31, Duration::from_millis(1));
        assert!(recent.usual(31).unwrap() > Duration::from_secs(4), "the window before counts");
        recent.add(61, Duration::from_millis(1));
        assert!(recent.usual(61).unwrap() < Duration::from_millis(2));
        recent.add(500, Duration::from_millis(1));
        assert!(recent.usual(500).is_some());
        let target = Some(Duration::from_millis(50));
        assert_eq!(RecentDurations::new(target).slow(0), target);
    }
}
