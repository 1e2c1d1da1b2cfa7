//! A server from start to exit code: bind, start workers, serve, drain.

use crate::base::access_log::log::AccessLog;
use crate::base::fatal::Fatal;
use crate::base::keys::Keys;
use crate::base::telemetry::Telemetry;
use crate::base::traces::settings::TraceSettings;
use crate::base::traces::tracer::Tracer;
use crate::clients::server::admission;
use crate::engine::readiness::Readiness;
use crate::engine::server_state::ServerState;
use crate::protocols::connection::listen;
use crate::protocols::connection::listen::Listener;
use crate::protocols::connection::tls::{Certificates, Tls};
use crate::protocols::routing::service;
use crate::run::engine_host::EngineHost;
use crate::run::hangup::{Changeable, Hangup, Hangups};
use crate::run::service_manager::ServiceManager;
use crate::run::startup_message::Place;
use crate::workers::backends::children;
use crate::workers::settings::Settings;
use crate::workers::supervisor::state::Stop;
use jitney_core::config::options::ServerOptions;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinError;

/// The exit code of a server that a second signal ended.
const AT_ONCE: i32 = 130;

/// Longest time to write the errors of requests that are open when the engines end.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Each of them moves tens of thousands of requests a second: more than models answer.
const MOST_THREADS: usize = 8;

/// Runs a server to its end; the exit code.
pub fn serve(settings: Settings) -> i32 {
    // Half of the cores: a request that changes threads costs more, and models want cores too (0006-performance.md).
    let threads = (settings.cores as usize / 2).clamp(1, MOST_THREADS);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let access_log = match AccessLog::start(&settings.server) {
        Ok(access_log) => access_log.map(Arc::new),
        Err(error) => {
            tracing::error!("no thread for the access log: {error}");
            return 1;
        }
    };
    let result = runtime.map_err(|error| Fatal::new(format!("no threads: {error}"))).and_then(|runtime| {
        let result = runtime.block_on(async {
            let mut traces = None;
            let result = Box::pin(run(settings, access_log.clone(), &mut traces)).await;
            // A second signal waits for no collector.
            let is_at_once = result.as_ref().is_err_and(|fatal| fatal.code == AT_ONCE);
            if let Some(traces) = traces.filter(|_| !is_at_once) {
                traces.finish_all().await;
            }
            result
        });
        // A connection that outlived the drain is cut here.
        runtime.shutdown_timeout(Duration::from_millis(100));
        result
    });
    access_log.iter().for_each(|log| log.finish());
    match result {
        Ok(()) => 0,
        Err(fatal) => {
            tracing::error!("{}", fatal.text);
            fatal.code
        }
    }
}

/// The tracer, if the options or the variables of the environment ask for traces.
fn start_tracer(options: &ServerOptions, telemetry: &Telemetry) -> Option<Arc<Tracer>> {
    let variable = |name: &str| std::env::var(name).ok();
    let (traces, warnings) = TraceSettings::read(variable, options.trace_slow_ms);
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    traces.map(|traces| Tracer::start(traces, telemetry))
}

async fn run(
    settings: Settings,
    access_log: Option<Arc<AccessLog>>,
    traces: &mut Option<Arc<Tracer>>,
) -> Result<(), Fatal> {
    let mut settings = settings;
    bound_connections(&mut settings.server, raise_file_limit());
    let settings = Arc::new(settings);
    let options = &settings.server;
    let keys = read_keys(&settings).map_err(Fatal::new)?;
    listen::check_reach(&options.listen, options.allow_unauthenticated || keys.is_some()).map_err(Fatal::new)?;
    let no_handlers = |error: std::io::Error| Fatal::new(format!("no signal handlers: {error}"));
    let mut stop_signals = StopSignals::new().map_err(no_handlers)?;
    let mut hangups = Hangups::new(settings.renews).map_err(no_handlers)?;
    // Before any worker reads a file.
    let mut renewals = settings.renews.then(|| signal(SignalKind::user_defined1())).transpose();
    let renewals = renewals.as_mut().map_err(|error| Fatal::new(format!("no signal handlers: {error}")))?;
    let certificates = Certificates::load(options.tls_cert.as_deref(), options.tls_key.as_deref());
    let certificates = certificates.map_err(Fatal::new)?;
    let listeners = bind(options, certificates.as_ref()).await.map_err(Fatal::new)?;
    check_programs(&options.listen_programs, keys.is_some()).map_err(Fatal::new)?;
    let programs = listen::bind(&options.listen_programs).await.map_err(Fatal::new)?;
    let places: Vec<Place> = listeners.iter().map(Place::of).collect();
    let mut state = settings.state();
    state.access_log = access_log;
    traces.clone_from(&start_tracer(options, &state.telemetry));
    state.traces.clone_from(traces);
    let changeable = Changeable { keys: keys.clone(), certificates, options: settings.reread.clone() };
    if let Some(keys) = &keys {
        state.keys = Some(keys.clone());
        // Ends with the runtime.
        tokio::spawn(keys.clone().follow());
    }
    if settings.owns_process {
        tokio::spawn(children::reap());
    }
    let mut host = EngineHost::start(settings.clone(), state).await?;
    let state = host.state.clone();
    if let Some(manager) = ServiceManager::from_environment() {
        tokio::spawn(manager.follow(state.clone()));
    }

    let (stop_accepting, stopped) = watch::channel(false);
    for place in &places {
        tracing::info!("listening on {}", place.url());
    }
    for listener in &programs {
        tracing::info!("programs call at {}", listener.local_address());
    }
    let mut front = tokio::spawn(front(listeners, programs, state.clone(), stopped));
    let greeting = tokio::spawn(greet(state.clone(), places));
    let ended = loop {
        tokio::select! {
            result = host.ended() => break Some(result),
            front = &mut front => break Some(Err(front_ended(front))),
            () = stop_signals.next() => break None,
            () = renewed(renewals) => host.renew(),
            hangup = hangups.next() => match hangup {
                Hangup::TerminalClosed => break None,
                Hangup::Reread => drop(tokio::spawn(changeable.clone().reread())),
            },
        }
    };
    greeting.abort();
    if let Some(result) = ended {
        // With the supervisor go the engines: requests that still wait get an error, if that is quick.
        host.abort();
        stop_accepting.send_replace(true);
        let _ = tokio::time::timeout(LAST_ANSWERS, &mut front).await;
        return result;
    }
    let drained = drain(&state, &settings.server, &stop_accepting, &mut front, &mut stop_signals);
    let drained = tokio::select! {
        drained = drained => drained,
        result = host.ended() => return result.and(Err(Fatal::new("the supervisor ended during the drain"))),
    };
    if drained.as_ref().is_err_and(|fatal| fatal.code == AT_ONCE) {
        host.stop(Stop::AtOnce);
    } else {
        host.stop(Stop::InOrder);
        tokio::select! {
            result = host.ended() => {
                if !front.is_finished() {
                    // The requests that were still open have ended with an error, which is being written.
                    let _ = tokio::time::timeout(LAST_ANSWERS, &mut front).await;
                }
                return result.and(drained);
            }
            () = stop_signals.next() => host.stop(Stop::AtOnce),
        };
    }
    host.ended().await.and(drained)
}

