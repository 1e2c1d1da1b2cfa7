//! What a watcher sees: everything about every deployment at one instant, as the page and `jitney top` draw it.

use crate::engine::deployment::Deployment;
use crate::engine::deployment::live::histogram::Quantiles;
use crate::engine::deployment::live::record::{now_ms, size_label};
use crate::engine::deployment::live::why::{RequestFacts, why};
use crate::engine::server_state::ServerState;
use crate::engine::server_state::live::hub::{MOST_WATCHERS, Samples, event};
use crate::engine::server_state::live::points::{Columns, KEPT, PHASES, Totals, rounded};
use crate::engine::server_state::live::sampled::Sampled;
use crate::engine::server_state::live::workers::KnownWorker;
use crate::protocols::native::live::condition::{Condition, Known, cores};
use crate::protocols::native::live::deployments::{Methods, by_deployment};
use crate::protocols::native::live::judgement::{Judgement, judge};
use crate::protocols::native::live::texts::{Line, closed, line};
use bytes::Bytes;
use futures_util::future::join_all;
use jitney_core::policy::batch_policy::CloseReason;
use jitney_core::scheduler::explanation::{BatchSeen, Explanation};
use serde::Serialize;
use tokio::time::Instant;

/// Seconds over which batches and phases are added up.
const RECENT: usize = 60;

/// Everything.
#[derive(Serialize)]
pub(crate) struct Snapshot {
    /// When it was made, in milliseconds since 1970.
    at_ms: u64,
    /// How many samples were taken before.
    taken: u64,
    server: ServerShown,
    deployments: Vec<DeploymentShown>,
}

/// The front.
#[derive(Serialize)]
struct ServerShown {
    version: &'static str,
    up_s: u64,
    ready: bool,
    draining: bool,
    /// Why it is not ready.
    reasons: Vec<String>,
    /// Cores of its machine, and those that the front uses.
    cores: usize,
    front_cores: Option<f64>,
    front_bytes: Option<u64>,
    /// The share of their time for which all cores of the machine computed, for all programs, in the last ten seconds.
    machine_busy: Option<f64>,
    /// How late the front wakes from a sleep: 99 % of its wakes are not later.
    front_lag_ms: Option<f64>,
    /// Pages that watch, and as many as may.
    watchers: usize,
    most_watchers: usize,
}

/// One deployment.
#[derive(Serialize)]
struct DeploymentShown {
    name: String,
    doc: String,
    /// The paths of its methods.
    routes: Vec<String>,
    /// The deployments that it calls.
    uses: Vec<String>,
    judgement: Judgement,
    /// Its state in one line.
    sentence: String,
    ready: u64,
    wanted: u64,
    most_batch: u32,
    most_queued: u64,
    /// The newest second.
    now: Columns,
    /// Of five minutes.
    quantiles: Option<Quantiles>,
    counts: Counts,
    /// Requests since the start, by outcome.
    outcomes: Vec<OutcomeShown>,
    /// The mean item of the last minute, in the order in which it passes the phases.
    phases: Vec<PhaseShown>,
    /// Bytes of an item on average, and of all items per second, in the last minute.
    item_bytes: u64,
    bytes_per_s: f64,
    /// Batches of the last minute by size, and by the reason for which they were closed.
    sizes: Vec<CountShown>,
    reasons: Vec<CountShown>,
    workers: Vec<WorkerShown>,
    slowest: Vec<RequestShown>,
    failed: Vec<RequestShown>,
    last_batches: Vec<BatchShown>,
    /// What an item that arrives now would take, as predicted.
    predicted_latency_ms: Option<f64>,
    /// Options that are not defaults.
    options: Vec<OptionShown>,
}

/// Requests of five minutes.
#[derive(Serialize)]
struct Counts {
    length_s: f64,
    answered: u64,
    refused: u64,
    failed: u64,
    mistaken: u64,
}

#[derive(Serialize)]
struct OutcomeShown {
    outcome: &'static str,
    blame: &'static str,
    count: u64,
}

