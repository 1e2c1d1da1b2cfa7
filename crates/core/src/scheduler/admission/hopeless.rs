//! Which waiting items of a deployment with a latency target cannot be answered in time.

use crate::learn::batch_cost::BatchCost;
use crate::policy::batch_policy::{LANES_LOOKED_AT, MOST_PASSES, View};
use crate::queue::lanes::LaneId;

/// A lane that may be launched next and whose head is hopeless. A head is hopeless if it has too little time left even alone, or
/// if only a batch that is too small to keep up with the arrivals would answer it in time: cutting each batch for such a head
/// would make the capacity collapse.
pub fn hopeless_head(view: &View) -> Option<LaneId> {
    let rate = view.traffic.rate(view.now, view.size_model);
    let full = view.lanes.first_full().filter(|_| view.passes < MOST_PASSES);
    full.into_iter().chain(view.lanes.by_rank().take(LANES_LOOKED_AT)).find(|&lane| is_hopeless(view, lane, rate))
}

fn is_hopeless(view: &View, lane: LaneId, rate: f64) -> bool {
    if view.slack_s(lane) < view.cost_model_of(lane).upper(BatchCost::one(view.lanes.head(lane).cost)) {
        return true;
    }
    let most = view.lanes.lane(lane).len().min(view.lanes.limits().max_items);
    let (items, seconds) = view.fit(lane, most);
    let keeps_up = f64::from(view.replicas) * items as f64 / seconds >= rate;
    items < most && !keeps_up
}
