//! Outcomes of items on the link, in any order: a table, then the values back to back.
//!
//! ```text
//! batch u64 | decode, predict, encode: microseconds u32 each | how it ran u8 | items u32
//! how it ran: 1 clean, 2 too large for the memory of the device, 0 in another way
//! per item: id u64 | status u8 (0 values, 1 failed, 2 left out)
//!   values: parts u16 × (name text | tag u8 | dtype u8 | axes u8 | media type text | offset u64 | length u64 | axes × u64)
//!   failed: reason text | status u16 | come back after: milliseconds u32, 0 unsaid | field text | detail text
//! ```

use super::batch_frame::{range, tensor};
use super::frame::{FrameError, HEADER_LEN, Header, Kind, OWN_BYTES, Payload, TableReader, put_text};
use crate::call::{Dtype, Failure, OutputPart, Tag, TensorType};
use bytes::{BufMut, Bytes};
use jitney_core::outcome::Outcome;
use jitney_core::request::{BatchId, ItemId};
use smallvec::SmallVec;
use std::ops::Range;
use std::time::Duration;

/// Where the table says how the batch ran.
const HOW_IT_RAN: usize = HEADER_LEN + 8 + 3 * 4;
const OUT_OF_MEMORY: u8 = 2;

/// What the worker's time went into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// Reading the items.
    pub decode: Duration,
    /// `predict`.
    pub predict: Duration,
    /// Writing the answers.
    pub encode: Duration,
}

/// How one item ended in the worker.
#[derive(Clone, Debug)]
pub enum ItemOutcome {
    /// With values.
    Values(SmallVec<[OutputPart; 1]>),
    /// Without.
    Failed(Failure),
    /// It was cancelled or too late and never reached `predict`.
    LeftOut,
}

/// A results frame as the front has received it.
#[derive(Debug)]
pub struct ReceivedResults {
    /// Of which batch.
    pub batch: BatchId,
    /// Where the worker's time went.
    pub durations: Durations,
    /// Whether `predict` ran once and raised nothing: only then do the durations teach anything.
    pub is_clean: bool,
    /// Whether the batch was too large for the memory of the device, and was computed in smaller parts.
    pub is_out_of_memory: bool,
    /// The outcomes.
    pub items: Vec<(ItemId, ItemOutcome)>,
}

impl ReceivedResults {
    /// Bytes of all values.
    pub fn bytes(&self) -> u64 {
        let values = self.items.iter().filter_map(|(_, outcome)| match outcome {
            ItemOutcome::Values(parts) => Some(parts),
            ItemOutcome::Failed(_) | ItemOutcome::LeftOut => None,
        });
        values.flatten().map(|part| part.data.len() as u64).sum()
    }
}

/// Collects the table of a results frame. The values themselves are written by whoever holds them, in the order of
/// the calls to `value`.
#[derive(Debug)]
pub struct ResultsWriter {
    table: Vec<u8>,
    payload: u64,
}

impl ResultsWriter {
    /// Begins the table.
    pub fn new(batch: BatchId, durations: Durations, is_clean: bool, items: usize) -> ResultsWriter {
        let mut table = Vec::with_capacity(HEADER_LEN + 32 + items * 64);
        table.put_bytes(0, HEADER_LEN);
        table.put_u64_le(batch.0);
        for length in [durations.decode, durations.predict, durations.encode] {
            table.put_u32_le(u32::try_from(length.as_micros()).unwrap_or(u32::MAX));
        }
        table.put_u8(u8::from(is_clean));
        table.put_u32_le(items as u32);
        ResultsWriter { table, payload: 0 }
    }

    /// The batch was too large for the memory of the device.
    pub fn out_of_memory(&mut self) {
        self.table[HOW_IT_RAN] = OUT_OF_MEMORY;
    }

    /// An item with this many values; call `value` for each next.
    pub fn values(&mut self, id: ItemId, parts: usize) {
        self.table.put_u64_le(id.0);
        self.table.put_u8(0);
        self.table.put_u16_le(parts as u16);
    }

    /// A value of `len` bytes.
    pub fn value(&mut self, name: &str, tag: Tag, tensor: Option<(Dtype, &[u64])>, media_type: &str, len: usize) {
        let (dtype, shape) = tensor.map_or((u8::MAX, &[][..]), |(dtype, shape)| (dtype as u8, shape));
        put_text(&mut self.table, name);
        self.table.put_u8(tag as u8);
        self.table.put_u8(dtype);
        self.table.put_u8(shape.len() as u8);
        put_text(&mut self.table, media_type);
        self.table.put_u64_le(self.payload);
        self.table.put_u64_le(len as u64);
        shape.iter().for_each(|&axis| self.table.put_u64_le(axis));
        self.payload += len as u64;
    }

