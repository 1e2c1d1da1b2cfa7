//! Engines and their workers from settings to end, without a door: what `serve` puts behind HTTP and `embed` into a
//! program.

use crate::site::Site;
use crate::supervise::{Stop, Supervisor};
use crate::telemetry::Telemetry;
use jitney_core::options::ServerOptions;
use std::collections::BTreeMap;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};

/// Everything that a host is told, by Python, as JSON.
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
    /// Deployments for which options were given in the file or on the command line, so that a misspelt name is an error.
    #[serde(default)]
    pub override_names: Vec<String>,
    /// The same for environment variables, in their spelling.
    #[serde(default)]
    pub environment_names: Vec<String>,
    /// `JITNEY_API_KEYS`, which no worker inherits.
    #[serde(default)]
    pub api_keys: ApiKeys,
    /// The interpreter of the workers.
    pub python: String,
    /// Cores that this server may use.
    pub cores: u32,
    /// Folders in which workers find modules beside those that their interpreter knows: a program's own `sys.path`.
    #[serde(default)]
    pub path: Vec<String>,
}

impl Settings {
    /// The site of what is to be served, before anything is.
    pub fn site(&self) -> Site {
        let mut site = Site::new(self.server.clone(), Arc::new(Telemetry::new()));
        site.option_sources.clone_from(&self.server_sources);
        site
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
}

/// The exit code of a fault of the server's own.
pub(crate) const BROKEN: i32 = 70;

/// Why a host had to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fatal {
    /// The exit code.
    pub code: i32,
    /// For the terminal.
    pub text: String,
}

impl Fatal {
    /// A reason that the user can do something about.
    pub fn new(text: impl Into<String>) -> Fatal {
        Fatal { code: 1, text: text.into() }
    }

    /// A fault of our own, and not of the user's.
    pub fn is_broken(&self) -> bool {
        self.code == BROKEN
    }
}

/// Engines and workers that run.
#[derive(Debug)]
pub struct Host {
    /// What is served, and what it says of itself.
    pub site: Arc<Site>,
    stop: watch::Sender<Stop>,
    supervision: JoinHandle<Result<(), Fatal>>,
    /// Where the socket of the workers is, for as long as there are workers.
    _directory: TempDir,
}

impl Host {
    /// Starts one worker per target. Must be called within a tokio runtime.
    pub fn start(settings: Arc<Settings>, site: Site) -> Result<Host, Fatal> {
        let site = Arc::new(site);
        let directory = tempfile::Builder::new()
            .prefix("jitney-")
            .tempdir()
            .map_err(|e| Fatal::new(format!("no folder for sockets: {e}")))?;
        let mut supervisor = Supervisor::start(settings, site.clone(), directory.path())?;
        let (stop, mut stopped) = watch::channel(Stop::No);
        // A task of its own, so that a panic in it is an exit code and not the end of the interpreter.
        let supervision = tokio::spawn(async move {
            let result = supervisor.run(&mut stopped).await;
            supervisor.end(&mut stopped).await;
            result
        });
        Ok(Host { site, stop, supervision, _directory: directory })
    }

    /// Waits until it has ended, by itself or because it was told to. Not again after that.
    pub async fn ended(&mut self) -> Result<(), Fatal> {
        how((&mut self.supervision).await)
    }

    /// Tells the workers to end.
    pub fn stop(&self, how: Stop) {
        self.stop.send_replace(how);
    }

    /// Lets go of engines and workers as they are.
    pub fn abort(&self) {
        self.supervision.abort();
    }
}

/// How the supervisor's task ended.
fn how(ended: Result<Result<(), Fatal>, JoinError>) -> Result<(), Fatal> {
    let broken = |error| Fatal { code: BROKEN, text: format!("the supervisor has ended: {error}; please report this") };
    ended.unwrap_or_else(|error| Err(broken(error)))
}
