//! Durations in buckets of a fixed relative width: 16 to each doubling, so that a quantile is off by 3 % at most.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Buckets to each doubling.
const TO_A_DOUBLING: usize = 16;
/// The last bucket begins at 4 minutes and holds all that is longer.
const BUCKETS: usize = TO_A_DOUBLING * 25;

/// The bucket of a duration in microseconds.
fn bucket(us: u64) -> usize {
    if us < TO_A_DOUBLING as u64 {
        return us as usize;
    }
    let doubling = us.ilog2() as usize - 3;
    let within = (us >> (doubling - 1)) as usize % TO_A_DOUBLING;
    (doubling * TO_A_DOUBLING + within).min(BUCKETS - 1)
}

/// The microseconds with which a bucket begins.
fn begin_us(bucket: usize) -> u64 {
    if bucket < TO_A_DOUBLING {
        return bucket as u64;
    }
    ((TO_A_DOUBLING + bucket % TO_A_DOUBLING) as u64) << (bucket / TO_A_DOUBLING - 1)
}

/// Durations since they were taken last. Any thread may add one.
#[derive(Debug)]
pub(crate) struct DurationCounts(Box<[AtomicU32]>);

impl Default for DurationCounts {
    fn default() -> DurationCounts {
        DurationCounts((0..BUCKETS).map(|_| AtomicU32::new(0)).collect())
    }
}

impl DurationCounts {
    /// Counts one.
    pub(crate) fn add(&self, length: Duration) {
        let us = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
        self.0[bucket(us)].fetch_add(1, Ordering::Relaxed);
    }

    /// Those that were added, and begins anew.
    pub(crate) fn take(&self) -> Counts {
        let filled = self.0.iter().enumerate().filter(|(_, count)| count.load(Ordering::Relaxed) > 0);
        Counts(filled.map(|(bucket, count)| (bucket as u16, count.swap(0, Ordering::Relaxed))).collect())
    }
}

/// How many durations fell into each bucket: only those into which some fell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts(Box<[(u16, u32)]>);

/// The durations that half, 95 % and 99 % of the requests did not exceed, in milliseconds.
#[allow(clippy::struct_field_names, reason = "the names of JSON, with their unit")]
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(crate) struct Quantiles {
    pub(crate) p50_ms: f64,
    pub(crate) p95_ms: f64,
    pub(crate) p99_ms: f64,
}

/// The quantiles of all these counts together; `None` if nothing was counted.
pub(crate) fn quantiles<'a>(counts: impl Iterator<Item = &'a Counts>) -> Option<Quantiles> {
    let mut sums = [0u64; BUCKETS];
    let mut total = 0;
    for &(bucket, count) in counts.flat_map(|counts| &counts.0) {
        sums[usize::from(bucket)] += u64::from(count);
        total += u64::from(count);
    }
    let of = |share| quantile_ms(&sums, total, share);
    (total > 0).then(|| Quantiles { p50_ms: of(0.5), p95_ms: of(0.95), p99_ms: of(0.99) })
}

/// In the bucket of the value with this rank the values are taken for evenly spread.
fn quantile_ms(sums: &[u64; BUCKETS], total: u64, share: f64) -> f64 {
    let rank = share * total as f64;
    let mut below = 0.0;
    for (bucket, &count) in sums.iter().enumerate().filter(|(_, count)| **count > 0) {
        let count = count as f64;
        if below + count >= rank {
            let (begin, end) = (begin_us(bucket) as f64, begin_us(bucket + 1) as f64);
            return (begin + (end - begin) * (rank - below) / count) / 1e3;
        }
        below += count;
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_in_the_bucket_that_begins_before_it() {
        let mut before = 0;
        for us in (0..5000).chain((5000..200_000_000).step_by(99_991)) {
            let bucket = bucket(us);
            assert!(begin_us(bucket) <= us && us < begin_us(bucket + 1), "{us} µs is in bucket {bucket}");
            assert!(bucket >= before);
            before = bucket;
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_the_durations_within_a_few_percent() {
        let durations = DurationCounts::default();
        (1..=1000).for_each(|us| durations.add(Duration::from_micros(us * 100)));
        let counts = [durations.take(), durations.take()];
        let found = quantiles(counts.iter()).unwrap();
        for (found, due) in [(found.p50_ms, 50.0), (found.p95_ms, 95.0), (found.p99_ms, 99.0)] {
            assert!((found / due - 1.0).abs() < 0.04, "{found} ms instead of {due}");
        }
        assert_eq!(quantiles([durations.take()].iter()), None, "they were taken");
    }
}
