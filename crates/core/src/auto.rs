//! The policy that needs no tuning. It launches at once, except while companions are expected who pay for the wait (users
//! who were just answered, the rest of a burst) or while another replica will be free so soon that it should have the next
//! batch; and it takes fewer than all where that answers sooner.

use crate::lane::Waiting;
use crate::lanes::LaneId;
use crate::load::Measure;
use crate::pace::Pace;
use crate::policy::{BatchPolicy, CloseReason, Decision, LANES_LOOKED_AT, MOST_PASSES, View};
use crate::request::{ItemId, Priority};
use crate::riders::{self, Bounds};
use crate::time::Time;
use smallvec::SmallVec;
use std::time::Duration;

/// What a user who comes back in time is worth, in launch costs: the lockstep that it makes lasts.
const RETURN_WORTH: f64 = 3.0;
/// What the next request of a burst is worth, in launch costs.
const BURST_WORTH: f64 = 0.5;
/// Returns must exceed this many times what strangers would bring by chance …
const RETURNS_OVER_CHANCE: f64 = 3.0;
/// … and this many users.
const RETURNS_AT_LEAST: f64 = 0.25;
/// Waits that are weighed: the longest possible one, and halves of it.
const WAITS: usize = 8;
/// Sizes are chosen for a load that is this much higher than measured: to take too few costs more than too many.
const CAUTION: f64 = 1.15;
/// Launches of a share after which all that wait are taken once: what large batches cost would else never be seen again,
/// and one bad measurement of them would be believed for ever.
const LOOK_AGAIN: u32 = 128;
/// Shorter waits are none, in seconds.
const TINY_S: f64 = 1e-7;
/// No timer rings sooner, in seconds: a model that answers a lone item within this is never waited with, because what was
/// meant as a tenth of it would last as long as ten answers.
const TIMER_S: f64 = 0.001;

/// Nothing to set. It keeps no more than what concerns the launch that is to come: all that it learns is in the view.
#[derive(Clone, Copy, Debug, Default)]
pub struct Auto {
    /// Since when the next launch has been held.
    held_since: Option<Time>,
    /// Whether it was held for users who come back, or for a burst: stragglers are then waited for too.
    is_expecting: bool,
    /// Why it was held last.
    motive: Option<CloseReason>,
    /// Launches in a row that took fewer than they could.
    shares: u32,
}

/// How long to wait, and what for.
#[derive(Clone, Copy, Debug)]
struct Wait {
    seconds: f64,
    motive: Option<CloseReason>,
}

impl Wait {
    const NONE: Wait = Wait { seconds: 0.0, motive: None };

    fn is_none(self) -> bool {
        self.seconds <= TINY_S
    }
}

impl BatchPolicy for Auto {
    fn decide(&mut self, view: &View) -> Decision {
        let lanes = view.lanes;
        let full = lanes.first_full().filter(|_| view.passes < MOST_PASSES);
        let candidates: SmallVec<[LaneId; LANES_LOOKED_AT]> = match full {
            Some(lane) => SmallVec::from_iter([lane]),
            None => lanes.by_rank().take(LANES_LOOKED_AT).collect(),
        };
        let rate = view.traffic.rate(view.now, view.pace);
        let mut shortest = Wait { seconds: f64::INFINITY, motive: None };
        for lane in candidates {
            // While one lane is held another may leave, but not without those who are on their way to it, as long as it has
            // the time: they would wait for a whole batch.
            if shortest.motive.is_some() && expects(view, lane) && spare_s(view, lane) >= shortest.seconds {
                continue;
            }
            // Whoever has been passed for long enough is not held any more.
            let wait = if view.passes < MOST_PASSES { self.wait(view, lane, rate) } else { Wait::NONE };
            if wait.is_none() {
                return self.launch(view, lane, rate, wait.motive);
            }
            if wait.seconds < shortest.seconds {
                shortest = wait;
            }
        }
        self.held_since.get_or_insert(view.now);
        self.motive = shortest.motive;
        Decision::AskAgain(view.now + Duration::from_secs_f64(shortest.seconds))
    }

