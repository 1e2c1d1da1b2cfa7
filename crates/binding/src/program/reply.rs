//! What a call ends with, and as what Python gets it.

use super::values::{event, raw, raws};
use jitney_server::base::fatal::{Doing, Fatal};
use jitney_server::engine::program_values::{Answering, AnsweringOne};
use jitney_server::engine::reply::ReplyEvent;
use jitney_server::values::answer::Answer;
use jitney_server::values::call_id::CallId;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

/// What a call ends with.
pub(crate) enum Reply {
    One(CallId, Answer),
    Many(CallId, Vec<Answer>),
    /// The next parts of an answer, and its end; nothing if it was cancelled.
    Events(CallId, Vec<ReplyEvent>),
    Done(Result<(), Fatal>),
}

/// A call in flight.
pub(crate) enum Calling {
    One(CallId, AnsweringOne),
    Many(CallId, Answering),
    /// The next parts of an answer.
    Events(CallId, Pin<Box<dyn Future<Output = Vec<ReplyEvent>> + Send>>),
    Start(Doing),
}

impl Calling {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Reply> {
        match self {
            Calling::One(id, answering) => answering.as_mut().poll(cx).map(|answer| Reply::One(id.clone(), answer)),
            Calling::Many(id, answering) => answering.as_mut().poll(cx).map(|all| Reply::Many(id.clone(), all)),
            Calling::Events(id, events) => events.as_mut().poll(cx).map(|events| Reply::Events(id.clone(), events)),
            Calling::Start(doing) => doing.as_mut().poll(cx).map(Reply::Done),
        }
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
