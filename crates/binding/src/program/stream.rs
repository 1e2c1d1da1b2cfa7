//! An answer that comes in parts, as Python takes it: all that has come since it was asked last.

use super::reply::{Calling, lock};
use super::waiting::answer;
use jitney_server::clients::client::asks::WorkerCalls;
use jitney_server::engine::program_values::parts::BoxedCallParts;
use jitney_server::engine::reply::ReplyEvent;
use jitney_server::values::call_id::CallId;
use pyo3::prelude::*;
use std::future::poll_fn;
use std::mem::forget;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// Events that Python gets at once, at most.
const AT_ONCE: usize = 256;
/// Bytes of parts that Python gets at once, about. What is not taken counts in the engine, which has a bound for it.
const BYTES_AT_ONCE: usize = 64 << 10;

#[derive(Default)]
struct State {
    /// `None` after the end, and once it was cancelled.
    parts: Option<BoxedCallParts>,
    /// Of the caller that waits.
    waker: Option<Waker>,
}

/// The parts of one answer. Dropping this cancels the item.
#[pyclass(frozen, module = "jitney._core")]
pub(crate) struct Stream {
    id: CallId,
    state: Arc<Mutex<State>>,
    /// The link on which its parts arrive, in a worker.
    link: Option<Arc<WorkerCalls>>,
    process: u32,
}

impl Stream {
    pub(crate) fn new(id: CallId, parts: BoxedCallParts, link: Option<Arc<WorkerCalls>>) -> Stream {
        let state = State { parts: Some(parts), waker: None };
        Stream { id, state: Arc::new(Mutex::new(state)), link, process: std::process::id() }
    }

    /// Waits for what comes next.
    pub(crate) fn next(&self) -> Calling {
        let state = self.state.clone();
        Calling::Events(self.id.clone(), Box::pin(poll_fn(move |cx| poll(&state, cx))))
    }
}

/// What has come; nothing if it was cancelled.
fn poll(state: &Mutex<State>, cx: &mut Context<'_>) -> Poll<Vec<ReplyEvent>> {
    let mut locked = lock(state);
    let Some(parts) = &mut locked.parts else { return Poll::Ready(vec![]) };
    let (mut events, mut bytes) = (Vec::new(), 0);
    while events.len() < AT_ONCE && bytes < BYTES_AT_ONCE {
        match parts.poll_event(cx) {
            Poll::Ready(ReplyEvent::Part(values)) => {
                bytes += values.iter().map(|value| value.data.len()).sum::<usize>();
                events.push(ReplyEvent::Part(values));
            }
            Poll::Ready(end) => {
                events.push(end);
                let ended = locked.parts.take();
                drop(locked);
                drop(ended);
                return Poll::Ready(events);
            }
            Poll::Pending => break,
        }
    }
    if events.is_empty() {
        locked.waker = Some(cx.waker().clone());
        return Poll::Pending;
    }
    Poll::Ready(events)
}

#[pymethods]
impl Stream {
    /// Waits on this thread for what comes next.
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        answer(py, self.next(), self.link.as_ref())
    }

    /// No caller wants the rest: the item is cancelled. Who waits for its parts gets an empty list.
    fn cancel(&self) {
        if std::process::id() == self.process {
            let cancelled = std::mem::take(&mut *lock(&self.state));
            let State { parts, waker } = cancelled;
            drop(parts);
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            // A lock of the engine may be held without end by a thread that is not in this fork: nothing is cancelled here.
            forget(self.state.clone());
        }
    }
}
