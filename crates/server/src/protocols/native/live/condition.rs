//! The last seconds of a deployment as numbers: what judgements, and lines of the log about them, rest on.

use crate::base::telemetry::available_memory::available_bytes;
use crate::engine::deployment::Deployment;
use crate::engine::deployment::live::record::now_ms;
use crate::engine::deployment::live::why::is_far_larger;
use crate::engine::server_state::ServerState;
use crate::engine::server_state::live::hub::Samples;
use crate::engine::server_state::live::points::JUDGED;
use crate::engine::server_state::live::sampled::{Halved, Large, Sampled, Slower};
use crate::engine::server_state::live::workers::{Growth, KnownWorker};
use jitney_core::scheduler::explanation::Explanation;
use jitney_core::tables::outcome::Blame;
use tokio::time::Instant;

/// The last seconds of a deployment.
#[allow(clippy::struct_excessive_bools, reason = "independent facts about one deployment")]
#[derive(Clone, Debug, Default)]
pub(crate) struct Condition {
    /// How long they were, in seconds.
    pub(crate) length_s: f64,
    pub(crate) answered: u64,
    pub(crate) refused: u64,
    pub(crate) failed: u64,
    pub(crate) mistaken: u64,
    /// How most of the requests ended that were refused, and that failed.
    pub(crate) refused_as: Option<&'static str>,
    pub(crate) failed_as: Option<&'static str>,
    /// Replicas that are ready, and that there should be.
    pub(crate) ready: u64,
    pub(crate) wanted: u64,
    /// It has no replica because it was not used.
    pub(crate) sleeps: bool,
    /// It has no replicas: the front calls other deployments.
    pub(crate) is_composed: bool,
    /// The server ends.
    pub(crate) is_draining: bool,
    /// Workers lost within five minutes, and why the last one was.
    pub(crate) lost: u64,
    pub(crate) failure: Option<String>,
    /// What a replica that is not ready does, and for how many seconds.
    pub(crate) missing: Option<(&'static str, u64)>,
    /// The share of time for which the model computed, and for which replicas had a batch.
    pub(crate) busy: f64,
    pub(crate) occupied: f64,
    /// What is unlike before.
    pub(crate) unusual: Unusual,
    /// The slowest replica, and how many times as long as the median one it takes, if that is notable.
    pub(crate) slow: Option<(u32, f64)>,
    /// Bytes of the smallest and of the largest item of slow requests and their batches, if these are far apart.
    pub(crate) uneven: Option<(u64, u64)>,
    pub(crate) queued: u64,
    pub(crate) oldest_s: f64,
    /// Items waited in at least half of these seconds.
    pub(crate) is_waiting: bool,
    /// Items in a batch on average, and at most.
    pub(crate) mean_batch: f64,
    pub(crate) most_batch: u64,
    /// Cores that the front used, and that all processes of the server used, of so many.
    pub(crate) front_cores: Option<f64>,
    pub(crate) used_cores: Option<f64>,
    pub(crate) cores: f64,
    /// The share of their time for which all cores of the machine computed, and how late the front wakes.
    pub(crate) machine_busy: Option<f64>,
    pub(crate) front_lag_s: Option<f64>,
    /// Items that may wait.
    pub(crate) most_queued: u64,
    /// Answers that have halved while items wait, and an item far larger than usual that is computed now.
    pub(crate) halved: Option<Halved>,
    pub(crate) large: Option<Large>,
    /// Seconds without any request; `None` if no request has come within five minutes.
    pub(crate) quiet_s: Option<usize>,
    /// It has not been sampled for five minutes yet.
    pub(crate) is_new: bool,
}

/// What is unlike before. Each of it is a fault, although requests may still be answered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unusual {
    /// A replica whose batch has had no news, and for how many seconds; the worker is killed after so many.
    pub(crate) hanging: Option<(u32, f64)>,
    pub(crate) batch_timeout_s: f64,
    pub(crate) slower: Option<Slower>,
    pub(crate) growth: Option<Growth>,
    /// Bytes that processes can still take.
    pub(crate) available_bytes: Option<u64>,
}

impl Condition {
    /// Requests that ended, except for those that were wrong.
    pub(crate) fn tried(&self) -> u64 {
        self.answered + self.refused + self.failed
    }
}

/// A replica whose batches take so many times as long as those of the median one is named. A smaller factor is often one of their
/// items.
const NOTABLY_SLOW: f64 = 3.0;

/// Slow requests that ended this long ago say nothing about now.
const RECENT_MS: u64 = 60_000;

/// How reasons begin that hold no text of a model.
const OWN_WORDS: [&str; 4] =
    ["the worker ended: ", "a batch ran for ", "it did not load within ", "its target was not imported "];

/// From this share of its time on something has no reserve. `jitney bench` uses the same figure.
pub(crate) const FULL: f64 = 0.85;