#[derive(Serialize)]
struct PhaseShown {
    phase: &'static str,
    ms: f64,
}

#[derive(Serialize)]
struct CountShown {
    label: String,
    count: u64,
}

/// One replica.
#[derive(Serialize)]
struct WorkerShown {
    replica: u32,
    state: &'static str,
    /// For how long it is in this state.
    for_s: u64,
    pid: Option<u32>,
    /// Its machine; absent if it is that of the front.
    host: Option<String>,
    device: Option<String>,
    /// Bytes of memory every ten seconds, the newest last.
    memory: Vec<u64>,
    cores: Option<f64>,
    /// The shares of the last seconds for which it was in `predict`, and had a batch.
    busy: Option<f64>,
    occupied: Option<f64>,
    /// Batches and items that it was sent.
    batches: u64,
    items: u64,
    /// Workers that were started for it after the first one, and those that were lost within five minutes.
    restarts: u64,
    lost: u64,
    load_s: Option<f64>,
    /// The last line of what its last lost worker reported.
    last_error: Option<String>,
    /// How many times as long as the median replica it takes.
    slower: Option<f64>,
    /// For how many seconds its batch has had no news, if that means that it hangs.
    hangs_s: Option<u64>,
}

/// A request that took long or failed.
#[derive(Serialize)]
struct RequestShown {
    request_id: String,
    at_ms: u64,
    ms: f64,
    /// The median of all; absent while too few requests have ended.
    usual_ms: Option<f64>,
    why: String,
}

#[derive(Serialize)]
struct BatchShown {
    #[serde(flatten)]
    seen: BatchSeen,
    /// Why it was closed, in words.
    closed: &'static str,
}

#[derive(Serialize)]
struct OptionShown {
    name: String,
    value: String,
    source: String,
}

/// The event with the one of the last sample.
pub(crate) async fn newest(state: &ServerState) -> Bytes {
    state.live.snapshot(async { event("snapshot", &make(state).await) }).await
}

/// Makes one as of now.
async fn make(state: &ServerState) -> Snapshot {
    let deployments = by_deployment(state);
    let explained = join_all(deployments.values().map(|methods| async {
        match methods.first().filter(|first| first.manifest.composed.is_none()) {
            Some(first) => first.explain().await,
            None => None,
        }
    }))
    .await;
    let samples = state.live.samples();
    // Until the first sample only the manifest of a deployment is known.
    let unknown = Sampled::default();
    let shown = deployments.into_iter().zip(explained).map(|((name, methods), explanation)| {
        let own = samples.deployments.get(&name).unwrap_or(&unknown);
        Maker { state, samples: &samples, sampled: own, name, methods, explanation }.make()
    });
    let deployments = shown.collect();
    Snapshot { at_ms: now_ms(), taken: samples.taken, server: server(state, &samples), deployments }
}

fn server(state: &ServerState, samples: &Samples) -> ServerShown {
    let readiness = state.readiness();
    ServerShown {
        version: env!("CARGO_PKG_VERSION"),
        up_s: state.started.elapsed().as_secs(),
        ready: readiness.ready,
        draining: readiness.draining,
        reasons: readiness.reasons.clone(),
        cores: cores(),
        front_cores: samples.workers.front_cores().map(rounded),
        front_bytes: samples.workers.front_stats().map(|stats| stats.resident_bytes),
        machine_busy: samples.machine.busy().map(rounded),
        front_lag_ms: samples.machine.front_lag_s().map(|lag_s| rounded(lag_s * 1e3)),
        watchers: state.live.watchers(),
        most_watchers: MOST_WATCHERS,
    }
}

/// What is known about one deployment.
struct Maker<'a> {
    state: &'a ServerState,
    samples: &'a Samples,
    sampled: &'a Sampled,
    name: String,
    methods: Methods,
    explanation: Option<Explanation>,
}