    fn ahead(&self, view: &View) -> Option<(LaneId, usize)> {
        let has_enough =
            |lane: &LaneId| view.enough(*lane).is_some_and(|enough| view.lanes.lane(*lane).len() >= enough);
        let lane = view.lanes.by_rank().next().filter(has_enough).or_else(|| view.lanes.first_full())?;
        // Where items of like length ride together, better company may come until a replica is free.
        if view.curve_of(lane).measure() == Measure::Padded {
            return None;
        }
        let full = view.lanes.limits().max_items;
        // Who rides with whom makes no difference where all the time goes into moving them.
        let is_chosen = || take(view, view.pace, full, view.traffic.rate(view.now, view.pace)) == full;
        (has_enough(&lane) || is_chosen()).then(|| (lane, view.limit(lane)))
    }

    fn riders(&self, view: &View, lane: LaneId, size: usize) -> Option<Vec<ItemId>> {
        let curve = view.curve_of(lane);
        let waits = view.lanes.lane(lane).len();
        // A larger batch than can be looked at is better than a smaller one of like length.
        if curve.measure() != Measure::Padded || waits < 2 || size.min(waits) > riders::WINDOW {
            return None;
        }
        let waiting: Vec<(Priority, Waiting)> = view.lanes.in_order(lane).take(riders::window(size)).collect();
        let rate = view.traffic.rate(view.now, view.pace);
        let behind = (behind(view, view.pace, waiting.len(), size, rate) - waiting.len() as f64).max(0.0);
        let bounds = Bounds { items: size, cost: view.lanes.limits().max_cost, behind };
        riders::alike(&waiting, curve, bounds, view.now)
    }

    fn take(&self, view: &View, waiting: usize) -> usize {
        take(view, view.pace, waiting, view.traffic.rate(view.now, view.pace))
    }

    fn on_end(&mut self) {
        *self = Auto { shares: self.shares, ..Auto::default() };
    }
}

impl Auto {
    fn launch(&mut self, view: &View, lane: LaneId, rate: f64, cut_short: Option<CloseReason>) -> Decision {
        let waiting = view.lanes.lane(lane).len();
        let most = share(view, waiting).min(view.limit(lane));
        // Where a batch is cut for its padding, smaller ones are chosen there.
        let is_padded = view.curve_of(lane).measure() == Measure::Padded;
        let takes_all = is_padded || self.shares >= LOOK_AGAIN;
        let taken = if takes_all { most } else { take(view, view.pace_of(lane), waiting, rate).min(most) };
        self.shares = if taken < most { self.shares + 1 } else { 0 };
        let size = view.in_time(lane, taken);
        // A head that is lost anyway, or that only a batch too small to keep up would save, must not cut it: with a target
        // such heads have been refused.
        let size = if size < taken && !view.has_target && is_lost(view, lane, size, rate) { taken } else { size };
        let reason = match () {
            () if size < taken => CloseReason::Deadline,
            () if size < waiting.min(view.limit(lane)) => CloseReason::Share,
            () if view.is_full(lane) => CloseReason::Full,
            () => cut_short.or(self.motive).unwrap_or(CloseReason::Drain),
        };
        Decision::Launch { lane, size, reason }
    }

    /// How long a lane should be held open, in seconds from now.
    fn wait(&mut self, view: &View, lane: LaneId, rate: f64) -> Wait {
        if !view.pace.is_known() || view.is_full(lane) || view.pace_of(lane).seconds(1) < TIMER_S {
            return Wait::NONE;
        }
        let cost = longest_hold_s(view, lane);
        let longest = cost - self.held_since.map_or(0.0, |since| (view.now - since).as_secs_f64());
        if longest <= TINY_S {
            return Wait::NONE;
        }
        let (hold, pacing) = (self.hold(view, lane, rate, cost, longest), pacing(view, rate, longest));
        let wait = if hold.seconds >= pacing.seconds { hold } else { pacing };
        if wait.is_none() {
            return Wait::NONE;
        }
        // Whoever waits for company must still be answered in time with one more in the batch.
        let left = spare_s(view, lane);
        if left < wait.seconds { Wait { seconds: left.max(0.0), motive: Some(CloseReason::Deadline) } } else { wait }
    }

