//! When an answer is to be expected, before its item has entered. The door of a deployment with a latency target rests on it.

use crate::admission::Refusal;
use crate::lanes::Ahead;
use crate::load::Load;
use crate::outcome::Outcome;
use crate::policy::{BatchPolicy, View};
use std::time::Duration;

/// With a target, batches are taken to be as large as fits into this share of it.
const SHARE_OF_TARGET: f64 = 0.75;
/// A request may be predicted to take this many targets. A tighter door refuses what would have been in time: predictions
/// scatter, and those that wait are looked at again.
const ALLOWED_TARGETS: f64 = 1.5;

/// What an item that arrives now has before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// Until its batch leaves.
    pub wait: Duration,
    /// Until its answer.
    pub latency: Duration,
    /// What a batch takes meanwhile.
    pub batch: Duration,
}

impl Forecast {
    /// For an item of this cost that has so much before it, and of whose like so many are `enough` for a batch; `None` while too
    /// little has been measured.
    pub fn new(
        view: &View,
        policy: &dyn BatchPolicy,
        target: Option<Duration>,
        before: Ahead,
        cost: u64,
        enough: Option<usize>,
    ) -> Option<Forecast> {
        if !view.pace.is_known() {
            return None;
        }
        let (pace, lanes, mean_cost) = (view.pace, view.lanes, view.lanes.mean_cost_with(cost));
        let limit = lanes.limits().items(mean_cost);
        let limit = enough.map_or(limit, |enough| limit.min(enough));
        let curve = view.paces.curve();
        // Those that wait, and this one, may cost more or less than those that were measured.
        let weight = curve.weight(limit, mean_cost);
        let size = match target {
            Some(target) => pace.fit(SHARE_OF_TARGET * target.as_secs_f64() / weight, limit),
            None => policy.take(view, lanes.items() + 1).min(limit),
        };
        let frees = if view.idle > 0 { 0.0 } else { view.frees_in_s().unwrap_or(0.0) };
        // Of each other lane the last batch is half empty in the mean.
        let own = before.own;
        let others = lanes.len().min(before.items) - usize::from(own > 0);
        let beside = (before.items - own) as f64 / size as f64 + others as f64 * (1.0 - 1.0 / size as f64) / 2.0;
        let ahead = (own / size) as f64 + beside.max(others as f64);
        let batch = pace.seconds(size) * weight;
        let wait = frees + ahead * batch / f64::from(view.replicas.max(1));
        let joins = (own % size + 1) as f64 + view.traffic.rate(view.now, pace) * frees;
        let own_batch = pace.seconds((joins as usize).clamp(1, size)) * weight;
        let latency = wait + own_batch.max(curve.seconds(Load::one(cost)));
        let length = Duration::from_secs_f64;
        Some(Forecast { wait: length(wait), latency: length(latency), batch: length(batch) })
    }

    /// By how much the answer would be later than the door of this target allows.
    pub fn too_late_by(&self, target: Duration) -> Duration {
        self.latency.saturating_sub(target.mul_f64(ALLOWED_TARGETS))
    }

    /// What is told to somebody who would be late: to come back when the excess has been worked off, and a batch later.
    pub fn refusal(&self, target: Duration) -> Refusal {
        Refusal::after(Outcome::WouldBeLate, Some(self.wait), self.too_late_by(target) + self.batch)
    }
}