    /// An item that failed.
    pub fn failed(&mut self, id: ItemId, failure: &Failure) {
        self.table.put_u64_le(id.0);
        self.table.put_u8(1);
        put_text(&mut self.table, failure.outcome.reason());
        self.table.put_u16_le(failure.status.unwrap_or(0));
        let retry_after = failure.retry_after.map_or(0, |after| u32::try_from(after.as_millis()).unwrap_or(u32::MAX));
        self.table.put_u32_le(retry_after);
        put_text(&mut self.table, failure.field.as_deref().unwrap_or(""));
        put_text(&mut self.table, &failure.detail);
    }

    /// An item that never reached `predict`.
    pub fn left_out(&mut self, id: ItemId) {
        self.table.put_u64_le(id.0);
        self.table.put_u8(2);
    }

    /// Header and table; the values follow.
    pub fn finish(self) -> Vec<u8> {
        self.finish_as(Kind::Results)
    }

    /// Header and table of a frame of this kind; the values follow.
    pub(crate) fn finish_as(mut self, kind: Kind) -> Vec<u8> {
        let table = self.table.len() - HEADER_LEN;
        let header = Header { kind, table, payload: self.payload as usize };
        self.table[..HEADER_LEN].copy_from_slice(&header.encode());
        self.table
    }
}

/// Reads a results frame; values are slices of `payload`.
pub fn decode(table: &[u8], payload: &Payload) -> Result<ReceivedResults, FrameError> {
    read(&mut TableReader(table), &mut |offset, len| payload.slice(range(offset, len, payload.len())?))
}

/// Where in a payload of `len` bytes the large values are: they are received into memory of their own.
pub(super) fn cuts(table: &[u8], len: usize) -> Result<Vec<Range<usize>>, FrameError> {
    let mut large: Vec<Range<usize>> = Vec::new();
    read(&mut TableReader(table), &mut |offset, size| {
        let range = range(offset, size, len)?;
        if range.len() >= OWN_BYTES {
            if large.last().is_some_and(|last| range.start < last.end) {
                return Err(FrameError::Table("values overlap, or are out of order"));
            }
            large.push(range);
        }
        Ok(Bytes::new())
    })?;
    Ok(large)
}

/// Where the bytes of a value are, by offset and length.
type Data<'a> = &'a mut dyn FnMut(u64, u64) -> Result<Bytes, FrameError>;

fn read(table: &mut TableReader<'_>, data: Data) -> Result<ReceivedResults, FrameError> {
    let batch = BatchId(table.u64()?);
    let mut length = || table.u32().map(|us| Duration::from_micros(u64::from(us)));
    let durations = Durations { decode: length()?, predict: length()?, encode: length()? };
    let how_it_ran = table.u8()?;
    let (is_clean, is_out_of_memory) = (how_it_ran == 1, how_it_ran == OUT_OF_MEMORY);
    let count = table.count(9)?;
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        let id = ItemId(table.u64()?);
        items.push((id, outcome(table, data)?));
    }
    Ok(ReceivedResults { batch, durations, is_clean, is_out_of_memory, items })
}

fn outcome(table: &mut TableReader, data: Data) -> Result<ItemOutcome, FrameError> {
    match table.u8()? {
        0 => {
            let parts = table.u16()?;
            let parts = (0..parts).map(|_| value(table, data)).collect::<Result<_, _>>()?;
            Ok(ItemOutcome::Values(parts))
        }
        1 => {
            let reason = table.text()?;
            let outcome = Outcome::from_reason(reason).ok_or(FrameError::Table("no outcome has this reason"))?;
            let status = Some(table.u16()?).filter(|&status| status != 0);
            let retry_after = Some(Duration::from_millis(table.u32()?.into())).filter(|after| !after.is_zero());
            let field = Some(table.text()?).filter(|field| !field.is_empty()).map(str::to_owned);
            let detail = table.text()?.to_owned();
            Ok(ItemOutcome::Failed(Failure { outcome, detail, field, status, retry_after }))
        }
        2 => Ok(ItemOutcome::LeftOut),
        _ => Err(FrameError::Table("no item status has this number")),
    }
}

fn value(table: &mut TableReader, data: Data) -> Result<OutputPart, FrameError> {
    let name = table.text()?.into();
    let tag = Tag::from_u8(table.u8()?).ok_or(FrameError::Table("no tag has this number"))?;
    let dtype = Dtype::from_u8(table.u8()?);
    let axes = table.u8()? as usize;
    let media_type = Some(table.text()?).filter(|media| !media.is_empty()).map(Into::into);
    let (offset, len) = (table.u64()?, table.u64()?);
    let tensor: Option<TensorType> = tensor(table, tag, dtype, axes, len)?;
    Ok(OutputPart { name, tag, tensor, media_type, data: data(offset, len)? })
}
