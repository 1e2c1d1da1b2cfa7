//! While the front has more to do than it can, refusals leave at a bounded rate. Refused clients come back at once: a
//! thousand of them are a round of several milliseconds, in which a batch that is done waits for its place, and the model
//! for its next one.

use jitney_core::tables::outcome::Outcome;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

/// While more is ready than the front can hold, one refusal leaves in this time for each of its threads: refusals then cost
/// a fifth of a core.
const REFUSAL_GAP: Duration = Duration::from_micros(40);
/// As many refusals as fall into this time may leave at once.
const REFUSAL_SLACK: Duration = Duration::from_millis(4);
/// No refusal waits for longer.
const REFUSAL_LONGEST: Duration = Duration::from_secs(1);

/// Whether an answer with this outcome says that the client should come back: those leave at a bounded rate. What says
/// that a request is wrong, or that a model failed, leaves at once.
pub(crate) fn is_refusal(outcome: Outcome) -> bool {
    matches!(outcome.http_status(), 429 | 503)
}

/// When the next one may leave.
#[derive(Debug)]
pub(crate) struct RefusalPacing {
    start: Instant,
    /// Nanoseconds after the start.
    next: AtomicU64,
}

impl RefusalPacing {
    pub(crate) fn new() -> RefusalPacing {
        RefusalPacing { start: Instant::now(), next: AtomicU64::new(0) }
    }

    /// Waits until one more may leave.
    pub(crate) async fn turn(&self) {
        let runtime = Handle::current().metrics();
        // What is ready waits here only if it is more than the threads can hold for themselves, 256 tasks each.
        if runtime.global_queue_depth() == 0 {
            return;
        }
        let wait = self.take(self.start.elapsed(), REFUSAL_GAP / runtime.num_workers() as u32);
        if !wait.is_zero() {
            // On the heap: most requests are not refused.
            Box::pin(sleep(wait)).await;
        }
    }

    /// Takes the next place; returns how long it is until then.
    fn take(&self, now: Duration, gap: Duration) -> Duration {
        let nanoseconds = |length: Duration| length.as_nanos() as u64;
        let now = nanoseconds(now);
        let place = |next: u64| next.max(now.saturating_sub(nanoseconds(REFUSAL_SLACK)));
        let is_soon = |place: u64| place.saturating_sub(now) < nanoseconds(REFUSAL_LONGEST);
        let taken = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
            let place = place(next);
            is_soon(place).then(|| place + nanoseconds(gap))
        });
        // With so many before it, this one may as well go.
        taken.map_or(Duration::ZERO, |next| Duration::from_nanos(place(next).saturating_sub(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_had_no_place_waits() {
        use Outcome::{
            DeadlineExceeded, InvalidInput, ModelFailed, NotFound, Ok, QueueBytesFull, QueueFull, Unavailable,
        };
        assert!([QueueFull, QueueBytesFull, Unavailable].into_iter().all(is_refusal));
        assert!(![Ok, InvalidInput, ModelFailed, NotFound, DeadlineExceeded].into_iter().any(is_refusal));
    }

    #[test]
    fn a_few_leave_at_once_and_more_one_after_the_other_but_none_much_later() {
        let (refusing, gap) = (RefusalPacing::new(), Duration::from_micros(100));
        let at_once = (REFUSAL_SLACK.as_micros() / gap.as_micros()) as u32 + 1;
        let now = Duration::from_secs(5);
        for number in 0..3000 {
            let wait = gap * (number + 1_u32).saturating_sub(at_once);
            assert_eq!(refusing.take(now, gap), wait, "{number}");
        }
        let waits = std::iter::repeat_with(|| refusing.take(now, gap));
        assert_eq!(waits.take_while(|wait| !wait.is_zero()).count() as u32, 10_000 + at_once - 1 - 3000);
        let later = now + REFUSAL_LONGEST + REFUSAL_SLACK;
        assert_eq!(refusing.take(later, gap), Duration::ZERO, "all of them have left");
    }
}
