//! The frame of a request: around items as in a batch is what only a caller says.
//!
//! ```text
//! priority u8 | deployment text | request id text | request u64 | items as in a batch; an item's id is its place, and the metadata
//! of the first one has the trace context of the caller
//! of a worker, which asks for items that it computes, before that: request u64 | items u32 | parents u32 × u64
//! ```

use crate::engine::program_values::{Parts, Terms};
use crate::link::batch_frame;
use crate::link::batch_frame::ReceivedPart;
use crate::link::frame::header::{FrameError, Segments};
use crate::link::frame::kind::Kind;
use crate::link::frame::payload::Payload;
use crate::link::frame::reader::Frame;
use crate::link::frame::table::{TableReader, put_text};
use crate::values::call::{Call, Encoding, Part};
use crate::values::call_id::CallId;
use crate::values::chunks::Chunks;
use crate::values::metadata::Metadata;
use bytes::Bytes;
use jitney_core::request::{BatchId, ItemId, Priority};
use std::time::Duration;

/// A smaller value is copied out of the buffer that it came in, which it would keep alive otherwise.
const COPY_BELOW: usize = 8 << 10;
/// Bytes that the frame of a request may have in addition to `max_body_bytes`: its table, for the most part.
pub(crate) const TABLE: usize = 1 << 20;
/// Longest name of a deployment: each item of a request may be answered with it.
const LONGEST_NAME: usize = 256;
/// Longest trace context, with its `tracestate`.
const LONGEST_TRACE: usize = 640;
/// The time-out on the wire that stands for the deployment's own.
const UNSAID: Duration = Duration::from_millis(u32::MAX as u64);
/// The longest time-out that a program can ask for: 49 days.
const LONGEST: Duration = Duration::from_millis(u32::MAX as u64 - 1);

/// A request as it arrived.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) deployment: String,
    pub(crate) items: Vec<Parts>,
    pub(crate) terms: Terms,
    /// Whether the program takes the answer in parts. Then there is one item.
    pub(crate) streams: bool,
    /// Bytes of the payload, of which the values may be slices.
    pub(crate) bytes: usize,
}

/// What a frame that was skipped says before its items.
#[derive(Debug)]
pub(crate) struct SkippedRequest {
    pub(crate) id: u64,
    pub(crate) deployment: String,
    /// The number of its items.
    pub(crate) items: usize,
}

/// Who sends a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A program that dialled the server.
    Program,
    /// A worker of the server, over its own link.
    Worker,
}

/// The frame of a request.
pub(crate) fn call(caller: Caller, id: u64, deployment: &str, items: Vec<Parts>, terms: &Terms) -> Segments {
    encode(caller, id, deployment, items, terms, false)
}

/// The frame of a request of one item whose answer comes in parts.
pub(crate) fn stream(caller: Caller, id: u64, deployment: &str, item: Parts, terms: &Terms) -> Segments {
    encode(caller, id, deployment, vec![item], terms, true)
}

fn encode(caller: Caller, id: u64, deployment: &str, items: Vec<Parts>, terms: &Terms, streams: bool) -> Segments {
    let mut prefix = Vec::new();
    if caller == Caller::Worker {
        prefix.extend_from_slice(&id.to_le_bytes());
        prefix.extend_from_slice(&(items.len() as u32).to_le_bytes());
        prefix.extend_from_slice(&(terms.parents.items.len() as u32).to_le_bytes());
        terms.parents.items.iter().for_each(|parent| prefix.extend_from_slice(&parent.0.to_le_bytes()));
    }
    prefix.push(Priority::ALL.iter().position(|&p| p == terms.priority).unwrap_or(1) as u8);
    put_text(&mut prefix, deployment);
    put_text(&mut prefix, &terms.id.text());
    let mut calls: Vec<Call> =
        items.into_iter().enumerate().map(|(place, parts)| as_call(place, parts, streams)).collect();
    if let (Some(first), Some(further)) = (calls.first_mut(), &terms.further) {
        first.metadata = Some(Metadata { request_id: terms.id.clone(), further: Some(further.clone()) });
    }
    let items: Vec<_> =
        calls.iter().map(|call| (call, terms.timeout.map_or(UNSAID, |timeout| timeout.min(LONGEST)))).collect();
    let kind = if caller == Caller::Worker { Kind::Ask } else { Kind::Call };
    batch_frame::encode_as(kind, &prefix, BatchId(id), &items)
}

