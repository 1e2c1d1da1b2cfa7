//! Logs failed requests with their id, so that an operator finds the cause of an answer.

use crate::values::answer::Failure;
use jitney_core::tables::outcome::Outcome;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most failures that are logged in a window. A model that fails on every item must not flood the log.
const LINES_PER_WINDOW: u32 = 10;
const WINDOW: Duration = Duration::from_secs(10);

static THROTTLE: Mutex<Throttle> = Mutex::new(Throttle::new());

/// Says that a request, or one item of it, failed. Faults of the model or of the server and answers that
/// ended because their client did not read are in every log, as many as fit. What clients did wrong and what had to wait is
/// only in that of the level `debug`.
pub(crate) fn tell(request_id: &str, deployment: Option<&str>, failure: &Failure) {
    line(request_id, deployment, failure, is_fault(failure.outcome), "");
}

/// Says that a stream was broken off. Whatever the reason is, its client cannot read it anywhere else.
pub(crate) fn tell_of_break(request_id: &str, deployment: Option<&str>, failure: &Failure, media: &str) {
    line(
        request_id,
        deployment,
        failure,
        true,
        &format!("; its stream was broken off, because {media} cannot say that"),
    );
}

fn line(request_id: &str, deployment: Option<&str>, failure: &Failure, is_shown: bool, more: &str) {
    let (reason, detail) = (failure.outcome.reason(), failure.model_text.as_ref().unwrap_or(&failure.detail));
    if !is_shown {
        tracing::debug!(request_id, deployment, reason, "request {request_id}: {reason}: {detail}");
        return;
    }
    let Some(untold) = THROTTLE.lock().unwrap_or_else(PoisonError::into_inner).pass(Instant::now()) else { return };
    if untold > 0 {
        tracing::warn!(
            untold,
            "{untold} more failed requests have no line here; --access-log has one for each request"
        );
    }
    tracing::warn!(request_id, deployment, reason, "request {request_id}: {reason}: {detail}{more}");
}

fn is_fault(outcome: Outcome) -> bool {
    use Outcome::{Internal, InvalidOutput, ModelFailed, Quarantined, TooSlow, WorkerLost};
    matches!(outcome, ModelFailed | InvalidOutput | WorkerLost | Quarantined | TooSlow | Internal)
}

/// Lets so many through in a window, and counts the rest.
#[derive(Debug)]
struct Throttle {
    since: Option<Instant>,
    lines: u32,
    untold: u32,
}

impl Throttle {
    const fn new() -> Throttle {
        Throttle { since: None, lines: 0, untold: 0 }
    }

    /// Decides whether a failure is logged. Returns how many were left out since the last one that was logged; `None`
    /// if this one is left out too.
    fn pass(&mut self, now: Instant) -> Option<u32> {
        if self.since.is_none_or(|since| now.duration_since(since) >= WINDOW) {
            (self.since, self.lines) = (Some(now), 0);
        }
        if self.lines == LINES_PER_WINDOW {
            self.untold += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_told_with_the_next_window() {
        let (mut throttle, start) = (Throttle::new(), Instant::now());
        let lines = (0..50).filter(|_| throttle.pass(start).is_some()).count();
        assert_eq!(lines, LINES_PER_WINDOW as usize);
        assert_eq!(throttle.pass(start + WINDOW), Some(40));
        assert_eq!(throttle.pass(start + WINDOW), Some(0));
    }

    #[test]
    fn what_clients_do_wrong_is_no_fault() {
        assert!(is_fault(Outcome::ModelFailed) && is_fault(Outcome::WorkerLost));
        assert!(!is_fault(Outcome::InvalidInput) && !is_fault(Outcome::QueueFull) && !is_fault(Outcome::Unavailable));
    }
}
