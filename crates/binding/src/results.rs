//! The outcomes of a batch as Python collects them, and their way onto the link without a copy of large arrays.

use crate::batch::Batch;
use crate::buffer::Borrowed;
use jitney_core::request::{BatchId, ItemId};
use jitney_core::tables::outcome::Outcome;
use jitney_server::link::answer_limit::check_answer;
use jitney_server::link::batch_end::BatchEnd;
use jitney_server::link::results_frame::ResultsWriter;
use jitney_server::link::worker::inbox::Delivered;
use jitney_server::link::worker::link::WorkerLink;
use jitney_server::values::answer::Failure;
use jitney_server::values::tensor::{Dtype, Tag};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Where the bytes of a value are.
#[derive(Debug)]
enum Source {
    /// Encoded by Python.
    Encoded(PyBackedBytes),
    /// A row of an array that was handed over.
    Row(Arc<Borrowed>, Range<usize>),
}

impl Source {
    fn as_slice(&self) -> &[u8] {
        match self {
            Source::Encoded(bytes) => bytes,
            Source::Row(array, range) => &array.as_slice()[range.clone()],
        }
    }
}

#[derive(Debug)]
struct Value {
    name: Arc<str>,
    tag: Tag,
    tensor: Option<(Dtype, Arc<[u64]>)>,
    media_type: Arc<str>,
    source: Source,
}

/// What was collected of one item and not sent yet.
#[derive(Debug, Default)]
enum Outcomes {
    #[default]
    Empty,
    Values(SmallVec<[Value; 1]>),
    Failed(Failure),
}

impl Outcomes {
    /// The same, unless values have more bytes together than an item may have.
    fn within(self, max_answer_bytes: u64) -> Outcomes {
        let Outcomes::Values(values) = &self else { return self };
        let bytes = values.iter().map(|value| value.source.as_slice().len() as u64).sum();
        check_answer(bytes, max_answer_bytes).map_or_else(Outcomes::Failed, |()| self)
    }
}

/// One item of the batch.
#[derive(Debug, Default)]
struct Slot {
    outcome: Outcomes,
    /// Parts that were sent.
    sequence: u32,
    /// Its end was sent.
    has_ended: bool,
}

/// Collects one outcome per item.
#[pyclass(frozen, module = "jitney._core")]
#[derive(Debug)]
pub(crate) struct Results {
    delivered: Arc<Delivered>,
    kept: Vec<usize>,
    slots: Mutex<Vec<Slot>>,
    /// Most bytes of one item's answer.
    max_answer_bytes: u64,
}

/// Which entries a frame gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Send {
    /// Of items with values, of which more follows.
    Parts,
    /// Of items with an outcome: they end.
    Ends,
    /// Of all items that have not ended: the batch ends.
    Rest,
}

/// The entries of one results frame.
struct Entries {
    /// The item, its place among the kept ones, what was collected.
    all: Vec<(ItemId, u32, Outcomes)>,
    /// Items that are left out and of which nothing was sent.
    left_out: Vec<ItemId>,
}

impl Entries {
    /// Writes the frame: the pieces of a vectored write.
    fn encode(&self, batch: BatchId, predict: Duration, are_parts: bool) -> Vec<Cow<'_, [u8]>> {
        let mut table = ResultsWriter::new(batch, predict, self.all.len() + self.left_out.len());
        let mut encoded: Vec<&[u8]> = Vec::with_capacity(self.all.len());
        for (id, sequence, outcome) in &self.all {
            match outcome {
                Outcomes::Values(values) => {
                    if are_parts {
                        table.part(*id, *sequence, values.len());
                    } else {
                        table.values(*id, *sequence, values.len());
                    }
                    for value in values {
                        let bytes = value.source.as_slice();
                        let tensor = value.tensor.as_ref().map(|(dtype, shape)| (*dtype, &shape[..]));
                        table.value(&value.name, value.tag, tensor, &value.media_type, bytes.len());
                        encoded.push(bytes);
                    }
                }
                // The worker dropped it just before `predict`: the front knows why no request waits for it.
                Outcomes::Failed(failure) if failure.outcome == Outcome::Cancelled => table.left_out(*id, *sequence),
                Outcomes::Failed(failure) => table.failed(*id, *sequence, failure),
                Outcomes::Empty => {
                    let detail = "the worker has no outcome for this item; please report this";
                    table.failed(*id, *sequence, &Failure::new(Outcome::Internal, detail));
                }
            }
        }
        self.left_out.iter().for_each(|&id| table.left_out(id, 0));
        join_neighbours(table.finish(), &encoded)
    }

    /// The items that end with these entries.
    fn ids(&self) -> impl Iterator<Item = ItemId> {
        self.all.iter().map(|(id, ..)| *id).chain(self.left_out.iter().copied())
    }
}

