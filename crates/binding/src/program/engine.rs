//! The engine inside this process, and the way in to each of its deployments.

use super::log::log_to_python;
use super::reply::{Calling, forked, lock, to_python};
use super::stream::Stream;
use super::trace;
use super::values::{RawItem, all_parts, parts};
use super::waiting::{GivenTerms, answer, length, terms, wait};
use super::watcher::Watcher;
use crate::batch::Batch;
use jitney_core::config::manifest::DeploymentManifest;
use jitney_core::request::ItemId;
use jitney_server::base::fatal::Doing;
use jitney_server::clients::client::asks::WorkerCalls;
use jitney_server::clients::client::calls::Address;
use jitney_server::clients::client::entrance::RemoteEntrance;
use jitney_server::clients::client::remote;
use jitney_server::engine::program_values::{ParentItems, Terms};
use jitney_server::run::embed::{Embedded, LocalEntrance};
use jitney_server::values::metadata::Metadata;
use jitney_server::workers::settings::Settings;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;
use tracing_appender::non_blocking::WorkerGuard;

/// The log of the first engine of this process is that of all of them, to the end.
static LOG: OnceLock<Mutex<WorkerGuard>> = OnceLock::new();

/// Something that the engine does, for somebody to wait for.
#[pyclass(frozen, module = "jitney._core")]
pub(crate) struct Starting {
    doing: Mutex<Option<Doing>>,
}

impl Starting {
    fn new(doing: Doing) -> Starting {
        Starting { doing: Mutex::new(Some(doing)) }
    }

    /// It is waited for once.
    pub(crate) fn take(&self) -> PyResult<Doing> {
        lock(&self.doing).take().ok_or_else(|| PyRuntimeError::new_err("somebody waits for this already"))
    }
}

#[pymethods]
impl Starting {
    /// Waits on this thread; None, or (code, text) of what went wrong.
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let reply = wait(py, Calling::Start(self.take()?), None)?;
        to_python(py, reply)
    }
}

/// The engine inside this process.
#[pyclass(frozen, module = "jitney._core")]
#[derive(Debug)]
pub(crate) struct Engine {
    embedded: Arc<Embedded>,
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.embedded.is_forked() {
            // Its threads are not in this process, and may hold its locks without end.
            std::mem::forget(self.embedded.clone());
        }
    }
}

impl Engine {
    fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        if self.embedded.is_forked() { Err(forked(py)) } else { Ok(()) }
    }
}

#[pymethods]
impl Engine {
    #[classattr]
    #[pyo3(name = "is_of_worker")]
    const IS_OF_WORKER: bool = false;

    #[new]
    fn new(py: Python<'_>, settings: &str) -> PyResult<Engine> {
        let mut settings: Settings =
            serde_json::from_str(settings).map_err(|error| PyValueError::new_err(format!("settings: {error}")))?;
        settings.is_in_program = true;
        LOG.get_or_init(|| Mutex::new(log_to_python(&settings)));
        let started = py.detach(|| Embedded::start(settings));
        let embedded = started.map_err(|fatal| PyRuntimeError::new_err(fatal.text))?;
        Ok(Engine { embedded: Arc::new(embedded) })
    }

    fn ready(&self) -> Starting {
        Starting::new(self.embedded.ready())
    }

    fn close(&self, py: Python<'_>) -> PyResult<Starting> {
        self.check_process(py)?;
        Ok(Starting::new(self.embedded.close()))
    }

    /// Whether this is a fork of the process that it runs in.
    fn is_forked(&self) -> bool {
        self.embedded.is_forked()
    }

    fn release(&self, py: Python<'_>) {
        py.detach(|| self.embedded.release());
    }

    /// The manifests of all deployments by name, as JSON.
    fn manifests(&self) -> String {
        let deployments = self.embedded.state().deployments();
        let manifests = deployments.iter().map(|deployment| &*deployment.manifest);
        let all: BTreeMap<&String, &DeploymentManifest> =
            manifests.map(|manifest| (&manifest.name, manifest)).collect();
        serde_json::to_string(&all).unwrap_or_default()
    }

