//! What a deployment has done since it was loaded, request by request. Metrics count items and batches; clients that
//! measure a model ask for the mean of a request's phases.

use crate::call::Timing;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// So many, and how long they took together.
#[derive(Debug, Default)]
pub struct Tally {
    count: AtomicU64,
    ns: AtomicU64,
}

impl Tally {
    fn add(&self, length: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.ns.fetch_add(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// How many, and their nanoseconds.
    pub fn seen(&self) -> (u64, u64) {
        (self.count.load(Ordering::Relaxed), self.ns.load(Ordering::Relaxed))
    }
}

/// Of one deployment.
#[derive(Debug, Default)]
pub struct Statistics {
    /// Requests with an answer, from their arrival to it.
    pub success: Tally,
    /// All others.
    pub fail: Tally,
    /// Of those with an answer: the wait.
    pub queue: Tally,
    /// The way to the model and back.
    pub batch: Tally,
    /// The model.
    pub model: Tally,
    last_ms: AtomicU64,
}

impl Statistics {
    /// Takes note of a request that ended. `timing` is that of its slowest item.
    pub fn ended(&self, is_ok: bool, length: Duration, timing: &Timing) {
        if !is_ok {
            self.fail.add(length);
            return;
        }
        self.success.add(length);
        self.queue.add(timing.queue);
        self.batch.add(timing.batch);
        self.model.add(timing.model);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last_ms.store(u64::try_from(now.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// When the last answer was given, in milliseconds since 1970; 0 if none was.
    pub fn last_ms(&self) -> u64 {
        self.last_ms.load(Ordering::Relaxed)
    }
}