    /// The wait for companions of this lane that is worth most, if a launch costs so much.
    fn hold(&mut self, view: &View, lane: LaneId, rate: f64, cost: f64, longest: f64) -> Wait {
        let mut wait = longest;
        // Each second is paid for by all who wait, and by replicas that have nothing to do meanwhile.
        let price = (view.lanes.items() + view.idle as usize - 1) as f64;
        let room = (view.limit(lane) - view.lanes.lane(lane).len()) as f64;
        let returning = view.traffic.returning(view.now, view.lanes.kin(lane), view.pace);
        let next_within = view.traffic.next_within(view.now);
        let (mut best, mut worth) = (Wait::NONE, 0.0);
        for _ in 0..WAITS {
            // Whether they come by chance is seen from all, whatever they ask for.
            let back = returning.within(wait);
            if self.is_expecting || back.all >= RETURNS_OVER_CHANCE * rate * wait + RETURNS_AT_LEAST {
                let value = RETURN_WORTH * cost * back.here.min(room) - price * wait;
                if value > worth {
                    (best, worth) = (Wait { seconds: wait, motive: Some(CloseReason::Returns) }, value);
                }
            }
            if let Some(next_within) = &next_within {
                let likely = next_within(wait);
                let value = BURST_WORTH * cost * (likely - rate * wait) - price * wait * (1.0 - likely / 2.0);
                if value > worth {
                    (best, worth) = (Wait { seconds: wait, motive: Some(CloseReason::Burst) }, value);
                }
            }
            wait /= 2.0;
        }
        self.is_expecting |= !best.is_none();
        best
    }
}

/// Whether users who were just answered are on their way to a lane.
fn expects(view: &View, lane: LaneId) -> bool {
    let returning = view.traffic.returning(view.now, view.lanes.kin(lane), view.pace);
    returning.within(longest_hold_s(view, lane)).here >= RETURNS_AT_LEAST
}

/// What all waits of one launch together never exceed: a launch's cost, shared among the replicas.
fn longest_hold_s(view: &View, lane: LaneId) -> f64 {
    view.pace_of(lane).launch_s() / f64::from(view.replicas)
}

/// How long a lane may wait for company and its head still be answered in time with one more in the batch.
fn spare_s(view: &View, lane: LaneId) -> f64 {
    view.slack_s(lane) - view.upper_with_one_more(lane)
}

/// Keeps replicas staggered: with few waiting, they are left to the replica that is free next.
fn pacing(view: &View, rate: f64, longest: f64) -> Wait {
    if view.replicas == 1 || rate <= 0.0 || view.traffic.are_alone() {
        return Wait::NONE;
    }
    let (waiting, replicas) = (view.lanes.items(), f64::from(view.replicas));
    let frees = view.frees_in_s().unwrap_or(f64::INFINITY).min(view.pace.seconds(waiting));
    let spare = (1.0 - rate * view.pace.item_s() / replicas).max(0.0);
    let wait = frees / f64::from(view.idle) * spare - waiting as f64 / rate;
    if wait <= TINY_S {
        return Wait::NONE;
    }
    Wait { seconds: (wait / 2.0).min(longest), motive: Some(CloseReason::Pacing) }
}

/// The most of `waiting` in a lane that one launch takes: free replicas share what waits, but one each is left for the other
/// lanes.
fn share(view: &View, waiting: usize) -> usize {
    let others = view.lanes.len().saturating_sub(1);
    let replicas = (view.idle as usize).saturating_sub(others).max(1);
    waiting.div_ceil(replicas).min(view.lanes.limits().max_items)
}

/// How many of `waiting` to take: the size that makes the mean wait shortest. Free replicas share what waits; beyond that,
/// all at once is best unless launches are almost free, when those behind wait for less if the batch is smaller.
fn take(view: &View, pace: &Pace, waiting: usize, rate: f64) -> usize {
    let most = share(view, waiting);
    if !pace.has_line() || most <= 1 {
        return most;
    }
    let behind = behind(view, pace, waiting, most, rate);
    pace.best_size(most, |items, seconds| seconds * (behind / items as f64 + 1.0))
}

/// How many are delayed by each second that a batch takes longer: those who wait, and those who come until nobody waits.
fn behind(view: &View, pace: &Pace, waiting: usize, most: usize, rate: f64) -> f64 {
    let (limit, replicas) = (view.lanes.limits().max_items, f64::from(view.replicas));
    let load = (CAUTION * rate / (replicas * pace.best_rate(limit))).min(0.99);
    (waiting as f64 + rate * pace.seconds(most) / replicas) / (replicas * (1.0 - load))
}

/// Whether a batch cut to `size` for the sake of its head would be in vain, or would not keep up with arrivals.
fn is_lost(view: &View, lane: LaneId, size: usize, rate: f64) -> bool {
    let (curve, slack) = (view.curve_of(lane), view.slack_s(lane));
    let load = view.loads(lane).take(size).last().unwrap_or_default();
    curve.upper(load) > slack || f64::from(view.replicas) * size as f64 / curve.seconds(load) < rate
}
