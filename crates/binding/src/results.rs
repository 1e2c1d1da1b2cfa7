//! The outcomes of a batch and their parts as Python collects them, and their way onto the link without a copy of large arrays.

use crate::batch::Batch;
use crate::buffer::Borrowed;
use jitney_core::request::{BatchId, ItemId};
use jitney_core::scheduler::results::steps::Step;
use jitney_core::tables::outcome::Outcome;
use jitney_server::link::answer_limit::check_answer;
use jitney_server::link::batch_end::BatchEnd;
use jitney_server::link::results_frame::ResultsWriter;
use jitney_server::link::step_frame;
use jitney_server::link::worker::inbox::Delivered;
use jitney_server::link::worker::link::WorkerLink;
use jitney_server::values::answer::{Failure, StreamEnd, Usage};
use jitney_server::values::tensor::{Dtype, Tag};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
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

type Values = SmallVec<[Value; 1]>;

/// What a frame says of one item.
#[derive(Debug)]
enum Entry {
    /// More of the item follows.
    Part(Values),
    /// The whole answer.
    Values(Values),
    /// The end of an answer in parts, with the whole answer if there is one.
    End(Values, StreamEnd),
    Failed(Failure),
    /// The batch ended without an outcome for the item.
    Missing,
    /// The model has no room for the item now.
    Later,
}

impl Entry {
    fn values(&self) -> &[Value] {
        match self {
            Entry::Part(values) | Entry::Values(values) | Entry::End(values, _) => values,
            Entry::Failed(_) | Entry::Missing | Entry::Later => &[],
        }
    }
}

/// One item of the batch: what was collected and not sent yet.
#[derive(Debug, Default)]
struct Slot {
    part: Values,
    values: Values,
    end: Option<StreamEnd>,
    failure: Option<Failure>,
    is_later: bool,
    /// Entries that were sent.
    sequence: u32,
    /// Bytes of all its values.
    bytes: u64,
    /// Its end was sent.
    has_ended: bool,
    /// It was ended because its answer had too many bytes. The model may say more of it, which is not sent.
    is_too_large: bool,
}

impl Slot {
    /// The entry that ends the item, if it has an outcome.
    fn take_end(&mut self) -> Option<Entry> {
        let values = std::mem::take(&mut self.values);
        if std::mem::take(&mut self.is_later) {
            return Some(Entry::Later);
        }
        match (self.failure.take(), self.end.take()) {
            (Some(failure), _) => Some(Entry::Failed(failure)),
            (None, Some(end)) => Some(Entry::End(values, end)),
            (None, None) => (!values.is_empty()).then_some(Entry::Values(values)),
        }
    }

    /// Drops what was collected and not sent.
    fn clear(&mut self) {
        (self.part, self.values) = (Values::new(), Values::new());
        (self.end, self.failure, self.is_later) = (None, None, false);
    }

    /// The entry, unless the item now has more bytes than it may have.
    fn within(&mut self, entry: Entry, max_answer_bytes: u64) -> Entry {
        self.bytes += entry.values().iter().map(|value| value.source.as_slice().len() as u64).sum::<u64>();
        check_answer(self.bytes, max_answer_bytes).map_or_else(
            |failure| {
                self.is_too_large = true;
                Entry::Failed(failure)
            },
            |()| entry,
        )
    }
}

/// What was collected of a batch.
#[derive(Debug)]
struct Collected {
    delivered: Arc<Delivered>,
    /// Places in the received batch of the items that are computed.
    kept: Vec<usize>,
    slots: Mutex<Vec<Slot>>,
    /// The items that are not computed were reported.
    has_left_out: AtomicBool,
    /// Most bytes of one item's answer.
    max_answer_bytes: u64,
}

/// Collects one outcome per item, and parts before it.
#[pyclass(frozen, module = "jitney._core")]
#[derive(Debug)]
pub(crate) struct Results {
    collected: Arc<Collected>,
    /// Values are parts: more of their items follows.
    are_parts: bool,
}

/// The entries of one results frame.
#[derive(Default)]
struct Entries {
    /// The item, how many entries of it came before, and what is said.
    all: Vec<(ItemId, u32, Entry)>,
    /// Items that are left out and of which nothing was sent.
    left_out: Vec<ItemId>,
}

