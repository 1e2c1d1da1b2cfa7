//! The policy that needs no tuning. It launches at once, except while companions are expected who pay for the wait (users
//! who were just answered, the rest of a burst) or while another replica will be free so soon that it should have the next
//! batch; and it takes fewer than all where that answers sooner.

use crate::learn::batch_cost::Measure;
use crate::policy::batch_policy::{BatchPolicy, CloseReason, Decision, LANES_LOOKED_AT, MOST_PASSES, View};
use crate::policy::batch_size::{behind, is_full_best, is_lost, share, take};
use crate::policy::hold::{Holds, Wait, expects, spare_s};
use crate::policy::similar_length;
use crate::policy::similar_length::Bounds;
use crate::queue::lanes::LaneId;
use crate::queue::waiting::Waiting;
use crate::request::ItemId;
use smallvec::SmallVec;

/// Has nothing to set. What it learns of models and arrivals is in the view; its own state is about holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Auto {
    holds: Holds,
}

impl BatchPolicy for Auto {
    fn decide(&mut self, view: &View) -> Decision {
        let lanes = view.lanes;
        let full = lanes.first_full().filter(|_| view.passes < MOST_PASSES);
        let candidates: SmallVec<[LaneId; LANES_LOOKED_AT]> = match full {
            Some(lane) => SmallVec::from_iter([lane]),
            None => lanes.by_rank().take(LANES_LOOKED_AT).collect(),
        };
        let rate = view.traffic.rate(view.now, view.size_model);
        self.holds.on_wake(view.now);
        let mut shortest = Wait::ENDLESS;
        for lane in candidates {
            // While one lane is held another may leave, but not without requests that are on their way to it, as long as it has
            // the time: they would wait for a whole batch.
            if shortest.reason.is_some() && expects(view, lane) && spare_s(view, lane) >= shortest.seconds {
                continue;
            }
            // An item that was passed for long enough is not held any more.
            let wait = if view.passes < MOST_PASSES { self.holds.wait(view, lane, rate) } else { Wait::NONE };
            if wait.is_none() {
                return self.launch(view, lane, rate, wait.reason);
            }
            if wait.seconds < shortest.seconds {
                shortest = wait;
            }
        }
        Decision::AskAgain(self.holds.hold(view, shortest))
    }

    fn ahead(&self, view: &View) -> Option<(LaneId, usize)> {
        let has_enough =
            |lane: &LaneId| view.enough(*lane).is_some_and(|enough| view.lanes.lane(*lane).len() >= enough);
        let lane = view.lanes.by_rank().next().filter(has_enough).or_else(|| view.lanes.first_full())?;
        // Where items of like length are batched together, better company may come until a replica is free.
        if view.cost_model_of(lane).measure() == Measure::Padded {
            return None;
        }
        let full = view.lanes.limits().max_items;
        // Which items share a batch makes no difference where all the time goes into moving them.
        let is_best = || is_full_best(view, full, view.traffic.rate(view.now, view.size_model));
        (has_enough(&lane) || is_best()).then(|| (lane, view.limit(lane)))
    }

    fn choose_items(&self, view: &View, lane: LaneId, size: usize) -> Option<Vec<ItemId>> {
        let cost_model = view.cost_model_of(lane);
        let waits = view.lanes.lane(lane).len();
        // A larger batch than can be looked at is better than a smaller one of like length.
        if cost_model.measure() != Measure::Padded || waits < 2 || size.min(waits) > similar_length::WINDOW {
            return None;
        }
        let waiting: Vec<Waiting> = view.lanes.in_order(lane).take(similar_length::window(size)).collect();
        let rate = view.traffic.rate(view.now, view.size_model);
        let behind = (behind(view, view.size_model, waiting.len(), size, rate) - waiting.len() as f64).max(0.0);
        let bounds = Bounds { items: size, cost: view.lanes.limits().max_cost, behind };
        similar_length::next_batch(&waiting, cost_model, bounds, view.now)
    }

    fn take(&self, view: &View, waiting: usize) -> usize {
        take(view, view.size_model, waiting, view.traffic.rate(view.now, view.size_model))
    }

    fn learns_transfer_limits(&self) -> bool {
        true
    }

    fn on_end(&mut self) {
        self.holds.on_end();
    }
}

impl Auto {
    fn launch(&mut self, view: &View, lane: LaneId, rate: f64, cut_short: Option<CloseReason>) -> Decision {
        self.holds.settle(view, lane, rate);
        let waiting = view.lanes.lane(lane).len();
        let most = share(view, waiting).min(view.limit(lane));
        // Where a batch is cut for its padding, smaller ones are chosen there.
        let is_padded = view.cost_model_of(lane).measure() == Measure::Padded;
        let taken = if is_padded { most } else { take(view, view.size_model_of(lane), waiting, rate).min(most) };
        let size = view.in_time(lane, taken);
        // A head that is lost anyway, or that only a batch too small to keep up would save, must not cut it: with a target
        // such heads have been refused.
        let size = if size < taken && !view.has_target && is_lost(view, lane, size, rate) { taken } else { size };
        let reason = if size < taken {
            CloseReason::Deadline
        } else if size < waiting.min(view.limit(lane)) {
            CloseReason::Share
        } else if view.is_full(lane) {
            CloseReason::Full
        } else {
            cut_short.or(self.holds.reason()).unwrap_or(CloseReason::Eager)
        };
        Decision::Launch { lane, size, reason }
    }
}
