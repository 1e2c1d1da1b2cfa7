//! Batches and results at random, and streams that give their bytes in chosen pieces.

use bytes::Bytes;
use jitney_core::request::{BatchId, ItemId};
use jitney_core::tables::outcome::Outcome;
use jitney_server::link::batch_end::{BatchEnd, Durations};
use jitney_server::link::batch_frame;
use jitney_server::link::results_frame::{ItemOutcome, ItemResult, ResultsWriter};
use jitney_server::values::answer::{Failure, OutputPart, StreamEnd, Usage};
use jitney_server::values::call::{Call, Encoding, Part};
use jitney_server::values::call_id::CallId;
use jitney_server::values::chunks::Chunks;
use jitney_server::values::metadata::{FurtherMetadata, Metadata};
use jitney_server::values::tensor::{Dtype, Tag, TensorType};
use proptest::prelude::*;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, ReadBuf};

pub(crate) const BATCH: BatchId = BatchId(7);

/// The bytes of a value: mostly small, sometimes above the size from which pieces are no longer copied together.
fn data() -> impl Strategy<Value = Vec<u8>> {
    let large = (8_000..20_000usize, any::<u8>()).prop_map(|(length, step)| {
        std::iter::successors(Some(0u8), |byte| Some(byte.wrapping_add(step | 1))).take(length).collect()
    });
    prop_oneof![8 => prop::collection::vec(any::<u8>(), 0..100usize), 1 => large]
}

fn value() -> impl Strategy<Value = (Tag, Option<TensorType>, Vec<u8>)> {
    let plain = (0..4u8, data()).prop_map(|(tag, data)| (Tag::from_u8(tag).unwrap(), None, data));
    let tensor = (0..12u8, prop::collection::vec(0..4u64, 0..4), any::<u8>()).prop_map(|(dtype, shape, fill)| {
        let tensor = TensorType { dtype: Dtype::from_u8(dtype).unwrap(), shape: SmallVec::from_vec(shape) };
        let data = vec![fill; tensor.byte_len().unwrap() as usize];
        (Tag::Tensor, Some(tensor), data)
    });
    prop_oneof![plain, tensor]
}

fn part() -> impl Strategy<Value = Part> {
    (value(), 1..4000usize).prop_map(|((tag, tensor, data), piece)| {
        // As HTTP bodies come: in pieces.
        let chunks = data.chunks(piece).map(Bytes::copy_from_slice).collect();
        Part { tag, tensor, data: Chunks(chunks) }
    })
}

pub(crate) fn call(id: u64, parts: Vec<Part>, encoding: Encoding) -> Call {
    Call { id: ItemId(id), ..Call::new(SmallVec::from_vec(parts), encoding) }
}

pub(crate) fn bytes_part(data: impl Into<Bytes>) -> Part {
    Part { tag: Tag::Bytes, tensor: None, data: Chunks::from(data.into()) }
}

fn metadata() -> impl Strategy<Value = Option<Metadata>> {
    let headers = prop::collection::vec(("[a-z-]{0,8}", ".{0,8}"), 0..3);
    let request_id =
        prop_oneof![".{0,20}".prop_map(|id| CallId::Given(id.into())), any::<u64>().prop_map(CallId::Fresh)];
    let metadata = (request_id, "[0-9a-f-]{0,20}", "[a-z]{0,8}", headers);
    let metadata = metadata.prop_map(|(request_id, trace, key_name, headers)| {
        let headers = headers.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Metadata::new(
            request_id,
            FurtherMetadata { trace: trace.into(), key_name: key_name.into(), headers, note: None },
        )
    });
    prop::option::of(metadata)
}

/// Calls with what is left of their time.
pub(crate) fn calls() -> impl Strategy<Value = Vec<(Call, Duration)>> {
    let one = (any::<u64>(), prop::collection::vec(part(), 0..4), any::<bool>(), any::<u32>(), metadata());
    let one = (one, any::<bool>(), 0..3u64).prop_map(|((id, parts, packed, ms, metadata), streams, key)| {
        let encoding = if packed { Encoding::Msgpack } else { Encoding::Json };
        (Call { metadata, streams, key, ..call(id, parts, encoding) }, Duration::from_millis(u64::from(ms)))
    });
    prop::collection::vec(one, 0..6)
}

pub(crate) fn batch_bytes(calls: &[(Call, Duration)]) -> Vec<u8> {
    batch_frame::encode(BATCH, &calls.iter().map(|(call, remaining)| (call, *remaining)).collect::<Vec<_>>()).concat()
}

fn output() -> impl Strategy<Value = OutputPart> {
    (value(), "[a-zäß]{0,6}", "(image/png)?").prop_map(|((tag, tensor, data), name, media)| OutputPart {
        name: name.into(),
        tag,
        tensor,
        media_type: Some(media).filter(|media| !media.is_empty()).map(Into::into),
        data: data.into(),
    })
}