impl Maker<'_> {
    fn make(self) -> DeploymentShown {
        let first = &self.methods[0];
        let condition = self.known(first).condition();
        let (manifest, record) = (&first.manifest, first.published.live());
        let (length_s, sum) = self.sampled.ring.sum(KEPT);
        let (recent_s, recent) = self.sampled.ring.sum(RECENT);
        let Totals { answered, refused, failed, mistaken, .. } = sum;
        let requests = |all: Vec<RequestFacts>| all.into_iter().map(|mut facts| self.request(&mut facts)).collect();
        DeploymentShown {
            doc: manifest.doc.clone(),
            routes: self.methods.iter().map(|method| method.manifest.path()).collect(),
            uses: manifest.uses.clone(),
            judgement: judge(&condition),
            sentence: line(&self.line(&condition)),
            ready: condition.ready,
            wanted: condition.wanted,
            most_batch: manifest.options.max_batch_size,
            most_queued: manifest.options.max_queued_items,
            now: self.sampled.ring.columns(1),
            quantiles: self.sampled.ring.quantiles(KEPT),
            counts: Counts { length_s: rounded(length_s), answered, refused, failed, mistaken },
            outcomes: self.outcomes(),
            phases: phases(&recent),
            item_bytes: recent.bytes.checked_div(recent.items).unwrap_or_default(),
            bytes_per_s: if recent_s > 0.0 { rounded(recent.bytes as f64 / recent_s) } else { 0.0 },
            sizes: sizes(&recent),
            reasons: reasons(&recent),
            workers: self
                .samples
                .workers
                .of(&self.name)
                .map(|known| self.worker(known, condition.unusual.hanging))
                .collect(),
            slowest: requests(record.slowest()),
            failed: requests(record.failed()),
            last_batches: self.last_batches(),
            predicted_latency_ms: self.explanation.as_ref().and_then(|explanation| explanation.predicted_latency_ms),
            options: options(first),
            name: self.name,
        }
    }

    /// What the judgement and the line rest on.
    fn known<'b>(&'b self, first: &'b Deployment) -> Known<'b> {
        Known {
            state: self.state,
            samples: self.samples,
            sampled: self.sampled,
            name: &self.name,
            first,
            explanation: self.explanation.as_ref(),
            shows_errors: self.state.options.show_errors,
        }
    }

    /// Items that are computed now, where items join and leave replicas one by one.
    fn active(&self) -> Option<u64> {
        let Explanation { steps, side_by_side, .. } = self.explanation.as_ref()?;
        let active = steps.map(|steps| steps.active_items).or(side_by_side.map(|stays| stays.active_items));
        active.map(|items| items as u64)
    }

    fn line(&self, condition: &Condition) -> Line {
        let per_s = |count: u64| if condition.length_s > 0.0 { count as f64 / condition.length_s } else { 0.0 };
        Line {
            ready: condition.ready,
            wanted: condition.wanted,
            is_composed: condition.is_composed,
            answered_per_s: per_s(condition.answered),
            refused_per_s: per_s(condition.refused),
            failed_per_s: per_s(condition.failed),
            quantiles: self.sampled.ring.quantiles(KEPT),
            queued: condition.queued,
            oldest_s: condition.oldest_s,
            mean_batch: (condition.mean_batch > 0.0).then_some(condition.mean_batch),
            most_batch: condition.most_batch,
            active: self.active(),
        }
    }

    fn worker(&self, known: &KnownWorker, hanging: Option<(u32, f64)>) -> WorkerShown {
        let (first, seen) = (&self.methods[0], &known.seen);
        let used = first.published.live().replicas().get(&seen.replica).cloned().unwrap_or_default();
        let shares = self.sampled.replica_shares(seen.replica).filter(|_| seen.state == "ready");
        let unequal = self.explanation.iter().flat_map(|explanation| &explanation.unequal_replicas);
        let hangs = hanging.filter(|(replica, _)| *replica == seen.replica && seen.state == "ready");
        let speed = unequal.filter(|one| one.replica == seen.replica).map(|one| one.speed).next();
        WorkerShown {
            replica: seen.replica,
            state: seen.state,
            for_s: (Instant::now() - known.since).as_secs(),
            pid: seen.pid,
            host: seen.host.as_deref().map(str::to_owned),
            device: seen.device.clone(),
            memory: known.memory.iter().map(|(_, bytes)| *bytes).collect(),
            cores: known.cores.map(rounded),
            busy: shares.map(|shares| rounded(shares.predict_s)),
            occupied: shares.map(|shares| rounded(shares.occupied_s)),
            batches: used.batches,
            items: used.items,
            restarts: seen.starts.saturating_sub(1),
            lost: known.lost(),
            load_s: seen.load.map(|load| rounded(load.as_secs_f64())),
            last_error: self.known(first).failure(known),
            hangs_s: hangs.map(|(_, silent_s)| silent_s as u64),
            slower: speed.filter(|&speed| speed > 0.0).map(|speed| rounded(1.0 / speed)),
        }
    }

    fn request(&self, facts: &mut RequestFacts) -> RequestShown {
        if let (Some(failure), false) = (&mut facts.failure, self.state.options.show_errors) {
            failure.hide_model_text();
        }
        RequestShown {
            request_id: facts.request_id.clone().into(),
            at_ms: facts.at_ms,
            ms: rounded(facts.lengths.total().as_secs_f64() * 1e3),
            usual_ms: facts.usual.map(|usual| rounded(usual.total.as_secs_f64() * 1e3)),
            why: why(facts),
        }
    }

    fn outcomes(&self) -> Vec<OutcomeShown> {
        let shown = self.sampled.outcomes().into_iter().map(|(outcome, count)| OutcomeShown {
            outcome: outcome.reason(),
            blame: outcome.blame().label(),
            count,
        });
        shown.collect()
    }

    fn last_batches(&self) -> Vec<BatchShown> {
        let seen = self.explanation.iter().flat_map(|explanation| &explanation.last_batches);
        let words = |label: &str| CloseReason::ALL.iter().find(|reason| reason.label() == label).map(|&r| closed(r));
        seen.map(|&seen| BatchShown { seen, closed: words(seen.reason).unwrap_or_default() }).collect()
    }
}

