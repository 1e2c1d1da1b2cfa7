//! A batch on the link: an item table, then the payloads back to back, parameter by parameter. For one dtype and
//! shape the payloads of a parameter *are* the stacked array.
//!
//! ```text
//! method text | batch u64 | items u32 | items × (id u64, remaining ms u32, parts u16, encoding u8, flags u8)
//! flags: bit 0 metadata follows, bit 1 the caller takes the answer in parts, bit 2 the number of the group key follows, bit 3 the
//! trace context of the batch follows
//! then per item, if bit 2 of its flags is set: key u64
//! then per item, if bit 3 of its flags is set: trace of the batch text
//! then per item, if bit 0 of its flags is set: request id text | trace text | key name text | headers u32 × (name text, value text)
//! then its parts: param u16 | tag u8 | dtype u8 | axes u8 | offset u64 | length u64 | axes × u64
//! ```

use crate::link::frame::header::{FrameError, HEADER_LEN, Header, Segments, small_frame};
use crate::link::frame::kind::Kind;
use crate::link::frame::table::{TableReader, put_text, put_text_bytes};
use crate::values::call::{Call, Encoding};
use crate::values::call_id::{CallId, hex};
use crate::values::metadata::{FurtherMetadata, Metadata};
use crate::values::tensor::{Dtype, Tag, TensorType};
use bytes::{BufMut, Bytes};
use jitney_core::request::{BatchId, ItemId};
use smallvec::SmallVec;
use std::time::Duration;

/// Pieces below this are copied next to each other: a copy is cheaper than an entry of a vectored write.
const COPY_BELOW: usize = 8 << 10;
/// Most axes of an array. Protocols and numpy allow fewer; a frame with more is damaged.
const MAX_AXES: usize = 64;
const NO_DTYPE: u8 = u8::MAX;
/// Bit of an item's flags: metadata stands before its parts.
const HAS_METADATA: u8 = 1;
/// Bytes of metadata after the id if there is nothing else: two texts and a list, each with a length of zero.
const LENGTHS_OF_NOTHING: usize = 12;
/// Bit of an item's flags: the caller takes the answer in parts.
const STREAMS: u8 = 2;
/// Bit of an item's flags: the number of its group key stands before its metadata.
const HAS_KEY: u8 = 4;

/// Bit of an item's flags, of the first item only: the trace context of its batch stands before its metadata.
const HAS_BATCH_TRACE: u8 = 8;

/// Writes the frame of a batch. Its items have one group key, which names their method.
pub fn encode(batch: BatchId, items: &[(&Call, Duration)]) -> Segments {
    encode_of_method(Kind::Batch, batch, items)
}

/// Writes the frame that gives the inputs of these items again.
pub(crate) fn encode_again(batch: BatchId, items: &[(&Call, Duration)]) -> Segments {
    encode_of_method(Kind::Inputs, batch, items)
}

fn encode_of_method(kind: Kind, batch: BatchId, items: &[(&Call, Duration)]) -> Segments {
    let mut method = Vec::new();
    put_text(&mut method, items.first().map_or("", |(call, _)| call.group.method()));
    encode_as(kind, &method, batch, items)
}

