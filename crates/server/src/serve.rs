//! A server from start to exit code: bind, start workers, serve, drain.

use crate::http;
use crate::keys::Keys;
use crate::site::{Readiness, Site};
use crate::supervise::{Stop, Supervisor};
use crate::telemetry::Telemetry;
use jitney_core::options::ServerOptions;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinError;

/// Everything that a server is told, by Python, as JSON.
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

/// The exit code of a server that a second signal ended.
const AT_ONCE: i32 = 130;

/// The exit code of a fault of the server's own.
pub(crate) const BROKEN: i32 = 70;
/// What is left to be said when something has broken may take this long.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Why a server had to end.
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
}

/// Runs a server to its end; the exit code.
pub fn serve(settings: Settings) -> i32 {
    let threads = (settings.cores as usize).max(1);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let result = runtime.map_err(|error| Fatal::new(format!("no threads: {error}"))).and_then(|runtime| {
        let result = runtime.block_on(run(settings));
        // A connection that outlived the drain is cut here.
        runtime.shutdown_timeout(Duration::from_millis(100));
        result
    });
    match result {
        Ok(()) => 0,
        Err(fatal) => {
            tracing::error!("{}", fatal.text);
            fatal.code
        }
    }
}

async fn run(settings: Settings) -> Result<(), Fatal> {
    let mut settings = settings;
    bound_connections(&mut settings.server, raise_file_limit());
    let settings = Arc::new(settings);
    let options = &settings.server;
    let file = options.api_keys_file.as_deref().map(Path::new);
    let keys = Keys::load(settings.api_keys.0.as_deref(), file).map_err(Fatal::new)?.map(Arc::new);
    http::check_reach(&options.listen, options.allow_unauthenticated || keys.is_some()).map_err(Fatal::new)?;
    let mut stop_signals = StopSignals::new().map_err(|error| Fatal::new(format!("no signal handlers: {error}")))?;
    let listeners = http::bind(&options.listen).await.map_err(Fatal::new)?;
    let addresses: Vec<String> = listeners.iter().map(http::Listener::local_address).collect();
    let mut site = Site::new(options.clone(), Arc::new(Telemetry::new()));
    site.option_sources.clone_from(&settings.server_sources);
    if let Some(keys) = &keys {
        site.keys = Some(keys.clone());
        let keys = keys.clone();
        // Ends with the runtime.
        tokio::spawn(async move { keys.follow().await });
    }
    let site = Arc::new(site);
    let directory = tempfile::Builder::new()
        .prefix("jitney-")
        .tempdir()
        .map_err(|e| Fatal::new(format!("no folder for sockets: {e}")))?;
    let mut supervisor = Supervisor::start(settings.clone(), site.clone(), directory.path())?;

    let (stop_accepting, stopped) = watch::channel(false);
    let (stop_supervisor, mut stop) = watch::channel(Stop::No);
    for address in &addresses {
        tracing::info!("listening on {}", crate::greeting::url(address));
    }
    let mut front = tokio::spawn(http::serve(listeners, site.clone(), stopped));
    let greeting = tokio::spawn(greet(site.clone(), addresses));
    // A task of its own, so that a panic in it is an exit code and not the end of the interpreter.
    let mut supervision = tokio::spawn(async move {
        let result = supervisor.run(&mut stop).await;
        supervisor.end(&mut stop).await;
        result
    });
    let ended = tokio::select! {
        result = &mut supervision => Some(how(result)),
        front = &mut front => Some(Err(front_ended(front))),
        () = stop_signals.next() => None,
    };
    greeting.abort();
    if let Some(result) = ended {
        // With the supervisor go the engines: whoever still waits is told so, if that is quick.
        supervision.abort();
        stop_accepting.send_replace(true);
        let _ = tokio::time::timeout(LAST_ANSWERS, &mut front).await;
        return result;
    }
    let drained = drain(&site, &settings.server, &stop_accepting, front, &mut stop_signals);
    let drained = tokio::select! {
        drained = drained => drained,
        result = &mut supervision => return how(result).and(Err(Fatal::new("the supervisor ended during the drain"))),
    };
    if drained.as_ref().is_err_and(|fatal| fatal.code == AT_ONCE) {
        stop_supervisor.send_replace(Stop::AtOnce);
    } else {
        stop_supervisor.send_replace(Stop::InOrder);
        tokio::select! {
            result = &mut supervision => return how(result).and(drained),
            () = stop_signals.next() => stop_supervisor.send_replace(Stop::AtOnce),
        };
    }
    how(supervision.await).and(drained)
}