impl Entries {
    /// Writes the frame: the pieces of a vectored write.
    fn encode(&self, batch: BatchId, predict: Duration) -> Vec<Cow<'_, [u8]>> {
        let mut table = ResultsWriter::new(batch, predict, self.all.len() + self.left_out.len());
        let mut encoded: Vec<&[u8]> = Vec::with_capacity(self.all.len());
        for (id, sequence, entry) in &self.all {
            match entry {
                Entry::Part(values) => table.part(*id, *sequence, values.len()),
                Entry::Values(values) => table.values(*id, *sequence, values.len()),
                Entry::End(values, end) => table.end(*id, *sequence, end, values.len()),
                // The worker dropped it just before `predict`: the front knows why no request waits for it.
                Entry::Failed(failure) if failure.outcome == Outcome::Cancelled => table.left_out(*id, *sequence),
                Entry::Failed(failure) => table.failed(*id, *sequence, failure),
                Entry::Later => table.later(*id, *sequence),
                Entry::Missing => {
                    let detail = "the worker has no outcome for this item; please report this";
                    table.failed(*id, *sequence, &Failure::new(Outcome::Internal, detail));
                }
            }
            for value in entry.values() {
                let bytes = value.source.as_slice();
                let tensor = value.tensor.as_ref().map(|(dtype, shape)| (*dtype, &shape[..]));
                table.value(&value.name, value.tag, tensor, &value.media_type, bytes.len());
                encoded.push(bytes);
            }
        }
        self.left_out.iter().for_each(|&id| table.left_out(id, 0));
        join_neighbours(table.finish(), &encoded)
    }

    /// The items that end with these entries.
    fn ended(&self) -> impl Iterator<Item = ItemId> {
        let ends = self.all.iter().filter(|(.., entry)| !matches!(entry, Entry::Part(_)));
        ends.map(|(id, ..)| *id).chain(self.left_out.iter().copied())
    }
}