/// Cores that this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What is known about one deployment.
pub(crate) struct Known<'a> {
    pub(crate) state: &'a ServerState,
    pub(crate) samples: &'a Samples,
    pub(crate) sampled: &'a Sampled,
    pub(crate) name: &'a str,
    pub(crate) first: &'a Deployment,
    /// What the engine says, if it was asked.
    pub(crate) explanation: Option<&'a Explanation>,
    /// Whether the reader may see what exceptions say: that may hold paths and inputs.
    pub(crate) shows_errors: bool,
}

impl Known<'_> {
    pub(crate) fn condition(&self) -> Condition {
        let (manifest, ring) = (&self.first.manifest, &self.sampled.ring);
        let (length_s, sum) = ring.sum(JUDGED);
        let newest = ring.newest().cloned().unwrap_or_default();
        let workers: Vec<&KnownWorker> = self.samples.workers.of(self.name).collect();
        let ready = if manifest.composed.is_some() { 0 } else { self.first.published.replicas() as u64 };
        let wanted = (workers.iter().filter(|known| !known.seen.is_surplus).count() as u64).max(ready);
        let missing = workers.iter().find(|known| known.seen.state != "ready");
        let failure = workers.iter().filter_map(|known| self.failure(known)).next_back();
        let shares = length_s * ready.max(1) as f64;
        let share = |seconds: f64| if shares > 0.0 { (seconds / shares).clamp(0.0, 1.0) } else { 0.0 };
        let (busy, halved) = (share(sum.predict_s), self.sampled.halved());
        let readiness = self.state.readiness();
        Condition {
            length_s,
            answered: sum.answered,
            refused: sum.refused,
            failed: sum.failed,
            mistaken: sum.mistaken,
            refused_as: self.sampled.most_frequent(|blame| blame == Blame::Load),
            failed_as: self.sampled.most_frequent(|blame| matches!(blame, Blame::Model | Blame::Server)),
            ready,
            wanted,
            sleeps: readiness.asleep.iter().any(|name| name == self.name),
            is_composed: manifest.composed.is_some(),
            is_draining: readiness.draining,
            lost: workers.iter().map(|known| known.lost()).sum(),
            failure,
            missing: missing.map(|known| (known.seen.state, (Instant::now() - known.since).as_secs())),
            busy,
            occupied: share(sum.occupied_s),
            unusual: self.unusual(&workers),
            slow: self.slow_replica(),
            uneven: if busy >= FULL || halved.is_some() { self.uneven() } else { None },
            queued: newest.queued,
            oldest_s: newest.oldest_s,
            is_waiting: ring.waiting(JUDGED).0 * 2 >= JUDGED,
            mean_batch: sum.mean_batch().unwrap_or_default(),
            most_batch: u64::from(manifest.options.max_batch_size),
            front_cores: self.samples.workers.front_cores(),
            used_cores: self.samples.workers.used_cores(),
            cores: cores() as f64,
            machine_busy: self.samples.machine.busy(),
            front_lag_s: self.samples.machine.front_lag_s(),
            most_queued: manifest.options.max_queued_items,
            halved,
            large: self.sampled.large(),
            quiet_s: ring.quiet_s(),
            is_new: !ring.is_full(),
        }
    }

    fn unusual(&self, workers: &[&KnownWorker]) -> Unusual {
        let batch_timeout_s = self.first.manifest.options.batch_timeout_s;
        let growth = workers.iter().filter_map(|known| known.growth(Instant::now())).max_by_key(|growth| growth.by);
        let hanging = self.sampled.hanging(batch_timeout_s);
        Unusual {
            hanging,
            batch_timeout_s,
            // The time of a batch that hangs counts before its end.
            slower: if hanging.is_none() { self.sampled.slower() } else { None },
            growth,
            available_bytes: growth.and_then(|_| available_bytes()),
        }
    }

    fn uneven(&self) -> Option<(u64, u64)> {
        let since_ms = now_ms().saturating_sub(RECENT_MS);
        let slow: Vec<_> = self.first.published.live().slowest();
        let recent = || slow.iter().filter(|facts| facts.at_ms >= since_ms);
        let smallest = recent().map(|facts| facts.bytes).min()?;
        let largest = recent().filter_map(|facts| facts.batch).map(|batch| batch.largest_bytes).max()?;
        is_far_larger(largest, smallest).then_some((smallest, largest))
    }

    fn slow_replica(&self) -> Option<(u32, f64)> {
        let unequal = self.explanation.iter().flat_map(|explanation| &explanation.unequal_replicas);
        let slowest = unequal.min_by(|one, other| one.speed.total_cmp(&other.speed))?;
        (slowest.speed > 0.0 && 1.0 / slowest.speed >= NOTABLY_SLOW).then(|| (slowest.replica, 1.0 / slowest.speed))
    }

    /// Why the last worker of a replica was lost, as far as the reader may see it.
    pub(crate) fn failure(&self, known: &KnownWorker) -> Option<String> {
        let text = known.seen.failure.as_deref()?;
        let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or(text).trim();
        if self.shows_errors || OWN_WORDS.iter().any(|words| last.starts_with(words)) {
            return Some(last.to_owned());
        }
        let kind = last.split_once(": ").map_or(last, |(kind, _)| kind);
        Some(format!("{kind} (the log says more, as does this page with --show-errors)"))
    }
}
