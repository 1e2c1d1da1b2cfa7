//! One item of a program whose answer comes in parts.

use super::{Parts, Terms, call, weight};
use crate::base::ledger::Ledger;
use crate::base::offload;
use crate::engine::deployment::Deployment;
use crate::engine::deployment::ticket::Ticket;
use crate::engine::reply::{ReplyEvent, UnreadParts, gone};
use crate::engine::request;
use crate::engine::request::RequestItems;
use crate::engine::request::parts::{AnswerParts, PartEvent};
use crate::values::answer::{Answer, Failure};
use smallvec::smallvec;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// The answer to one call, part by part. Dropping it before the end cancels the call.
pub trait CallParts: Send {
    /// The next event. After the end there is none: do not poll again.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent>;
}

/// The parts of a call, whatever kind of engine answers it.
pub type BoxedCallParts = Box<dyn CallParts>;

/// The program that a call is from: it decides where parts count while they wait.
#[derive(Debug)]
pub(crate) enum CallingProgram {
    /// The program holds the engine and may use its whole queue.
    Own(UnreadParts),
    /// The program dials the server, whose clients may leave so many bytes unread, and read nothing for so long.
    Remote(Ledger, u64, Duration),
}

/// Hands one item to its engine. Its values may be slices of `message` bytes.
pub(crate) async fn open(
    deployment: Arc<Deployment>,
    item: Parts,
    terms: Terms,
    message: usize,
    program: CallingProgram,
) -> Result<AnswerParts, Box<(Failure, Ticket)>> {
    let arriving = deployment.outcomes.arrive();
    let weight = weight(&deployment.manifest, &item);
    let decoded = offload::run(weight, || {
        RequestItems::new(&deployment, smallvec![call(&deployment.manifest, item, &terms)], message)
    })
    .await;
    arriving.end();
    let items = decoded.map_err(|failure| {
        let ticket = deployment.refuse(failure.outcome);
        Box::new((failure, ticket))
    })?;
    match program {
        CallingProgram::Own(unread) => request::open_own_parts(&deployment, items, &unread),
        CallingProgram::Remote(ledger, most_unread, silence) => {
            request::open_parts(&deployment, items, &ledger, most_unread, silence)
        }
    }
}

/// A stream that is being opened.
pub(crate) type OpenFuture = Pin<Box<dyn Future<Output = Result<BoxedCallParts, Failure>> + Send>>;

enum State {
    /// Nothing was sent before the first poll.
    Opening(OpenFuture),
    Open(BoxedCallParts),
    Ended,
}

/// An answer in parts that its first poll opens. It keeps `K` until its end.
pub(crate) struct LazyParts<K> {
    state: State,
    kept: Option<K>,
}

impl<K> LazyParts<K> {
    pub(crate) fn new(opening: OpenFuture, kept: K) -> LazyParts<K> {
        LazyParts { state: State::Opening(opening), kept: Some(kept) }
    }

    fn end(&mut self, answer: Answer) -> ReplyEvent {
        self.state = State::Ended;
        self.kept = None;
        ReplyEvent::End(answer)
    }
}

impl<K: Send> CallParts for LazyParts<K> {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        loop {
            match &mut self.state {
                State::Opening(opening) => match ready!(opening.as_mut().poll(cx)) {
                    Ok(parts) => self.state = State::Open(parts),
                    Err(failure) => return Poll::Ready(self.end(Answer::failed(failure))),
                },
                State::Open(parts) => {
                    return Poll::Ready(match ready!(parts.poll_event(cx)) {
                        ReplyEvent::End(answer) => self.end(answer),
                        part @ ReplyEvent::Part(_) => part,
                    });
                }
                State::Ended => return Poll::Ready(ReplyEvent::End(gone())),
            }
        }
    }
}

/// The answer of an engine in this process.
pub(crate) struct OwnParts(pub(crate) AnswerParts);

impl CallParts for OwnParts {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        Poll::Ready(match ready!(self.0.poll_event(cx)) {
            PartEvent::Part(_, values) => ReplyEvent::Part(values),
            // The program has the answer now, so the ticket counts it.
            PartEvent::End(_, answer, _ticket) => ReplyEvent::End(*answer),
        })
    }
}

/// An answer that is there already.
#[derive(Debug)]
pub(crate) struct EndedParts(pub(crate) Option<Answer>);

impl CallParts for EndedParts {
    fn poll_event(&mut self, _: &mut Context<'_>) -> Poll<ReplyEvent> {
        Poll::Ready(ReplyEvent::End(self.0.take().unwrap_or_else(gone)))
    }
}