/// Where the time of a mean item went. Bodies and answers are those of requests.
fn phases(recent: &Totals) -> Vec<PhaseShown> {
    let shown = PHASES.iter().zip(recent.phases).map(|(&phase, seconds)| {
        let count = if matches!(phase, "receive" | "render") { recent.answered } else { recent.items };
        PhaseShown { phase, ms: if count == 0 { 0.0 } else { rounded(seconds * 1e3 / count as f64) } }
    });
    shown.collect()
}

/// Batches by size, up to the largest range that there was.
fn sizes(recent: &Totals) -> Vec<CountShown> {
    let end = recent.sizes.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
    let shown = recent.sizes[..end].iter().enumerate();
    shown.map(|(range, &count)| CountShown { label: size_label(range), count }).collect()
}

/// Batches by why they were closed, the most frequent reason first.
fn reasons(recent: &Totals) -> Vec<CountShown> {
    let mut found: Vec<(CloseReason, u64)> = CloseReason::ALL.into_iter().zip(recent.reasons).collect();
    found.retain(|(_, count)| *count > 0);
    found.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    found.into_iter().map(|(reason, count)| CountShown { label: closed(reason).to_owned(), count }).collect()
}

fn options(first: &Deployment) -> Vec<OptionShown> {
    let all = serde_json::to_value(&first.manifest.options).unwrap_or_default();
    let given = first.manifest.option_sources.iter().filter(|(_, source)| *source != "default");
    let shown = given.map(|(name, source)| OptionShown {
        name: name.clone(),
        value: all[name].as_str().map_or_else(|| all[name].to_string(), str::to_owned),
        source: source.clone(),
    });
    shown.collect()
}
