//! An instant as a number. The motion side turns its clock into one; the rules only compare and add.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Nanoseconds since the engine's own epoch. Never wall-clock time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The time from `earlier` to `self`, zero if `earlier` is later.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The instant that is this much earlier.
    #[must_use]
    pub fn before(self, length: Duration) -> Time {
        Time(self.0.saturating_sub(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Seconds since the epoch, for arithmetic that does not need every nanosecond.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-9
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, length: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Time> for Time {
    type Output = Duration;
    fn sub(self, earlier: Time) -> Duration {
        self.since(earlier)
    }
}
