//! Running a server, and what a worker process does first.

use jitney_server::serve::{Settings, serve as run};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tracing_subscriber::EnvFilter;

#[pyfunction]
pub(crate) fn serve(py: Python<'_>, settings: &str) -> PyResult<i32> {
    let settings: Settings =
        serde_json::from_str(settings).map_err(|error| PyValueError::new_err(format!("settings: {error}")))?;
    log_to_stderr(&settings);
    Ok(py.detach(|| run(settings)))
}

fn log_to_stderr(settings: &Settings) {
    let level = &settings.server.log_level;
    let filter = EnvFilter::try_new(format!("{level},hyper=warn,h2=warn")).unwrap_or_else(|_| EnvFilter::new("info"));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    // A second server in one process keeps the first one's log.
    let _ = if settings.server.log_format == "json" {
        logs.json().flatten_event(true).try_init()
    } else {
        logs.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init()
    };
}

/// The kernel kills this process when the thread that started it ends, which is when the front ends.
#[pyfunction]
pub(crate) fn adopt_parent(parent: i32) {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, getppid, set_parent_process_death_signal};
        // Where that is not allowed, the end of the link still ends the worker.
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
        // The parent may have ended before the line above.
        if getppid().is_none_or(|actual| actual.as_raw_nonzero().get() != parent) {
            std::process::exit(1);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = parent;
}
