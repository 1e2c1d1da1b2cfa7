//! What a server is to serve and how its workers are started: the settings that Python hands over.

use crate::base::telemetry::Telemetry;
use crate::engine::server_state::ServerState;
use crate::workers::backends::backend::WorkerLog;
use crate::workers::backends::inline::InlineWorkers;
use jitney_core::config::options::ServerOptions;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the Python side decides before the server starts, as JSON.
#[allow(clippy::struct_excessive_bools, reason = "independent facts about the process")]
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The server's options.
    pub server: ServerOptions,
    /// What to serve.
    pub targets: Vec<Target>,
    /// Where each of the server's options came from.
    #[serde(default)]
    pub server_sources: BTreeMap<String, String>,
    /// Deployments for which options were given in the file or on the command line, so that a misspelt name is an error;
    /// with each the place where, as a message says it.
    #[serde(default)]
    pub override_names: BTreeMap<String, String>,
    /// Deployments for which options were given in the environment, as environment variables spell them; with each the place
    /// where, as a message says it.
    #[serde(default)]
    pub environment_names: BTreeMap<String, String>,
    /// `JITNEY_API_KEYS`, which no worker inherits.
    #[serde(default)]
    pub api_keys: ApiKeys,
    /// Whether `JITNEY_CLIENT_KEY` is set, which is what programs send and no server takes.
    #[serde(default)]
    pub has_client_key: bool,
    /// Whether the targets are being worked on: SIGUSR1 says that their files have changed.
    #[serde(default)]
    pub renews: bool,
    /// The interpreter of the workers.
    pub python: String,
    /// Cores that this server may use.
    pub cores: u32,
    /// Further folders in which workers look for modules, after those of their interpreter: the program's own
    /// `sys.path`.
    #[serde(default)]
    pub path: Vec<String>,
    /// Whether this process is the server's alone, and no program's: then it may reap what it has not started.
    #[serde(default)]
    pub owns_process: bool,
    /// Reads options again while the server runs; without it they stay.
    #[serde(skip)]
    pub reread: Option<Reread>,
    /// The engine is part of a program, whose log has what workers log.
    #[serde(skip)]
    pub is_in_program: bool,
    /// The workers that this process runs itself. Without it, each worker is a separate process.
    #[serde(skip)]
    pub inline: Option<Arc<InlineWorkers>>,
}

impl Settings {
    /// How workers log.
    pub(crate) fn worker_log(&self) -> WorkerLog {
        match &*self.server.log_format {
            _ if self.is_in_program => WorkerLog::Program,
            "json" => WorkerLog::Json,
            _ => WorkerLog::Text,
        }
    }

    /// The state of a server that serves nothing yet.
    pub fn state(&self) -> ServerState {
        // Who changes the files of a model while it is served is its author.
        let options = ServerOptions { show_errors: self.server.show_errors || self.renews, ..self.server.clone() };
        let mut state = ServerState::new(options, Arc::new(Telemetry::new()));
        state.option_sources.clone_from(&self.server_sources);
        state
    }
}

/// Reads options again that may change while the server runs. Returns what was read, in words, or why it cannot be read.
#[derive(Clone)]
pub struct Reread(pub Arc<dyn Fn() -> Result<String, String> + Send + Sync>);

impl std::fmt::Debug for Reread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reread")
    }
}

/// A list of keys that nothing prints.
#[derive(Default, serde::Deserialize)]
#[serde(transparent)]
pub struct ApiKeys(pub Option<String>);

impl std::fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "ApiKeys(***)" } else { "ApiKeys" })
    }
}

/// One target.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// As the user wrote it.
    pub target: String,
    /// Layers of options; workers resolve them.
    pub overrides: serde_json::Value,
    /// Workers that import it at once, before its manifest says how many replicas there are: as many as are expected.
    pub workers: u32,
    /// Most replicas that it is expected to have, which share the cores. As many as `workers` if absent.
    #[serde(default)]
    pub shares: u32,
}