    fn metrics(&self, py: Python<'_>) -> PyResult<String> {
        self.check_process(py)?;
        let text = py.detach(|| self.embedded.metrics());
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// The events of the live page. If as many watch as may, the stream of the one that has watched for longest ends.
    fn watch(&self, py: Python<'_>) -> PyResult<Watcher> {
        self.check_process(py)?;
        Ok(Watcher::new(self.embedded.watch()))
    }

    fn entrance(&self, py: Python<'_>, name: &str) -> PyResult<Option<Entrance>> {
        self.check_process(py)?;
        let way = self.embedded.entrance(name);
        Ok(way.map(|way| Entrance { way: Way::Here(way), process: std::process::id() }))
    }

    /// What ended it, if it ended by itself.
    fn failure(&self) -> Option<String> {
        self.embedded.failure().map(|fatal| fatal.text)
    }
}

/// The connection to a server.
#[pyclass(frozen, module = "jitney._core")]
#[derive(Debug)]
pub(crate) struct Remote {
    remote: Arc<remote::Remote>,
}

impl Drop for Remote {
    fn drop(&mut self) {
        if self.remote.is_forked() {
            std::mem::forget(self.remote.clone());
        }
    }
}

#[pymethods]
impl Remote {
    #[classattr]
    #[pyo3(name = "is_of_worker")]
    const IS_OF_WORKER: bool = false;

    #[new]
    fn new(address: String, key: Option<String>) -> PyResult<Remote> {
        Ok(Remote { remote: Arc::new(remote::Remote::dial(Address { address, key })?) })
    }

    fn ready(&self, timeout_s: f64) -> PyResult<Starting> {
        Ok(Starting::new(self.remote.ready(length(timeout_s)?)))
    }

    fn manifests(&self) -> String {
        self.remote.manifests()
    }

    #[allow(clippy::unnecessary_wraps, reason = "the same as an engine's, which may have none")]
    fn entrance(&self, py: Python<'_>, name: &str) -> PyResult<Option<Entrance>> {
        if self.remote.is_forked() {
            return Err(forked(py));
        }
        Ok(Some(Entrance { way: Way::There(self.remote.entrance(name)), process: std::process::id() }))
    }

    /// A connection that is lost is dialled again: it never ends by itself.
    #[allow(clippy::unused_self, reason = "the same as an engine's")]
    fn failure(&self) -> Option<String> {
        None
    }

    /// They are the server's.
    #[allow(clippy::unused_self, reason = "the same as an engine's, which has some")]
    fn metrics(&self) -> Option<String> {
        None
    }

    fn release(&self, py: Python<'_>) {
        py.detach(|| self.remote.release());
    }
}

#[derive(Debug)]
enum Way {
    Here(LocalEntrance),
    There(RemoteEntrance),
    /// Over the link of this worker, for the items that `parents` names when it is called.
    Asks(RemoteEntrance, Arc<Parents>),
}

/// What a call over the link of a worker needs of it.
#[derive(Debug)]
pub(crate) struct Parents {
    pub(crate) asks: Arc<WorkerCalls>,
    /// Returns the ids of the items that the caller computes, and their batch.
    pub(crate) items: Py<PyAny>,
}

impl Way {
    /// The terms of a call that goes this way.
    fn terms(&self, py: Python<'_>, given: GivenTerms<'_>) -> PyResult<Terms> {
        let mut terms = terms(given)?;
        if !matches!(self, Way::Here(_)) {
            terms.further = trace::current(py).and_then(|trace| Metadata::of_trace(terms.id.clone(), &trace).further);
        }
        let Way::Asks(_, parents) = self else { return Ok(terms) };
        let items = parents.items.bind(py).call0()?;
        let (ids, batch): (Vec<u64>, Option<PyRef<'_, Batch>>) = items.extract()?;
        let link = batch.map(|batch| batch.delivered.link);
        Ok(Terms { parents: ParentItems { items: ids.into_iter().map(ItemId).collect(), link }, ..terms })
    }

    /// The link on which a thread waits for its answer.
    fn link(&self) -> Option<&Arc<WorkerCalls>> {
        if let Way::Asks(_, parents) = self { Some(&parents.asks) } else { None }
    }
}

/// The way in to one deployment.
#[pyclass(frozen, module = "jitney._core")]
#[derive(Debug)]
pub(crate) struct Entrance {
    way: Way,
    process: u32,
}

impl Entrance {
    /// The way in to a deployment that the model of this worker calls.
    pub(crate) fn asks(name: &str, parents: Arc<Parents>) -> Entrance {
        let entrance = parents.asks.entrance(name);
        Entrance { way: Way::Asks(entrance, parents), process: std::process::id() }
    }

