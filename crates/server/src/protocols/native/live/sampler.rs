//! Takes a sample of every deployment once a second, and makes one snapshot for all watchers.

use crate::base::clock::Clocks;
use crate::base::telemetry::process_stats::ProcessStats;
use crate::engine::server_state::ServerState;
use crate::engine::server_state::live::machine::{CoreTicks, LagCounts};
use crate::engine::server_state::live::points::{PHASES, Point, Totals};
use crate::engine::server_state::live::sampled::{EVERY, Look, ReplicaTimes};
use crate::protocols::native::live::condition::Known;
use crate::protocols::native::live::deployments::{Methods, by_deployment};
use crate::protocols::native::live::fault_log::FaultLog;
use crate::protocols::native::live::judgement::judge;
use crate::protocols::native::live::snapshot;
use jitney_core::policy::batch_policy::CloseReason;
use jitney_core::tables::metrics;
use jitney_core::tables::outcome::{Blame, Outcome};
use std::collections::BTreeMap;
use std::sync::Weak;
use tokio::time::{Instant, MissedTickBehavior};

/// Without a watcher the processes are looked at with each of so many samples.
const UNWATCHED_EVERY: u64 = 10;

/// Takes samples until the server has ended.
pub async fn run(state: Weak<ServerState>) {
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut faults = BTreeMap::new();
    let mut clocks = Clocks::now();
    loop {
        tick.tick().await;
        let Some(state) = state.upgrade() else { return };
        sample(&state).await;
        tell(&state, &mut faults);
        clocks.compare();
        if state.live.watchers() == 0 {
            continue;
        }
        let snapshot = snapshot::newest(&state).await;
        state.live.send(&snapshot);
        if state.readiness().draining {
            // A stream that goes on would keep the server from its end.
            state.live.close();
        }
    }
}

/// Logs the faults of deployments that hold, and their end.
fn tell(state: &ServerState, faults: &mut BTreeMap<String, FaultLog>) {
    let all = state.live.samples();
    let now = Instant::now();
    let deployments = by_deployment(state);
    faults.retain(|name, _| deployments.contains_key(name));
    for (name, methods) in &deployments {
        let (Some(first), Some(sampled)) = (methods.first(), all.deployments.get(name)) else { continue };
        let known = Known { state, samples: &all, sampled, name, first, explanation: None, shows_errors: true };
        let due = faults.entry(name.clone()).or_default().next(&judge(&known.condition()), now);
        match due {
            Some((true, text)) => tracing::warn!(deployment = name, "{name} is not well: {text}"),
            Some((false, text)) => tracing::info!(deployment = name, "{name} is healthy again: {text}"),
            None => {}
        }
    }
}

async fn sample(state: &ServerState) {
    let deployments = by_deployment(state);
    let is_watched = state.live.watchers() > 0;
    for (name, methods) in &deployments {
        let outcomes = outcomes(methods);
        if is_watched || state.live.samples().is_busy(name, &outcomes, queued(state, name, methods)) {
            futures_util::future::join_all(methods.iter().map(|method| method.show_learned())).await;
        }
    }
    let seen = state.workers.seen().await;
    let now = Instant::now();
    let mut samples = state.live.samples();
    samples.taken += 1;
    samples.workers.follow(now, seen);
    // Without a watcher only the growth of memory and the load of the machine are followed.
    if is_watched || samples.taken.is_multiple_of(UNWATCHED_EVERY) {
        samples.workers.look(now, ProcessStats::of);
        let lag = LagCounts::of(&state.telemetry.histogram(metrics::FRONT_LAG, &[]));
        samples.machine.look(now, CoreTicks::now(), lag);
    }
    samples.deployments.retain(|name, _| deployments.contains_key(name));
    for (name, methods) in deployments {
        let Some(first) = methods.first() else { continue };
        let record = first.published.live();
        let look = look(state, &name, &methods, now);
        let (durations, queued) = (record.durations.take(), queued(state, &name, &methods));
        let is_composed = first.manifest.composed.is_some();
        let oldest_s = if queued == 0 { 0.0 } else { state.telemetry.level(metrics::OLDEST_ITEM, &[&name]).get() };
        let ready = if is_composed { 0 } else { first.published.replicas() as u64 };
        for (number, times) in &look.replicas {
            let labels = [&*name, &number.to_string()];
            state.telemetry.level(metrics::WORKER_WITHOUT_PROGRESS, &labels).set(times.silent_s);
        }
        let own = samples.deployments.entry(name).or_default();
        own.add(look, |length_s, new| Point { length_s, new, durations, queued, oldest_s, ready });
        record.sampled(own.usual());
    }
}

/// Items that wait for a deployment.
fn queued(state: &ServerState, name: &str, methods: &Methods) -> u64 {
    let has_engine = methods.first().is_some_and(|first| first.manifest.composed.is_none());
    if has_engine { state.telemetry.gauge(metrics::QUEUED_ITEMS, &[name]).get().max(0) as u64 } else { 0 }
}

/// Requests of all methods by outcome.
fn outcomes(methods: &Methods) -> Vec<u64> {
    Outcome::ALL.iter().map(|&outcome| methods.iter().map(|method| method.outcomes.total(outcome)).sum()).collect()
}

fn look(state: &ServerState, name: &str, methods: &Methods, now: Instant) -> Look {
    let outcomes = outcomes(methods);
    let count = |is_meant: &dyn Fn(Outcome) -> bool| {
        Outcome::ALL.iter().zip(&outcomes).filter(|(outcome, _)| is_meant(**outcome)).map(|(_, count)| count).sum()
    };
    let blamed = |blame: Blame| count(&|outcome| outcome.blame() == blame);
    let mut totals = Totals {
        answered: count(&|outcome| outcome == Outcome::Ok),
        refused: blamed(Blame::Load),
        failed: blamed(Blame::Model) + blamed(Blame::Server),
        mistaken: blamed(Blame::Client),
        ..Totals::default()
    };
    let Some(first) = methods.first().filter(|first| first.manifest.composed.is_none()) else {
        return Look { at: now, totals, outcomes, replicas: BTreeMap::new() };
    };
    let record = first.published.live();
    let batches = record.batches();
    (totals.sizes, totals.items, totals.bytes) = (batches.sizes, batches.items, batches.bytes);
    let telemetry = &state.telemetry;
    totals.reasons = CloseReason::ALL.map(|reason| telemetry.counter(metrics::BATCHES, &[name, reason.label()]).get());
    totals.phases = PHASES.map(|phase| telemetry.total(metrics::PHASE_SECONDS, &[name, phase]).get());
    let replicas: BTreeMap<u32, ReplicaTimes> =
        record.replicas().iter().map(|(&number, used)| (number, ReplicaTimes::new(used, now))).collect();
    totals.predict_s = replicas.values().map(|times| times.predict_s).sum();
    totals.occupied_s = replicas.values().map(|times| times.occupied_s).sum();
    Look { at: now, totals, outcomes, replicas }
}
