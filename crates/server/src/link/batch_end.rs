//! The end of a batch. It is a separate message, because the results of a batch may come in several frames.
//!
//! ```text
//! batch u64 | decode, predict, encode: microseconds u32 each | how it ran u8
//! how it ran: 0 with errors or in parts, 1 clean, 2 too large for the memory of the device
//! ```

use crate::link::frame::header::{FrameError, HEADER_LEN, Header};
use crate::link::frame::kind::Kind;
use crate::link::frame::table::TableReader;
use bytes::BufMut;
use jitney_core::request::BatchId;
use std::time::Duration;

/// Bytes of the table.
const TABLE: usize = 8 + 3 * 4 + 1;
const CLEAN: u8 = 1;
const OUT_OF_MEMORY: u8 = 2;

/// How long a worker spent in each stage of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// Decoding the items.
    pub decode: Duration,
    /// `predict`.
    pub predict: Duration,
    /// Encoding the answers.
    pub encode: Duration,
}

/// The end of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchEnd {
    /// The batch that has ended.
    pub batch: BatchId,
    /// The worker's time.
    pub durations: Durations,
    /// Whether `predict` ran once and raised nothing: only then do the durations teach anything.
    pub is_clean: bool,
    /// Whether the batch was too large for the memory of the device, and was computed in smaller parts.
    pub is_out_of_memory: bool,
}

impl BatchEnd {
    /// The whole frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut frame = Vec::with_capacity(HEADER_LEN + TABLE);
        frame.extend_from_slice(&Header { kind: Kind::BatchEnd, table: TABLE, payload: 0 }.encode());
        frame.put_u64_le(self.batch.0);
        for length in [self.durations.decode, self.durations.predict, self.durations.encode] {
            frame.put_u32_le(microseconds(length));
        }
        frame.put_u8(if self.is_out_of_memory { OUT_OF_MEMORY } else { u8::from(self.is_clean) });
        frame
    }

    /// Reads the table.
    pub fn decode(table: &[u8]) -> Result<BatchEnd, FrameError> {
        let mut table = TableReader(table);
        let batch = BatchId(table.u64()?);
        let mut length = || table.u32().map(|us| Duration::from_micros(u64::from(us)));
        let durations = Durations { decode: length()?, predict: length()?, encode: length()? };
        let how = table.u8()?;
        if how > OUT_OF_MEMORY || !table.0.is_empty() {
            return Err(FrameError::Table("the end of a batch is not one"));
        }
        Ok(BatchEnd { batch, durations, is_clean: how == CLEAN, is_out_of_memory: how == OUT_OF_MEMORY })
    }
}

/// Microseconds in four bytes; a longer time counts as the longest.
pub(crate) fn microseconds(length: Duration) -> u32 {
    u32::try_from(length.as_micros()).unwrap_or(u32::MAX)
}
