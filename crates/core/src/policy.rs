//! When to launch a batch, and of which lane. A policy is pure: it sees the lanes and the time, and decides.

use crate::lanes::{LaneId, Lanes};
use crate::time::Time;
use std::fmt::Debug;
use std::time::Duration;

/// Launches in a row in which a full lane may pass the lane with the oldest head.
const MOST_PASSES: u32 = 4;
/// Lanes that are looked at besides: a held lane does not block the next ones.
const LANES_LOOKED_AT: usize = 4;

/// Why a batch was closed; a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// A limit was reached.
    Full,
    /// A replica was free.
    Drain,
    /// The lane had been held open for as long as it may.
    Delay,
    /// A suspect of a lost worker runs alone.
    Suspect,
}

impl CloseReason {
    /// Every reason.
    pub const ALL: [CloseReason; 4] = [CloseReason::Full, CloseReason::Drain, CloseReason::Delay, CloseReason::Suspect];

    /// The metric label.
    pub fn label(self) -> &'static str {
        match self {
            CloseReason::Full => "full",
            CloseReason::Drain => "drain",
            CloseReason::Delay => "delay",
            CloseReason::Suspect => "suspect",
        }
    }
}

/// What a policy sees. It is asked only while a replica is free and something waits.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The time.
    pub now: Time,
    /// What waits.
    pub lanes: &'a Lanes,
    /// Free replicas.
    pub idle: u32,
    /// Replicas that work.
    pub replicas: u32,
    /// Launches in a row that have passed the lane with the oldest head.
    pub passes: u32,
}

impl View<'_> {
    /// Lanes worth looking at, in order: a full one, if it may pass; else the first few by the rank of their heads.
    pub fn candidates(&self) -> impl Iterator<Item = LaneId> + '_ {
        let full = self.lanes.first_full().filter(|_| self.passes < MOST_PASSES);
        let others = if full.is_some() { 0 } else { LANES_LOOKED_AT };
        full.into_iter().chain(self.lanes.by_rank().take(others))
    }
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Launch up to `size` items of a lane.
    Launch {
        /// Which lane.
        lane: LaneId,
        /// Most items to take.
        size: usize,
        /// Why.
        reason: CloseReason,
    },
    /// Nothing now; ask again at this instant at the latest.
    AskAgain(Time),
}

/// Decides when to launch. Later policies learn from what they are told; the simple ones ignore it.
pub trait BatchPolicy: Send + Debug {
    /// What to do now.
    fn decide(&mut self, view: &View) -> Decision;
    /// An item entered a lane.
    fn on_arrival(&mut self, _now: Time, _lane: LaneId) {}
    /// A batch of `items` left a lane.
    fn on_launch(&mut self, _now: Time, _lane: LaneId, _items: usize) {}
    /// A batch of `items` occupied a replica for `length`.
    fn on_complete(&mut self, _now: Time, _items: usize, _length: Duration) {}
}

/// Launches a lane when it is full, or when its head has waited for `delay`. With no delay nobody waits for company
/// while a replica is free: that is `drain`.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    /// How long a lane may be held open, counted from the arrival of its head.
    pub delay: Duration,
}

impl Fixed {
    /// Launch whatever waits as soon as a replica is free.
    pub const DRAIN: Fixed = Fixed { delay: Duration::ZERO };
}

impl BatchPolicy for Fixed {
    fn decide(&mut self, view: &View) -> Decision {
        let size = view.lanes.limits().max_items;
        let mut ask_again = Time(u64::MAX);
        for lane in view.candidates() {
            let due = view.lanes.head(lane).arrival + self.delay;
            let reason = match () {
                () if view.lanes.is_full(lane) => CloseReason::Full,
                () if self.delay.is_zero() => CloseReason::Drain,
                () if view.now >= due => CloseReason::Delay,
                () => {
                    ask_again = ask_again.min(due);
                    continue;
                }
            };
            return Decision::Launch { lane, size, reason };
        }
        Decision::AskAgain(ask_again)
    }
}
