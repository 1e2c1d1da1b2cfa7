//! When to launch a batch, and of which lane. A policy is pure: it sees the lanes and the time, and decides.

use crate::learn::batch_cost::{BatchCost, Measure};
use crate::learn::cost_model::CostModel;
use crate::learn::group_models::GroupModels;
use crate::learn::memory_limits::MemoryLimits;
use crate::learn::size_model::SizeModel;
use crate::learn::traffic::Traffic;
use crate::learn::transfer_limit::TransferLimits;
use crate::queue::lanes::{LaneId, Lanes};
use crate::request::ItemId;
use crate::time::Time;
use std::fmt::Debug;
use std::time::Duration;

/// Launches in a row in which a full lane may pass the lane with the oldest head, and in which items of like length may pass
/// one that came before them.
pub const MOST_PASSES: u32 = 4;

/// Lanes that `auto` looks at, soonest first: one that is held does not block the next ones. They must not
/// contain hopeless items when `auto` is asked.
pub const LANES_LOOKED_AT: usize = 4;

/// Why a batch was closed; a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// A limit was reached.
    Full,
    /// A replica was free.
    Eager,
    /// The lane had been held open for as long as it may.
    Delay,
    /// A suspect of a lost worker runs alone.
    Suspect,
    /// It had been held for users who were just answered and come back.
    Returns,
    /// It had been held for the rest of a burst.
    Burst,
    /// It had been left to a replica that would be free next.
    Pacing,
    /// Its oldest item could wait no longer, or no larger batch would have been in time.
    Deadline,
    /// It is a part of what waited: other free replicas share, or smaller batches answer sooner.
    Share,
    /// They are of like length, and what else waits is not.
    Alike,
    /// They joined a replica that had room, between two steps of its model.
    Joined,
}

impl CloseReason {
    /// Every reason.
    pub const ALL: [CloseReason; 11] = [
        CloseReason::Full,
        CloseReason::Eager,
        CloseReason::Delay,
        CloseReason::Suspect,
        CloseReason::Returns,
        CloseReason::Burst,
        CloseReason::Pacing,
        CloseReason::Deadline,
        CloseReason::Share,
        CloseReason::Alike,
        CloseReason::Joined,
    ];

    /// The metric label.
    pub fn label(self) -> &'static str {
        match self {
            CloseReason::Full => "full",
            CloseReason::Eager => "eager",
            CloseReason::Delay => "delay",
            CloseReason::Suspect => "suspect",
            CloseReason::Returns => "returns",
            CloseReason::Burst => "burst",
            CloseReason::Pacing => "pacing",
            CloseReason::Deadline => "deadline",
            CloseReason::Share => "share",
            CloseReason::Alike => "alike",
            CloseReason::Joined => "joined",
        }
    }
}

/// What a policy sees. It is asked while a replica is free and something waits.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The time.
    pub now: Time,
    /// What waits.
    pub lanes: &'a Lanes,
    /// Free replicas.
    pub idle: u32,
    /// How many replicas like the one that gets the batch the free ones are worth, for what waits; their number if all are equal.
    pub idle_worth: f64,
    /// How many times as long as expected that replica takes for a batch; 1 if all are equal.
    pub factor: f64,
    /// Replicas that work.
    pub replicas: u32,
    /// How many usual replicas are as fast as all of them together.
    pub power: f64,
    /// Launches in a row that have passed the lane with the oldest head.
    pub passes: u32,
    /// What batches take, of all groups together.
    pub size_model: &'a SizeModel,
    /// What batches take, of each group.
    pub group_models: &'a GroupModels,
    /// How requests arrive.
    pub traffic: &'a Traffic,
    /// When the next busy replica should be free; `None` if none is busy.
    pub frees_at: Option<Time>,
    /// How many items of a group fit into the memory of the device.
    pub memory_limits: &'a MemoryLimits,
    /// How many items of a group are enough, because their bytes take longer to move than to compute.
    pub transfer_limits: &'a TransferLimits,
    /// Whether answers should come within a target, so that nothing may leave that would miss it.
    pub has_target: bool,
}

