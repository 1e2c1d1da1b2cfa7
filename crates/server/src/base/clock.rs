//! The one clock: turns the system's monotonic time into the numbers that the rules work with. It is tokio's, so that
//! clock and timers agree also in tests that pause the time.

use jitney_core::time::Time;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// A timer that rings this late means that the whole process did not run: it was stopped, or its container was frozen.
pub const AWAY: Duration = Duration::from_secs(2);

/// Longer than anything here lives: an instant that is later cannot be counted on every system.
const FAR: Duration = Duration::from_secs(86_400 * 365);

/// The instant that is this long after another one; at most a year.
pub(crate) fn after(start: Instant, length: Duration) -> Instant {
    start + length.min(FAR)
}

/// The clock that people read and set, and the one that only counts, at one instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    read: SystemTime,
    steady: std::time::Instant,
}

/// A smaller step of the clock is one that keeps it right.
const STEP_S: f64 = 2.0;

impl Clocks {
    pub(crate) fn now() -> Clocks {
        Clocks { read: SystemTime::now(), steady: std::time::Instant::now() }
    }

    /// Looks again, and logs a jump of the clock since the last look, because the times in the log jump too.
    pub(crate) fn compare(&mut self) {
        let before = std::mem::replace(self, Clocks::now());
        if let Some(text) = jump(before.moved_to(*self)) {
            tracing::warn!("{text}");
        }
    }

    /// By how many seconds the clock has moved further than time, until a later instant.
    fn moved_to(self, later: Clocks) -> f64 {
        let passed = (later.steady - self.steady).as_secs_f64();
        let shown = later
            .read
            .duration_since(self.read)
            .map_or_else(|back| -back.duration().as_secs_f64(), |on| on.as_secs_f64());
        shown - passed
    }
}

fn jump(by_s: f64) -> Option<String> {
    (by_s.abs() >= STEP_S).then(|| {
        format!(
            "the clock of this machine jumped by {by_s:+.0} s: times in this log and on pages follow it; timeouts, durations \
             and metrics do not depend on it; look at the time service (NTP), or whether the machine was suspended"
        )
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_moves_further_than_time_has_jumped() {
        let start = Clocks::now();
        for (shown_s, jumped_s) in [(1.0, 0.0), (3601.0, 3600.0), (-599.0, -600.0)] {
            let length = Duration::from_secs_f64(f64::abs(shown_s));
            let read = if shown_s > 0.0 { start.read + length } else { start.read - length };
            let later = Clocks { read, steady: start.steady + Duration::from_secs(1) };
            assert!((start.moved_to(later) - jumped_s).abs() < 1e-6, "{shown_s}");
        }
        assert_eq!((jump(0.5), jump(-1.9)), (None, None), "a time service sets it a little");
        assert!(jump(-600.0).unwrap().starts_with("the clock of this machine jumped by -600 s: "));
    }
}
