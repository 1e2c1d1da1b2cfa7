//! The predicted latency of an item that has not entered yet. A deployment with a latency target admits items by it.

use crate::learn::batch_cost::BatchCost;
use crate::policy::batch_policy::{BatchPolicy, View};
use crate::queue::lanes::Ahead;
use crate::scheduler::admission::refusal::Refusal;
use crate::tables::outcome::Outcome;
use std::time::Duration;

/// With a latency target, batches are assumed to be as large as fits into this share of it.
const SHARE_OF_TARGET: f64 = 0.75;
/// A request enters if its predicted latency is at most this many targets. A lower number would refuse requests that would be
/// in time, because predictions scatter; items that wait are checked again before each launch.
const ALLOWED_TARGETS: f64 = 1.5;
/// No deployment is taken to be slower than this many usual replicas.
const MIN_POWER: f64 = 1.0 / 16.0;
/// The most waiting items for which it is asked whether a further one would be late.
const MOST_SEARCHED: usize = 1 << 16;

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
        if !view.size_model.is_known() {
            return None;
        }
        let (size_model, lanes, mean_cost) = (view.size_model, view.lanes, view.lanes.mean_cost_with(cost));
        let limit = lanes.limits().items(mean_cost);
        let limit = enough.map_or(limit, |enough| limit.min(enough));
        let cost_model = view.group_models.cost_model();
        // Those that wait, and this one, may cost more or less than those that were measured.
        let weight = cost_model.weight(limit, mean_cost);
        let size = match target {
            Some(target) => size_model.fit(SHARE_OF_TARGET * target.as_secs_f64() / weight, limit),
            None => policy.take(view, lanes.items() + 1).min(limit),
        };
        let frees = if view.idle > 0 { 0.0 } else { view.frees_in_s().unwrap_or(0.0) };
        // Of each other lane the last batch is half empty on average.
        let own = before.own;
        let others = lanes.len().min(before.items).saturating_sub(usize::from(own > 0));
        let beside = (before.items - own) as f64 / size as f64 + others as f64 * (1.0 - 1.0 / size as f64) / 2.0;
        let ahead = (own / size) as f64 + beside.max(others as f64);
        let batch = size_model.seconds(size) * weight;
        let wait = frees + ahead * batch / view.power.max(MIN_POWER);
        let joins = (own % size + 1) as f64 + view.traffic.rate(view.now, size_model) * frees;
        let own_batch = size_model.seconds((joins as usize).clamp(1, size)) * weight;
        let latency = wait + own_batch.max(cost_model.seconds(BatchCost::one(cost)));
        let length = Duration::from_secs_f64;
        Some(Forecast { wait: length(wait), latency: length(latency), batch: length(batch) })
    }

    /// By how much the predicted latency exceeds what this target allows.
    pub fn too_late_by(&self, target: Duration) -> Duration {
        self.latency.saturating_sub(target.mul_f64(ALLOWED_TARGETS))
    }

    /// How many items may wait until the next one would be late. `forecast` is asked with the number of items that wait, all of
    /// them in its lane; `None` while too little has been measured.
    pub fn most_waiting(target: Duration, forecast: impl Fn(usize) -> Option<Forecast>) -> Option<usize> {
        let is_late = |items| forecast(items).map(|forecast| !forecast.too_late_by(target).is_zero());
        // Each item more makes the next one later.
        let mut beyond = 1;
        while beyond < MOST_SEARCHED && !is_late(beyond)? {
            beyond *= 2;
        }
        let (mut low, mut high) = (0, beyond);
        while low < high {
            let middle = usize::midpoint(low, high);
            if is_late(middle)? {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Some(low)
    }

    /// The refusal of an item that would be late: the client may try again when the excess has been worked off, and a batch later.
    pub fn refusal(&self, target: Duration) -> Refusal {
        Refusal::after(Outcome::WouldBeLate, Some(self.wait), self.too_late_by(target) + self.batch)
    }
}
