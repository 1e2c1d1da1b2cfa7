//! What a call ends with, and as what Python gets it.

use super::values::{event, raw, raws};
use jitney_server::base::fatal::Fatal;
use jitney_server::engine::reply::ReplyEvent;
use jitney_server::values::answer::Answer;
use jitney_server::values::call_id::CallId;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a call ends with.
pub(crate) enum Reply {
    One(CallId, Answer),
    Many(CallId, Vec<Answer>),
    /// The next parts of an answer, and its end; nothing if it was cancelled.
    Events(CallId, Vec<ReplyEvent>),
    Done(Result<(), Fatal>),
}

/// A call in flight.
pub(crate) type Calling = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// The answer of a call of one item.
pub(crate) fn one(id: CallId, mut answers: Vec<Answer>) -> Reply {
    match answers.pop() {
        Some(answer) if answers.is_empty() => Reply::One(id, answer),
        last => Reply::Many(id, answers.into_iter().chain(last).collect()),
    }
}

/// A reply as Python gets it: a tuple, a list of tuples, or None and (code, text) of what ended.
pub(crate) fn to_python(py: Python<'_>, reply: Reply) -> PyResult<Bound<'_, PyAny>> {
    Ok(match reply {
        Reply::One(id, answer) => raw(py, &id, answer).map(Bound::<PyTuple>::into_any)?,
        Reply::Many(id, answers) => raws(py, &id, answers).map(Bound::<PyList>::into_any)?,
        Reply::Events(id, events) => {
            let list = PyList::empty(py);
            for one in events {
                list.append(event(py, &id, one)?)?;
            }
            list.into_any()
        }
        Reply::Done(Ok(())) => py.None().into_bound(py),
        Reply::Done(Err(fatal)) => (fatal.code, fatal.text).into_pyobject(py)?.into_any(),
    })
}

/// Says what a fork cannot do.
pub(crate) fn forked(py: Python<'_>) -> PyErr {
    let text = "this process was forked after jitney.run or jitney.connect: the threads of the engine are in its \
                parent; start it in each process instead (gunicorn: not with --preload, or in post_fork), or let all \
                of them share one server with jitney.connect";
    let kind = py.import("jitney.errors").and_then(|errors| errors.getattr("EngineFailed"));
    match kind.and_then(|kind| kind.call1((text,))) {
        Ok(error) => PyErr::from_value(error),
        Err(_) => PyRuntimeError::new_err(text),
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
