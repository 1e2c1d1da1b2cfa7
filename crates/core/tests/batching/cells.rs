//! What people tune manually: a delay, a size, and from when the delay counts. The best of these cells, chosen with
//! hindsight for each scenario, is what `auto` is measured against.

use jitney_core::policy::batch_policy::{BatchPolicy, CloseReason, Decision, View};
use jitney_core::queue::lanes::LaneId;
use jitney_core::time::Time;
use std::time::Duration;

/// From when a delay counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// From the arrival of the head.
    Head,
    /// From when the head could first have been launched: its arrival, or a replica's becoming free.
    Idle,
}

/// One cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) delay: Duration,
    pub(crate) size: usize,
    pub(crate) clock: Clock,
    /// Whether full batches go to busy replicas. With a target they would be late there.
    pub(crate) goes_ahead: bool,
    /// When the server last stopped being full.
    free_since: Time,
    was_full: bool,
}

impl Cell {
    pub(crate) fn new(delay_s: f64, size: usize, clock: Clock) -> Cell {
        Cell {
            delay: Duration::from_secs_f64(delay_s),
            size,
            clock,
            goes_ahead: true,
            free_since: Time(0),
            was_full: false,
        }
    }

    pub(crate) fn name(&self) -> String {
        format!("{:.2} ms/{}/{:?}", self.delay.as_secs_f64() * 1e3, self.size, self.clock)
    }
}

impl BatchPolicy for Cell {
    fn decide(&mut self, view: &View) -> Decision {
        if std::mem::take(&mut self.was_full) {
            self.free_since = view.now;
        }
        let size = self.size.min(view.lanes.limits().max_items);
        let mut wake = Time(u64::MAX);
        for lane in view.lanes.by_rank() {
            let arrival = view.lanes.head(lane).arrival;
            let start = if self.clock == Clock::Head { arrival } else { arrival.max(self.free_since) };
            let due = start + self.delay;
            if view.lanes.lane(lane).len() >= size || view.now >= due {
                self.was_full = view.idle == 1;
                return Decision::Launch { lane, size, reason: CloseReason::Delay };
            }
            wake = wake.min(due);
        }
        Decision::AskAgain(wake)
    }

    /// A cell of small batches must not be given large ones behind its back.
    fn ahead(&self, view: &View) -> Option<(LaneId, usize)> {
        let full = view.lanes.limits().max_items;
        view.lanes.first_full().filter(|_| self.goes_ahead && self.size >= full).map(|lane| (lane, full))
    }
}
