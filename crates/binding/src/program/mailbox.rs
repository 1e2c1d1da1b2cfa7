//! The answers that one event loop waits for. The loop's own thread polls the calls; the thread that answers one only notes its
//! number, and the first note writes a byte to a pipe that the loop watches. No thread of ours waits for the interpreter.

use super::engine::{Entrance, Starting};
use super::reply::{Calling, Reply, forked, lock, to_python};
use super::stream::Stream;
use super::values::RawItem;
use crate::buffer::give_back;
use jitney_core::tables::outcome::Outcome;
use jitney_server::values::answer::{Answer, Failure};
use jitney_server::values::call_id::CallId;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// Calls that are looked at before the loop may do something else.
const AT_ONCE: usize = 256;

/// The number of no call: who takes it only gives back what was lent.
const NOBODY: u64 = u64::MAX;

/// Numbers of calls that have something to say. The pipe holds a byte exactly while there are any.
#[derive(Debug)]
struct Notes {
    numbers: Mutex<Vec<u64>>,
    reader: PipeReader,
    writer: PipeWriter,
}

impl Notes {
    fn note(&self, number: u64) {
        let mut numbers = lock(&self.numbers);
        numbers.push(number);
        if numbers.len() == 1 {
            // One byte into an empty pipe never waits, and the reader lives in `self`.
            let _ = (&self.writer).write_all(&[1]);
        }
    }

    /// Some of the numbers; the byte stays while there are more.
    fn take(&self) -> Vec<u64> {
        let mut numbers = lock(&self.numbers);
        if numbers.is_empty() {
            return vec![];
        }
        if numbers.len() > AT_ONCE {
            return numbers.drain(..AT_ONCE).collect();
        }
        let _ = (&self.reader).read_exact(&mut [0]);
        std::mem::take(&mut *numbers)
    }
}

struct Note {
    number: u64,
    notes: Arc<Notes>,
}

impl Wake for Note {
    fn wake(self: Arc<Self>) {
        self.notes.note(self.number);
    }
}

struct PendingCall {
    /// What keeps a stale number from meaning the call that came after.
    turn: u32,
    calling: Calling,
    waker: Waker,
    future: Py<PyAny>,
    /// Of how many items it is, if it is of many.
    many: Option<usize>,
}

#[derive(Default)]
struct Places {
    all: Vec<Option<PendingCall>>,
    free: Vec<u32>,
    turn: u32,
}

impl Places {
    fn take(&mut self, number: u64) -> Option<PendingCall> {
        let (turn, place) = ((number >> 32) as u32, number as u32);
        let slot = self.all.get_mut(place as usize)?;
        slot.take_if(|waiting| waiting.turn == turn)
    }
}

/// See above.
///
/// A loop that is closed with calls in flight lets go of its mailbox, which then is only part of a cycle: mailbox, future,
/// task, mailbox. The collector finds it, and cancels the calls that have no waiter.
#[pyclass(frozen, weakref, module = "jitney._core")]
pub(crate) struct Mailbox {
    notes: Arc<Notes>,
    places: Arc<Mutex<Places>>,
    create_future: Py<PyAny>,
    /// Rung when the engine lets go of memory of the program.
    bell: Waker,
    process: u32,
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            // A lock of the engine may be held without end by a thread that is not in this fork: nothing is cancelled here.
            std::mem::forget(self.places.clone());
        }
    }
}

impl Mailbox {
    /// Polls a call that begins: what is answered at once is a future that is done.
    fn begin<'py>(
        &self,
        py: Python<'py>,
        mut calling: Calling,
        many: Option<usize>,
    ) -> PyResult<(Bound<'py, PyAny>, u64)> {
        if std::process::id() != self.process {
            return Err(forked(py));
        }
        let future = self.create_future.bind(py).call0()?;
        let (place, turn) = {
            let mut places = lock(&self.places);
            places.turn = places.turn.wrapping_add(1);
            let free = places.free.pop();
            let place = free.unwrap_or_else(|| {
                places.all.push(None);
                places.all.len() as u32 - 1
            });
            (place, places.turn)
        };
        let number = u64::from(turn) << 32 | u64::from(place);
        let waker = Waker::from(Arc::new(Note { number, notes: self.notes.clone() }));
        match calling.poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(reply) => {
                lock(&self.places).free.push(place);
                tell(py, &future, reply);
            }
            Poll::Pending => {
                let waiting = PendingCall { turn, calling, waker, future: future.clone().unbind(), many };
                lock(&self.places).all[place as usize] = Some(waiting);
            }
        }
        Ok((future, number))
    }
}

#[pymethods]
impl Mailbox {
    #[new]
    pub(crate) fn new(event_loop: &Bound<'_, PyAny>) -> PyResult<Mailbox> {
        let (reader, writer) = std::io::pipe()?;
        let create_future = event_loop.getattr("create_future")?.unbind();
        let notes = Arc::new(Notes { numbers: Mutex::default(), reader, writer });
        let bell = Waker::from(Arc::new(Note { number: NOBODY, notes: notes.clone() }));
        Ok(Mailbox { notes, places: Arc::default(), create_future, bell, process: std::process::id() })
    }

