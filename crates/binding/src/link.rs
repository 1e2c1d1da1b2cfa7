//! The worker's end of its link, for Python. Whatever may wait does so without the interpreter lock.

use crate::batch::Batch;
use crate::buffer::Payload;
use crate::errors::lost;
use crate::results::{Results, send_step};
use jitney_core::scheduler::results::steps::Step;
use jitney_server::link::batch_end::{BatchEnd, Durations};
use jitney_server::link::frame::kind::Kind;
use jitney_server::link::results_frame::ResultsWriter;
use jitney_server::link::worker::inbox::{Control, Delivered, Taken};
use jitney_server::link::worker::lease::Identity;
use jitney_server::link::worker::link::WorkerLink;
use pyo3::exceptions::{PyConnectionError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The link to the front.
#[pyclass(frozen, module = "jitney._core")]
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) link: WorkerLink,
}

#[pymethods]
impl Link {
    #[new]
    #[pyo3(signature = (address, token, ends_process = true, id = ""))]
    fn new(py: Python<'_>, address: &str, token: &str, ends_process: bool, id: &str) -> PyResult<Link> {
        let identity = Identity { id: id.into(), token: token.into(), ..Identity::default() };
        let on_end = move || {
            if ends_process {
                end_with_front();
            }
        };
        let connected = py.detach(|| WorkerLink::connect(address, identity, on_end));
        let link = connected.map_err(|error| PyConnectionError::new_err(format!("{address}: {error}")))?;
        Ok(Link { link })
    }

    fn send(&self, py: Python<'_>, kind: &str, body: &[u8]) -> PyResult<()> {
        let kind = match kind {
            "manifest" => Kind::Manifest,
            "progress" => Kind::Progress,
            "ready" => Kind::Ready,
            "failed" => Kind::Failed,
            "measured" => Kind::Measured,
            other => return Err(PyValueError::new_err(format!("a worker does not send {other:?}"))),
        };
        py.detach(|| self.link.control(kind, body)).map_err(|error| lost(&error))
    }

    /// From now on this worker dials again when its link is lost, and says then that it has loaded this (JSON).
    fn keep(&self, loaded: &[u8]) -> PyResult<()> {
        let loaded = serde_json::from_slice(loaded).map_err(|error| PyValueError::new_err(error.to_string()))?;
        self.link.keep(loaded);
        Ok(())
    }

