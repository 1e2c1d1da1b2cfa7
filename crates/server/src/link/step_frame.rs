//! What one step of a model brought: the step itself, then the entries of its items as in a results frame. Items of a step
//! may be of several batches, so the batch of the entries is 0. Where items run side by side there is a frame for each turn of the
//! worker's event loop that brought something; its figures say only how many joined.
//!
//! ```text
//! computed u32 | joined u32 | microseconds u32 | microseconds of joining u32 | out of memory u8 | then a table of results
//! ```

use crate::link::batch_end::microseconds;
use crate::link::frame::header::{FrameError, HEADER_LEN, Header};
use crate::link::frame::kind::Kind;
use crate::link::frame::payload::Payload;
use crate::link::frame::table::TableReader;
use crate::link::results_frame;
use crate::link::results_frame::ReceivedResults;
use bytes::BufMut;
use jitney_core::scheduler::results::steps::Step;
use std::ops::Range;
use std::time::Duration;

const STEP: usize = 4 * 4 + 1;

/// Makes the head of a results frame the head of a step's frame. Small values may follow its table.
pub fn encode(step: &Step, results: &[u8]) -> Vec<u8> {
    let (table, payload) = results
        .first_chunk()
        .and_then(|head| Header::decode(head).ok())
        .map_or((0, 0), |header| (header.table, header.payload));
    let mut frame = Vec::with_capacity(results.len() + STEP);
    frame.put_bytes(0, HEADER_LEN);
    for count in [step.active, step.joined] {
        frame.put_u32_le(u32::try_from(count).unwrap_or(u32::MAX));
    }
    frame.put_u32_le(microseconds(step.took));
    frame.put_u32_le(microseconds(step.join_took));
    frame.put_u8(step.is_out_of_memory.into());
    frame.extend_from_slice(&results[HEADER_LEN..]);
    let header = Header { kind: Kind::Parts, table: table + STEP, payload };
    frame[..HEADER_LEN].copy_from_slice(&header.encode());
    frame
}

/// Reads a step's frame; values are slices of `payload`.
pub fn decode(table: &[u8], payload: &Payload) -> Result<(Step, ReceivedResults), FrameError> {
    let (step, rest) = read_step(table)?;
    Ok((step, results_frame::decode(rest, payload)?))
}

/// Where in a payload of `len` bytes the large values are.
pub(crate) fn cuts(table: &[u8], len: usize) -> Result<Vec<Range<usize>>, FrameError> {
    results_frame::cuts(read_step(table)?.1, len)
}

fn read_step(table: &[u8]) -> Result<(Step, &[u8]), FrameError> {
    let mut table = TableReader(table);
    let (active, joined) = (table.u32()? as usize, table.u32()? as usize);
    let mut length = || table.u32().map(|us| Duration::from_micros(u64::from(us)));
    let (took, join_took) = (length()?, length()?);
    let is_out_of_memory = table.u8()? != 0;
    Ok((Step { active, joined, took, join_took, is_out_of_memory }, table.0))
}