impl Results {
    fn slots(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The batch whose outcomes these are.
    pub(crate) fn batch(&self) -> BatchId {
        self.delivered.batch.id
    }

    /// Sends what was collected as parts; failures stay until their items end.
    pub(crate) fn send_parts(&self, py: Python<'_>, link: &WorkerLink, predict: Duration) -> std::io::Result<()> {
        let entries = self.take(Send::Parts);
        let pieces = entries.encode(self.batch(), predict, true);
        let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
        if entries.all.is_empty() { Ok(()) } else { py.detach(|| link.results(std::iter::empty(), &pieces)) }
    }

    /// Sends what was collected; these items end.
    pub(crate) fn send_results(&self, py: Python<'_>, link: &WorkerLink, predict: Duration) -> std::io::Result<()> {
        let entries = self.take(Send::Ends);
        let pieces = entries.encode(self.batch(), predict, false);
        let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
        if entries.all.is_empty() { Ok(()) } else { py.detach(|| link.results(entries.ids(), &pieces)) }
    }

    /// Sends the outcomes of all items that have not ended, and the end of the batch. An item without an outcome fails.
    pub(crate) fn finish(&self, py: Python<'_>, link: &WorkerLink, end: &BatchEnd) -> std::io::Result<()> {
        let mut entries = self.take(Send::Rest);
        let items = &self.delivered.batch.items;
        let mut is_kept = vec![false; items.len()];
        self.kept.iter().for_each(|&place| is_kept[place] = true);
        entries.left_out.extend(items.iter().zip(is_kept).filter(|(_, kept)| !kept).map(|(item, _)| item.id));
        let pieces = entries.encode(self.batch(), end.durations.predict, false);
        let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
        let pieces = if entries.ids().next().is_some() { &pieces[..] } else { &[] };
        py.detach(|| link.finish(entries.ids(), pieces, end))
    }

    /// Takes what is to be sent out of the slots.
    fn take(&self, what: Send) -> Entries {
        let mut slots = self.slots();
        let mut all = Vec::with_capacity(slots.len());
        for (&place, slot) in self.kept.iter().zip(&mut *slots) {
            let is_due = match (what, &slot.outcome) {
                _ if slot.has_ended => false,
                (Send::Rest, _) | (Send::Parts, Outcomes::Values(_)) => true,
                (Send::Parts, _) => false,
                (Send::Ends, outcome) => !matches!(outcome, Outcomes::Empty),
            };
            if is_due {
                let outcome = std::mem::take(&mut slot.outcome).within(self.max_answer_bytes);
                all.push((self.delivered.batch.items[place].id, slot.sequence, outcome));
                slot.sequence += 1;
                slot.has_ended = what != Send::Parts;
            }
        }
        Entries { all, left_out: Vec::new() }
    }
}

/// Puts small values next to each other: a copy is cheaper than an entry of a vectored write. Large ones stay where they
/// are.
fn join_neighbours<'a>(head: Vec<u8>, values: &[&'a [u8]]) -> Vec<Cow<'a, [u8]>> {
    const COPY_BELOW: usize = 8 << 10;
    let mut pieces = vec![Cow::Owned(head)];
    for &value in values {
        match pieces.last_mut() {
            _ if value.len() >= COPY_BELOW => pieces.push(Cow::Borrowed(value)),
            Some(Cow::Owned(last)) => last.extend_from_slice(value),
            _ => pieces.push(Cow::Owned(value.to_vec())),
        }
    }
    pieces
}

