//! An answer in parts as the connection to the server receives it.

use crate::base::ledger::Account;
use crate::clients::part_frames::WINDOW;
use crate::engine::reply;
use crate::engine::reply::{PartSent, ReplyReceiver, ReplySender, UnreadParts};
use crate::link::frame::header::FrameError;
use crate::link::results_frame::{ItemOutcome, ItemResult};
use crate::values::answer::{Answer, Failure};
use jitney_core::tables::outcome::Outcome;

/// What the connection has of an answer in parts.
#[derive(Debug)]
pub(super) struct Incoming {
    reply: ReplySender,
    /// Entries that have come.
    sequence: u32,
    end: Option<Answer>,
}

impl Incoming {
    /// And where the caller takes it.
    pub(super) fn new() -> (Incoming, ReplyReceiver) {
        let (mut reply, receiver) = reply::channel();
        // The server sends no more than the window and one part; a bound for a server that does.
        reply.count_parts(UnreadParts { account: Account::default(), limit: WINDOW * 2, silence: None });
        (Incoming { reply, sequence: 0, end: None }, receiver)
    }

    /// Takes entries. An error if one is of another item, comes after the end, or is out of sequence.
    pub(super) fn add(&mut self, entries: Vec<ItemResult>) -> Result<(), FrameError> {
        for ItemResult { id, sequence, outcome } in entries {
            if id.0 != 0 || self.end.is_some() || sequence != self.sequence {
                return Err(FrameError::Table("the parts of an answer are out of sequence"));
            }
            self.sequence += 1;
            self.end = Some(match outcome {
                ItemOutcome::Part(values) => match self.reply.try_part(values) {
                    // The window pauses the server.
                    PartSent::Taken | PartSent::Filled | PartSent::NobodyWaits => continue,
                    PartSent::Full => {
                        return Err(FrameError::Table("more parts came than the program has room for"));
                    }
                },
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

fn missing() -> Answer {
    Answer::failed(Failure::new(Outcome::Internal, "the server has no end of this answer"))
}
