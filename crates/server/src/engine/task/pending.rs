//! An item while the engine has it, and how it ends.

use crate::engine::reply::{PartSent, PartValues, ReplySender};
use crate::engine::room;
use crate::link::results_frame::ItemOutcome;
use crate::values::answer::{Failure, StreamEnd};
use crate::values::call::{Call, Part};
use crate::values::chunks::Chunks;
use jitney_core::queue::group_key::GroupKey;
use jitney_core::scheduler::item::{Asked, NewItem, Payload};
use jitney_core::tables::outcome::Outcome;
use smallvec::SmallVec;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::sync::OnceLock;

/// A sample of an input is so many pieces of it, at equal distances.
const SAMPLES: usize = 16;
/// Bytes of one piece.
const SAMPLE_BYTES: usize = 256;

/// An item in the engine: what to compute, and the channel for its answer.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) call: Box<Call>,
    pub(super) reply: ReplySender,
    /// Number of entries of results frames that belonged to this item.
    pub(super) sequence: u32,
    /// Items that waited when it arrived.
    pub(super) ahead: u32,
    /// How often it has come back to the queue.
    pub(super) returns: u32,
}

/// What became of one entry of a results frame.
pub(super) enum Taken {
    /// More follows.
    Part,
    /// More follows, which the client is not ready for.
    LastForNow,
    End(End),
}

/// How an item ends.
pub(super) enum End {
    Values(PartValues, Option<Box<StreamEnd>>),
    Failed(Failure),
    /// The worker does not compute it, or not to its end.
    LeftOut,
}

impl Pending {
    /// An item that arrives behind so many others.
    pub(super) fn new(call: Box<Call>, reply: ReplySender, ahead: usize) -> Pending {
        Pending { call, reply, sequence: 0, ahead: u32::try_from(ahead).unwrap_or(u32::MAX), returns: 0 }
    }

    /// Passes a part on, or returns the end of the item, if this is one.
    pub(super) fn take(&mut self, sequence: u32, outcome: ItemOutcome) -> Taken {
        if sequence != self.sequence {
            let expected = self.sequence;
            let detail = format!("the worker sent result {sequence} of this item instead of result {expected}");
            return Taken::End(End::Failed(Failure::new(Outcome::Internal, detail)));
        }
        self.sequence += 1;
        Taken::End(match outcome {
            ItemOutcome::Values(values) => End::Values(values, None),
            ItemOutcome::End(values, end) => End::Values(values, Some(end)),
            ItemOutcome::Failed(failure) => End::Failed(failure),
            ItemOutcome::LeftOut | ItemOutcome::Later => End::LeftOut,
            ItemOutcome::Part(values) => match self.reply.try_part(values) {
                // A cancel of a caller that went away is on its way.
                PartSent::Taken | PartSent::NobodyWaits => return Taken::Part,
                PartSent::Filled => return Taken::LastForNow,
                PartSent::NoRoom(limit) => End::Failed(room::answers_are_full(limit)),
                PartSent::Full => {
                    let detail = "the client reads too slowly: more parts of the answer wait than may wait";
                    End::Failed(Failure::new(Outcome::TooSlow, detail))
                }
            },
        })
    }
}

/// The hash of what is asked and of what `write` takes of its bytes. The hash is keyed at random per process, so that no
/// client can make two inputs collide.
fn hash(parts: &[Part], write: impl Fn(&Chunks, &mut DefaultHasher)) -> u64 {
    static KEY: OnceLock<RandomState> = OnceLock::new();
    let mut hasher = KEY.get_or_init(RandomState::new).build_hasher();
    for part in parts {
        (part.tag as u8).hash(&mut hasher);
        part.tensor.as_ref().map(|t| (t.dtype, &t.shape)).hash(&mut hasher);
        part.data.len().hash(&mut hasher);
        write(&part.data, &mut hasher);
    }
    hasher.finish()
}

