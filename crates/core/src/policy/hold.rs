//! Whether a lane waits for companions although a replica is free, and for how long.

use crate::learn::size_model::SizeModel;
use crate::policy::batch_policy::{CloseReason, View};
use crate::policy::hold_ledger::HoldLedger;
use crate::queue::lanes::LaneId;
use crate::time::Time;
use std::time::Duration;

/// What a user who comes back in time is worth, in launch costs. More than one, because users who are answered together
/// come back together again, if one batch has room for all.
const RETURN_WORTH: f64 = 3.0;
/// What the next request of a burst is worth, in launch costs; and a user who comes back, if not all fit into the batch.
const BURST_WORTH: f64 = 0.5;
/// Returns that are expected must exceed this many times the arrivals that chance brings in the same time.
const RETURNS_OVER_CHANCE: f64 = 3.0;
/// Returns that are expected must exceed what chance brings by this many users.
const RETURNS_AT_LEAST: f64 = 0.25;
/// Number of waits that are compared: the longest possible one, its half, its quarter and so on.
const WAITS: usize = 8;
/// Waits below this, in seconds, count as no wait.
const TINY_S: f64 = 1e-7;
/// Resolution of the server's timer, in seconds. A model that answers one item faster is never waited with, because a wait
/// of a tenth of a millisecond would last as long as ten answers.
const TIMER_S: f64 = 0.001;
/// Weight of the newest wake-up in the average lateness of timers.
const LATENESS_WEIGHT: f64 = 0.125;

/// How long to wait, and for what.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// From now, in seconds.
    pub seconds: f64,
    /// What a batch is said to be closed by when the wait is over; `None` if there is nothing to wait for.
    pub reason: Option<CloseReason>,
    /// What each request that comes meanwhile is worth, in launch costs.
    worth: f64,
}

impl Wait {
    /// Launch now.
    pub const NONE: Wait = Wait { seconds: 0.0, reason: None, worth: 0.0 };
    /// Longer than any other.
    pub const ENDLESS: Wait = Wait { seconds: f64::INFINITY, ..Wait::NONE };

    /// Whether to launch now.
    pub fn is_none(self) -> bool {
        self.seconds <= TINY_S
    }
}

/// The hold of the launch to come.
#[derive(Clone, Copy, Debug)]
struct Hold {
    since: Time,
    /// Items that waited when it began.
    items: usize,
    /// What was waited for last.
    reason: Option<CloseReason>,
    /// What each request that comes meanwhile is worth, in launch costs.
    worth: f64,
    /// When the timer was to ring that was set last; `None` once it has.
    rings: Option<Time>,
}

/// The hold of the launch to come, and what earlier holds were worth.
#[derive(Clone, Copy, Debug, Default)]
pub struct Holds {
    hold: Option<Hold>,
    /// The launch is held for users or for a burst: the late ones are waited for too.
    is_expecting: bool,
    returns: HoldLedger,
    bursts: HoldLedger,
    /// How much later than asked the server's timer rings, on average, in seconds.
    late_s: f64,
}

impl Holds {
    /// What the launch to come has been held for, if it has.
    pub fn reason(&self) -> Option<CloseReason> {
        self.hold.and_then(|hold| hold.reason)
    }

    /// The policy is asked again: learns how late its timer rang.
    pub fn on_wake(&mut self, now: Time) {
        let Some(rings) = self.hold.as_mut().and_then(|hold| hold.rings.take_if(|rings| *rings <= now)) else { return };
        self.late_s += LATENESS_WEIGHT * ((now - rings).as_secs_f64() - self.late_s);
    }

    /// Holds the launch to come; returns when to ask again.
    pub fn hold(&mut self, view: &View, wait: Wait) -> Time {
        let rings = view.now + Duration::from_secs_f64(wait.seconds);
        let new = Hold { since: view.now, items: view.lanes.items(), reason: None, worth: 0.0, rings: None };
        let hold = self.hold.get_or_insert(new);
        (hold.reason, hold.worth, hold.rings) = (wait.reason, wait.worth, Some(rings));
        rings
    }

    /// A batch of `lane` leaves: if it was held, counts the result of the hold. Arrivals beyond those that chance brings are
    /// gains, the time of all who waited and of free replicas is a loss.
    pub fn settle(&mut self, view: &View, lane: LaneId, rate: f64) {
        let Some(hold) = self.hold else { return };
        let (held_s, cost) = ((view.now - hold.since).as_secs_f64(), longest_hold_s(view, lane).max(TINY_S));
        let came = view.lanes.items().saturating_sub(hold.items) as f64;
        let gained = came - rate * held_s;
        let lost = (hold.items as f64 + came / 2.0 + f64::from(view.idle) - 1.0) * held_s / cost;
        match hold.reason {
            Some(CloseReason::Returns) => self.returns.settle(hold.worth * gained - lost),
            Some(CloseReason::Burst) => self.bursts.settle(hold.worth * gained - lost),
            _ => {}
        }
    }