fn as_call(place: usize, parts: Parts, streams: bool) -> Call {
    Call { id: ItemId(place as u64), streams, ..Call::new(parts, Encoding::Msgpack) }
}

/// Reads the frame of a request of at most so many items: one that is read takes far more than it took in the frame.
pub(crate) fn read_call(frame: &Frame, max_items: usize) -> Result<Request, FrameError> {
    read_request(&frame.table, &frame.payload, max_items)
}

/// Reads a request of this table, whose values are in this payload.
pub(crate) fn read_request(table: &[u8], payload: &Payload, max_items: usize) -> Result<Request, FrameError> {
    let mut table = TableReader(table);
    let Start { priority, deployment, id } = read_start(&mut table)?;
    read_number(&mut table.clone(), max_items)?;
    let payload = payload.to_bytes();
    let (number, received) = batch_frame::decode_items(&mut table, payload.len())?;
    // Each is copied out if it is small: the same bytes named by many parts would become many.
    let bytes: usize = received.iter().flat_map(|item| &item.parts).map(|part| part.len).sum();
    if bytes > payload.len() {
        return Err(FrameError::Table("the parts of a request overlap"));
    }
    let streams = received.iter().any(|item| item.streams);
    if streams && received.len() != 1 {
        return Err(FrameError::Table("a request whose answer comes in parts has one item"));
    }
    let first = received.first().and_then(|item| item.metadata.as_ref()?.further.as_deref());
    let trace = first.map_or("", |further| &*further.trace);
    let further = Metadata::of_trace(id.clone(), if trace.len() <= LONGEST_TRACE { trace } else { "" }).further;
    let timeout = received.first().map(|item| item.remaining).filter(|&remaining| remaining < UNSAID);
    let items = received.into_iter().map(|item| item.parts.into_iter().map(|part| owned(part, &payload)).collect());
    let terms = Terms { timeout, priority, id, further, ..Terms::default() };
    Ok(Request { id: number.0, deployment, items: items.collect(), terms, streams, bytes: payload.len() })
}

/// Reads the beginning of the table of a request.
pub(crate) fn read_skipped(table: &[u8], max_items: usize) -> Result<SkippedRequest, FrameError> {
    let mut table = TableReader(table);
    let Start { deployment, .. } = read_start(&mut table)?;
    let (id, items) = read_number(&mut table, max_items)?;
    Ok(SkippedRequest { id, deployment, items })
}

/// What stands before the number of a request.
struct Start {
    priority: Priority,
    deployment: String,
    id: CallId,
}

fn read_start(table: &mut TableReader) -> Result<Start, FrameError> {
    let priority = Priority::ALL.get(table.u8()? as usize).copied();
    let priority = priority.ok_or(FrameError::Table("no priority has this number"))?;
    let deployment = table.text()?.to_owned();
    let id = CallId::given(table.text()?).ok_or(FrameError::Table("no request has such an id"))?;
    if deployment.len() > LONGEST_NAME {
        return Err(FrameError::Table("no deployment has so long a name"));
    }
    Ok(Start { priority, deployment, id })
}

/// The number of a request, and how many items it has.
fn read_number(table: &mut TableReader, max_items: usize) -> Result<(u64, usize), FrameError> {
    let (id, items) = (table.u64()?, table.u32()? as usize);
    if items > max_items {
        return Err(FrameError::Table("a request has more items than it may"));
    }
    Ok((id, items))
}

