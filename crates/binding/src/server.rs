//! Running a server, and what a worker process does first.

use crate::log_output::LogOutput;
use jitney_core::request::ReplicaId;
use jitney_server::run::agent::program::{AgentSettings, run as run_agent};
use jitney_server::run::serve::serve as run;
use jitney_server::workers::backends::inline::InlineWorkers;
use jitney_server::workers::settings::{Reread, Settings};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::debug_fn;

/// The live page, which reads `live/events` next to itself.
#[pyfunction]
pub(crate) fn live_page() -> &'static str {
    jitney_server::protocols::native::pages::live_page()
}

/// Runs a server until it ends, and returns the exit code. `reread` is called at SIGHUP, and returns the log level and the names of
/// other options that have changed.
#[pyfunction]
#[pyo3(signature = (settings, reread=None))]
pub(crate) fn serve(py: Python<'_>, settings: &str, reread: Option<Py<PyAny>>) -> PyResult<i32> {
    let mut settings: Settings =
        serde_json::from_str(settings).map_err(|error| PyValueError::new_err(format!("settings: {error}")))?;
    let (log, set_level) = log_to_stderr(&settings.server.log_level, &settings.server.log_format)?;
    settings.reread = reread.map(|reread| rereading(reread, set_level));
    let code = py.detach(|| run(settings));
    // Writes what is still on its way, if somebody takes it.
    py.detach(|| drop(log));
    Ok(code)
}

/// Runs an agent until a signal ends it, and returns the exit code.
#[pyfunction]
pub(crate) fn work(py: Python<'_>, settings: &str) -> PyResult<i32> {
    let settings: AgentSettings =
        serde_json::from_str(settings).map_err(|error| PyValueError::new_err(format!("settings: {error}")))?;
    let (log, _) = log_to_stderr(&settings.log_level, &settings.log_format)?;
    let code = py.detach(|| run_agent(settings));
    py.detach(|| drop(log));
    Ok(code)
}

/// A server whose one worker runs in this process, on the thread that asks for it.
#[pyclass(frozen, module = "jitney._core")]
#[derive(Debug)]
pub(crate) struct InlineServer {
    settings: Mutex<Option<Settings>>,
    workers: Arc<InlineWorkers>,
}

#[pymethods]
impl InlineServer {
    #[new]
    fn new(settings: &str) -> PyResult<InlineServer> {
        let mut settings: Settings =
            serde_json::from_str(settings).map_err(|error| PyValueError::new_err(format!("settings: {error}")))?;
        let workers = Arc::new(InlineWorkers::default());
        settings.inline = Some(workers.clone());
        Ok(InlineServer { settings: Mutex::new(Some(settings)), workers })
    }

    /// Runs until a signal stops the server, and returns the exit code. A second call fails.
    fn run(&self, py: Python<'_>) -> PyResult<i32> {
        let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner).take();
        let settings = settings.ok_or_else(|| PyValueError::new_err("a server runs once"))?;
        let (log, _) = log_to_stderr(&settings.server.log_level, &settings.server.log_format)?;
        let code = py.detach(|| run(settings));
        self.workers.close();
        py.detach(|| drop(log));
        Ok(code)
    }

    fn next_worker(&self, py: Python<'_>) -> Option<String> {
        py.detach(|| self.workers.next())
    }

    fn ended(&self, worker: u32) {
        self.workers.ended(ReplicaId(worker));
    }
}

/// Log lines that may wait to be written; further ones are dropped.
const LINES: usize = 4096;

/// Lines go through a separate thread: a terminal that is paused or a collector that is stuck must not stop the
/// server, and one that was closed must not end it.
pub(crate) fn lines() -> NonBlockingBuilder {
    NonBlockingBuilder::default().lossy(true).buffered_lines_limit(LINES).thread_name("jitney-log")
}

/// What is logged. The libraries that speak HTTP report only what peers do wrong, a line each time, so that any client could
/// fill a disk: they say nothing.
pub(crate) fn filter(level: &str) -> EnvFilter {
    EnvFilter::try_new(format!("{level},hyper=off,h2=off")).unwrap_or_else(|_| EnvFilter::new("info"))
}

/// Replaces the filter of the log.
type SetLevel = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// What SIGHUP does with the options: the log level is in force from now on, the others need a restart.
fn rereading(reread: Py<PyAny>, set_level: SetLevel) -> Reread {
    Reread(Arc::new(move || {
        let read = Python::attach(|py| reread.call0(py)?.extract::<(String, Vec<String>)>(py));
        let (level, changed) = read.map_err(|error| format!("the options cannot be read: {error}"))?;
        set_level(&level)?;
        let restart = match &*changed.join(", ") {
            "" => String::new(),
            changed => format!(" (a restart is needed for {changed})"),
        };
        Ok(format!("log_level {level}{restart}"))
    }))
}

/// Fails if this process has a log of jitney already: the signal handlers and the log are those of one server, and a second
/// one would be silent and could not be stopped.
fn log_to_stderr(level: &str, format: &str) -> PyResult<(WorkerGuard, SetLevel)> {
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let (writer, guard) = lines().finish(LogOutput::new(std::io::stderr(), format == "json"));
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter(level))
        .with_writer(writer)
        .with_target(false)
        .log_internal_errors(false);
    let (is_first, set_level): (_, SetLevel) = if format == "json" {
        let logs = logs.json().flatten_event(true).with_filter_reloading();
        let handle = logs.reload_handle();
        (logs.try_init(), Box::new(move |level| handle.reload(filter(level)).map_err(|error| error.to_string())))
    } else {
        // The fields are for programs; the message has them in words.
        let message =
            debug_fn(|line, field, value| if field.name() == "message" { write!(line, "{value:?}") } else { Ok(()) });
        let logs = logs.with_ansi(is_terminal).fmt_fields(message).with_filter_reloading();
        let handle = logs.reload_handle();
        (logs.try_init(), Box::new(move |level| handle.reload(filter(level)).map_err(|error| error.to_string())))
    };
    is_first.map_err(|_| {
        PyRuntimeError::new_err(
            "a server or an engine ran in this process before, and its log and signal handlers remain; a process serves \
             once, so start a new process, or use jitney.run for several engines",
        )
    })?;
    Ok((guard, set_level))
}

/// Ends the worker's group when this signal comes, on a thread that needs no interpreter lock.
#[cfg(target_os = "linux")]
fn end_on(signal: i32) -> std::io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([signal])?;
    std::thread::Builder::new().name("jitney-parent".into()).spawn(move || {
        if signals.forever().next().is_some() {
            crate::link::end_with_front();
        }
    })?;
    Ok(())
}

/// The kernel kills this process when the thread that started it ends, which is when the front ends.
#[pyfunction]
pub(crate) fn adopt_parent(parent: i32) {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, getppid, set_parent_process_death_signal};
        // SIGHUP, not SIGKILL: the worker must live long enough to take with it what the model forked. The kernel sends
        // the same signal to a stopped group that has lost its parent. Where this fails, the end of the link remains.
        if end_on(signal_hook::consts::SIGHUP).is_ok() {
            let _ = set_parent_process_death_signal(Some(Signal::HUP));
        }
        // The parent may have ended before the line above.
        if getppid().is_none_or(|actual| actual.as_raw_nonzero().get() != parent) {
            std::process::exit(1);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = parent;
}
