//! The one clock: turns the system's monotonic time into the numbers that the rules work with. It is tokio's, so that
//! clock and timers agree also in tests that pause the time.

use jitney_core::time::Time;
use std::time::Duration;
use tokio::time::Instant;

/// A timer that rings this late means that the whole process did not run: it was stopped, or its container was frozen.
pub const AWAY: Duration = Duration::from_secs(2);

/// Longer than anything here lives: an instant that is later cannot be counted on every system.
const FAR: Duration = Duration::from_secs(86_400 * 365);

/// The instant that is this long after another one; at most a year.
pub(crate) fn after(start: Instant, length: Duration) -> Instant {
    start + length.min(FAR)
}

/// Counts from its own start.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    epoch: Instant,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock { epoch: Instant::now() }
    }
}

impl Clock {
    /// The time now.
    pub fn now(self) -> Time {
        Time(0) + self.epoch.elapsed()
    }

    /// The instant of a time.
    pub fn instant(self, time: Time) -> Instant {
        // Times that nothing will live to see (no deadline) stay representable.
        self.epoch + (time - Time(0)).min(FAR)
    }
}
