//! A thread that waits for an answer, without the interpreter lock.

use super::reply::{Calling, Reply, lock, to_python};
use crate::buffer::give_back;
use jitney_core::request::Priority;
use jitney_server::clients::client::asks::WorkerCalls;
use jitney_server::engine::program_values::Terms;
use jitney_server::values::call_id::CallId;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// How often a waiting thread looks whether Ctrl-C was pressed; only the main thread ever sees it.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Wakes one thread.
#[derive(Default)]
struct Bell {
    has_rung: Mutex<bool>,
    rings: Condvar,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *lock(&self.has_rung) = true;
        self.rings.notify_one();
    }
}

impl Bell {
    /// Waits, but not for long; whether it has rung.
    fn wait(&self) -> bool {
        let has_rung = lock(&self.has_rung);
        let waited = self.rings.wait_timeout_while(has_rung, LOOK_EVERY, |has_rung| !*has_rung);
        let (mut has_rung, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *has_rung)
    }

    /// Sends what waits to be sent, and receives on the link until it rings, but not for long; whether it has rung.
    fn wait_on(&self, link: &WorkerCalls) -> bool {
        link.flush();
        link.receive_until(Instant::now() + LOOK_EVERY, || *lock(&self.has_rung));
        std::mem::take(&mut *lock(&self.has_rung))
    }
}

/// Waits for a call, whose answer may come over the link of this worker. A signal handler that raises, such as that of Ctrl-C,
/// cancels it.
pub(crate) fn wait(py: Python<'_>, mut calling: Calling, link: Option<&Arc<WorkerCalls>>) -> PyResult<Reply> {
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    loop {
        if let Poll::Ready(reply) = calling.poll(&mut Context::from_waker(&waker)) {
            return Ok(reply);
        }
        while !py.detach(|| link.map_or_else(|| bell.wait(), |link| bell.wait_on(link))) {
            py.check_signals()?;
        }
    }
}

/// Waits for a call, gives back what it was lent, and returns its answer as Python has it.
pub(crate) fn answer<'py>(
    py: Python<'py>,
    calling: Calling,
    link: Option<&Arc<WorkerCalls>>,
) -> PyResult<Bound<'py, PyAny>> {
    let reply = wait(py, calling, link)?;
    give_back();
    to_python(py, reply)
}

/// The terms of a call as Python gives them: its time-out in seconds, its priority class, the id of its request.
pub(crate) type GivenTerms<'a> = (Option<f64>, &'a str, Option<&'a str>);

/// The terms of a call; `ValueError` if one is invalid.
pub(crate) fn terms((timeout_s, priority, request_id): GivenTerms<'_>) -> PyResult<Terms> {
    let priority = Priority::parse(priority)
        .ok_or_else(|| PyValueError::new_err(format!("a priority is high, normal or low, not {priority:?}")))?;
    let id = match request_id {
        None => CallId::default(),
        Some(text) => CallId::given(text).ok_or_else(|| {
            PyValueError::new_err(format!("a request id is 1 to 128 characters of visible ASCII, not {text:?}"))
        })?,
    };
    Ok(Terms { timeout: timeout_s.map(length).transpose()?, priority, id, ..Terms::default() })
}

/// A time-out in seconds; `ValueError` if it makes no sense.
pub(crate) fn length(timeout_s: f64) -> PyResult<Duration> {
    // Longer than anything lives is as good as without end. `f64::min` would drop NaN.
    let seconds = if timeout_s > 1e9 { 1e9 } else { timeout_s };
    let length = Duration::try_from_secs_f64(seconds).ok().filter(|length| !length.is_zero());
    length.ok_or_else(|| PyValueError::new_err(format!("timeout_s is a length above 0 in seconds, not {timeout_s}")))
}