    fn receive<'py>(&self, py: Python<'py>) -> (&'static str, Bound<'py, PyBytes>) {
        match py.detach(|| self.link.receive()) {
            Control::Assign(body) => ("assign", PyBytes::new(py, &body)),
            Control::Shutdown => ("shutdown", PyBytes::new(py, b"")),
        }
    }

    #[pyo3(signature = (timeout_s = None))]
    fn next_batch(&self, py: Python<'_>, timeout_s: Option<f64>) -> PyResult<Option<Batch>> {
        let until = timeout_s.and_then(|seconds| Instant::now().checked_add(length(seconds)));
        loop {
            match py.detach(|| self.link.next_batch_until(until)) {
                Taken::Ended => return Ok(None),
                Taken::Nothing => return Err(PyTimeoutError::new_err("no batch has come")),
                Taken::Batch(delivered) => {
                    if let Some(batch) = self.batch(py, delivered)? {
                        return Ok(Some(batch));
                    }
                }
            }
        }
    }

    /// The next batch if one has arrived, and whether more may come.
    fn take(&self, py: Python<'_>) -> PyResult<(Option<Batch>, bool)> {
        loop {
            match self.link.take() {
                Taken::Nothing => return Ok((None, true)),
                Taken::Ended => return Ok((None, false)),
                Taken::Batch(delivered) => {
                    if let Some(batch) = self.batch(py, delivered)? {
                        return Ok((Some(batch), true));
                    }
                }
            }
        }
    }

    /// The ids of the items of which no further part is to be made.
    fn paused(&self) -> Vec<u64> {
        self.link.paused().into_iter().map(|id| id.0).collect()
    }

    /// The ids of the items for which the model asked something that has no answer yet.
    fn asking(&self) -> Vec<u64> {
        self.link.asking().into_iter().map(|id| id.0).collect()
    }

    fn changes(&self) -> u64 {
        self.link.changes()
    }

    fn wait_for_change(&self, py: Python<'_>, changes: u64, timeout_s: f64) {
        let until = Instant::now() + length(timeout_s);
        py.detach(|| self.link.wait_for_change(changes, until));
    }

    fn started(&self, py: Python<'_>, batch: &Batch) -> PyResult<()> {
        let (link, id) = (self.link.of(&batch.delivered), batch.delivered.batch.id);
        py.detach(|| link.started(id)).map_err(|error| lost(&error))
    }

    /// Sends what was collected since the last time: parts, and outcomes of items that end. The batch does not end.
    #[pyo3(signature = (results, predict_s = 0.0))]
    fn send_results(&self, py: Python<'_>, results: &Results, predict_s: f64) -> PyResult<()> {
        results.send(py, &self.link, length(predict_s)).map_err(|error| lost(&error))
    }

    /// Sends one step of a model, with what was collected of the items of these batches.
    #[allow(clippy::needless_pass_by_value, reason = "PyO3 gives the list by value")]
    #[allow(clippy::too_many_arguments, reason = "as Python calls it: the last ones are the step")]
    #[pyo3(signature = (batches, active, joined, step_s, join_s, *, out_of_memory = false))]
    fn send_step(
        &self,
        py: Python<'_>,
        batches: Vec<PyRef<'_, Results>>,
        active: usize,
        joined: usize,
        step_s: f64,
        join_s: f64,
        out_of_memory: bool,
    ) -> PyResult<()> {
        let (took, join_took) = (length(step_s), length(join_s));
        let step = Step { active, joined, took, join_took, is_out_of_memory: out_of_memory };
        send_step(py, &self.link, &batches, &step).map_err(|error| lost(&error))
    }

    #[allow(clippy::too_many_arguments, reason = "as Python calls it: each is optional or named there")]
    #[pyo3(signature = (results, decode_s, predict_s, encode_s, clean = true, out_of_memory = false))]
    fn finish(
        &self,
        py: Python<'_>,
        results: &Results,
        decode_s: f64,
        predict_s: f64,
        encode_s: f64,
        clean: bool,
        out_of_memory: bool,
    ) -> PyResult<()> {
        let durations = Durations { decode: length(decode_s), predict: length(predict_s), encode: length(encode_s) };
        let end = BatchEnd { batch: results.batch(), durations, is_clean: clean, is_out_of_memory: out_of_memory };
        results.finish(py, &self.link, &end).map_err(|error| lost(&error))
    }
}

impl Link {
    /// A batch for Python; `None` if no request waits for any of its items, which ends it here.
    fn batch(&self, py: Python<'_>, mut delivered: Delivered) -> PyResult<Option<Batch>> {
        let wanted = self.link.wanted(&delivered);
        let kept: Vec<usize> = (0..wanted.len()).filter(|&place| wanted[place]).collect();
        if kept.is_empty() {
            py.detach(|| leave_out(&self.link, &delivered)).map_err(|error| lost(&error))?;
            return Ok(None);
        }
        let link = self.link.of(&delivered);
        let payload = Arc::new(Payload::new(std::mem::take(&mut delivered.batch.payload)));
        Ok(Some(Batch { delivered: Arc::new(delivered), payload, link, kept }))
    }
}

/// Ends a batch of which no item is wanted.
fn leave_out(link: &WorkerLink, delivered: &Delivered) -> std::io::Result<()> {
    let (batch, items) = (delivered.batch.id, delivered.batch.items.iter().map(|item| item.id));
    let mut table = ResultsWriter::new(batch, Duration::ZERO, items.len());
    items.clone().for_each(|id| table.left_out(id, 0));
    let end = BatchEnd { batch, durations: Durations::default(), is_clean: false, is_out_of_memory: false };
    link.of(delivered).finish(items, &[&table.finish()], &end)
}

/// Seconds as Python gives them.
fn length(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// The front has ended: the results of this worker are useless, and the device must be free for the next worker. The whole
/// group goes, so that nothing that the model forked stays behind.
pub(crate) fn end_with_front() {
    // In its own process group the worker is the leader; anything else would kill the user's shell.
    if rustix::process::getpgrp() == rustix::process::getpid() {
        let _ = rustix::process::kill_process_group(rustix::process::getpgrp(), rustix::process::Signal::KILL);
    }
    std::process::exit(1);
}
