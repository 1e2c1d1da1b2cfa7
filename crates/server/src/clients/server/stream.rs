//! A request of a program whose answer goes to it part by part.

use crate::clients::part_frames;
use crate::clients::server::line::CallFollowers;
use crate::clients::server::session::Session;
use crate::clients::server::under_way::RequestKey;
use crate::clients::server::window::Window;
use crate::engine::deployment::Deployment;
use crate::engine::deployment::ticket::Ticket;
use crate::engine::program_values::parts::{CallingProgram, open};
use crate::engine::program_values::{Parts, Terms};
use crate::engine::reply::{PartValues, UnreadParts, bytes_of};
use crate::engine::request::parts::{AnswerParts, PartEvent};
use crate::engine::room;
use crate::values::answer::{Answer, Failure};
use jitney_core::tables::outcome::Outcome;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use tokio::sync::OwnedSemaphorePermit;

/// Parts that wait are sent in one frame, up to about so many bytes.
const TOGETHER: usize = 64 << 10;

/// A request whose answer goes in parts.
pub(super) struct StreamRequest {
    pub(super) id: u64,
    pub(super) key: RequestKey,
    pub(super) deployment: Arc<Deployment>,
    pub(super) terms: Terms,
    pub(super) window: Arc<Window>,
    pub(super) followers: CallFollowers,
    /// Its place among the requests of the program.
    pub(super) place: OwnedSemaphorePermit,
    pub(super) session: Arc<Session>,
}

impl StreamRequest {
    /// Runs the item, whose values may be slices of `message` bytes, and sends its answer. Dropping this cancels the item.
    pub(super) async fn run(mut self, item: Parts, message: usize) {
        let mut parts = match self.open(item, message).await {
            Ok(parts) => parts,
            Err(refused) => return self.end(0, &[], Answer::failed(refused.0)),
        };
        let mut sequence = 0;
        loop {
            if !self.may_go_on(&parts).await {
                drop(parts.give_up(Outcome::TooSlow));
                let detail = "the program did not take the parts of this answer for too long (body_timeout_s)";
                return self.end(sequence, &[], Answer::failed(Failure::new(Outcome::TooSlow, detail)));
            }
            let (ready, end) = self.next(&mut parts).await;
            let bytes = ready.iter().flatten().map(|value| value.data.len()).sum();
            self.followers.add_answer_bytes(bytes);
            if let Some((answer, _ticket)) = end {
                return self.end(sequence, &ready, *answer);
            }
            let count = ready.len() as u32;
            self.session.under_way.send_parts(self.key, count, || {
                let frame = part_frames::parts(self.session.last, self.id, sequence, &ready, None);
                self.session.send_answers(frame, None);
            });
            sequence += count;
        }
    }

    async fn open(&self, item: Parts, message: usize) -> Result<AnswerParts, Box<(Failure, Ticket)>> {
        let (ledger, options) = (&self.session.ledger, &self.session.state.options);
        if let Err(failure) = room::check(ledger, options) {
            let ticket = self.deployment.refuse(failure.outcome);
            return Err(Box::new((failure, ticket)));
        }
        let limit = options.max_receiving_bytes;
        let program = if self.terms.inherited.is_some() {
            // Who reads these parts makes other parts of them, and those have a limit for clients that do not read.
            CallingProgram::Own(UnreadParts { account: ledger.untaken.clone(), limit, silence: None })
        } else {
            CallingProgram::Remote(ledger.clone(), limit, options.body_timeout())
        };
        open(self.deployment.clone(), item, self.terms.clone(), message, program).await
    }

    /// Waits until the program may get more; returns false if the engine gives up the item before.
    async fn may_go_on(&self, parts: &AnswerParts) -> bool {
        let mut opens = pin!(self.window.opens());
        poll_fn(|cx| match opens.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending => parts.poll_given_up(cx).map(|()| false),
        })
        .await
    }

    /// Waits for the next parts: all that have come and fit into the window, and the end if it has come.
    async fn next(&self, parts: &mut AnswerParts) -> (Vec<PartValues>, Option<(Box<Answer>, Option<Ticket>)>) {
        let (mut ready, mut bytes) = (Vec::new(), 0);
        let end = poll_fn(|cx| {
            while bytes < TOGETHER && self.window.is_open() {
                match parts.poll_event(cx) {
                    Poll::Ready(PartEvent::Part(_, values)) => {
                        let size = bytes_of(&values);
                        self.window.spend(size);
                        bytes += size;
                        ready.push(values);
                    }
                    Poll::Ready(PartEvent::End(_, answer, ticket)) => return Poll::Ready(Some((answer, ticket))),
                    Poll::Pending if ready.is_empty() => return Poll::Pending,
                    Poll::Pending => break,
                }
            }
            Poll::Ready(None)
        })
        .await;
        (ready, end)
    }

    fn end(mut self, sequence: u32, last: &[PartValues], answer: Answer) {
        let mut answer = [answer];
        self.session.present(&self.terms.id, &self.deployment, &mut answer);
        std::mem::take(&mut self.followers).end(&answer);
        if self.session.under_way.end(self.key) {
            let frame = part_frames::parts(self.session.last, self.id, sequence, last, Some(&answer[0]));
            self.session.send_answers(frame, Some(self.place));
        }
    }
}