/// How the supervisor's task ended.
fn how(ended: Result<Result<(), Fatal>, JoinError>) -> Result<(), Fatal> {
    let broken = |error| Fatal { code: BROKEN, text: format!("the supervisor has ended: {error}; please report this") };
    ended.unwrap_or_else(|error| Err(broken(error)))
}

fn front_ended(ended: Result<(), JoinError>) -> Fatal {
    let how = ended.map_or_else(|error| error.to_string(), |()| "it returned".into());
    Fatal { code: BROKEN, text: format!("the front has ended: {how}; please report this") }
}

/// Not ready, grace, stop accepting, finish what is in. A second signal ends it at once.
async fn drain(
    site: &Site,
    options: &ServerOptions,
    stop_accepting: &watch::Sender<bool>,
    front: tokio::task::JoinHandle<()>,
    signals: &mut StopSignals,
) -> Result<(), Fatal> {
    tracing::info!("shutting down: finishing what is in");
    site.set_readiness(Readiness { ready: false, reasons: vec!["the server is shutting down".into()], draining: true });
    let seconds = |s: f64| Duration::try_from_secs_f64(s).unwrap_or(Duration::ZERO);
    let work = async {
        tokio::time::sleep(seconds(options.drain_grace_s)).await;
        let _ = stop_accepting.send(true);
        tokio::time::timeout(seconds(options.drain_timeout_s), front).await
    };
    tokio::select! {
        ended = work => match ended {
            Ok(Ok(())) => {
                tracing::info!("every request has been answered");
                Ok(())
            }
            Ok(Err(error)) => Err(front_ended(Err(error))),
            Err(_) => Err(Fatal::new(format!("requests were still open after drain_timeout_s = {}", options.drain_timeout_s))),
        },
        () = signals.next() => Err(Fatal { code: AT_ONCE, text: "ended at once by a second signal".into() }),
    }
}

/// Says when the server is ready, and how to try it.
async fn greet(site: Arc<Site>, addresses: Vec<String>) {
    let started = Instant::now();
    while !site.readiness().ready {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let names: Vec<&str> = site.deployments().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    tracing::info!("{}", crate::greeting::settings_line("server", &site.options, &site.option_sources));
    for (name, deployment) in site.deployments().into_iter().flatten() {
        let manifest = &deployment.manifest;
        tracing::info!("{}", crate::greeting::settings_line(name, &manifest.options, &manifest.option_sources));
    }
    tracing::info!("ready after {:.1} s: {}", started.elapsed().as_secs_f64(), names.join(", "));
    if let Some(address) = addresses.first() {
        let tries = site
            .deployments()
            .into_iter()
            .flatten()
            .filter_map(|(_, d)| crate::greeting::curl_line(address, &d.manifest));
        tries.for_each(|line| tracing::info!("try: {line}"));
    }
}

/// Descriptors that are not given to connections: sockets of workers, pipes, files. Of a low limit, half.
const DESCRIPTORS_KEPT: u64 = 512;

/// Signals that follow each other within this are one.
const BURST: Duration = Duration::from_millis(300);

/// SIGINT and SIGTERM, as one stream.
struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    last: Option<Instant>,
}

impl StopSignals {
    fn new() -> std::io::Result<StopSignals> {
        Ok(StopSignals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            last: None,
        })
    }

    /// The next request to stop. A burst counts once: `timeout` and shells send a signal to a process and to its group.
    async fn next(&mut self) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
            }
            let now = Instant::now();
            let last = self.last.replace(now);
            if last.is_none_or(|last| now - last > BURST) {
                return;
            }
        }
    }
}

/// Each connection is an open file; the usual soft limit of 1,024 is far below what is served. Returns the limit in force.
fn raise_file_limit() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    match setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::warn!(%error, "the limit of open files cannot be raised");
            limit.current
        }
    }
}

/// As many connections as leave descriptors for the workers: one that died could not be replaced without.
fn bound_connections(options: &mut ServerOptions, files: Option<u64>) {
    let Some(files) = files else { return };
    let most = u32::try_from(files - (files / 2).min(DESCRIPTORS_KEPT)).unwrap_or(u32::MAX);
    if options.max_connections > most {
        tracing::info!(
            "at most {most} connections, not {}: the limit of open files is {files}",
            options.max_connections
        );
        options.max_connections = most;
    }
}
