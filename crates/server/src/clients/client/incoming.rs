//! An answer in parts as the connection to the server receives it.

use crate::base::ledger::Account;
use crate::clients::part_frames::WINDOW;
use crate::engine::reply;
use crate::engine::reply::{PartSent, ReplyReceiver, ReplySender, UnreadParts, bytes_of};
use crate::link::frame::header::FrameError;
use crate::link::results_frame::{ItemOutcome, ItemResult};
use crate::values::answer::{Answer, Failure};
use jitney_core::tables::outcome::Outcome;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the connection has of an answer in parts.
#[derive(Debug)]
pub(super) struct Incoming {
    reply: ReplySender,
    taken: Taken,
    /// Entries that have come.
    sequence: u32,
    end: Option<Answer>,
}

impl Incoming {
    /// An answer of which nothing has come, where the caller takes it, and how much the caller has taken.
    pub(super) fn new() -> (Incoming, ReplyReceiver, Taken) {
        let (mut reply, receiver) = reply::channel();
        let taken = Taken::default();
        // The server sends no more than the window and one part; a bound for a server that does.
        reply.count_parts(UnreadParts { account: taken.waiting.clone(), limit: WINDOW * 2, silence: None });
        (Incoming { reply, taken: taken.clone(), sequence: 0, end: None }, receiver, taken)
    }

    /// Takes entries. An error if one is of another item, comes after the end, or is out of sequence.
    pub(super) fn add(&mut self, entries: Vec<ItemResult>) -> Result<(), FrameError> {
        for ItemResult { id, sequence, outcome } in entries {
            if id.0 != 0 || self.end.is_some() || sequence != self.sequence {
                return Err(FrameError::Table("the parts of an answer are out of sequence"));
            }
            self.sequence += 1;
            self.end = Some(match outcome {
                ItemOutcome::Part(values) => {
                    // First: the caller may take it at once.
                    self.taken.received.fetch_add(bytes_of(&values) as u64, Ordering::Relaxed);
                    match self.reply.try_part(values) {
                        // The window pauses the server.
                        PartSent::Taken | PartSent::Filled | PartSent::NobodyWaits => continue,
                        PartSent::Full | PartSent::NoRoom(_) => {
                            return Err(FrameError::Table("more parts came than the program has room for"));
                        }
                    }
                }
                ItemOutcome::Values(values) => Answer { result: Ok(values), ..missing() },
                ItemOutcome::End(whole, end) => Answer { result: Ok(whole), end: Some(end), ..missing() },
                ItemOutcome::Failed(failure) => Answer::failed(failure),
                ItemOutcome::LeftOut | ItemOutcome::Later => missing(),
            });
        }
        Ok(())
    }

    /// Ends the answer with what came last.
    pub(super) fn finish(mut self) {
        let end = self.end.take().unwrap_or_else(missing);
        self.reply.end(end);
    }

    /// Ends the answer because nothing more comes.
    pub(super) fn fail(self, failure: Failure) {
        self.reply.end(Answer::failed(failure));
    }
}

/// How much of an answer its caller has taken: what has come and does not wait. Counting what it reads would be wrong, because texts
/// that wait are put together.
#[derive(Clone, Debug, Default)]
pub(super) struct Taken {
    received: Arc<AtomicU64>,
    waiting: Account,
}

impl Taken {
    /// In bytes. Parts count as the server counts them.
    pub(super) fn bytes(&self) -> u64 {
        self.received.load(Ordering::Relaxed).saturating_sub(self.waiting.amount())
    }
}

fn missing() -> Answer {
    Answer::failed(Failure::new(Outcome::Internal, "the server has no end of this answer"))
}