impl Results {
    fn slots(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.collected.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The batch whose outcomes these are.
    pub(crate) fn batch(&self) -> BatchId {
        self.collected.delivered.batch.id
    }

    /// Sends what was collected since the last time, in one frame: parts, and the ends of items. If there is nothing, the
    /// frame is a sign of life.
    pub(crate) fn send(&self, py: Python<'_>, link: &WorkerLink, predict: Duration) -> std::io::Result<()> {
        let entries = self.take(false);
        let pieces = entries.encode(self.batch(), predict);
        let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
        let link = link.of(&self.collected.delivered);
        py.detach(|| link.results(entries.ended(), &pieces))
    }

    /// Sends the outcomes of all items that have not ended, and the end of the batch. An item without an outcome fails.
    pub(crate) fn finish(&self, py: Python<'_>, link: &WorkerLink, end: &BatchEnd) -> std::io::Result<()> {
        let mut entries = self.take(true);
        entries.left_out = self.left_out();
        let pieces = entries.encode(self.batch(), end.durations.predict);
        let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
        let pieces = if entries.ended().next().is_some() { &pieces[..] } else { &[] };
        let link = link.of(&self.collected.delivered);
        py.detach(|| link.finish(entries.ended(), pieces, end))
    }

    /// The items that are not computed, once.
    fn left_out(&self) -> Vec<ItemId> {
        let Collected { delivered, kept, has_left_out, .. } = &*self.collected;
        let items = &delivered.batch.items;
        if kept.len() == items.len() || has_left_out.swap(true, Ordering::Relaxed) {
            return Vec::new();
        }
        let mut is_kept = vec![false; items.len()];
        kept.iter().for_each(|&place| is_kept[place] = true);
        items.iter().zip(is_kept).filter(|(_, kept)| !kept).map(|(item, _)| item.id).collect()
    }

    /// Takes what is to be sent out of the slots. With `all`, every item that has not ended does so now.
    fn take(&self, all: bool) -> Entries {
        let Collected { delivered, kept, max_answer_bytes, .. } = &*self.collected;
        let mut slots = self.slots();
        let mut entries = Entries { all: Vec::with_capacity(slots.len()), left_out: Vec::new() };
        for (&place, slot) in kept.iter().zip(&mut *slots) {
            if slot.is_too_large {
                slot.clear();
                continue;
            }
            let part = std::mem::take(&mut slot.part);
            let part = (!part.is_empty()).then_some(Entry::Part(part));
            let end = if slot.has_ended { None } else { slot.take_end().or(all.then_some(Entry::Missing)) };
            for entry in part.into_iter().chain(end) {
                if slot.has_ended {
                    break; // Its part was too large, and that ended it.
                }
                let entry = slot.within(entry, *max_answer_bytes);
                slot.has_ended = !matches!(entry, Entry::Part(_));
                entries.all.push((delivered.batch.items[place].id, slot.sequence, entry));
                slot.sequence += 1;
            }
        }
        entries
    }

    fn add(&self, slots: &mut [Slot], index: usize, value: Value) -> PyResult<()> {
        let slot = open(slots, index)?;
        if self.are_parts {
            slot.part.push(value);
        } else {
            slot.values.push(value);
        }
        Ok(())
    }
}

/// Sends one step of a model, with what it brought of the items of several batches.
pub(crate) fn send_step(
    py: Python<'_>,
    link: &WorkerLink,
    batches: &[PyRef<'_, Results>],
    step: &Step,
) -> std::io::Result<()> {
    let mut entries = Entries::default();
    // Items of a link that was lost are cancelled; the front of the next one knows nothing about them.
    let latest = batches.iter().map(|results| &results.collected.delivered).max_by_key(|delivered| delivered.link);
    let link = latest.map_or_else(|| link.clone(), |delivered| link.of(delivered));
    let number = latest.map(|delivered| delivered.link);
    for results in batches.iter().filter(|results| Some(results.collected.delivered.link) == number) {
        entries.all.append(&mut results.take(false).all);
        entries.left_out.append(&mut results.left_out());
    }
    let mut pieces = entries.encode(BatchId(0), step.took);
    pieces[0] = Cow::Owned(step_frame::encode(step, &pieces[0]));
    let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
    py.detach(|| link.results(entries.ended(), &pieces))
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
        let (delivered, kept) = (batch.delivered.clone(), batch.kept.clone());
        let collected = Collected {
            delivered,
            kept,
            slots: Mutex::new(slots),
            has_left_out: AtomicBool::new(false),
            max_answer_bytes,
        };
        Results { collected: Arc::new(collected), are_parts: false }
    }

    /// The same results, for the parts of items: what is written there is sent, and more of its item follows.
    fn parts(&self) -> Results {
        Results { collected: self.collected.clone(), are_parts: true }
    }

    /// The answer in parts of an item ends; `usage` is how many tokens were read and written.
    #[pyo3(signature = (index, reason, usage = None))]
    fn end(&self, index: usize, reason: &str, usage: Option<(u64, u64)>) -> PyResult<()> {
        let usage = usage.map(|(input, output)| Usage { input, output });
        open(&mut self.slots(), index)?.end = Some(StreamEnd { reason: reason.into(), usage });
        Ok(())
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
            self.add(
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
            self.add(
                &mut slots,
                index,
                Value { name: name.clone(), tag: Tag::Tensor, tensor, media_type: Arc::from(""), source },
            )?;
        }
        Ok(())
    }

    /// The items that ended because their answers have too many bytes. What is written of them later is not sent.
    fn too_large(&self) -> Vec<usize> {
        let slots = self.slots();
        slots.iter().enumerate().filter(|(_, slot)| slot.is_too_large).map(|(index, _)| index).collect()
    }

    /// The model has no room for the item now: it is to come again.
    fn later(&self, index: usize) -> PyResult<()> {
        open(&mut self.slots(), index)?.is_later = true;
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
        open(&mut self.slots(), index)?.failure = Some(failure);
        Ok(())
    }
}

/// The slot of an item whose end was not sent, or was sent because its answer is too large.
fn open(slots: &mut [Slot], index: usize) -> PyResult<&mut Slot> {
    let count = slots.len();
    match slots.get_mut(index) {
        Some(slot) if !slot.has_ended || slot.is_too_large => Ok(slot),
        Some(_) => Err(PyValueError::new_err(format!("the end of item {index} was sent before"))),
        None => Err(PyValueError::new_err(format!("the batch has {count} items, none at {index}"))),
    }
}

fn check_count(indices: usize, values: usize) -> PyResult<()> {
    if indices == values {
        return Ok(());
    }
    Err(PyValueError::new_err(format!("{indices} indices, but {values} values")))
}