/// Writes items as a frame of this kind, whose table begins with `prefix`.
pub(crate) fn encode_as(kind: Kind, prefix: &[u8], batch: BatchId, items: &[(&Call, Duration)]) -> Segments {
    let most_parts = items.iter().map(|(call, _)| call.parts.len()).max().unwrap_or(0);
    let mut table = Vec::with_capacity(HEADER_LEN + 12 + items.len() * 48);
    table.put_bytes(0, HEADER_LEN);
    table.extend_from_slice(prefix);
    table.put_u64_le(batch.0);
    table.put_u32_le(items.len() as u32);
    // An item that is alone has the context of its request, which says more.
    let of_batch = items.first().filter(|_| items.len() > 1).and_then(|(call, _)| call.stay.as_ref());
    for (place, (call, remaining)) in items.iter().enumerate() {
        table.put_u64_le(call.id.0);
        table.put_u32_le(u32::try_from(remaining.as_millis()).unwrap_or(u32::MAX));
        table.put_u16_le(call.parts.len() as u16);
        table.put_u8(call.encoding as u8);
        let metadata = if call.metadata.is_some() { HAS_METADATA } else { 0 };
        let key = if call.key == 0 { 0 } else { HAS_KEY };
        let batch_trace = if place == 0 && of_batch.is_some() { HAS_BATCH_TRACE } else { 0 };
        table.put_u8(metadata | key | batch_trace | if call.streams { STREAMS } else { 0 });
    }
    // Offsets run parameter by parameter, the table item by item: first where each parameter's region begins.
    let mut offsets: SmallVec<[u64; 4]> = SmallVec::new();
    let mut total = 0u64;
    for param in 0..most_parts {
        offsets.push(total);
        total += items.iter().filter_map(|(call, _)| call.parts.get(param)).map(|p| p.data.len() as u64).sum::<u64>();
    }
    for (place, (call, _)) in items.iter().enumerate() {
        if call.key != 0 {
            table.put_u64_le(call.key);
        }
        if let Some(stay) = of_batch.filter(|_| place == 0) {
            put_text_bytes(&mut table, &stay.batch.traceparent());
        }
        if let Some(metadata) = &call.metadata {
            put_metadata(&mut table, metadata, call.stay.as_ref().map_or(0, |stay| stay.predict));
        }
        for (param, part) in call.parts.iter().enumerate() {
            let len = part.data.len() as u64;
            let shape: &[u64] = part.tensor.as_ref().map_or(&[], |t| &t.shape);
            table.put_u16_le(param as u16);
            table.put_u8(part.tag as u8);
            table.put_u8(part.tensor.as_ref().map_or(NO_DTYPE, |t| t.dtype as u8));
            table.put_u8(shape.len() as u8);
            table.put_u64_le(offsets[param]);
            table.put_u64_le(len);
            shape.iter().for_each(|&axis| table.put_u64_le(axis));
            offsets[param] += len;
        }
    }
    let header = Header { kind, table: table.len() - HEADER_LEN, payload: total as usize };
    table[..HEADER_LEN].copy_from_slice(&header.encode());
    let chunks = (0..most_parts).flat_map(|param| {
        items.iter().filter_map(move |(call, _)| call.parts.get(param)).flat_map(|p| p.data.0.iter())
    });
    gather(table, chunks)
}

/// Writes the frame that asks for the inputs of these items of a batch.
pub(crate) fn encode_ids(batch: BatchId, items: &[ItemId]) -> Segments {
    let numbers: Vec<u8> =
        std::iter::once(batch.0).chain(items.iter().map(|id| id.0)).flat_map(u64::to_le_bytes).collect();
    small_frame(Kind::InputsAgain, &numbers)
}

/// Reads what `encode_ids` wrote.
pub(crate) fn decode_ids(table: &[u8]) -> Result<(BatchId, Vec<ItemId>), FrameError> {
    let mut table = TableReader(table);
    let batch = BatchId(table.u64()?);
    let items = (0..table.0.len() / 8).map(|_| table.u64().map(ItemId)).collect::<Result<_, _>>()?;
    Ok((batch, items))
}

/// `span` is that of `predict`, of an item whose request is traced.
fn put_metadata(table: &mut Vec<u8>, metadata: &Metadata, span: u64) {
    match &metadata.request_id {
        CallId::Given(id) => put_text(table, id),
        CallId::Fresh(number) => put_text_bytes(table, &hex(*number)),
    }
    let Some(further) = &metadata.further else { return table.put_bytes(0, LENGTHS_OF_NOTHING) };
    match &further.note {
        Some(note) => note.write(span, table),
        None => put_text(table, &further.trace),
    }
    put_text(table, &further.key_name);
    table.put_u32_le(further.headers.len() as u32);
    for (name, value) in &further.headers {
        put_text(table, name);
        put_text(table, value);
    }
}

/// Joins small pieces that are neighbours, and leaves large pieces unchanged.
pub(crate) fn gather<'a>(first: Vec<u8>, pieces: impl Iterator<Item = &'a Bytes>) -> Segments {
    let (mut segments, mut small) = (Segments::new(), first);
    for piece in pieces {
        if piece.len() < COPY_BELOW {
            small.extend_from_slice(piece);
        } else {
            if !small.is_empty() {
                segments.push(Bytes::from(std::mem::take(&mut small)));
            }
            segments.push(piece.clone());
        }
    }
    if !small.is_empty() {
        segments.push(Bytes::from(small));
    }
    segments
}

/// A batch as the worker has received it.
#[derive(Debug)]
pub struct ReceivedBatch {
    /// Which one.
    pub id: BatchId,
    /// Which method of the model computes it; empty if the model has one.
    pub method: Box<str>,
    /// Its items in order.
    pub items: Vec<ReceivedItem>,
    /// All payloads.
    pub payload: Vec<u8>,
}

/// One item as the worker has received it.
#[derive(Debug)]
pub struct ReceivedItem {
    /// Which one.
    pub id: ItemId,
    /// What was left of its time when the batch was sent.
    pub remaining: Duration,
    /// What a struct goes back as.
    pub encoding: Encoding,
    /// Whether the caller takes the answer in parts.
    pub streams: bool,
    /// A number of its group key, of a model that works in steps; 0 for all others.
    pub key: u64,
    /// What its request says in addition to the values.
    pub metadata: Option<Metadata>,
    /// Of the first item: the trace context (`traceparent`) of a batch of several items; empty without one.
    pub batch_trace: Box<str>,
    /// Its values.
    pub parts: SmallVec<[ReceivedPart; 1]>,
}