/// An item that enters. With `joins` the call says which items may share a step with it.
pub(super) fn new_item(mut call: Box<Call>, reply: ReplySender, joins: bool, ahead: usize) -> NewItem<Pending> {
    if joins {
        call.key = key_number(&call.group);
    }
    // The frame of its batch names the method; the rest of the key is the scheduler's.
    let method = call.group.of_method();
    NewItem {
        id: call.id,
        group: std::mem::replace(&mut call.group, method),
        cost: call.cost,
        bytes: call.bytes(),
        priority: call.priority,
        timeout: call.timeout,
        payload: Pending::new(call, reply, ahead),
    }
}

/// A number that two items share if their group keys are equal. It is never 0.
fn key_number(key: &GroupKey) -> u64 {
    static KEYS: OnceLock<RandomState> = OnceLock::new();
    KEYS.get_or_init(RandomState::new).hash_one(key).max(1)
}

impl Payload for Pending {
    type Input = SmallVec<[Part; 1]>;

    fn input(&self) -> &SmallVec<[Part; 1]> {
        &self.call.parts
    }

    fn fingerprint(parts: &SmallVec<[Part; 1]>) -> u64 {
        hash(parts, |data, hasher| data.0.iter().for_each(|chunk| hasher.write(chunk)))
    }

    fn sample(parts: &SmallVec<[Part; 1]>) -> u64 {
        hash(parts, |data, hasher| {
            let apart = data.len().div_ceil(SAMPLES).max(SAMPLE_BYTES);
            let mut before = 0;
            for chunk in &data.0 {
                // Samples begin at multiples of `apart` of the whole, however it is cut into chunks.
                for begin in (before / apart * apart..before + chunk.len()).step_by(apart) {
                    let end = (begin + SAMPLE_BYTES).saturating_sub(before).min(chunk.len());
                    hasher.write(&chunk[begin.saturating_sub(before).min(end)..end]);
                }
                before += chunk.len();
            }
        })
    }

    fn may_run_again(&self) -> bool {
        self.sequence == 0
    }

    fn asked(&self) -> Option<Asked> {
        self.call.asked
    }

    fn waits_again(&mut self) {
        self.returns += 1;
        self.reply.set_waiting(true);
    }

    fn waits_no_longer(&mut self) {
        self.reply.set_waiting(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::tensor::Tag;
    use bytes::Bytes;
    use smallvec::smallvec;

    fn input(bytes: &[u8], cuts: &[usize]) -> SmallVec<[Part; 1]> {
        let bytes = Bytes::copy_from_slice(bytes);
        let ends = cuts.iter().copied().chain([bytes.len()]);
        let mut begin = 0;
        let chunks = ends.map(|end| bytes.slice(std::mem::replace(&mut begin, end)..end)).collect();
        smallvec![Part { tag: Tag::Bytes, tensor: None, data: Chunks(chunks) }]
    }

    #[test]
    fn a_sample_does_not_depend_on_the_chunks_and_reads_both_ends() {
        let mut bytes: Vec<u8> = (0..100_003u32).map(|n| (n % 251) as u8).collect();
        let whole = input(&bytes, &[]);
        for cuts in [&[1][..], &[100, 300, 300, 6_251, 6_252, 50_000], &[99_999], &[0]] {
            assert_eq!(Pending::sample(&input(&bytes, cuts)), Pending::sample(&whole), "{cuts:?}");
            assert_eq!(Pending::fingerprint(&input(&bytes, cuts)), Pending::fingerprint(&whole));
        }
        assert_ne!(Pending::sample(&input(&bytes[1..], &[])), Pending::sample(&whole), "the length counts");
        for (place, is_read) in [(0, true), (255, true), (256, false), (93_765 + 255, true)] {
            bytes[place] ^= 1;
            let other = input(&bytes, &[]);
            assert_eq!(Pending::sample(&other) != Pending::sample(&whole), is_read, "byte {place}");
            assert_ne!(Pending::fingerprint(&other), Pending::fingerprint(&whole));
            bytes[place] ^= 1;
        }
    }

    #[test]
    fn a_small_input_is_read_as_a_whole() {
        for len in [0, 1, 255, 256, 257, 4096] {
            let mut bytes = vec![7; len];
            let first = Pending::sample(&input(&bytes, &[]));
            if let Some(last) = bytes.last_mut() {
                *last = 8;
                assert_ne!(Pending::sample(&input(&bytes, &[])), first, "{len} bytes");
            }
        }
    }
}
