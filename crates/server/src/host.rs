//! Engines and their workers from settings to end, without a door: what `serve` puts behind HTTP and `embed` into a
//! program.

use crate::report::Report;
use crate::site::Site;
use crate::supervise::{self, Stop, Supervisor};
use crate::telemetry::Telemetry;
use jitney_core::options::ServerOptions;
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
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
    /// Deployments for which options were given in the file or on the command line, so that a misspelt name is an error;
    /// with each the place where, as a message says it.
    #[serde(default)]
    pub override_names: BTreeMap<String, String>,
    /// The same for environment variables, in their spelling.
    #[serde(default)]
    pub environment_names: BTreeMap<String, String>,
    /// `JITNEY_API_KEYS`, which no worker inherits.
    #[serde(default)]
    pub api_keys: ApiKeys,
    /// Whether `JITNEY_API_KEY` is set, which is what programs send and no server takes.
    #[serde(default)]
    pub has_client_key: bool,
    /// Whether the targets are being worked on: SIGUSR1 says that their files have changed.
    #[serde(default)]
    pub renews: bool,
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

/// The exit code of a server that is to be started again, because its targets are not what they were.
pub const CHANGED: i32 = 75;

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
    reports: mpsc::UnboundedSender<Report>,
    supervision: JoinHandle<Result<(), Fatal>>,
    /// Where the socket of the workers is, for as long as there are workers.
    _directory: TempDir,
}

impl Host {
    /// Starts one worker per target. Must be called within a tokio runtime.
    pub fn start(settings: Arc<Settings>, site: Site) -> Result<Host, Fatal> {
        let site = Arc::new(site);
        // Ends with the runtime.
        drop(tokio::task::spawn_blocking(|| sweep(&std::env::temp_dir(), OLD)));
        let directory = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir()
            .map_err(|e| Fatal::new(format!("no folder for sockets: {e}")))?;
        let mut supervisor = Supervisor::start(settings, site.clone(), directory.path())?;
        let (stop, mut stopped) = watch::channel(Stop::No);
        let reports = supervisor.reports();
        // A task of its own, so that a panic in it is an exit code and not the end of the interpreter.
        let supervision = tokio::spawn(async move {
            let result = supervisor.run(&mut stopped).await;
            supervisor.end(&mut stopped).await;
            result
        });
        Ok(Host { site, stop, reports, supervision, _directory: directory })
    }

    /// Waits until it has ended, by itself or because it was told to. Not again after that.
    pub async fn ended(&mut self) -> Result<(), Fatal> {
        how((&mut self.supervision).await)
    }

    /// Tells the workers to end.
    pub fn stop(&self, how: Stop) {
        self.stop.send_replace(how);
    }

    /// Lets other workers take the places of those that there are, with the files of their targets as they are now.
    pub fn renew(&self) {
        let _ = self.reports.send(Report::Renew);
    }

    /// Lets go of engines and workers as they are.
    pub fn abort(&self) {
        self.supervision.abort();
    }
}

/// What the folders of servers are called.
const PREFIX: &str = "jitney-";
/// A younger folder may be that of a server which is just about to listen in it.
const OLD: Duration = Duration::from_secs(60);

/// Removes what servers have left behind that were killed. Whether there is still one is said by its socket and not by
/// the number of a process, which means something else in another container.
fn sweep(folder: &Path, old: Duration) {
    let own = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_left = |found: &Metadata| {
            let age = found.modified().ok().and_then(|at| at.elapsed().ok());
            found.is_dir() && found.uid() == own && age.is_some_and(|age| age >= old)
        };
        let socket = entry.path().join(supervise::SOCKET);
        if entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry.metadata().is_ok_and(|found| is_left(&found))
            // Something else of that name refuses connections too.
            && std::fs::symlink_metadata(&socket).is_ok_and(|found| found.file_type().is_socket())
            && UnixStream::connect(&socket).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        {
            // Nothing else is ever put there: a folder that holds more is somebody else's, and stays.
            let is_alone = std::fs::read_dir(entry.path()).is_ok_and(|found| found.count() == 1);
            if is_alone && std::fs::remove_file(&socket).is_ok() {
                let _ = std::fs::remove_dir(entry.path());
            }
        }
    }
}

/// How the supervisor's task ended.
fn how(ended: Result<Result<(), Fatal>, JoinError>) -> Result<(), Fatal> {
    let broken = |error| Fatal { code: BROKEN, text: format!("the supervisor has ended: {error}; please report this") };
    ended.unwrap_or_else(|error| Err(broken(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn folders_in_which_nobody_listens_are_removed_and_no_others() {
        let place = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let path = place.path().join(name);
            std::fs::create_dir(&path).unwrap();
            path
        };
        let (left, served, foreign, empty) =
            (folder("jitney-left"), folder("jitney-served"), folder("other-left"), folder("jitney-empty"));
        let (project, shared) = (folder("jitney-project"), folder("jitney-shared"));
        let listen = |path: &Path| UnixListener::bind(path.join(supervise::SOCKET)).unwrap();
        drop((listen(&left), listen(&foreign), listen(&shared)));
        std::fs::create_dir(project.join(supervise::SOCKET)).unwrap();
        std::fs::write(shared.join("notes"), "dear").unwrap();
        let _server = listen(&served);
        sweep(place.path(), Duration::from_secs(60));
        assert!(left.exists(), "it may be about to listen");
        sweep(place.path(), Duration::ZERO);
        assert!(!left.exists());
        assert!([&served, &foreign, &empty, &project, &shared.join("notes")].iter().all(|path| path.exists()));
    }
}
