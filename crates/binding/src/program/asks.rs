//! The calls that the model of this worker makes, as Python sees them.

use super::engine::{Entrance, Parents};
use super::mailbox::Mailbox;
use crate::link::Link;
use jitney_server::clients::client::asks::WorkerCalls;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;

/// The other deployments of the server, called over the link of this worker.
#[pyclass(frozen, module = "jitney._core")]
#[derive(Debug)]
pub(crate) struct Asks {
    parents: Arc<Parents>,
}

#[pymethods]
impl Asks {
    #[classattr]
    #[pyo3(name = "is_of_worker")]
    const IS_OF_WORKER: bool = true;

    #[new]
    fn new(link: &Link, welcome: &str, items: Py<PyAny>) -> PyResult<Asks> {
        let asks = WorkerCalls::new(&link.link, welcome);
        let asks = asks.map_err(|error| PyValueError::new_err(format!("welcome: {error}")))?;
        Ok(Asks { parents: Arc::new(Parents { asks: Arc::new(asks), items }) })
    }

    fn manifests(&self) -> String {
        self.parents.asks.manifests()
    }

    fn entrance(&self, name: &str) -> Entrance {
        Entrance::asks(name, self.parents.clone())
    }

    /// The server is another process: it ends this one with itself.
    #[allow(clippy::unused_self, reason = "the same as an engine's")]
    fn failure(&self) -> Option<String> {
        None
    }

    /// They are the server's.
    #[allow(clippy::unused_self, reason = "the same as an engine's, which has some")]
    fn metrics(&self) -> Option<String> {
        None
    }

    /// The mailbox of an event loop.
    #[allow(clippy::unused_self, reason = "the models of tests make others")]
    fn mailbox(&self, event_loop: &Bound<'_, PyAny>) -> PyResult<Mailbox> {
        Mailbox::new(event_loop)
    }

    /// Calls wait from now on until `flush`.
    fn hold(&self) {
        self.parents.asks.hold();
    }

    /// Sends the calls that wait.
    fn flush(&self, py: Python<'_>) {
        py.detach(|| self.parents.asks.flush());
    }
}