    fn fileno(&self) -> i32 {
        self.notes.reader.as_raw_fd()
    }

    #[allow(clippy::too_many_arguments, reason = "the last three are the terms of the call, as Python has them")]
    fn call<'py>(
        &self,
        py: Python<'py>,
        entrance: &Entrance,
        tag: u8,
        data: &Bound<'py, PyAny>,
        timeout_s: Option<f64>,
        priority: &str,
        request_id: Option<&str>,
    ) -> PyResult<(Bound<'py, PyAny>, u64)> {
        let given = (timeout_s, priority, request_id);
        self.begin(py, entrance.begin_one(py, (tag, data), given, Some(&self.bell))?, None)
    }

    fn call_many<'py>(
        &self,
        py: Python<'py>,
        entrance: &Entrance,
        items: Vec<RawItem<'py>>,
        timeout_s: Option<f64>,
        priority: &str,
        request_id: Option<&str>,
    ) -> PyResult<(Bound<'py, PyAny>, u64)> {
        let (count, given) = (items.len(), (timeout_s, priority, request_id));
        self.begin(py, entrance.begin_many(py, items, given, Some(&self.bell))?, Some(count))
    }

    /// Begins one item whose answer comes in parts.
    #[allow(clippy::too_many_arguments, reason = "the last three are the terms of the call, as Python has them")]
    fn stream(
        &self,
        py: Python<'_>,
        entrance: &Entrance,
        tag: u8,
        data: &Bound<'_, PyAny>,
        timeout_s: Option<f64>,
        priority: &str,
        request_id: Option<&str>,
    ) -> PyResult<Stream> {
        entrance.begin_stream(py, (tag, data), (timeout_s, priority, request_id), Some(&self.bell))
    }

    /// Waits for the next parts of a stream.
    fn next<'py>(&self, py: Python<'py>, stream: &Stream) -> PyResult<(Bound<'py, PyAny>, u64)> {
        self.begin(py, stream.next(), Some(1))
    }

    /// Waits for the engine to be ready, or to have ended.
    fn wait_for<'py>(&self, py: Python<'py>, starting: &Starting) -> PyResult<(Bound<'py, PyAny>, u64)> {
        self.begin(py, Calling::Start(starting.take()?), None)
    }

    /// This call has no waiter any more.
    fn cancel(&self, number: u64) {
        if std::process::id() != self.process {
            return;
        }
        let mut places = lock(&self.places);
        let waiting = places.take(number);
        if waiting.is_some() {
            places.free.push(number as u32);
        }
        drop(places);
        drop(waiting);
    }

    /// Sets the results of the futures whose answers have come.
    fn drain(&self, py: Python<'_>) {
        for number in self.notes.take() {
            let Some(mut waiting) = lock(&self.places).take(number) else { continue };
            match waiting.calling.poll(&mut Context::from_waker(&waiting.waker)) {
                Poll::Ready(reply) => {
                    lock(&self.places).free.push(number as u32);
                    tell(py, waiting.future.bind(py), reply);
                }
                Poll::Pending => lock(&self.places).all[number as u32 as usize] = Some(waiting),
            }
        }
        give_back();
    }

    /// Ends every call in flight with this failure.
    fn fail_all(&self, py: Python<'_>, reason: &str, detail: &str) {
        self.drain(py);
        let all = {
            // Turns go on: a number of before must not mean a call of after.
            let mut places = lock(&self.places);
            places.free.clear();
            std::mem::take(&mut places.all)
        };
        for waiting in all.into_iter().flatten() {
            let outcome = Outcome::from_reason(reason).unwrap_or(Outcome::Internal);
            let answer = Answer::failed(Failure::new(outcome, detail));
            // The id went with the call: this failure is not one of the model, whose log would name it.
            let id = CallId::default();
            let reply = match waiting.many {
                Some(count) => Reply::Many(id, vec![answer; count]),
                None => Reply::One(id, answer),
            };
            tell(py, waiting.future.bind(py), reply);
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.create_future)?;
        let Ok(places) = self.places.try_lock() else { return Ok(()) };
        places.all.iter().flatten().try_for_each(|waiting| visit.call(&waiting.future))
    }

    fn __clear__(&self) {
        if std::process::id() == self.process {
            let all = std::mem::take(&mut *lock(&self.places));
            drop(all);
        }
    }

    /// Calls that are neither cancelled nor answered.
    fn __len__(&self) -> usize {
        let places = lock(&self.places);
        places.all.len() - places.free.len()
    }
}

fn tell(py: Python<'_>, future: &Bound<'_, PyAny>, reply: Reply) {
    // An answer that cannot be converted fails its own call only: the other calls of this drain are still to be answered.
    let result = match to_python(py, reply) {
        Ok(value) => future.call_method1(pyo3::intern!(py, "set_result"), (value,)),
        Err(error) => future.call_method1(pyo3::intern!(py, "set_exception"), (error.into_value(py),)),
    };
    // A future that was cancelled a moment ago takes neither; its call has not heard of it yet.
    drop(result);
}
