//! The engines of the deployments that are served.

use crate::base::clock::Clock;
use crate::base::fatal::Fatal;
use crate::base::telemetry::Telemetry;
use crate::engine::deployment::demand::Demand;
use crate::engine::deployment::inbox::Inbox;
use crate::engine::deployment::{Deployment, FIRST_VERSION, Inbound};
use crate::engine::program_values::composed::Composition;
use crate::engine::server_state::ServerState;
use crate::engine::task::Engine;
use crate::engine::task::asks::Asks;
use crate::link::front::worker_event::WorkerEvent;
use crate::workers::placement::warm_up;
use jitney_core::config::manifest::DeploymentManifest;
use jitney_core::config::options::length;
use jitney_core::config::rules::Rules;
use jitney_core::queue::group_key::GroupKey;
use jitney_core::supervisor::event::Cause;
use jitney_core::tables::metrics;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// One engine, and what the supervisor must know of its deployment.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) engine: mpsc::UnboundedSender<Inbound>,
    pub(crate) min_ready: usize,
    pub(crate) demand: Demand,
    /// The group key and the cost of the example of each method, by its name.
    pub(crate) examples: BTreeMap<String, (GroupKey, u64)>,
    pub(crate) load_timeout: Duration,
    pub(crate) batch_timeout_s: f64,
    pub(crate) max_answer_bytes: u64,
    pub(crate) max_batch_size: u64,
    /// The deployments that its model calls.
    pub(crate) uses: Vec<String>,
}

/// Shows the options against which its load is measured, and what it is. A loss is counted from 0 on: a counter that is born
/// with its first loss would not show it.
fn show_limits(telemetry: &Telemetry, manifest: &DeploymentManifest) {
    let (name, options) = (manifest.deployment(), &manifest.options);
    for (gauge, limit) in [
        (metrics::MAX_BATCH_ITEMS, options.max_batch_size.into()),
        (metrics::MAX_QUEUED_ITEMS, options.max_queued_items),
        (metrics::MAX_QUEUED_BYTES, options.max_queued_bytes),
    ] {
        telemetry.gauge(gauge, &[name]).set(i64::try_from(limit).unwrap_or(i64::MAX));
    }
    for cause in Cause::ALL {
        telemetry.counter(metrics::WORKERS_LOST, &[name, cause.label()]);
    }
    let task = manifest.task.map_or("", |task| task.kind().name());
    telemetry.gauge(metrics::DEPLOYMENT_INFO, &[name, &options.policy, task, FIRST_VERSION]).set(1);
}

/// All engines, by deployment.
#[derive(Debug, Default)]
pub(crate) struct Engines {
    pub(crate) served: BTreeMap<String, Served>,
    /// The deployments that the front carries out, and which ones they call.
    pub(crate) composed: BTreeMap<String, Vec<String>>,
    tasks: JoinSet<()>,
}

impl Engines {
    /// Starts the engine of a deployment; returns the handles by which protocols call it, one for each of its methods.
    pub(crate) fn start(
        &mut self,
        methods: Vec<Arc<DeploymentManifest>>,
        rules: Rules,
        clock: Clock,
        events: mpsc::UnboundedSender<WorkerEvent>,
        state: &ServerState,
    ) -> Vec<Deployment> {
        let telemetry = &state.telemetry;
        let examples = warm_up::examples(methods.iter().map(|method| &**method));
        let (engine, inbound) = mpsc::unbounded_channel();
        let mut methods = methods.into_iter();
        let Some(first) = methods.next() else { return Vec::new() };
        let first = Deployment::new(first, engine.clone(), telemetry);
        let (manifest, published) = (first.manifest.clone(), first.published.clone());
        let name = manifest.deployment();
        let demand = published.demand().clone();
        let mut engine_task = Engine::new(name, rules, clock, inbound, events, telemetry, published);
        if let Some(asking) = state.asking.get().filter(|_| !manifest.uses.is_empty()) {
            engine_task = engine_task.with_asks(Asks::of(asking.clone(), &manifest.uses));
        }
        self.tasks.spawn(engine_task.run());
        let options = &manifest.options;
        show_limits(telemetry, &manifest);
        let served = Served {
            engine,
            min_ready: options.min_ready_replicas as usize,
            demand,
            examples,
            load_timeout: length(options.load_timeout_s),
            batch_timeout_s: options.batch_timeout_s,
            max_answer_bytes: options.max_answer_bytes,
            max_batch_size: options.max_batch_size.into(),
            uses: manifest.uses.clone(),
        };
        self.served.insert(name.to_owned(), served);
        let others: Vec<_> = methods.map(|method| first.of_method(method, telemetry)).collect();
        std::iter::once(first).chain(others).collect()
    }

    /// Adds the deployments of these manifests that the front carries out to the others, which they call.
    pub(crate) fn compose(
        &mut self,
        mut manifests: Vec<Arc<DeploymentManifest>>,
        deployments: &mut Vec<Deployment>,
        clock: Clock,
        state: &ServerState,
    ) {
        let mut known: BTreeMap<String, Deployment> =
            deployments.iter().map(|one| (one.manifest.name.clone(), one.clone())).collect();
        // One may call another. The plan has no circle, so each turn finds at least one that can be made.
        let mut left = usize::MAX;
        while manifests.len() < left {
            left = manifests.len();
            manifests.retain(|manifest| {
                let Some(composition) = Composition::new(manifest, &known, clock) else { return true };
                let inbox = Inbox::of_front(Arc::new(composition));
                let deployment = Deployment::new(manifest.clone(), inbox, &state.telemetry);
                self.composed.insert(manifest.name.clone(), manifest.uses.clone());
                known.insert(manifest.name.clone(), deployment.clone());
                deployments.push(deployment);
                false
            });
        }
    }

    /// The engine of a deployment.
    pub(crate) fn get(&self, deployment: &str) -> Option<&Served> {
        self.served.get(deployment)
    }

    /// Reports to an engine what happened to one of its workers.
    pub(crate) fn send(&self, deployment: &str, message: Inbound) {
        if let Some(served) = self.served.get(deployment) {
            // An engine that has ended is noticed by `failed`.
            let _ = served.engine.send(message);
        }
    }

    /// No engine lets anything new in.
    pub(crate) fn close(&self) {
        for name in self.served.keys() {
            self.send(name, Inbound::Drain);
        }
    }

    /// Waits until an engine has ended, which none does in order.
    pub(crate) async fn failed(&mut self) -> Fatal {
        let Some(ended) = self.tasks.join_next().await else { return std::future::pending().await };
        let how = ended.map_or_else(|error| error.to_string(), |()| "it returned".into());
        Fatal::broken("an engine", &how)
    }

    /// Runs a task in place of an engine.
    #[cfg(test)]
    pub(crate) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }
}
