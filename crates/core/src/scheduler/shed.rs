//! Load shedding within the lanes of a deployment with a latency target: who cannot be answered in time, or only by a
//! batch too small to keep up, is refused now.

use super::{Payload, Scheduler};
use crate::lanes::LaneId;
use crate::load::Load;
use crate::outcome::Outcome;
use crate::policy::{LANES_LOOKED_AT, MOST_PASSES, View};
use crate::time::Time;

impl<P: Payload> Scheduler<P> {
    /// Refuses hopeless heads, of the lanes that may be launched next. It is not enough to refuse those who are lost already:
    /// each batch would then be cut to fit a head that has hardly any time left, and the capacity would collapse.
    pub(super) fn shed(&mut self, now: Time) {
        if self.rules.target.is_none() || !self.paces.all().is_known() {
            return;
        }
        // Whoever is the only one is not in anybody's way, and what it takes is worth knowing: see `in_time`.
        while self.len() > 1
            && let Some(lane) = self.ask(now, |_, view| hopeless(view))
        {
            let head = self.lanes.head(lane);
            let entry = &self.entries[&head.id];
            let is_own = entry.deadline <= head.due;
            self.fail(head.id, if is_own { Outcome::DeadlineUnreachable } else { Outcome::WouldBeLate });
        }
    }
}

fn hopeless(view: &View) -> Option<LaneId> {
    let rate = view.traffic.rate(view.now, view.pace);
    let full = view.lanes.first_full().filter(|_| view.passes < MOST_PASSES);
    full.into_iter().chain(view.lanes.by_rank().take(LANES_LOOKED_AT)).find(|&lane| is_hopeless(view, lane, rate))
}

fn is_hopeless(view: &View, lane: LaneId, rate: f64) -> bool {
    if view.slack_s(lane) < view.curve_of(lane).upper(Load::one(view.lanes.head(lane).cost)) {
        return true;
    }
    let most = view.lanes.lane(lane).len().min(view.lanes.limits().max_items);
    let (items, seconds) = view.fit(lane, most);
    let keeps_up = f64::from(view.replicas) * items as f64 / seconds >= rate;
    items < most && !keeps_up
}