fn owned(part: ReceivedPart, payload: &Bytes) -> Part {
    let range = part.offset..part.offset + part.len;
    let data = if part.len < COPY_BELOW { Bytes::copy_from_slice(&payload[range]) } else { payload.slice(range) };
    Part { tag: part.tag, tensor: part.tensor, data: Chunks::from(data) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::frame::reader::received;
    use crate::values::tensor::Tag;
    use smallvec::smallvec;

    #[test]
    fn a_request_arrives_as_it_was_sent() {
        let part = |text: &'static str| Part { tag: Tag::Text, tensor: None, data: Chunks::from(Bytes::from(text)) };
        let timeout = Some(Duration::from_millis(1500));
        let id = CallId::given("mine").unwrap();
        let terms = Terms { timeout, priority: Priority::Low, id, ..Terms::default() };
        let frame =
            received(&call(Caller::Program, 7, "shout", vec![smallvec![part("a")], smallvec![part("bc")]], &terms));
        assert_eq!(frame.kind, Kind::Call);
        let mut request = read_call(&frame, 2).unwrap();
        assert_eq!((request.id, &*request.deployment, request.items.len()), (7, "shout", 2));
        assert_eq!(
            (request.terms.timeout, request.terms.priority, request.terms.id),
            (terms.timeout, terms.priority, terms.id)
        );
        assert_eq!(&request.items[1][0].data.contiguous()[..], b"bc");
        let unsaid =
            read_call(&received(&call(Caller::Program, 8, "x", vec![smallvec![part("a")]], &Terms::default())), 1)
                .unwrap();
        assert_eq!(unsaid.terms.timeout, None);
        let terms = Terms { timeout: Some(Duration::from_secs(1_000_000_000)), ..Terms::default() };
        let longest =
            read_call(&received(&call(Caller::Program, 9, "x", vec![smallvec![part("a")]], &terms)), 1).unwrap();
        assert_eq!(longest.terms.timeout, Some(LONGEST), "as good as no limit, and not the value for silence");
        assert!(read_call(&frame, 1).is_err(), "one item too many");
        assert!(!read_call(&frame, 2).unwrap().streams);
        let frame = received(&stream(Caller::Program, 1, "x", smallvec![part("a")], &Terms::default()));
        assert!(read_call(&frame, 1).unwrap().streams);
        let both =
            encode(Caller::Program, 1, "x", vec![smallvec![part("a")], smallvec![part("b")]], &Terms::default(), true);
        assert!(read_call(&received(&both), 2).is_err(), "which item would its parts be of?");
    }

    #[test]
    fn few_bytes_are_not_read_as_many() {
        let part = |data: Bytes| Part { tag: Tag::Bytes, tensor: None, data: Chunks::from(data) };
        let bytes = Bytes::from(vec![7; 5_000]);
        let frame = received(&call(
            Caller::Program,
            1,
            "x",
            vec![smallvec![part(bytes.clone())], smallvec![part(bytes)]],
            &Terms::default(),
        ));
        assert!(read_call(&frame, 2).is_ok());
        let payload = frame.payload.to_bytes();
        // The second part's place in the table: the first part's bytes instead of the second's.
        let second = 5_000_u64.to_le_bytes();
        let places: Vec<usize> =
            frame.table.windows(8).enumerate().filter(|(_, w)| *w == second).map(|(n, _)| n).collect();
        let offset = places[1];
        let mut table = frame.table.to_vec();
        table[offset..offset + 8].fill(0);
        let twice = Frame { table: table.into(), payload: payload.slice(..5_000).into(), ..frame };
        assert!(read_call(&twice, 2).unwrap_err().to_string().contains("overlap"));
        let long = received(&call(Caller::Program, 1, &"x".repeat(LONGEST_NAME + 1), vec![], &Terms::default()));
        assert!(read_call(&long, 2).is_err(), "each item would be answered with it");
    }

    #[test]
    fn a_table_that_ends_early_is_refused_wherever_it_is_cut() {
        let part = Part { tag: Tag::Text, tensor: None, data: Chunks::from(Bytes::from("text")) };
        let frame = received(&call(Caller::Program, 1, "a", vec![smallvec![part]], &Terms::default()));
        for cut in 0..frame.table.len() {
            assert!(read_call(&Frame { table: frame.table.slice(..cut), ..frame.clone() }, 9).is_err(), "cut at {cut}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_stranger_sends_is_read_or_refused(
            mut table in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
            payload in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..100),
            at in 0usize..200,
            byte: u8,
        ) {
            let frame = |table: Vec<u8>| Frame { kind: Kind::Call, table: table.into(), payload: Bytes::from(payload.clone()).into() };
            let _ = read_call(&frame(table.clone()), 9);
            // Nearly right is where a reader goes wrong.
            let part = Part { tag: Tag::Bytes, tensor: None, data: Chunks::from(Bytes::from(payload.clone())) };
            let whole = received(&call(Caller::Program, 1, "a", vec![smallvec![part]], &Terms::default()));
            table = whole.table.to_vec();
            let at = at % table.len();
            table[at] = byte;
            let _ = read_call(&frame(table), 9);
        }
    }
}