#[pymethods]
impl Results {
    #[new]
    #[pyo3(signature = (batch, max_answer_bytes = None))]
    fn new(batch: &Batch, max_answer_bytes: Option<u64>) -> Results {
        let max_answer_bytes = max_answer_bytes.unwrap_or(u64::MAX);
        let slots = std::iter::repeat_with(Slot::default).take(batch.kept.len()).collect();
        Results {
            delivered: batch.delivered.clone(),
            kept: batch.kept.clone(),
            slots: Mutex::new(slots),
            max_answer_bytes,
        }
    }

    #[pyo3(signature = (indices, tag, data, media_type = None))]
    fn values(&self, indices: Vec<usize>, tag: u8, data: Vec<PyBackedBytes>, media_type: Option<&str>) -> PyResult<()> {
        let tag = Tag::from_u8(tag).filter(|tag| *tag != Tag::Tensor);
        let tag = tag.ok_or_else(|| PyValueError::new_err("encoded values are JSON, msgpack, text or bytes"))?;
        check_count(indices.len(), data.len())?;
        let (name, media_type): (Arc<str>, Arc<str>) = (Arc::from(""), Arc::from(media_type.unwrap_or("")));
        let mut slots = self.slots();
        for (index, bytes) in indices.into_iter().zip(data) {
            let source = Source::Encoded(bytes);
            add(
                &mut slots,
                index,
                Value { name: name.clone(), tag, tensor: None, media_type: media_type.clone(), source },
            )?;
        }
        Ok(())
    }

    fn rows(
        &self,
        indices: Vec<usize>,
        name: &str,
        dtype: &str,
        row_shape: Vec<u64>,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let dtype =
            Dtype::parse(dtype).ok_or_else(|| PyValueError::new_err(format!("no dtype is called {dtype:?}")))?;
        let array = Arc::new(Borrowed::new(data)?);
        let row = row_shape.iter().product::<u64>() as usize * dtype.size();
        if array.as_slice().len() != row * indices.len() {
            let got = array.as_slice().len();
            return Err(PyValueError::new_err(format!(
                "{} rows of {row} bytes expected, {got} bytes got",
                indices.len()
            )));
        }
        let (name, shape): (Arc<str>, Arc<[u64]>) = (Arc::from(name), Arc::from(row_shape));
        let mut slots = self.slots();
        for (place, index) in indices.into_iter().enumerate() {
            let source = Source::Row(array.clone(), place * row..(place + 1) * row);
            let tensor = Some((dtype, shape.clone()));
            add(
                &mut slots,
                index,
                Value { name: name.clone(), tag: Tag::Tensor, tensor, media_type: Arc::from(""), source },
            )?;
        }
        Ok(())
    }

    #[pyo3(signature = (index, reason, detail, field = None, status = None, retry_after_s = None))]
    fn error(
        &self,
        index: usize,
        reason: &str,
        detail: String,
        field: Option<String>,
        status: Option<u16>,
        retry_after_s: Option<f64>,
    ) -> PyResult<()> {
        let outcome = Outcome::from_reason(reason)
            .ok_or_else(|| PyValueError::new_err(format!("no outcome has the reason {reason:?}")))?;
        let retry_after = retry_after_s.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let failure = Failure { field, status, retry_after, ..Failure::new(outcome, detail) };
        open(&mut self.slots(), index)?.outcome = Outcomes::Failed(failure);
        Ok(())
    }
}

/// The slot of an item whose end was not sent.
fn open(slots: &mut [Slot], index: usize) -> PyResult<&mut Slot> {
    let count = slots.len();
    match slots.get_mut(index) {
        Some(slot) if !slot.has_ended => Ok(slot),
        Some(_) => Err(PyValueError::new_err(format!("the end of item {index} was sent before"))),
        None => Err(PyValueError::new_err(format!("the batch has {count} items, none at {index}"))),
    }
}

fn add(slots: &mut [Slot], index: usize, value: Value) -> PyResult<()> {
    let slot = open(slots, index)?;
    match &mut slot.outcome {
        Outcomes::Values(values) => values.push(value),
        outcome => *outcome = Outcomes::Values(SmallVec::from_iter([value])),
    }
    Ok(())
}

fn check_count(indices: usize, values: usize) -> PyResult<()> {
    if indices == values {
        return Ok(());
    }
    Err(PyValueError::new_err(format!("{indices} indices, but {values} values")))
}
