//! What a deployment says about its batches: what it has learned, and what it did recently and why.

use crate::learn::cost_model::CostModel;
use crate::policy::decisions::LaunchDecision;
use crate::queue::group_key::GroupKey;
use crate::replicas::scaling::explanation::Reasons;
use crate::request::{GroupId, Priority};
use crate::scheduler::item::Payload;
use crate::scheduler::state::Scheduler;
use crate::time::Time;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

/// Most groups that are shown.
const GROUPS_SHOWN: usize = 32;

/// Current estimates and last decisions, as `/config` shows them.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// The cost of a launch, whatever the batch holds, in milliseconds.
    pub launch_cost_ms: f64,
    /// What an item of the usual cost adds to a batch, in milliseconds.
    pub item_cost_ms: f64,
    /// How far the durations of batches scatter around the expected one, as a share of it.
    pub scatter: f64,
    /// Batches measured; no estimate is used before three.
    pub batches_measured: u64,
    /// The mean duration of batches of each size.
    pub sizes: Vec<SizeSeen>,
    /// What the duration of a batch follows: the number of `items`, their `cost`, or their cost when all are `padded` to the
    /// largest.
    pub time_follows: &'static str,
    /// The mean share of a batch that is padding, if it is padded to its largest item; 0 if costs do not differ.
    pub padding_ratio: f64,
    /// Arrivals per second now.
    pub arrivals_per_s: f64,
    /// Whether answers are followed by requests; absent while too little is known.
    pub returns: Option<Returns>,
    /// The predicted time until the answer of an item that arrives now, in milliseconds; absent while too little is known.
    pub predicted_latency_ms: Option<f64>,
    /// What else is learned of a model that works in steps; absent for all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<StepsSeen>,
    /// What else is learned where items run side by side; absent for all other models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side_by_side: Option<StaysSeen>,
    /// The groups that differ in what was learned, those with the most batches first. Empty while all items are of one group,
    /// any number of them fits into the memory of the device, and no bytes close a batch.
    pub groups: Vec<GroupSeen>,
    /// Why there are as many replicas as there are; absent where their number is fixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling: Option<Reasons>,
    /// The replicas that are faster or slower than most. The engine adds them: the scheduler does not know their numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unequal_replicas: Vec<ReplicaSeen>,
    /// The last batches, newest first.
    pub last_batches: Vec<BatchSeen>,
}

/// A replica that is faster or slower than most of its deployment.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ReplicaSeen {
    /// Its number among the replicas of the deployment.
    pub replica: u32,
    /// 1 is the median replica; 0.1 takes ten times as long.
    pub speed: f64,
}

/// What has been learned of one group of items that may share batches.
#[derive(Clone, Debug, Serialize)]
pub struct GroupSeen {
    /// The values that its items agree on, in the order of `group_by`.
    pub group: String,
    /// The cost of a launch of this group, in milliseconds; absent while none was measured.
    pub launch_cost_ms: Option<f64>,
    /// What an item of this group adds to a batch, in milliseconds.
    pub item_cost_ms: Option<f64>,
    /// Batches of this group that were measured.
    pub batches_measured: u64,
    /// How many items fit into the memory of the device; absent while every batch fitted.
    pub most_items: Option<usize>,
    /// When more items are tried again, in seconds from now.
    pub tried_again_in_s: Option<f64>,
    /// How many items are a full batch, because their bytes take longer to move than to compute; absent if they do not.
    pub enough_items: Option<usize>,
}

/// What is learned of a model that works in steps. Its launch cost and item cost are those of a step.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StepsSeen {
    /// What a newcomer costs, in milliseconds.
    pub join_ms: f64,
    /// The mean number of steps of an item; absent while too few have ended.
    pub steps_per_item: Option<f64>,
    /// Items that replicas hold now.
    pub active_items: usize,
}

/// What is learned of a model whose items run side by side, a coroutine each.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StaysSeen {
    /// For how long an item stays in its replica, in milliseconds; absent while too few have ended.
    pub item_ms: Option<f64>,
    /// Items that replicas hold now.
    pub active_items: usize,
}

/// Batches of about one size.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SizeSeen {
    /// Their mean number of items.
    pub items: f64,
    /// Their mean duration, in milliseconds.
    pub ms: f64,
}

/// How answers are followed by requests.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Returns {
    /// The share of answers that were followed by a request of the same lane within the cost of a launch.
    pub share: f64,
    /// The median time from the answer to that request, in milliseconds.
    pub after_ms: f64,
}

