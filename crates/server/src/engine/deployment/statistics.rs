//! What a deployment has done since it was loaded, request by request. Metrics count items and batches; clients that
//! measure a model ask for the mean of a request's phases.

use crate::values::answer::Timing;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A number of requests, and the time that they took together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests.
    pub count: u64,
    /// Nanoseconds of them all.
    pub ns: u64,
}

impl Tally {
    fn add(&mut self, length: Duration) {
        self.count += 1;
        self.ns = self.ns.saturating_add(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX));
    }
}

/// The requests of one deployment at one instant. The counts of `success` and of its three phases are equal: NVIDIA's
/// `perf_analyzer` refuses to measure a server where they differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTotals {
    /// Requests with an answer, from arrival to answer.
    pub success: Tally,
    /// All others.
    pub fail: Tally,
    /// Of `success`: the time in the queue.
    pub queue: Tally,
    /// Of `success`: the way to the model and back.
    pub batch: Tally,
    /// Of `success`: the time in `predict`.
    pub model: Tally,
    /// When the last answer was given; `None` if none was.
    pub last: Option<Instant>,
}

/// Counts the requests of one deployment.
#[derive(Debug, Default)]
pub struct Statistics(Mutex<RequestTotals>);

impl Statistics {
    /// Counts a request that ended now. `timing` is that of its slowest item.
    pub fn ended(&self, is_ok: bool, now: Instant, length: Duration, timing: &Timing) {
        // One lock for all counts, so that a reader gets counts of one instant while requests end.
        let mut totals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_ok {
            totals.fail.add(length);
            return;
        }
        totals.success.add(length);
        totals.queue.add(timing.queue);
        totals.batch.add(timing.batch);
        totals.model.add(timing.model);
        totals.last = Some(now);
    }

    /// All counts as of one instant.
    pub fn totals(&self) -> RequestTotals {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn counts_of_all_phases_are_equal_while_requests_end() {
        let (statistics, stop) = (Statistics::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        statistics.ended(true, Instant::now(), Duration::from_nanos(3), &Timing::default());
                    }
                });
            }
            let mut last = 0;
            while last < 10_000 {
                let totals = statistics.totals();
                let counts = [totals.queue.count, totals.batch.count, totals.model.count];
                assert_eq!(counts, [totals.success.count; 3]);
                last = totals.success.count;
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
