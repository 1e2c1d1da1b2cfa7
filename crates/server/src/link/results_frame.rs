//! Outcomes of items on the link, in any order and in as many frames as there are: a table, then the values back to back.
//!
//! ```text
//! batch u64 | predict so far: microseconds u32 | items u32
//! per item: id u64 | sequence u32 | status u8 (0 values, 1 failed, 2 left out, 3 part, 4 end of an answer in parts, 5 no room now)
//!   values: parts u16 × (name text | tag u8 | dtype u8 | axes u8 | media type text | offset u64 | length u64 | axes × u64)
//!   part: as values, and more of the item follows
//!   end: reason text | counts tokens u8 | read u64 | written u64 | values as above: the whole answer, if there is one
//!   failed: reason text | status u16 | come back after: milliseconds u32, 0 unsaid | field text | detail text
//! ```
//! The text of a media type may go on with headers of the answer, each after a line feed: `name: value`.
//! The sequence counts what was sent of an item, from 0. Each item ends once, with another status than 3; after status 5 it comes again.

use crate::link::answer_limit::AnswerLimit;
use crate::link::batch_end::microseconds;
use crate::link::batch_frame::{range, tensor};
use crate::link::frame::header::{FrameError, HEADER_LEN, Header};
use crate::link::frame::kind::Kind;
use crate::link::frame::payload::Payload;
use crate::link::frame::reader::OWN_BYTES;
use crate::link::frame::table::{TableReader, put_text};
use crate::values::answer::{Failure, OutputPart, StreamEnd, Usage};
use crate::values::tensor::{Dtype, Tag, TensorType};
use bytes::{BufMut, Bytes};
use jitney_core::request::{BatchId, ItemId};
use jitney_core::tables::outcome::Outcome;
use smallvec::SmallVec;
use std::ops::Range;
use std::time::Duration;

/// Bytes of an item in the table, without its values.
const ITEM: usize = 8 + 4 + 1;
const VALUES: u8 = 0;
const FAILED: u8 = 1;
const LEFT_OUT: u8 = 2;
const PART: u8 = 3;
const END: u8 = 4;
const LATER: u8 = 5;

/// What a worker sends of one item.
#[derive(Clone, Debug)]
pub enum ItemOutcome {
    /// It ended with these values; if there were parts, these are the last of them.
    Values(SmallVec<[OutputPart; 1]>),
    /// The end of an answer in parts; the values are the whole answer, if the caller gets one.
    End(SmallVec<[OutputPart; 1]>, Box<StreamEnd>),
    /// These values, and more of the item follows.
    Part(SmallVec<[OutputPart; 1]>),
    /// It ended without values.
    Failed(Failure),
    /// It ended without values: it was cancelled or too late.
    LeftOut,
    /// The model, which works in steps, has no room for it now: it is to come again.
    Later,
}

impl ItemOutcome {
    /// Whether nothing more of the item follows.
    pub fn is_end(&self) -> bool {
        !matches!(self, ItemOutcome::Part(_))
    }

    fn values(&self) -> &[OutputPart] {
        match self {
            ItemOutcome::Values(values) | ItemOutcome::End(values, _) | ItemOutcome::Part(values) => values,
            ItemOutcome::Failed(_) | ItemOutcome::LeftOut | ItemOutcome::Later => &[],
        }
    }
}

/// One entry of a results frame.
#[derive(Clone, Debug)]
pub struct ItemResult {
    /// The item.
    pub id: ItemId,
    /// How many entries of this item came before.
    pub sequence: u32,
    /// What it ended with, or a part.
    pub outcome: ItemOutcome,
}

impl ItemResult {
    /// Bytes of its values.
    pub fn bytes(&self) -> u64 {
        self.outcome.values().iter().map(|value| value.data.len() as u64).sum()
    }
}

/// A results frame as the front has received it.
#[derive(Debug)]
pub struct ReceivedResults {
    /// The batch of the items.
    pub batch: BatchId,
    /// Time in `predict` until now.
    pub predict: Duration,
    /// Some items of the batch.
    pub items: Vec<ItemResult>,
}

impl ReceivedResults {
    /// Fails the items whose values have more bytes than an item may have.
    pub(crate) fn limit(&mut self, limit: &AnswerLimit) {
        for item in &mut self.items {
            if let Err(failure) = limit.check(item.outcome.values()) {
                item.outcome = ItemOutcome::Failed(failure);
            }
        }
    }

    /// Whether the model answered at least one item.
    pub fn has_values(&self) -> bool {
        self.items
            .iter()
            .any(|item| matches!(item.outcome, ItemOutcome::Values(_) | ItemOutcome::End(..) | ItemOutcome::Part(_)))
    }
}

/// Collects the table of a results frame. The caller writes the values behind it, in the order of the calls to `value`.
#[derive(Debug)]
pub struct ResultsWriter {
    table: Vec<u8>,
    payload: u64,
}

