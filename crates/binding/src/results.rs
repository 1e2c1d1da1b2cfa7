//! The outcomes of a batch as Python collects them, and their way onto the link without a copy of large arrays.

use crate::batch::Batch;
use crate::buffer::Borrowed;
use jitney_core::outcome::Outcome;
use jitney_server::call::{Dtype, Failure, Tag};
use jitney_server::link::results_frame::{Durations, ResultsWriter};
use jitney_server::link::worker::{Delivered, WorkerLink};
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

#[derive(Debug, Default)]
enum Slot {
    #[default]
    Empty,
    Values(SmallVec<[Value; 1]>),
    Failed(Failure),
}

/// Collects one outcome per item.
#[pyclass(frozen, module = "jitney._core")]
#[derive(Debug)]
pub(crate) struct Results {
    delivered: Arc<Delivered>,
    kept: Vec<usize>,
    slots: Mutex<Vec<Slot>>,
}

impl Results {
    fn slots(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the frame. Items without an outcome are left out; the front then fails them.
    pub(crate) fn send(
        &self,
        py: Python<'_>,
        link: &WorkerLink,
        durations: Durations,
        (clean, out_of_memory): (bool, bool),
    ) -> std::io::Result<()> {
        let slots = std::mem::take(&mut *self.slots());
        let items = &self.delivered.batch.items;
        let mut table = ResultsWriter::new(self.delivered.batch.id, durations, clean, items.len());
        if out_of_memory {
            table.out_of_memory();
        }
        let mut encoded: Vec<&[u8]> = Vec::with_capacity(items.len());
        let mut is_kept = vec![false; items.len()];
        for (&place, slot) in self.kept.iter().zip(&slots) {
            is_kept[place] = true;
            let id = items[place].id;
            match slot {
                Slot::Values(values) => {
                    table.values(id, values.len());
                    for value in values {
                        let bytes = value.source.as_slice();
                        let tensor = value.tensor.as_ref().map(|(dtype, shape)| (*dtype, &shape[..]));
                        table.value(&value.name, value.tag, tensor, &value.media_type, bytes.len());
                        encoded.push(bytes);
                    }
                }
                // The worker dropped it just before `predict`: which of the two clocks was right is the front's business.
                Slot::Failed(failure) if failure.outcome == Outcome::Cancelled => table.left_out(id),
                Slot::Failed(failure) => table.failed(id, failure),
                Slot::Empty => {
                    let detail = "the worker has no outcome for this item; please report this";
                    table.failed(id, &Failure::new(Outcome::Internal, detail));
                }
            }
        }
        items.iter().zip(is_kept).filter(|(_, kept)| !kept).for_each(|(item, _)| table.left_out(item.id));
        let pieces = join_neighbours(table.finish(), &encoded);
        let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
        py.detach(|| link.finish(items.iter().map(|item| item.id), &pieces))
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
    fn new(batch: &Batch) -> Results {
        let slots = std::iter::repeat_with(Slot::default).take(batch.kept.len()).collect();
        Results { delivered: batch.delivered.clone(), kept: batch.kept.clone(), slots: Mutex::new(slots) }
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
        let failure = Failure { outcome, detail, field, status, retry_after };
        *slot(&mut self.slots(), index)? = Slot::Failed(failure);
        Ok(())
    }
}

fn slot(slots: &mut [Slot], index: usize) -> PyResult<&mut Slot> {
    let count = slots.len();
    slots.get_mut(index).ok_or_else(|| PyValueError::new_err(format!("the batch has {count} items, none at {index}")))
}

fn add(slots: &mut [Slot], index: usize, value: Value) -> PyResult<()> {
    let slot = slot(slots, index)?;
    match slot {
        Slot::Values(values) => values.push(value),
        _ => *slot = Slot::Values(SmallVec::from_iter([value])),
    }
    Ok(())
}

fn check_count(indices: usize, values: usize) -> PyResult<()> {
    if indices == values {
        return Ok(());
    }
    Err(PyValueError::new_err(format!("{indices} indices, but {values} values")))
}
