//! What a deployment says of its batches: what it has learned, and what it did lately and why.

use crate::curve::Curve;
use crate::policy::CloseReason;
use crate::time::Time;
use crate::traffic::Traffic;
use serde::Serialize;
use std::collections::VecDeque;
use std::time::Duration;

/// Decisions remembered.
const REMEMBERED: usize = 16;

/// Current estimates and last decisions, as `/config` shows them.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// What launching a batch costs, whatever rides along: a.
    pub launch_cost_ms: f64,
    /// What an item of the usual cost adds: b.
    pub item_cost_ms: f64,
    /// How far batches scatter about what is expected of their size, as a share of it.
    pub scatter: f64,
    /// Batches measured; nothing is believed before three.
    pub batches_measured: u64,
    /// What batches of each size took, in the mean.
    pub sizes: Vec<SizeSeen>,
    /// What the time of a batch follows: `items`, their `cost`, or what that is when all are `padded` to the longest.
    pub time_follows: &'static str,
    /// What of a batch is padding, in the mean, if it is padded to its longest item; 0 if costs do not differ.
    pub padding_ratio: f64,
    /// Arrivals now.
    pub arrivals_per_s: f64,
    /// Whether answers are followed by requests; absent while too little is known.
    pub returns: Option<Returns>,
    /// Until the answer of an item that arrives now; absent while too little is known.
    pub predicted_latency_ms: Option<f64>,
    /// The groups that are told apart, those with the most batches first. Empty while all items are of one group, any
    /// number of them fits into the memory of the device, and no bytes close a batch.
    pub groups: Vec<GroupSeen>,
    /// The last batches, newest first.
    pub last_batches: Vec<Shown>,
}

/// What has been learned of one group of items that may share batches.
#[derive(Clone, Debug, Serialize)]
pub struct GroupSeen {
    /// The values that its items agree on, in the order of `group_by`.
    pub group: String,
    /// What launching a batch of it costs; absent while none was measured.
    pub launch_cost_ms: Option<f64>,
    /// What an item of it adds.
    pub item_cost_ms: Option<f64>,
    /// Batches of it that were measured.
    pub batches_measured: u64,
    /// How many items fit into the memory of the device; absent while all did.
    pub most_items: Option<usize>,
    /// Until more are tried again.
    pub tried_again_in_s: Option<f64>,
    /// So many items are a full batch, because their bytes take longer to move than to compute; absent if they do not.
    pub enough_items: Option<usize>,
}

impl GroupSeen {
    /// Of a group with what was measured of its own batches, a ceiling (the most items, and from when more are tried), and how
    /// many are enough.
    pub fn new(
        now: Time,
        group: String,
        own: Option<(&Curve, u64)>,
        ceiling: Option<(usize, Time)>,
        enough_items: Option<usize>,
    ) -> GroupSeen {
        GroupSeen {
            group,
            launch_cost_ms: own.map(|(curve, _)| rounded(curve.pace().launch_s() * 1e3)),
            item_cost_ms: own.map(|(curve, _)| rounded(curve.item_s() * 1e3)),
            batches_measured: own.map_or(0, |(_, batches)| batches),
            most_items: ceiling.map(|(most, _)| most),
            tried_again_in_s: ceiling.map(|(_, try_at)| rounded((try_at - now).as_secs_f64())),
            enough_items,
        }
    }
}

/// Batches of about one size.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SizeSeen {
    /// Mean size.
    pub items: f64,
    /// Mean time.
    pub ms: f64,
}

/// How answers are followed by requests.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Returns {
    /// The share of answers that were followed by a request of their lane within a launch's cost.
    pub share: f64,
    /// How long that took, in the median.
    pub after_ms: f64,
}

/// One batch that left.
#[derive(Clone, Copy, Debug)]
pub struct Decided {
    /// When.
    pub at: Time,
    /// With how many items.
    pub items: usize,
    /// How many stayed, in all lanes.
    pub left: usize,
    /// For how long a replica had been free beside them.
    pub held: Duration,
    /// Why it was closed.
    pub reason: CloseReason,
}

/// One batch that left, as it is shown.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Shown {
    /// How long ago.
    pub ms_ago: f64,
    /// With how many items.
    pub items: usize,
    /// How many stayed, in all lanes.
    pub left_waiting: usize,
    /// For how long a replica had been free beside them.
    pub held_ms: f64,
    /// Why it was closed: the label of `jitney_batches_total`.
    pub reason: &'static str,
}

/// The last decisions.
#[derive(Clone, Debug, Default)]
pub struct Decisions(VecDeque<Decided>);

impl Decisions {
    /// Remembers one.
    pub fn add(&mut self, decided: Decided) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(decided);
    }

    fn shown(&self, now: Time) -> Vec<Shown> {
        let shown = |decided: &Decided| Shown {
            ms_ago: ms(now - decided.at),
            items: decided.items,
            left_waiting: decided.left,
            held_ms: ms(decided.held),
            reason: decided.reason.label(),
        };
        self.0.iter().rev().map(shown).collect()
    }
}

impl Explanation {
    /// Of what has been learned and done by now.
    pub fn new(
        now: Time,
        curve: &Curve,
        traffic: &Traffic,
        decisions: &Decisions,
        latency: Option<Duration>,
        groups: Vec<GroupSeen>,
    ) -> Explanation {
        let pace = curve.by_items();
        let sizes = pace.sizes().map(|size| SizeSeen { items: size.items, ms: rounded(size.seconds * 1e3) });
        let returns = traffic.lags().median();
        let returns = returns.map(|(share, after)| Returns {
            share: rounded(share),
            after_ms: if after.is_finite() { rounded(after * 1e3) } else { 0.0 },
        });
        Explanation {
            launch_cost_ms: rounded(curve.pace().launch_s() * 1e3),
            item_cost_ms: rounded(curve.item_s() * 1e3),
            scatter: rounded(curve.pace().scatter()),
            batches_measured: pace.count(),
            sizes: sizes.collect(),
            time_follows: curve.measure().label(),
            padding_ratio: rounded(curve.padding()),
            arrivals_per_s: rounded(traffic.rate(now, pace)),
            returns,
            predicted_latency_ms: latency.map(ms),
            groups,
            last_batches: decisions.shown(now),
        }
    }
}

fn ms(length: Duration) -> f64 {
    rounded(length.as_secs_f64() * 1e3)
}

/// To a thousandth: more digits would be noise.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
