//! The events of the live page, for an application that serves the page itself.

use super::reply::lock;
use jitney_server::run::embed::LiveEvents;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Mutex;

/// The events of one watcher. Dropping this makes room for another one.
#[pyclass(frozen, module = "jitney._core")]
pub(crate) struct Watcher {
    events: Mutex<LiveEvents>,
}

impl Watcher {
    pub(crate) fn new(events: LiveEvents) -> Watcher {
        Watcher { events: Mutex::new(events) }
    }
}

#[pymethods]
impl Watcher {
    /// Waits for the next event; None at the end.
    fn next<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        py.detach(|| lock(&self.events).next()).map(|event| PyBytes::new(py, &event))
    }
}
