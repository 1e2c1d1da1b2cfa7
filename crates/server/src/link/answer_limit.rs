//! What a worker may answer: an item that has more fails alone, and a frame that has far more is not read.

use crate::values::answer::{Failure, OutputPart};
use jitney_core::tables::outcome::Outcome;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a frame in addition to the values of its items: names, shapes and messages of failures.
const TABLE_BYTES: u64 = 16 << 20;

/// The limit of one link; none until its worker has a deployment.
#[derive(Debug)]
pub(crate) struct AnswerLimit {
    item: AtomicU64,
    frame: AtomicU64,
}

impl Default for AnswerLimit {
    fn default() -> Self {
        AnswerLimit { item: AtomicU64::new(u64::MAX), frame: AtomicU64::new(u64::MAX) }
    }
}

impl AnswerLimit {
    /// From now on an item may have this many bytes, a batch this many items, and what its model asks this many bytes.
    pub(crate) fn set(&self, max_answer_bytes: u64, max_batch_size: u64, max_body_bytes: u64) {
        let frame = max_answer_bytes.saturating_mul(max_batch_size).max(max_body_bytes).saturating_add(TABLE_BYTES);
        self.item.store(max_answer_bytes, Ordering::Relaxed);
        self.frame.store(frame, Ordering::Relaxed);
    }

    /// The most bytes of a frame. A worker refuses larger answers itself, so a larger frame is not one of ours.
    pub(crate) fn frame_bytes(&self) -> usize {
        usize::try_from(self.frame.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// Refuses values that have too many bytes together.
    pub(crate) fn check(&self, values: &[OutputPart]) -> Result<(), Failure> {
        check_answer(values.iter().map(|part| part.data.len() as u64).sum(), self.item.load(Ordering::Relaxed))
    }
}

/// Refuses an answer of more bytes than an item may have.
pub fn check_answer(bytes: u64, max_answer_bytes: u64) -> Result<(), Failure> {
    if bytes <= max_answer_bytes {
        return Ok(());
    }
    let detail = format!(
        "the model's answer to this item has {bytes} bytes, allowed are {max_answer_bytes} (max_answer_bytes); return less, \
         or raise it"
    );
    Err(Failure::new(Outcome::InvalidOutput, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_room_for_a_full_batch_of_the_largest_answers() {
        let limit = AnswerLimit::default();
        assert_eq!(limit.frame_bytes(), usize::MAX);
        limit.set(1 << 20, 32, 1 << 20);
        assert_eq!(limit.frame_bytes(), (32 << 20) + TABLE_BYTES as usize);
        limit.set(u64::MAX, 2, 1 << 20);
        assert_eq!(limit.frame_bytes(), usize::MAX);
    }
}