    /// Begins one item. `bell` rings when the engine lets go of its memory.
    pub(crate) fn begin_one(
        &self,
        py: Python<'_>,
        (tag, data): (u8, &Bound<'_, PyAny>),
        given: GivenTerms<'_>,
        bell: Option<&Waker>,
    ) -> PyResult<Calling> {
        self.check_process(py)?;
        let terms = self.way.terms(py, given)?; // First: what is refused has been lent nothing.
        let (id, item) = (terms.id.clone(), parts(tag, data, bell)?);
        let answering = match &self.way {
            Way::Here(entrance) => entrance.call_one(item, terms),
            Way::There(entrance) | Way::Asks(entrance, _) => entrance.call_one(item, terms),
        };
        Ok(Calling::One(id, answering))
    }

    /// Begins the items of one request. `bell` rings when the engine lets go of their memory.
    pub(crate) fn begin_many(
        &self,
        py: Python<'_>,
        items: Vec<RawItem<'_>>,
        given: GivenTerms<'_>,
        bell: Option<&Waker>,
    ) -> PyResult<Calling> {
        self.check_process(py)?;
        let terms = self.way.terms(py, given)?;
        let (id, items) = (terms.id.clone(), all_parts(items, bell)?);
        let answering = match &self.way {
            Way::Here(entrance) => entrance.call(items, terms),
            Way::There(entrance) | Way::Asks(entrance, _) => entrance.call(items, terms),
        };
        Ok(Calling::Many(id, answering))
    }

    /// Begins one item whose answer comes in parts. `bell` rings when the engine lets go of its memory.
    pub(crate) fn begin_stream(
        &self,
        py: Python<'_>,
        (tag, data): (u8, &Bound<'_, PyAny>),
        given: GivenTerms<'_>,
        bell: Option<&Waker>,
    ) -> PyResult<Stream> {
        self.check_process(py)?;
        let terms = self.way.terms(py, given)?;
        let (id, item) = (terms.id.clone(), parts(tag, data, bell)?);
        let parts = match &self.way {
            Way::Here(entrance) => entrance.stream(item, terms),
            Way::There(entrance) | Way::Asks(entrance, _) => entrance.stream(item, terms),
        };
        Ok(Stream::new(id, parts, self.way.link().cloned()))
    }

    /// Refuses what is done in a fork.
    fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        if std::process::id() == self.process { Ok(()) } else { Err(forked(py)) }
    }
}

#[pymethods]
impl Entrance {
    /// Runs one item and waits for its answer on this thread.
    fn call_and_wait<'py>(
        &self,
        py: Python<'py>,
        tag: u8,
        data: &Bound<'py, PyAny>,
        timeout_s: Option<f64>,
        priority: &str,
        request_id: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let calling = self.begin_one(py, (tag, data), (timeout_s, priority, request_id), None)?;
        answer(py, calling, self.way.link())
    }

    /// Runs many and waits for all answers on this thread.
    fn call_many_and_wait<'py>(
        &self,
        py: Python<'py>,
        items: Vec<RawItem<'py>>,
        timeout_s: Option<f64>,
        priority: &str,
        request_id: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let calling = self.begin_many(py, items, (timeout_s, priority, request_id), None)?;
        answer(py, calling, self.way.link())
    }

    /// Begins one item whose answer comes in parts.
    fn stream(
        &self,
        py: Python<'_>,
        tag: u8,
        data: &Bound<'_, PyAny>,
        timeout_s: Option<f64>,
        priority: &str,
        request_id: Option<&str>,
    ) -> PyResult<Stream> {
        self.begin_stream(py, (tag, data), (timeout_s, priority, request_id), None)
    }
}