fn read_keys(settings: &Settings) -> Result<Option<Arc<Keys>>, String> {
    let file = settings.server.api_keys_file.as_deref().map(Path::new);
    let keys = Keys::load(settings.api_keys.0.as_deref(), file)?;
    if keys.is_none() && settings.has_client_key {
        tracing::warn!(
            "JITNEY_CLIENT_KEY is what a program sends that calls; this server asks for no key: set JITNEY_API_KEYS for that"
        );
    }
    Ok(keys.map(Arc::new))
}

/// Binds the addresses of HTTP, or of HTTPS with certificates.
async fn bind(options: &ServerOptions, certificates: Option<&Arc<Certificates>>) -> Result<Vec<Listener>, String> {
    let mut listeners = listen::bind(&options.listen).await?;
    if let Some(certificates) = certificates {
        let tls = Tls::new(certificates.clone());
        listeners.iter_mut().for_each(|listener| listener.protect(&tls));
        // Ends with the runtime.
        tokio::spawn(certificates.clone().follow());
    }
    Ok(listeners)
}

/// All protocols of the server. It ends when all have, once they are stopped.
async fn front(
    listeners: Vec<Listener>,
    programs: Vec<Listener>,
    state: Arc<ServerState>,
    stopped: watch::Receiver<bool>,
) {
    let http = service::serve(listeners, state.clone(), stopped.clone());
    admission::serve(programs, state, stopped, http).await;
}

/// A program on another machine is unknown to this one.
fn check_programs(places: &[String], has_keys: bool) -> Result<(), String> {
    match places.iter().find(|place| !place.starts_with("unix:")) {
        Some(place) if !has_keys => Err(format!(
            "listen_programs: whoever calls at `{place}` needs a key: set JITNEY_API_KEYS or --api-keys-file, or use \
             unix:PATH"
        )),
        _ => Ok(()),
    }
}

fn front_ended(ended: Result<(), JoinError>) -> Fatal {
    let how = ended.map_or_else(|error| error.to_string(), |()| "it returned".into());
    Fatal::broken("the front", &how)
}

/// Not ready, grace, stop accepting, finish requests in flight. A second signal ends it at once.
async fn drain(
    state: &ServerState,
    options: &ServerOptions,
    stop_accepting: &watch::Sender<bool>,
    front: &mut tokio::task::JoinHandle<()>,
    signals: &mut StopSignals,
) -> Result<(), Fatal> {
    tracing::info!("shutting down: finishing in-flight requests");
    state.set_readiness(Readiness::ending("the server is shutting down"));
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
async fn greet(state: Arc<ServerState>, places: Vec<Place>) {
    let started = Instant::now();
    state.ready().await;
    let deployments = state.deployments();
    let names: Vec<&str> = deployments.iter().map(|deployment| deployment.manifest.name.as_str()).collect();
    tracing::info!("{}", crate::run::startup_message::settings_line("server", &state.options, &state.option_sources));
    for deployment in &deployments {
        let manifest = &deployment.manifest;
        tracing::info!(
            "{}",
            crate::run::startup_message::settings_line(&manifest.name, &manifest.options, &manifest.option_sources)
        );
    }
    tracing::info!("ready after {:.1} s: {}", started.elapsed().as_secs_f64(), names.join(", "));
    if let Some(place) = places.first() {
        let tries = deployments
            .iter()
            .filter_map(|d| crate::run::startup_message::curl_line(place, &d.manifest, state.keys.is_some()));
        tries.for_each(|line| tracing::info!("try: {line}"));
    }
}

/// Descriptors that are not given to connections: sockets of workers, pipes, files. Of a low limit, half.
const DESCRIPTORS_KEPT: u64 = 576;

/// The next word that files have changed.
async fn renewed(renewals: &mut Option<Signal>) {
    match renewals {
        Some(renewals) => drop(renewals.recv().await),
        None => std::future::pending().await,
    }
}

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
