//! What was sampled of one deployment: five minutes in points, and the last seconds in full.

use crate::engine::deployment::live::record::ReplicaUse;
use crate::engine::deployment::live::why::{Lengths, Usual};
use crate::engine::server_state::live::points::{JUDGED, KEPT, PHASES, Point, Ring, Totals};
use jitney_core::tables::outcome::{Blame, Outcome};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// The length of a point.
pub(crate) const EVERY: Duration = Duration::from_secs(1);
/// Fewer answers than this say nothing about what is usual.
const ENOUGH: u64 = 20;

/// What was sampled of one deployment.
#[derive(Debug, Default)]
pub(crate) struct Sampled {
    pub(crate) ring: Ring,
    /// The last looks, the newest last: one more than the seconds that are judged.
    looks: VecDeque<Look>,
}

/// What grows, at one instant.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) at: Instant,
    pub(crate) totals: Totals,
    /// Requests by outcome, in the order of the table.
    pub(crate) outcomes: Vec<u64>,
    pub(crate) replicas: BTreeMap<u32, ReplicaTimes>,
}

/// How long a replica has been in `predict` and has had a batch, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReplicaTimes {
    pub(crate) predict_s: f64,
    pub(crate) occupied_s: f64,
}

impl ReplicaTimes {
    pub(crate) fn new(used: &ReplicaUse, now: Instant) -> ReplicaTimes {
        let occupied = used.occupied_until(now);
        // A batch that has run for long counts before its end: until then its time in `predict` is not known.
        let open = if used.steps { Duration::ZERO } else { used.silent_until(now).saturating_sub(EVERY) };
        ReplicaTimes { predict_s: (used.predict + open).as_secs_f64(), occupied_s: occupied.as_secs_f64() }
    }
}

impl Sampled {
    /// Adds a look, and the point between the last one and this one.
    pub(crate) fn add(&mut self, look: Look, point: impl FnOnce(f64, Totals) -> Point) {
        if let Some(last) = self.looks.back() {
            let length_s = (look.at - last.at).as_secs_f64();
            self.ring.push(point(length_s, look.totals.since(&last.totals)));
        }
        self.looks.push_back(look);
        if self.looks.len() > JUDGED + 1 {
            self.looks.pop_front();
        }
    }

    /// Whether a request has ended since the last look, which had these outcomes, or waits.
    pub(crate) fn is_busy(&self, outcomes: &[u64], queued: u64) -> bool {
        queued > 0 || self.looks.back().is_none_or(|last| last.outcomes != outcomes)
    }

    /// The outcome with the most requests of the last seconds, among those that are meant.
    pub(crate) fn most_frequent(&self, is_meant: impl Fn(Blame) -> bool) -> Option<&'static str> {
        let (first, last) = (self.looks.front()?, self.looks.back()?);
        let count = |outcome: Outcome| last.outcomes[outcome as usize].saturating_sub(first.outcomes[outcome as usize]);
        let meant = Outcome::ALL.iter().filter(|outcome| is_meant(outcome.blame()) && count(**outcome) > 0);
        meant.max_by_key(|outcome| count(**outcome)).map(|outcome| outcome.reason())
    }

    /// How requests have ended since the start: those outcomes that there were.
    pub(crate) fn outcomes(&self) -> Vec<(Outcome, u64)> {
        let counts = self.looks.back().map(|look| &look.outcomes).into_iter().flatten();
        Outcome::ALL.iter().copied().zip(counts.copied()).filter(|(_, count)| *count > 0).collect()
    }

    /// The shares of the last seconds for which a replica was in `predict`, and had a batch.
    pub(crate) fn replica_shares(&self, number: u32) -> Option<ReplicaTimes> {
        let (first, last) = (self.looks.front()?, self.looks.back()?);
        let length_s = (last.at - first.at).as_secs_f64();
        let now = last.replicas.get(&number)?;
        let before = first.replicas.get(&number).copied().unwrap_or_default();
        let share = |now: f64, before: f64| ((now - before) / length_s).clamp(0.0, 1.0);
        (length_s > 0.0).then(|| ReplicaTimes {
            predict_s: share(now.predict_s, before.predict_s),
            occupied_s: share(now.occupied_s, before.occupied_s),
        })
    }

    /// What is usual, for the explanation of requests that are not.
    pub(crate) fn usual(&self) -> Option<Usual> {
        let (_, sum) = self.ring.sum(KEPT);
        let median = self.ring.quantiles(KEPT)?;
        let items = sum.items.max(1) as f64;
        let phase = |name: &str| PHASES.iter().position(|phase| *phase == name).map_or(0.0, |at| sum.phases[at]);
        let mean = |names: &[&str]| Duration::from_secs_f64(names.iter().map(|name| phase(name)).sum::<f64>() / items);
        (sum.answered >= ENOUGH).then(|| Usual {
            total: Duration::from_secs_f64(median.p50_ms / 1e3),
            lengths: Lengths {
                queue: mean(&["queue"]),
                link: mean(&["link", "decode", "encode"]),
                predict: mean(&["predict"]),
            },
            bytes: (sum.bytes as f64 / items) as u64,
        })
    }
}