/// One value of an item as the worker has received it.
#[derive(Clone, Debug)]
pub struct ReceivedPart {
    /// Which parameter of `predict`.
    pub param: u16,
    /// How to read it.
    pub tag: Tag,
    /// Set when `tag` is `Tensor`.
    pub tensor: Option<TensorType>,
    /// Where it begins in the payload.
    pub offset: usize,
    /// Its bytes.
    pub len: usize,
}

/// Reads a batch. Every offset is checked to lie within the payload, every tensor to have the bytes of its type.
pub fn decode(table: &[u8], payload: Vec<u8>) -> Result<ReceivedBatch, FrameError> {
    let mut table = TableReader(table);
    let method = table.text()?.into();
    let (id, items) = decode_items(&mut table, payload.len())?;
    Ok(ReceivedBatch { id, method, items, payload })
}

/// Reads the items of a table whose payload region has `payload` bytes.
pub(crate) fn decode_items(
    table: &mut TableReader<'_>,
    payload: usize,
) -> Result<(BatchId, Vec<ReceivedItem>), FrameError> {
    let id = BatchId(table.u64()?);
    let count = table.count(16)?;
    let mut heads = table.take(count * 16).map(TableReader)?;
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        let id = ItemId(heads.u64()?);
        let remaining = Duration::from_millis(u64::from(heads.u32()?));
        let parts = heads.u16()?;
        let encoding = if heads.u8()? == 0 { Encoding::Json } else { Encoding::Msgpack };
        let flags = heads.u8()?;
        let key = if flags & HAS_KEY == 0 { 0 } else { table.u64()? };
        let batch_trace = if flags & HAS_BATCH_TRACE == 0 { "" } else { table.text()? }.into();
        let metadata = if flags & HAS_METADATA == 0 { None } else { Some(metadata(table)?) };
        let parts = (0..parts).map(|_| part(table, payload)).collect::<Result<_, _>>()?;
        let streams = flags & STREAMS != 0;
        items.push(ReceivedItem { id, remaining, encoding, streams, key, metadata, batch_trace, parts });
    }
    Ok((id, items))
}

fn metadata(table: &mut TableReader<'_>) -> Result<Metadata, FrameError> {
    let request_id = CallId::Given(table.text()?.into());
    let (trace, key_name) = (table.text()?.into(), table.text()?.into());
    let headers = table.count(8)?;
    let headers = (0..headers).map(|_| Ok((table.text()?.into(), table.text()?.into()))).collect::<Result<_, _>>()?;
    Ok(Metadata::new(request_id, FurtherMetadata { trace, key_name, headers, note: None }))
}

fn part(table: &mut TableReader, payload: usize) -> Result<ReceivedPart, FrameError> {
    let param = table.u16()?;
    let tag = Tag::from_u8(table.u8()?).ok_or(FrameError::Table("no tag has this number"))?;
    let tensor_dtype = Dtype::from_u8(table.u8()?);
    let axes = table.u8()? as usize;
    let (offset, len) = (table.u64()?, table.u64()?);
    let tensor = tensor(table, tag, tensor_dtype, axes, len)?;
    let range = range(offset, len, payload)?;
    Ok(ReceivedPart { param, tag, tensor, offset: range.start, len: range.len() })
}

/// The type of a tensor, checked against the bytes that it has.
pub(crate) fn tensor(
    table: &mut TableReader,
    tag: Tag,
    dtype: Option<Dtype>,
    axes: usize,
    len: u64,
) -> Result<Option<TensorType>, FrameError> {
    if axes > MAX_AXES {
        return Err(FrameError::Table("an array has too many axes"));
    }
    let shape = (0..axes).map(|_| table.u64()).collect::<Result<SmallVec<[u64; 4]>, _>>()?;
    if tag != Tag::Tensor {
        return Ok(None);
    }
    let tensor = TensorType { dtype: dtype.ok_or(FrameError::Table("no dtype has this number"))?, shape };
    if tensor.byte_len() != Some(len) {
        return Err(FrameError::Table("an array has not the bytes of its type"));
    }
    Ok(Some(tensor))
}

/// A range that lies within `total` bytes.
pub(crate) fn range(offset: u64, len: u64, total: usize) -> Result<std::ops::Range<usize>, FrameError> {
    let end = offset.checked_add(len).filter(|&end| end <= total as u64);
    let end = end.ok_or(FrameError::Table("a value lies outside the payload"))?;
    Ok(offset as usize..end as usize)
}
