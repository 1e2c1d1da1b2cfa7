//! An item while the engine has it, and how it ends.

use crate::engine::reply::{MOST_PARTS, PartSent, PartValues, ReplySender};
use crate::link::results_frame::ItemOutcome;
use crate::values::answer::Failure;
use crate::values::call::{Call, Part};
use jitney_core::scheduler::item::Payload;
use jitney_core::tables::outcome::Outcome;
use smallvec::SmallVec;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::OnceLock;

/// An item in the engine: what to compute, and whom to tell.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) call: Box<Call>,
    pub(super) reply: ReplySender,
    /// Entries of results frames that came of it.
    pub(super) sequence: u32,
}

/// How an item ends.
pub(super) enum End {
    Values(PartValues),
    Failed(Failure),
    /// The worker does not compute it, or not to its end.
    LeftOut,
}

impl Pending {
    /// Passes a part on; returns the end of the item, if this is one.
    pub(super) fn take(&mut self, sequence: u32, outcome: ItemOutcome) -> Option<End> {
        if sequence != self.sequence {
            let expected = self.sequence;
            let detail = format!("the worker sent result {sequence} of this item instead of result {expected}");
            return Some(End::Failed(Failure::new(Outcome::Internal, detail)));
        }
        self.sequence += 1;
        match outcome {
            ItemOutcome::Values(values) => Some(End::Values(values)),
            ItemOutcome::Failed(failure) => Some(End::Failed(failure)),
            ItemOutcome::LeftOut => Some(End::LeftOut),
            ItemOutcome::Part(values) => match self.reply.try_part(values) {
                // A cancel of a caller that went away is on its way.
                PartSent::Taken | PartSent::NobodyWaits => None,
                PartSent::Full(_) => {
                    let detail =
                        format!("{MOST_PARTS} parts of the answer wait for the client, which does not read them");
                    Some(End::Failed(Failure::new(Outcome::Cancelled, detail)))
                }
            },
        }
    }
}

impl Payload for Pending {
    type Input = SmallVec<[Part; 1]>;

    fn input(&self) -> &SmallVec<[Part; 1]> {
        &self.call.parts
    }

    /// The hash is keyed at random per process, so that no client can make two inputs collide.
    fn fingerprint(parts: &SmallVec<[Part; 1]>) -> u64 {
        static KEY: OnceLock<RandomState> = OnceLock::new();
        let mut hasher = KEY.get_or_init(RandomState::new).build_hasher();
        for part in parts {
            (part.tag as u8).hash(&mut hasher);
            part.tensor.as_ref().map(|t| (t.dtype, &t.shape)).hash(&mut hasher);
            part.data.len().hash(&mut hasher);
            part.data.0.iter().for_each(|chunk| hasher.write(chunk));
        }
        hasher.finish()
    }

    fn may_run_again(&self) -> bool {
        self.sequence == 0
    }
}
