//! What the front serves, and what it says of itself. Shared by all connections.

pub mod live;

use crate::base::access_log::log::AccessLog;
use crate::base::keys::Keys;
use crate::base::ledger::Ledger;
use crate::base::refusal_pacing::RefusalPacing;
use crate::base::telemetry::Telemetry;
use crate::base::telemetry::http_requests::HttpRequests;
use crate::base::telemetry::workers::Workers;
use crate::base::traces::tracer::Tracer;
use crate::engine::catalogue::Catalogue;
use crate::engine::deployment::Deployment;
use crate::engine::deployment::ticket::{OutcomeCounts, UNKNOWN};
use crate::engine::readiness::Readiness;
use crate::engine::server_state::live::hub::LiveHub;
use crate::engine::task::asks::Asking;
use crate::values::answer::Failure;
use jitney_core::config::options::ServerOptions;
use jitney_core::tables::metrics;
use jitney_core::tables::outcome::Outcome;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::watch;

/// The names of the protocols over HTTP, as the access log and the metrics have them.
pub(crate) const PROTOCOLS: [&str; 4] = ["native", "openai", "open_inference", "grpc"];

/// The state behind every route.
#[derive(Debug)]
pub struct ServerState {
    /// The server's options.
    pub options: ServerOptions,
    /// Where each of them came from.
    pub option_sources: BTreeMap<String, String>,
    /// The API keys that may call; `None` if no key is needed.
    pub keys: Option<Arc<Keys>>,
    /// `None` if no request has a line in it.
    pub access_log: Option<Arc<AccessLog>>,
    /// `None` if no request is traced.
    pub traces: Option<Arc<Tracer>>,
    /// All metrics.
    pub telemetry: Arc<Telemetry>,
    /// When it was made, by the clock that people read and set, and by the one that only counts.
    pub created: SystemTime,
    pub(crate) started: Instant,
    /// Requests over HTTP, by protocol and status.
    pub(crate) http_requests: HttpRequests,
    /// The memory that clients make the server hold.
    pub ledger: Ledger,
    /// Counts requests whose deployment is unknown: what names it never arrived, or it is not there.
    pub(crate) unknown: Arc<OutcomeCounts>,
    /// Carries out what models ask other models, once the server runs.
    pub(crate) asking: OnceLock<Arc<dyn Asking>>,
    /// The replicas, for pages that ask.
    pub workers: Workers,
    /// The watchers of the live page, and what was sampled for them.
    pub live: LiveHub,
    /// When refusals may leave.
    pub(crate) refusing: RefusalPacing,
    /// `None` until all targets have been imported. The lock is only taken to copy or to replace the pointer.
    catalogue: RwLock<Option<Arc<Catalogue>>>,
    readiness: watch::Sender<Arc<Readiness>>,
    has_been_ready: AtomicBool,
}

impl ServerState {
    /// One that serves nothing yet.
    #[cfg(test)]
    pub(crate) fn for_test(max_body_bytes: u64) -> ServerState {
        let options = ServerOptions {
            max_body_bytes,
            max_receiving_bytes: 1 << 20,
            body_timeout_s: 1.0,
            ..ServerOptions::for_test()
        };
        ServerState::new(options, Arc::new(Telemetry::new()))
    }

    /// A state that is still loading.
    pub fn new(options: ServerOptions, telemetry: Arc<Telemetry>) -> ServerState {
        let ledger = Ledger::default();
        telemetry.show_account(metrics::RECEIVING_BYTES, &[], &ledger.received);
        telemetry.show_account(metrics::UNTAKEN_BYTES, &[], &ledger.untaken);
        telemetry.gauge(metrics::INFO, &[env!("CARGO_PKG_VERSION")]).set(1);
        ServerState {
            options,
            option_sources: BTreeMap::new(),
            keys: None,
            access_log: None,
            traces: None,
            created: SystemTime::now(),
            started: Instant::now(),
            asking: OnceLock::new(),
            http_requests: HttpRequests::new(&telemetry, &PROTOCOLS),
            workers: Workers::default(),
            live: LiveHub::default(),
            refusing: RefusalPacing::new(),
            ledger,
            unknown: OutcomeCounts::new(&telemetry, UNKNOWN),
            telemetry,
            catalogue: RwLock::new(None),
            readiness: watch::Sender::new(Arc::new(Readiness::importing())),
            has_been_ready: AtomicBool::new(false),
        }
    }

    /// What is served now; `None` until all targets have been imported.
    pub fn catalogue(&self) -> Option<Arc<Catalogue>> {
        self.catalogue.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The deployments that are served now, in the order of their names.
    pub fn deployments(&self) -> Vec<Arc<Deployment>> {
        self.catalogue().iter().flat_map(|catalogue| catalogue.deployments()).cloned().collect()
    }

    /// The deployment that has this name now.
    pub fn deployment(&self, name: &str) -> Option<Arc<Deployment>> {
        let catalogue = self.catalogue.read().unwrap_or_else(PoisonError::into_inner);
        catalogue.as_ref()?.get(name).cloned()
    }

    /// Where a request for this deployment is counted; without one, with those whose deployment is unknown.
    pub(crate) fn counts<'a>(&'a self, deployment: Option<&'a Deployment>) -> &'a Arc<OutcomeCounts> {
        deployment.map_or(&self.unknown, |deployment| &deployment.outcomes)
    }

    /// The deployment that is called at a path, given without its first slash.
    pub fn called_at(&self, path: &str) -> Option<Arc<Deployment>> {
        let catalogue = self.catalogue.read().unwrap_or_else(PoisonError::into_inner);
        catalogue.as_ref()?.at(path).cloned()
    }

    /// Serves the deployments of this catalogue from now on. A request in flight keeps the deployment that it has.
    pub fn serve(&self, catalogue: Catalogue) {
        for (traces, deployment) in
            self.traces.iter().flat_map(|traces| catalogue.deployments().map(move |one| (traces, one)))
        {
            let manifest = &deployment.manifest;
            traces.add_deployment(
                &manifest.name,
                manifest.options.latency_target_ms.map(|ms| Duration::from_secs_f64(ms / 1e3)),
            );
        }
        *self.catalogue.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(catalogue));
    }

    /// The current readiness.
    pub fn readiness(&self) -> Arc<Readiness> {
        self.readiness.borrow().clone()
    }

    /// The readiness, and each change of it.
    pub(crate) fn watch_readiness(&self) -> watch::Receiver<Arc<Readiness>> {
        self.readiness.subscribe()
    }

    /// Whether it has been ready before, whatever became of its workers since.
    pub fn has_been_ready(&self) -> bool {
        self.has_been_ready.load(Ordering::Relaxed)
    }

    /// Waits until it is ready.
    pub async fn ready(&self) {
        // The sender is in `self`: this ends with true or not at all.
        let _ = self.readiness.subscribe().wait_for(|readiness| readiness.ready).await;
    }

    /// Replaces the readiness.
    pub fn set_readiness(&self, readiness: Readiness) {
        self.has_been_ready.fetch_or(readiness.ready, Ordering::Relaxed);
        self.readiness.send_replace(Arc::new(readiness));
    }

    /// The failure of a request for a deployment that arrives before all targets have been imported. `advice` says what
    /// to do.
    pub fn loading(&self, advice: &str) -> Failure {
        let failure = Failure::new(Outcome::Loading, format!("the targets are still being imported; {advice}"));
        Failure { retry_after: Some(self.loading_retry_after()), ..failure }
    }

    /// How long a client should wait that got 503 because targets are still being imported.
    pub fn loading_retry_after(&self) -> Duration {
        Duration::from_secs(2)
    }
}
