//! The engines and workers of one server, from settings to end, without any protocol: what `serve` puts behind HTTP and
//! `embed` into a program.

use crate::base::fatal::Fatal;
use crate::clients::server::asks::ModelCalls;
use crate::engine::server_state::ServerState;
use crate::link::front::worker_event::WorkerEvent;
use crate::protocols::native::live::sampler;
use crate::run::{leftovers, worker_ports};
use crate::workers::settings::Settings;
use crate::workers::supervisor::state::{Stop, Supervisor};
use std::sync::Arc;
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinHandle};

/// Engines and workers that run.
#[derive(Debug)]
pub struct EngineHost {
    /// What is served, and what it says of itself.
    pub state: Arc<ServerState>,
    stop: watch::Sender<Stop>,
    events: mpsc::UnboundedSender<WorkerEvent>,
    supervision: JoinHandle<Result<(), Fatal>>,
    /// Where the socket of the workers is, for as long as there are workers.
    _directory: TempDir,
}

impl EngineHost {
    /// Starts one worker per target, and lets agents join.
    pub async fn start(settings: Arc<Settings>, state: ServerState) -> Result<EngineHost, Fatal> {
        let state = Arc::new(state);
        // Set once: this state is new.
        let _ = state.asking.set(Arc::new(ModelCalls::new(&state)));
        // Ends with the state, or with the runtime.
        drop(tokio::spawn(sampler::run(Arc::downgrade(&state))));
        // Ends with the runtime.
        drop(tokio::task::spawn_blocking(|| leftovers::sweep(&std::env::temp_dir(), leftovers::OLD)));
        let directory = tempfile::Builder::new()
            .prefix(leftovers::PREFIX)
            .tempdir()
            .map_err(|e| Fatal::new(format!("no folder for sockets: {e}")))?;
        let ports = worker_ports::bind(&settings.server).await?;
        let mut supervisor = Supervisor::start(settings, state.clone(), directory.path(), ports)?;
        let (stop, mut stopped) = watch::channel(Stop::No);
        let events = supervisor.events();
        // A separate task, so that a panic in it is an exit code and not the end of the interpreter.
        let supervision = tokio::spawn(async move {
            let result = supervisor.run(&mut stopped).await;
            supervisor.end(&mut stopped).await;
            result
        });
        Ok(EngineHost { state, stop, events, supervision, _directory: directory })
    }

    /// Waits until it has ended, by itself or because it was stopped. Not again after that.
    pub async fn ended(&mut self) -> Result<(), Fatal> {
        how((&mut self.supervision).await)
    }

    /// Asks the workers to end.
    pub fn stop(&self, how: Stop) {
        self.stop.send_replace(how);
    }

    /// Replaces all workers by new ones, which import the present files of their targets.
    pub fn renew(&self) {
        let _ = self.events.send(WorkerEvent::FilesChanged);
    }

    /// Lets go of engines and workers in any state.
    pub fn abort(&self) {
        self.supervision.abort();
    }
}

/// How the supervisor's task ended.
fn how(ended: Result<Result<(), Fatal>, JoinError>) -> Result<(), Fatal> {
    ended.unwrap_or_else(|error| Err(Fatal::broken("the supervisor", &error.to_string())))
}