/// Entries of a results frame: ends, and parts with any sequence number.
pub(crate) fn entries() -> impl Strategy<Value = Vec<ItemResult>> {
    let retry_after = prop::option::of((1..100_000_u64).prop_map(Duration::from_millis));
    let failure = (0..Outcome::ALL.len(), ".{0,20}", "(\\$\\.[a-z]{1,5})?", prop::option::of(400..600u16), retry_after);
    let failed = failure.prop_map(|(outcome, detail, field, status, retry_after)| {
        let field = Some(field).filter(|field| !field.is_empty());
        let outcome = Outcome::ALL[outcome];
        let model_text = (outcome == Outcome::ModelFailed).then(|| detail.clone());
        ItemOutcome::Failed(Failure { field, status, retry_after, model_text, ..Failure::new(outcome, detail) })
    });
    let values = || prop::collection::vec(output(), 0..4).prop_map(SmallVec::from_vec);
    let outcome = prop_oneof![
        3 => values().prop_map(ItemOutcome::Values),
        2 => values().prop_map(ItemOutcome::Part),
        1 => (values(), "[a-z_]{0,9}", prop::option::of((any::<u64>(), any::<u64>()))).prop_map(|(values, reason, usage)| {
            let usage = usage.map(|(input, output)| Usage { input, output });
            ItemOutcome::End(values, Box::new(StreamEnd { reason: reason.into(), usage }))
        }),
        2 => failed,
        1 => Just(ItemOutcome::LeftOut),
        1 => Just(ItemOutcome::Later),
    ];
    let one = (any::<u64>(), any::<u32>(), outcome).prop_map(|(id, sequence, outcome)| {
        // What is left out never had a part.
        let sequence = if matches!(outcome, ItemOutcome::LeftOut) { 0 } else { sequence };
        ItemResult { id: ItemId(id), sequence, outcome }
    });
    prop::collection::vec(one, 0..6)
}

/// An item that ends without a part before.
pub(crate) fn whole(id: u64, outcome: ItemOutcome) -> ItemResult {
    ItemResult { id: ItemId(id), sequence: 0, outcome }
}

/// A results frame, as the binding writes it.
pub(crate) fn results_bytes(batch: BatchId, entries: &[ItemResult]) -> Vec<u8> {
    let mut table = ResultsWriter::new(batch, Duration::from_millis(2), entries.len());
    let mut payload = Vec::new();
    for ItemResult { id, sequence, outcome } in entries {
        match outcome {
            ItemOutcome::Values(parts) | ItemOutcome::End(parts, _) | ItemOutcome::Part(parts) => {
                match outcome {
                    ItemOutcome::End(_, end) => table.end(*id, *sequence, end, parts.len()),
                    ItemOutcome::Part(_) => table.part(*id, *sequence, parts.len()),
                    _ => table.values(*id, *sequence, parts.len()),
                }
                for part in parts {
                    let tensor = part.tensor.as_ref().map(|tensor| (tensor.dtype, &tensor.shape[..]));
                    let media = part.media_type.as_deref().unwrap_or("");
                    table.value(&part.name, part.tag, tensor, media, part.data.len());
                    payload.extend_from_slice(&part.data);
                }
            }
            ItemOutcome::Failed(failure) => table.failed(*id, *sequence, failure),
            ItemOutcome::LeftOut => table.left_out(*id, *sequence),
            ItemOutcome::Later => table.later(*id, *sequence),
        }
    }
    [table.finish(), payload].concat()
}

/// The end of a batch that ran once and raised nothing.
pub(crate) fn end(batch: BatchId) -> BatchEnd {
    let ms = Duration::from_millis;
    let durations = Durations { decode: ms(1), predict: ms(2), encode: ms(3) };
    BatchEnd { batch, durations, is_clean: true, is_out_of_memory: false }
}

/// A stream that gives one of these pieces per read, and then ends; none may be empty.
pub(crate) struct Pieces(pub(crate) VecDeque<Vec<u8>>);

impl Pieces {
    pub(crate) fn of(bytes: &[u8], size: usize) -> Pieces {
        Pieces(bytes.chunks(size).map(<[u8]>::to_vec).collect())
    }

    pub(crate) fn cut(bytes: &[u8], at: usize) -> Pieces {
        let (before, after) = bytes.split_at(at);
        Pieces([before, after].into_iter().filter(|piece| !piece.is_empty()).map(<[u8]>::to_vec).collect())
    }
}

impl AsyncRead for Pieces {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        if let Some(mut piece) = self.0.pop_front() {
            let rest = piece.split_off(piece.len().min(buffer.remaining()));
            buffer.put_slice(&piece);
            if !rest.is_empty() {
                self.0.push_front(rest);
            }
        }
        Poll::Ready(Ok(()))
    }
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Waits, with a limit: nothing here takes longer unless it hangs.
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("it takes no longer unless it hangs")
}
