//! The worker's end of its link, for Python. Whatever may wait does so without the interpreter lock.

use crate::batch::Batch;
use crate::results::Results;
use jitney_server::link::frame::Kind;
use jitney_server::link::results_frame::{Durations, ResultsWriter};
use jitney_server::link::worker::{Control, WorkerLink};
use pyo3::exceptions::{PyConnectionError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;
use std::time::Duration;

/// The link to the front.
#[pyclass(frozen, module = "jitney._core")]
#[derive(Debug)]
pub(crate) struct Link {
    link: WorkerLink,
}

#[pymethods]
impl Link {
    #[new]
    fn new(py: Python<'_>, address: &str, secret: &str, worker: u32) -> PyResult<Link> {
        let connected = py.detach(|| WorkerLink::connect(address, secret, worker, end_with_front));
        let link = connected.map_err(|error| PyConnectionError::new_err(format!("{address}: {error}")))?;
        Ok(Link { link })
    }

    fn send(&self, py: Python<'_>, kind: &str, body: &[u8]) -> PyResult<()> {
        let kind = match kind {
            "manifest" => Kind::Manifest,
            "progress" => Kind::Progress,
            "ready" => Kind::Ready,
            "failed" => Kind::Failed,
            other => return Err(PyValueError::new_err(format!("a worker does not send {other:?}"))),
        };
        py.detach(|| self.link.control(kind, body)).map_err(|error| lost(&error))
    }

    fn receive<'py>(&self, py: Python<'py>) -> (&'static str, Bound<'py, PyBytes>) {
        match py.detach(|| self.link.receive()) {
            Control::Assign(body) => ("assign", PyBytes::new(py, &body)),
            Control::Shutdown => ("shutdown", PyBytes::new(py, b"")),
        }
    }

    fn next_batch(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        loop {
            let Some(delivered) = py.detach(|| self.link.next_batch()) else { return Ok(None) };
            let wanted = self.link.wanted(&delivered);
            let kept: Vec<usize> = (0..wanted.len()).filter(|&place| wanted[place]).collect();
            let batch = Batch { delivered: Arc::new(delivered), link: self.link.clone(), kept };
            if !batch.kept.is_empty() {
                return Ok(Some(batch));
            }
            let all = batch.delivered.batch.items.iter().map(|item| item.id);
            let mut table = ResultsWriter::new(batch.delivered.batch.id, Durations::default(), false, wanted.len());
            all.clone().for_each(|id| table.left_out(id));
            let head = table.finish();
            py.detach(|| self.link.finish(all, &[&head])).map_err(|error| lost(&error))?;
        }
    }

    fn started(&self, py: Python<'_>, batch: &Batch) -> PyResult<()> {
        let id = batch.delivered.batch.id;
        py.detach(|| self.link.started(id)).map_err(|error| lost(&error))
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
        let length = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let durations = Durations { decode: length(decode_s), predict: length(predict_s), encode: length(encode_s) };
        results.send(py, &self.link, durations, (clean, out_of_memory)).map_err(|error| lost(&error))
    }
}

fn lost(error: &std::io::Error) -> PyErr {
    PyConnectionError::new_err(format!("the link to the front is lost: {error}"))
}

/// The front is gone: nobody wants what this worker computes, and the device must be free for the next one. The whole
/// group goes, so that nothing that the model forked stays behind.
pub(crate) fn end_with_front() {
    // In a group of its own the worker is the leader; anything else would kill the user's shell.
    if rustix::process::getpgrp() == rustix::process::getpid() {
        let _ = rustix::process::kill_process_group(rustix::process::getpgrp(), rustix::process::Signal::KILL);
    }
    std::process::exit(1);
}
