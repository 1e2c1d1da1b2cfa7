//! The answer to the items of one request, part by part.

use crate::base::ledger::{Account, CountedBytes};
use crate::engine::deployment::streams::StreamTimer;
use crate::engine::deployment::ticket::Ticket;
use crate::engine::deployment::{CancelOnDrop, Deployment};
use crate::engine::reply::{PartValues, ReplyEvent, ReplyReceiver, UnreadParts};
use crate::values::answer::{Answer, Timing};
use crate::values::call::Call;
use jitney_core::tables::outcome::Outcome;
use smallvec::SmallVec;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// What comes next of an answer.
#[derive(Debug)]
pub(crate) enum PartEvent {
    /// A part of the answer to the item at this place; more events follow.
    Part(usize, PartValues),
    /// The end of the item at this place. With a ticket it is the end of the request: all items have ended, or this one has
    /// failed. Then nothing follows, and the ticket counts the request when it is dropped.
    End(usize, Box<Answer>, Option<Ticket>),
}

/// The answers to the items of a request while they are computed. Dropping it before the end cancels them.
pub(crate) struct AnswerParts {
    deployment: Arc<Deployment>,
    /// `None` of an item that has ended.
    replies: SmallVec<[Option<ReplyReceiver>; 1]>,
    /// The place that is asked first: each item has its turn.
    next: usize,
    /// `None` after the end.
    guard: Option<CancelOnDrop>,
    timer: StreamTimer,
    /// Of the slowest item that has ended.
    timing: Timing,
    /// Counts the memory of the request that the queue does not count.
    _held: Option<CountedBytes>,
}

impl AnswerParts {
    /// Hands items to their engine. They count in `waiting`, their parts count in `unread`, and `held` counts the memory of
    /// the request that the queue does not count.
    pub(super) fn open(
        deployment: &Arc<Deployment>,
        calls: SmallVec<[Call; 1]>,
        waiting: &Account,
        unread: &UnreadParts,
        held: Option<CountedBytes>,
    ) -> AnswerParts {
        let timer = StreamTimer::new(deployment.streams.clone());
        let (replies, guard) = deployment.begin_parts(calls, waiting, unread);
        AnswerParts {
            deployment: deployment.clone(),
            replies: replies.into_iter().map(Some).collect(),
            next: 0,
            guard: Some(guard),
            timer,
            timing: Timing::default(),
            _held: held,
        }
    }

    /// The next event. After the end there is none: do not poll again.
    pub(crate) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<PartEvent> {
        let count = self.replies.len();
        for turn in 0..count {
            let place = (self.next + turn) % count;
            let Some(reply) = &mut self.replies[place] else { continue };
            let Poll::Ready(event) = reply.poll_event(cx) else { continue };
            self.next = place + 1;
            if reply.take_resume()
                && let Some(guard) = &self.guard
            {
                guard.resume(place);
            }
            return Poll::Ready(match event {
                ReplyEvent::Part(values) => {
                    self.timer.part();
                    PartEvent::Part(place, values)
                }
                ReplyEvent::End(answer) => self.item_ended(place, answer),
            });
        }
        Poll::Pending
    }

    /// Waits for the next event.
    pub(crate) async fn next(&mut self) -> PartEvent {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    /// Gives the rest of the answer up, because it cannot be written: its items are cancelled, and the request is counted
    /// with this outcome.
    pub(crate) fn give_up(mut self, outcome: Outcome) -> Ticket {
        self.cancel();
        self.end(outcome)
    }

    /// Where the time until the first part went: `model` is the time from the launch of its item to this part. `None` before.
    pub(crate) fn until_first_part(&self) -> Option<Timing> {
        let first_part = self.timer.first_part()?;
        let (queue, batch_size) = self.replies.iter().flatten().find_map(ReplyReceiver::launch).unwrap_or_default();
        Some(Timing { queue, batch: Duration::ZERO, model: first_part.saturating_sub(queue), batch_size })
    }

    /// Whether the engine has given an item up because its client reads too slowly, and the client has not read that.
    pub(crate) fn is_given_up(&self) -> bool {
        self.replies.iter().flatten().any(|reply| reply.unread_end() == Some(Outcome::TooSlow))
    }

    /// Whether an item was given up because its client reads too slowly. Its parts are not read meanwhile.
    pub(crate) fn poll_given_up(&self, cx: &Context<'_>) -> Poll<()> {
        self.replies.iter().flatten().for_each(|reply| reply.set_waker(cx.waker()));
        if self.is_given_up() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn item_ended(&mut self, place: usize, answer: Answer) -> PartEvent {
        self.replies[place] = None;
        if answer.timing.total() >= self.timing.total() {
            self.timing = answer.timing;
        }
        let (outcome, is_last) = (answer.outcome(), self.replies.iter().all(Option::is_none));
        if outcome != Outcome::Ok && !is_last {
            self.cancel();
        }
        let ticket = (outcome != Outcome::Ok || is_last).then(|| self.end(outcome));
        PartEvent::End(place, Box::new(answer), ticket)
    }

    fn cancel(&self) {
        if let Some(guard) = &self.guard {
            guard.cancel();
        }
    }

    fn end(&mut self, outcome: Outcome) -> Ticket {
        if let Some(guard) = self.guard.take() {
            guard.disarm();
        }
        let items = u32::try_from(self.replies.len()).unwrap_or(u32::MAX);
        let stream = self.timer.end();
        self.deployment.answered(self.timer.started(), outcome, self.timing).of_items(items).of_stream(stream)
    }
}
