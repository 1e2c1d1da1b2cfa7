//! An answer in parts that comes from a server.

use crate::clients::call_frame;
use crate::clients::client::calls::{Awaited, Shared};
use crate::clients::client::entrance::{Request, SentCall, send};
use crate::clients::part_frames::WINDOW;
use crate::engine::program_values::parts::{CallParts, Streaming};
use crate::engine::program_values::{Parts, Terms};
use crate::engine::reply;
use crate::engine::reply::{PartSent, ReplyEvent, ReplyReceiver, ReplySender, UnreadParts, bytes_of};
use crate::link::frame::header::FrameError;
use crate::link::results_frame::{ItemOutcome, ItemResult};
use crate::values::answer::{Answer, Failure};
use jitney_core::tables::outcome::Outcome;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

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
        reply.count_parts(UnreadParts { account: crate::base::ledger::Account::default(), limit: WINDOW * 2 });
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
                    PartSent::Taken | PartSent::NobodyWaits => continue,
                    PartSent::Full(_) => {
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

/// The caller's end. Dropping it before the end cancels the call.
struct RemoteParts {
    receiver: ReplyReceiver,
    /// Bytes that the server does not know to be taken.
    taken: u64,
    /// `None` after the end.
    call: Option<SentCall>,
}

/// Sends an item to the server when there is a place for it.
pub(super) async fn open(
    shared: Arc<Shared>,
    deployment: Arc<str>,
    item: Parts,
    terms: Terms,
) -> Result<Streaming, Failure> {
    let (incoming, receiver) = Incoming::new();
    let mut awaited = Some(Awaited::Parts(incoming));
    let frame = |id, terms: &Terms| call_frame::stream(id, &deployment, item.clone(), terms);
    let request = Request { deployment: &deployment, items: std::slice::from_ref(&item), terms };
    let call = send(shared, request, frame, || awaited.take()).await?;
    Ok(Box::new(RemoteParts { receiver, taken: 0, call: Some(call) }))
}

impl CallParts for RemoteParts {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        let event = ready!(self.receiver.poll_event(cx));
        match (&event, &self.call) {
            (ReplyEvent::Part(values), Some(call)) => {
                self.taken += bytes_of(values) as u64;
                // Seldom: each is a frame.
                if self.taken >= WINDOW / 2 {
                    call.took(std::mem::take(&mut self.taken));
                }
            }
            _ => drop(self.call.take()),
        }
        Poll::Ready(event)
    }
}