impl View<'_> {
    /// What is left of the time of the item that leaves a lane first, in seconds.
    pub fn slack_s(&self, lane: LaneId) -> f64 {
        (self.lanes.head(lane).due - self.now).as_secs_f64()
    }

    /// What batches of a lane take, by the number of items.
    pub fn size_model_of(&self, lane: LaneId) -> &SizeModel {
        self.group_models.of(self.lanes.group(lane))
    }

    /// What batches of a lane take.
    pub fn cost_model_of(&self, lane: LaneId) -> &CostModel {
        self.group_models.cost_model_of(self.lanes.group(lane))
    }

    /// The batches of one, two, … of the items that leave a lane first.
    pub fn loads(&self, lane: LaneId) -> impl Iterator<Item = BatchCost> + '_ {
        self.lanes.in_order(lane).scan(BatchCost::default(), |load, item| {
            *load = load.with(item.cost);
            Some(*load)
        })
    }

    /// What all of a lane take with one more like them, if it takes long, in seconds.
    pub fn upper_with_one_more(&self, lane: LaneId) -> f64 {
        let cost_model = self.cost_model_of(lane);
        if cost_model.measure() == Measure::Items {
            return self.factor * cost_model.by_items().upper(self.lanes.lane(lane).len() + 1);
        }
        let load = self.loads(lane).last().unwrap_or_default();
        self.factor * cost_model.upper(load.with(load.cost / load.items.max(1) as u64))
    }

    /// Most items of a lane that may leave together.
    pub fn limit(&self, lane: LaneId) -> usize {
        let fit = self.memory_limits.most(self.lanes.group(lane), self.lanes.limits().max_items, self.now);
        self.enough(lane).map_or(fit, |enough| fit.min(enough))
    }

    /// So many items of a lane are as good as more; `None` if their bytes do not matter.
    pub fn enough(&self, lane: LaneId) -> Option<usize> {
        self.transfer_limits.enough(self.lanes.group(lane))
    }

    /// Whether a lane holds as much as may leave together.
    pub fn is_full(&self, lane: LaneId) -> bool {
        self.lanes.is_full(lane) || self.lanes.lane(lane).len() >= self.limit(lane)
    }

    /// The largest part of `size` items of a lane that is done before its head is due. Without a target only what is known
    /// to be too large is too large; with one, sizes that were never seen are approached step by step.
    pub fn in_time(&self, lane: LaneId, size: usize) -> usize {
        if !self.has_target && !self.size_model_of(lane).has_line() { size } else { self.fit(lane, size).0 }
    }

    /// The largest part of `most` items of a lane, at least one, that is done before its head is due; with the seconds that
    /// it takes.
    pub fn fit(&self, lane: LaneId, most: usize) -> (usize, f64) {
        let (cost_model, slack) = (self.cost_model_of(lane), self.slack_s(lane) / self.factor);
        if cost_model.measure() == Measure::Items {
            let items = cost_model.by_items().fit(slack, most);
            return (items, self.factor * cost_model.by_items().seconds(items));
        }
        let in_time = |load: &BatchCost| load.items == 1 || cost_model.upper(*load) <= slack;
        let load = self.loads(lane).take(most).take_while(in_time).last().expect("a live lane holds something");
        (load.items, self.factor * cost_model.seconds(load))
    }

    /// When the next busy replica should be free, in seconds from now; `None` if none is busy.
    pub fn frees_in_s(&self) -> Option<f64> {
        self.frees_at.map(|at| (at - self.now).as_secs_f64())
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

/// Decides when to launch. What there is to learn is learned once, outside of the lanes, and is part of the view.
pub trait BatchPolicy: Send + Debug {
    /// What to do now.
    fn decide(&mut self, view: &View) -> Decision;
    /// The lane of which a full batch may go to a busy replica now, to run when that is free, and its maximum size.
    fn ahead(&self, view: &View) -> Option<(LaneId, usize)> {
        Some((view.lanes.first_full()?, view.lanes.limits().max_items))
    }
    /// How many of `waiting` items it would take into one batch.
    fn take(&self, view: &View, waiting: usize) -> usize {
        waiting.min(view.lanes.limits().max_items)
    }
    /// Which items of a lane are in the batch of at most `size` that leaves; `None`: the first ones.
    fn choose_items(&self, _view: &View, _lane: LaneId, _size: usize) -> Option<Vec<ItemId>> {
        None
    }
    /// Whether bytes that take longer to move than to compute close a batch. An operator who chose a delay or none said when
    /// batches leave, and is not overruled.
    fn learns_transfer_limits(&self) -> bool {
        false
    }
    /// A batch has left, or the items that were held have been cancelled: the decision is over.
    fn on_end(&mut self) {}
}

/// Launches a lane when it is full, or when something in it has waited for `delay`. With no delay no item waits for
/// company while a replica is free: that is `eager`.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    /// How long a lane may be held open, counted from the arrival of its oldest item: a head start must not make the
    /// others wait for longer.
    pub delay: Duration,
}

impl Fixed {
    /// Launch whatever waits as soon as a replica is free.
    pub const EAGER: Fixed = Fixed { delay: Duration::ZERO };
}

impl BatchPolicy for Fixed {
    fn decide(&mut self, view: &View) -> Decision {
        let lanes = view.lanes;
        let launch = |lane, reason| {
            let size = lanes.limits().max_items;
            let size = if view.has_target { view.in_time(lane, size) } else { size };
            Decision::Launch { lane, size, reason }
        };
        let full = lanes.first_full();
        if let Some(lane) = full.filter(|_| view.passes < MOST_PASSES) {
            return launch(lane, CloseReason::Full);
        }
        // If the oldest item of all may wait, so may the rest, and no lane needs to be looked at.
        let due = lanes.oldest().map_or(Time(u64::MAX), |at| at + self.delay);
        if view.now < due {
            return full.map_or(Decision::AskAgain(due), |lane| launch(lane, CloseReason::Full));
        }
        let is_due = |lane: &LaneId| lanes.is_full(*lane) || view.now >= lanes.oldest_in(*lane) + self.delay;
        let lane = lanes.by_rank().find(is_due).expect("the lane of the oldest item is due");
        let reason = if lanes.is_full(lane) {
            CloseReason::Full
        } else if self.delay.is_zero() {
            CloseReason::Eager
        } else {
            CloseReason::Delay
        };
        launch(lane, reason)
    }
}
