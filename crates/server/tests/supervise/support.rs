//! A supervisor whose workers are fakes.

use bytes::Bytes;
use jitney_core::config::options::{DeploymentOptions, ServerOptions};
use jitney_server::base::fatal::Fatal;
use jitney_server::base::telemetry::Telemetry;
use jitney_server::engine::deployment::Deployment;
use jitney_server::engine::server_state::ServerState;
use jitney_server::link::front::worker_event::WorkerEvent;
use jitney_server::values::answer::Answer;
use jitney_server::values::call::{Call, Encoding, Part};
use jitney_server::values::chunks::Chunks;
use jitney_server::values::tensor::Tag;
use jitney_server::workers::settings::{Settings, Target};
use jitney_server::workers::supervisor::state::{Stop, Supervisor};
use serde_json::{Value, json};
use smallvec::SmallVec;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// Nothing here takes longer unless it hangs.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// `cargo test` builds examples next to tests.
pub(crate) fn fake_worker() -> String {
    let test = std::env::current_exe().unwrap();
    let path: PathBuf = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples/fake_worker");
    assert!(path.exists(), "first: cargo build -p jitney-server --example fake_worker");
    path.to_string_lossy().into_owned()
}

pub(crate) fn server_options() -> ServerOptions {
    ServerOptions { max_connections: 10, ..ServerOptions::for_test() }
}

pub(crate) fn settings(server: &ServerOptions, targets: Vec<Target>, python: &str, cores: u32) -> Settings {
    let settings = json!({"server": server, "targets": [], "python": python, "cores": cores, "server_sources": {}});
    Settings { targets, ..serde_json::from_value(settings).unwrap() }
}

/// A target with one deployment, whose options differ from the usual ones in `options`.
pub(crate) fn target(name: &str, does: &[&str], options: Value) -> Target {
    let all = DeploymentOptions { max_batch_size: 4, load_timeout_s: 60.0, ..DeploymentOptions::for_test() };
    let mut all = serde_json::to_value(all).unwrap();
    let Value::Object(options) = options else { panic!("options are an object") };
    all.as_object_mut().unwrap().extend(options);
    let manifest = json!({"target": name, "deployments": [{
        "name": name, "doc": "", "options": all, "option_sources": {},
        "input": {"kind": "text", "arrays": [], "schema": true},
        "output": {"kind": "text", "arrays": [], "schema": true},
        "group_by": [], "cost": null, "examples": [],
    }]});
    Target {
        target: json!({"manifest": manifest, "does": does}).to_string(),
        overrides: Value::Null,
        workers: 1,
        shares: 1,
    }
}

pub(crate) struct Running {
    pub(crate) state: Arc<ServerState>,
    pub(crate) stop: watch::Sender<Stop>,
    pub(crate) reports: mpsc::UnboundedSender<WorkerEvent>,
    pub(crate) supervision: JoinHandle<Result<(), Fatal>>,
    pub(crate) directory: TempDir,
}

impl Running {
    pub(crate) fn start(targets: Vec<Target>) -> Running {
        Running::with(targets, &fake_worker(), 4)
    }

    pub(crate) fn with(targets: Vec<Target>, python: &str, cores: u32) -> Running {
        Running::of(settings(&server_options(), targets, python, cores))
    }

    /// Of targets that are being worked on.
    pub(crate) fn renewing(targets: Vec<Target>) -> Running {
        Running::of(Settings { renews: true, ..settings(&server_options(), targets, &fake_worker(), 4) })
    }

    fn of(settings: Settings) -> Running {
        let state = Arc::new(ServerState::new(server_options(), Arc::new(Telemetry::new())));
        let directory = tempfile::tempdir().unwrap();
        let (stop, mut stopped) = watch::channel(Stop::No);
        let mut supervisor = Supervisor::start(Arc::new(settings), state.clone(), directory.path(), None).unwrap();
        let reports = supervisor.events();
        let supervision = tokio::spawn(async move {
            let result = supervisor.run(&mut stopped).await;
            supervisor.end(&mut stopped).await;
            result
        });
        Running { state, stop, reports, supervision, directory }
    }

    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&ServerState) -> bool) {
        let held = async {
            while !holds(&self.state) {
                tokio::task::yield_now().await;
            }
        };
        let in_time = tokio::time::timeout(LONG, held).await;
        assert!(in_time.is_ok(), "not {what}: {:?}", self.state.readiness());
    }

    pub(crate) async fn ready(&self) {
        self.until("ready", |state| state.readiness().ready).await;
    }

    pub(crate) fn deployment(&self, name: &str) -> Arc<Deployment> {
        self.state.deployment(name).unwrap()
    }

    /// The number of the worker that answers.
    pub(crate) async fn call(&self, name: &str) -> u32 {
        let answer = tokio::time::timeout(LONG, self.deployment(name).call(call())).await.expect("an answer");
        number(&answer)
    }

    pub(crate) async fn fatal(self) -> Fatal {
        tokio::time::timeout(LONG, self.supervision).await.expect("an end").unwrap().unwrap_err()
    }

    pub(crate) async fn stopped(self, stop: Stop) {
        self.stop.send_replace(stop);
        tokio::time::timeout(LONG, self.supervision).await.expect("an end").unwrap().unwrap();
    }

    pub(crate) fn lost(&self, name: &str, cause: &str) -> u64 {
        self.state.telemetry.counter(jitney_core::tables::metrics::WORKERS_LOST, &[name, cause]).get()
    }
}

pub(crate) fn call() -> Call {
    let data = Chunks::from(Bytes::from_static(b"x"));
    let part = Part { tag: Tag::Text, tensor: None, data };
    Call::new(SmallVec::from_elem(part, 1), Encoding::Json)
}

pub(crate) fn number(answer: &Answer) -> u32 {
    let parts = answer.result.as_ref().unwrap_or_else(|failure| panic!("{failure:?}"));
    std::str::from_utf8(&parts[0].data).unwrap().parse().unwrap()
}
