//! The frames that answer a request: any number of parts, then the answers that end it.
//!
//! ```text
//! request u64 | 0 u32 | items and their outcomes as in results; an item's id is its place in the request
//! ```

use crate::link::batch_frame::gather;
use crate::link::frame::header::{FrameError, Segments};
use crate::link::frame::kind::Kind;
use crate::link::frame::reader::{Frame, detached};
use crate::link::results_frame;
use crate::link::results_frame::{ItemResult, ResultsWriter};
use crate::values::answer::{Answer, OutputPart};
use bytes::Bytes;
use jitney_core::request::{BatchId, ItemId};
use std::time::Duration;

/// The frame that ends a request of a program: an answer per item, in order.
pub(crate) fn answers(id: u64, all: &[Answer]) -> Segments {
    answers_as(Kind::Answers, id, all)
}

/// The frame of this kind that ends a request.
pub(crate) fn answers_as(kind: Kind, id: u64, answers: &[Answer]) -> Segments {
    let mut table = ResultsWriter::new(BatchId(id), Duration::ZERO, answers.len());
    let mut values = Vec::new();
    for (place, answer) in answers.iter().enumerate() {
        let id = ItemId(place as u64);
        match &answer.result {
            Ok(answer) => {
                table.values(id, 0, answer.len());
                put_values(&mut table, &mut values, answer);
            }
            Err(failure) => table.failed(id, 0, failure),
        }
    }
    gather(table.finish_as(kind), values.iter())
}

/// Adds the values of an entry to a table, and their bytes to `data`.
pub(super) fn put_values(table: &mut ResultsWriter, data: &mut Vec<Bytes>, values: &[OutputPart]) {
    for value in values {
        let tensor = value.tensor.as_ref().map(|tensor| (tensor.dtype, &tensor.shape[..]));
        table.value(&value.name, value.tag, tensor, value.media_type.as_deref().unwrap_or(""), value.data.len());
        data.push(detached(value.data.clone()));
    }
}

/// Reads a frame of answers or of parts: the request, and entries of its items.
pub(crate) fn read(frame: &Frame) -> Result<(u64, Vec<ItemResult>), FrameError> {
    let results = results_frame::decode(&frame.table, &frame.payload)?;
    Ok((results.batch.0, results.items))
}

/// A frame that owns something until it was written, or dropped: its place among those of a connection. So a program that
/// takes no answers gets no more of them, and calls that were given up do not pile up.
pub(crate) fn until_written(mut segments: Segments, owned: impl Send + Sync + 'static) -> Segments {
    struct Owner<T>(Bytes, #[allow(dead_code, reason = "lives as long as the bytes")] T);
    impl<T> AsRef<[u8]> for Owner<T> {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let last = segments.pop().unwrap_or_default();
    segments.push(Bytes::from_owner(Owner(last, owned)));
    segments
}