    /// A batch has left, or nothing waits any more.
    pub fn on_end(&mut self) {
        self.returns.on_launch();
        self.bursts.on_launch();
        (self.hold, self.is_expecting) = (None, false);
    }

    /// How long `lane` should be held.
    pub fn wait(&mut self, view: &View, lane: LaneId, rate: f64) -> Wait {
        if !view.size_model.is_known() || view.is_full(lane) || view.size_model_of(lane).seconds(1) < TIMER_S {
            return Wait::NONE;
        }
        let cost = longest_hold_s(view, lane);
        let longest = cost - self.hold.map_or(0.0, |hold| (view.now - hold.since).as_secs_f64());
        if longest <= TINY_S {
            return Wait::NONE;
        }
        let (company, pacing) = (self.wait_for_company(view, lane, rate, cost, longest), pacing(view, rate, longest));
        let wait = if company.seconds >= pacing.seconds { company } else { pacing };
        if wait.is_none() {
            return Wait::NONE;
        }
        // An item that waits for company must still be answered in time with one more in the batch.
        let left = spare_s(view, lane);
        if left < wait.seconds {
            return Wait { seconds: left.max(0.0), reason: Some(CloseReason::Deadline), ..wait };
        }
        wait
    }

    /// The wait for companions of `lane` that is worth most, where a launch costs `cost` seconds.
    fn wait_for_company(&mut self, view: &View, lane: LaneId, rate: f64, cost: f64, longest: f64) -> Wait {
        // Each second is paid for by all items that wait, and by replicas that have nothing to do meanwhile.
        let price = (view.lanes.items() + view.idle as usize - 1) as f64;
        let room = (view.limit(lane) - view.lanes.lane(lane).len()) as f64;
        let returning = view.traffic.returning(view.now, view.lanes.group(lane), view.size_model);
        let next_within = view.traffic.next_within(view.now).filter(|_| self.bursts.is_open());
        // Users that all fit into the batch come back together again. If more return, the rest needs another batch anyway.
        let all_fit = returning.within(f64::MAX).here <= room;
        let worth = if all_fit { RETURN_WORTH } else { BURST_WORTH };
        let (mut best, mut best_value) = (Wait::NONE, 0.0);
        for wait in std::iter::successors(Some(longest), |wait| Some(wait / 2.0)).take(WAITS) {
            let waited = wait + self.late_s;
            // Whether returns are chance is judged by all of them, whatever group they ask for.
            let back = returning.within(wait);
            let is_more_than_chance = back.all >= RETURNS_OVER_CHANCE * rate * wait + RETURNS_AT_LEAST;
            if self.returns.is_open() && (self.is_expecting || is_more_than_chance) {
                let value = worth * cost * back.here.min(room) - price * waited;
                if value > best_value {
                    (best, best_value) = (Wait { seconds: wait, reason: Some(CloseReason::Returns), worth }, value);
                }
            }
            if let Some(next_within) = &next_within {
                let likely = next_within(wait);
                let value = BURST_WORTH * cost * (likely - rate * wait) - price * waited * (1.0 - likely / 2.0);
                if value > best_value {
                    let reason = Some(CloseReason::Burst);
                    (best, best_value) = (Wait { seconds: wait, reason, worth: BURST_WORTH }, value);
                }
            }
        }
        self.is_expecting |= !best.is_none();
        best
    }
}

/// Whether users who were just answered are on their way to a lane.
pub fn expects(view: &View, lane: LaneId) -> bool {
    let returning = view.traffic.returning(view.now, view.lanes.group(lane), view.size_model);
    returning.within(longest_hold_s(view, lane)).here >= RETURNS_AT_LEAST
}

/// What all waits of one launch together never exceed, in seconds: a launch's cost, shared among the replicas.
fn longest_hold_s(view: &View, lane: LaneId) -> f64 {
    let size_model: &SizeModel = view.size_model_of(lane);
    size_model.launch_s() / f64::from(view.replicas)
}

/// How long a lane may wait for company and its head still be answered in time with one more in the batch, in seconds.
pub fn spare_s(view: &View, lane: LaneId) -> f64 {
    view.slack_s(lane) - view.upper_with_one_more(lane)
}

/// Keeps replicas staggered: with few items waiting, they are left to the replica that will be free next.
fn pacing(view: &View, rate: f64, longest: f64) -> Wait {
    if view.replicas == 1 || rate <= 0.0 || view.traffic.are_alone() {
        return Wait::NONE;
    }
    let (waiting, replicas) = (view.lanes.items(), f64::from(view.replicas));
    let frees = view.frees_in_s().unwrap_or(f64::INFINITY).min(view.size_model.seconds(waiting));
    let spare = (1.0 - rate * view.size_model.item_s() / replicas).max(0.0);
    let wait = frees / f64::from(view.idle) * spare - waiting as f64 / rate;
    if wait <= TINY_S {
        return Wait::NONE;
    }
    Wait { seconds: (wait / 2.0).min(longest), reason: Some(CloseReason::Pacing), worth: 0.0 }
}
