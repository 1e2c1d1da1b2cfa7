//! The answer to one item, part by part.

use crate::base::ledger::{Account, CountedBytes};
use crate::engine::deployment::ticket::Ticket;
use crate::engine::deployment::{CancelOnDrop, Deployment};
use crate::engine::reply::{PartValues, ReplyEvent, ReplyReceiver, UnreadParts};
use crate::values::answer::{Answer, Timing};
use crate::values::call::Call;
use jitney_core::tables::outcome::Outcome;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::time::Instant;

/// What comes next of an answer.
#[derive(Debug)]
pub(crate) enum PartEvent {
    /// A part; more events follow.
    Part(PartValues),
    /// The end; nothing follows. The ticket counts the request when it is dropped.
    End(Box<Answer>, Ticket),
}

/// The answer to one item while it is computed. Dropping it before the end cancels the item.
pub(crate) struct AnswerParts {
    deployment: Arc<Deployment>,
    reply: ReplyReceiver,
    /// `None` after the end.
    guard: Option<CancelOnDrop>,
    started: Instant,
    /// Counts the memory of the request that the queue does not count.
    _held: Option<CountedBytes>,
}

impl AnswerParts {
    /// Hands an item to its engine. It counts in `waiting`, its parts count in `unread`, and `held` counts the memory of the
    /// request that the queue does not count.
    pub(super) fn open(
        deployment: &Arc<Deployment>,
        call: Call,
        waiting: &Account,
        unread: UnreadParts,
        held: Option<CountedBytes>,
    ) -> AnswerParts {
        let started = Instant::now();
        let (reply, guard) = deployment.begin(call, waiting, Some(unread));
        AnswerParts { deployment: deployment.clone(), reply, guard: Some(guard), started, _held: held }
    }

    /// The next event. After the end there is none: do not poll again.
    pub(crate) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<PartEvent> {
        Poll::Ready(match ready!(self.reply.poll_event(cx)) {
            ReplyEvent::Part(values) => PartEvent::Part(values),
            ReplyEvent::End(answer) => {
                let ticket = self.end(answer.outcome(), answer.timing);
                PartEvent::End(Box::new(answer), ticket)
            }
        })
    }

    /// Waits for the next event.
    pub(crate) async fn next(&mut self) -> PartEvent {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    /// Gives the rest of the answer up, because it cannot be written: the item is cancelled, and counted with this outcome.
    pub(crate) fn give_up(mut self, outcome: Outcome) -> Ticket {
        if let Some(guard) = &self.guard {
            guard.cancel();
        }
        self.end(outcome, Timing::default())
    }

    fn end(&mut self, outcome: Outcome, timing: Timing) -> Ticket {
        if let Some(guard) = self.guard.take() {
            guard.disarm();
        }
        self.deployment.answered(self.started, outcome, timing).of_items(1)
    }
}
