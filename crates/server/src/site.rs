//! What the front serves, and what it says of itself. Shared by all connections, read only.

use crate::call::Failure;
use crate::deployment::Deployment;
use crate::http::refusing::Refusing;
use crate::keys::Keys;
use crate::telemetry::Telemetry;
use jitney_core::metrics;
use jitney_core::options::ServerOptions;
use jitney_core::outcome::Outcome;
use prometheus::IntGauge;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};
use tokio::sync::watch;

/// Whether the server should get traffic, and why not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Ready to be called.
    pub ready: bool,
    /// One sentence per thing that is missing; empty when ready.
    pub reasons: Vec<String>,
    /// Set once shutdown has begun.
    pub draining: bool,
}

/// The state behind every route.
#[derive(Debug)]
pub struct Site {
    /// The server's options.
    pub options: ServerOptions,
    /// Where each of them came from.
    pub option_sources: BTreeMap<String, String>,
    /// Who may call; `None` if everybody may.
    pub keys: Option<Arc<Keys>>,
    /// All metrics.
    pub telemetry: Arc<Telemetry>,
    /// When it was made.
    pub created: SystemTime,
    /// Bytes of answers that clients have not taken yet; looked at for every request.
    pub untaken: IntGauge,
    /// When refusals may leave.
    pub(crate) refusing: Refusing,
    deployments: OnceLock<BTreeMap<String, Deployment>>,
    readiness: watch::Sender<Arc<Readiness>>,
    has_been_ready: AtomicBool,
}

impl Site {
    /// One that serves nothing yet.
    #[cfg(test)]
    pub(crate) fn of_a_test(max_body_bytes: u64) -> Site {
        let options = serde_json::json!({
            "listen": [], "listen_programs": [], "allow_unauthenticated": false, "api_keys_file": null, "open_metrics": false,
            "cors_origin": [], "max_body_bytes": max_body_bytes, "max_receiving_bytes": 1 << 20, "max_connections": 1,
            "header_timeout_s": 1.0, "body_timeout_s": 1.0, "idle_timeout_s": 1.0, "drain_grace_s": 0.0,
            "drain_timeout_s": 1.0, "log_format": "text", "log_level": "info",
        });
        Site::new(serde_json::from_value(options).unwrap(), Arc::new(Telemetry::new()))
    }

    /// A site that is still loading.
    pub fn new(options: ServerOptions, telemetry: Arc<Telemetry>) -> Site {
        let readiness =
            Readiness { ready: false, reasons: vec!["the targets are being imported".into()], draining: false };
        Site {
            options,
            option_sources: BTreeMap::new(),
            keys: None,
            created: SystemTime::now(),
            refusing: Refusing::new(),
            untaken: telemetry.gauge(metrics::UNTAKEN_BYTES, &[]),
            telemetry,
            deployments: OnceLock::new(),
            readiness: watch::Sender::new(Arc::new(readiness)),
            has_been_ready: AtomicBool::new(false),
        }
    }

    /// The deployments by name; `None` until all targets have been imported.
    pub fn deployments(&self) -> Option<&BTreeMap<String, Deployment>> {
        self.deployments.get()
    }

    /// Opens the routes. Called once, when every manifest is in.
    pub fn open(&self, deployments: BTreeMap<String, Deployment>) {
        assert!(self.deployments.set(deployments).is_ok(), "a site opens once");
    }

    /// The current readiness.
    pub fn readiness(&self) -> Arc<Readiness> {
        self.readiness.borrow().clone()
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

    /// What a client is told that asks for a deployment before all targets have been imported; `advice` says what to do.
    pub fn loading(&self, advice: &str) -> Failure {
        let failure = Failure::new(Outcome::Loading, format!("the targets are still being imported; {advice}"));
        Failure { retry_after: Some(self.loading_retry_after()), ..failure }
    }

    /// How long a client that was told 503 should wait.
    pub fn loading_retry_after(&self) -> Duration {
        Duration::from_secs(2)
    }
}