/// One batch that left.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BatchSeen {
    /// How long ago it left, in milliseconds.
    pub ms_ago: f64,
    /// How many items it took.
    pub items: usize,
    /// How many items went on waiting, in all lanes.
    pub left_waiting: usize,
    /// For how long a replica had been idle next to the waiting items, in milliseconds.
    pub held_ms: f64,
    /// Why it was closed: the label of `jitney_batches_total`.
    pub reason: &'static str,
}

impl BatchSeen {
    fn new(now: Time, decision: &LaunchDecision) -> BatchSeen {
        BatchSeen {
            ms_ago: ms(now - decision.at),
            items: decision.items,
            left_waiting: decision.left,
            held_ms: ms(decision.held),
            reason: decision.reason.label(),
        }
    }
}

impl<P: Payload> Scheduler<P> {
    /// What has been learned, and what was done recently and why.
    pub fn explain(&mut self, now: Time) -> Explanation {
        let cost = self.usual_cost();
        let forecast = self.forecast(now, &GroupKey::default(), Priority::Normal, cost);
        let cost_model = self.cost_model();
        let size_model = cost_model.by_items();
        let sizes = size_model.sizes().map(|size| SizeSeen { items: size.items, ms: rounded(size.seconds * 1e3) });
        let returns = self.traffic.lags().median().map(|(share, after)| Returns {
            share: rounded(share),
            after_ms: if after.is_finite() { rounded(after * 1e3) } else { 0.0 },
        });
        let stays = &self.group_models().stays;
        let side_by_side = self.rules.side_by_side.then(|| StaysSeen {
            item_ms: stays.stay_s().map(|seconds| rounded(seconds * 1e3)),
            active_items: self.open_sets.load().0,
        });
        let learned = &self.group_models().steps;
        let steps = (self.rules.joins && !self.rules.side_by_side).then(|| StepsSeen {
            join_ms: rounded(learned.join_s() * 1e3),
            steps_per_item: learned.steps().map(rounded),
            active_items: self.open_sets.load().0,
        });
        Explanation {
            launch_cost_ms: rounded(cost_model.size_model().launch_s() * 1e3),
            item_cost_ms: rounded(cost_model.item_s() * 1e3),
            scatter: rounded(cost_model.size_model().scatter()),
            batches_measured: size_model.count(),
            sizes: sizes.collect(),
            time_follows: cost_model.measure().label(),
            padding_ratio: rounded(cost_model.padding()),
            arrivals_per_s: rounded(self.traffic.rate(now, size_model)),
            returns,
            predicted_latency_ms: forecast.map(|forecast| ms(forecast.latency)),
            steps,
            side_by_side,
            groups: self.groups_seen(now),
            scaling: None,
            unequal_replicas: Vec::new(),
            last_batches: self.decisions.newest_first().map(|decision| BatchSeen::new(now, decision)).collect(),
        }
    }

    fn groups_seen(&self, now: Time) -> Vec<GroupSeen> {
        let group_models = self.group_models();
        let limited = self.memory_limits.groups().chain(self.transfer_limits.groups());
        let known: BTreeSet<GroupId> = group_models.groups().chain(limited).collect();
        let mut known: Vec<(GroupId, &GroupKey)> =
            self.lanes.keys().filter(|(group, _)| known.contains(group)).collect();
        known.sort_by_key(|&(group, _)| (Reverse(group_models.own(group).map_or(0, |(_, batches)| batches)), group));
        known.into_iter().take(GROUPS_SHOWN).map(|(group, key)| self.group_seen(now, group, key)).collect()
    }

    fn group_seen(&self, now: Time, group: GroupId, key: &GroupKey) -> GroupSeen {
        let own: Option<(&CostModel, u64)> = self.group_models().own(group);
        let memory_limit = self.memory_limits.of(group);
        GroupSeen {
            group: key.to_string(),
            launch_cost_ms: own.map(|(cost_model, _)| rounded(cost_model.size_model().launch_s() * 1e3)),
            item_cost_ms: own.map(|(cost_model, _)| rounded(cost_model.item_s() * 1e3)),
            batches_measured: own.map_or(0, |(_, batches)| batches),
            most_items: memory_limit.map(|(most, _)| most),
            tried_again_in_s: memory_limit.map(|(_, try_at)| rounded((try_at - now).as_secs_f64())),
            enough_items: self.transfer_limits.enough(group).filter(|&enough| enough < self.rules.batch.max_items),
        }
    }
}

fn ms(length: Duration) -> f64 {
    rounded(length.as_secs_f64() * 1e3)
}

/// Rounds to a thousandth: more digits would be noise.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