impl ResultsWriter {
    /// Begins the table. `items` is how many entries follow.
    pub fn new(batch: BatchId, predict: Duration, items: usize) -> ResultsWriter {
        let mut table = Vec::with_capacity(HEADER_LEN + 16 + items * 64);
        table.put_bytes(0, HEADER_LEN);
        table.put_u64_le(batch.0);
        table.put_u32_le(microseconds(predict));
        table.put_u32_le(items as u32);
        ResultsWriter { table, payload: 0 }
    }

    fn item(&mut self, id: ItemId, sequence: u32, status: u8) {
        self.table.put_u64_le(id.0);
        self.table.put_u32_le(sequence);
        self.table.put_u8(status);
    }

    /// An item that ends with `values` values; call `value` for each next.
    pub fn values(&mut self, id: ItemId, sequence: u32, values: usize) {
        self.item(id, sequence, VALUES);
        self.table.put_u16_le(values as u16);
    }

    /// A part of an item, of `values` values; call `value` for each next.
    pub fn part(&mut self, id: ItemId, sequence: u32, values: usize) {
        self.item(id, sequence, PART);
        self.table.put_u16_le(values as u16);
    }

    /// The end of an answer in parts, with `values` values; call `value` for each next.
    pub fn end(&mut self, id: ItemId, sequence: u32, end: &StreamEnd, values: usize) {
        self.item(id, sequence, END);
        put_text(&mut self.table, &end.reason);
        let usage = end.usage.unwrap_or(Usage { input: 0, output: 0 });
        self.table.put_u8(end.usage.is_some().into());
        self.table.put_u64_le(usage.input);
        self.table.put_u64_le(usage.output);
        self.table.put_u16_le(values as u16);
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
    pub fn failed(&mut self, id: ItemId, sequence: u32, failure: &Failure) {
        self.item(id, sequence, FAILED);
        put_text(&mut self.table, failure.outcome.reason());
        self.table.put_u16_le(failure.status.unwrap_or(0));
        let retry_after = failure.retry_after.map_or(0, |after| u32::try_from(after.as_millis()).unwrap_or(u32::MAX));
        self.table.put_u32_le(retry_after);
        put_text(&mut self.table, failure.field.as_deref().unwrap_or(""));
        put_text(&mut self.table, &failure.detail);
    }

    /// An item that the worker does not compute, or not to its end.
    pub fn left_out(&mut self, id: ItemId, sequence: u32) {
        self.item(id, sequence, LEFT_OUT);
    }

    /// An item for which the model has no room now.
    pub fn later(&mut self, id: ItemId, sequence: u32) {
        self.item(id, sequence, LATER);
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

/// Finds the large values in a payload of `len` bytes. Each is received into separate memory.
pub(crate) fn cuts(table: &[u8], len: usize) -> Result<Vec<Range<usize>>, FrameError> {
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
    let predict = Duration::from_micros(u64::from(table.u32()?));
    let count = table.count(ITEM)?;
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        let id = ItemId(table.u64()?);
        let sequence = table.u32()?;
        items.push(ItemResult { id, sequence, outcome: outcome(table, data)? });
    }
    Ok(ReceivedResults { batch, predict, items })
}

fn outcome(table: &mut TableReader, data: Data) -> Result<ItemOutcome, FrameError> {
    match table.u8()? {
        VALUES => values(table, data).map(ItemOutcome::Values),
        PART => values(table, data).map(ItemOutcome::Part),
        END => {
            let reason = table.text()?.into();
            let counts = table.u8()? != 0;
            let usage = Usage { input: table.u64()?, output: table.u64()? };
            let end = StreamEnd { reason, usage: counts.then_some(usage) };
            Ok(ItemOutcome::End(values(table, data)?, Box::new(end)))
        }
        FAILED => {
            let reason = table.text()?;
            let outcome = Outcome::from_reason(reason).ok_or(FrameError::Table("no outcome has this reason"))?;
            let status = Some(table.u16()?).filter(|&status| status != 0);
            let retry_after = Some(Duration::from_millis(table.u32()?.into())).filter(|after| !after.is_zero());
            let field = Some(table.text()?).filter(|field| !field.is_empty()).map(str::to_owned);
            let detail = table.text()?.to_owned();
            let model_text = (outcome == Outcome::ModelFailed).then(|| detail.clone());
            Ok(ItemOutcome::Failed(Failure { field, status, retry_after, model_text, ..Failure::new(outcome, detail) }))
        }
        LEFT_OUT => Ok(ItemOutcome::LeftOut),
        LATER => Ok(ItemOutcome::Later),
        _ => Err(FrameError::Table("no item status has this number")),
    }
}

fn values(table: &mut TableReader, data: Data) -> Result<SmallVec<[OutputPart; 1]>, FrameError> {
    let mut values = SmallVec::new();
    for _ in 0..table.u16()? {
        values.push(value(table, data)?);
    }
    Ok(values)
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
