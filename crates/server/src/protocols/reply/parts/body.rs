//! The body of an answer that comes in parts, and how it begins: what fails before the first part has its own status.

use crate::engine::deployment::ticket::Ticket;
use crate::engine::request::parts::{AnswerParts, PartEvent};
use crate::protocols::reply::failure_log;
use crate::protocols::reply::parts::form::PartsForm;
use crate::protocols::reply::payload::{Ending, Reply, ReplyBody};
use crate::values::answer::{Answer, Failure};
use bytes::Bytes;
use http_body::{Body, Frame};
use hyper::Response;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use jitney_core::tables::outcome::Outcome;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Sleep, sleep, timeout};

/// Without a part for so long, the head of the answer leaves, and later a comment: proxies give silent connections up.
const LONGEST_SILENCE: Duration = Duration::from_secs(15);
/// Parts that wait are written together, up to about this many bytes.
const TOGETHER: usize = 64 << 10;
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Whose answer it is, and what its client may see.
#[derive(Debug)]
pub(crate) struct Recipient {
    pub(crate) request_id: String,
    pub(crate) shows_errors: bool,
}

/// An answer of which nothing has been written.
pub(crate) struct OpenAnswer {
    pub(crate) parts: AnswerParts,
    pub(crate) form: Box<dyn PartsForm>,
    pub(crate) recipient: Recipient,
}

impl OpenAnswer {
    /// The answer to a request of HTTP, once its first part is there. A failure before that has its own status.
    pub(crate) async fn reply(mut self) -> Result<Reply, (Failure, Ticket)> {
        let first = match timeout(LONGEST_SILENCE, self.parts.next()).await {
            Ok(PartEvent::End(item, answer, Some(ticket))) => match answer.result {
                Err(failure) => return Err((self.recipient.shown(failure), ticket)),
                Ok(_) => Some(PartEvent::End(item, answer, Some(ticket))),
            },
            first => first.ok(),
        };
        let media = HeaderValue::from_static(self.form.media());
        let first_part = self.parts.until_first_part();
        let (mut body, ending) = self.body();
        ending.set_first_part(first_part);
        body.next = first;
        let mut reply = Response::new(ReplyBody::parts(Box::pin(body), ending));
        let headers = reply.headers_mut();
        headers.insert(CONTENT_TYPE, media);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(BUFFERING, HeaderValue::from_static("no"));
        Ok(reply)
    }

    /// The body that writes its events, and where the ticket of the request is after the end.
    pub(crate) fn body(self) -> (PartsBody, Ending) {
        let OpenAnswer { parts, form, recipient } = self;
        let ending = Ending::default();
        let silence = Box::pin(sleep(LONGEST_SILENCE));
        let body = PartsBody { parts: Some(parts), next: None, form, recipient, silence, ending: ending.clone() };
        (body, ending)
    }
}

impl Recipient {
    fn shown(&self, mut failure: Failure) -> Failure {
        if !self.shows_errors {
            failure.hide_model_text();
        }
        failure
    }
}

/// Writes the events of an answer.
pub(crate) struct PartsBody {
    /// `None` after the end.
    parts: Option<AnswerParts>,
    /// An event that has come and was not written.
    next: Option<PartEvent>,
    form: Box<dyn PartsForm>,
    recipient: Recipient,
    /// Rings when nothing was sent for long.
    silence: Pin<Box<Sleep>>,
    ending: Ending,
}

impl PartsBody {
    /// Writes what has come, up to the end; nothing if nothing has.
    fn write(&mut self, cx: &mut Context<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        while out.len() < TOGETHER
            && let Some(parts) = &mut self.parts
        {
            let event = match self.next.take() {
                Some(event) => event,
                None => match parts.poll_event(cx) {
                    Poll::Ready(event) => event,
                    Poll::Pending => break,
                },
            };
            match event {
                PartEvent::Part(item, values) => {
                    if let Err(failure) = self.form.part(&mut out, item, &values) {
                        self.give_up(&mut out, failure);
                    }
                }
                PartEvent::End(item, answer, ticket) => self.end(&mut out, item, *answer, ticket),
            }
        }
        if let Err(failure) = self.form.flush(&mut out) {
            self.give_up(&mut out, failure);
        }
        out
    }

    /// An item has ended, and with a ticket the request.
    fn end(&mut self, out: &mut Vec<u8>, item: usize, answer: Answer, ticket: Option<Ticket>) {
        let written = answer.result.and_then(|values| {
            let end = answer.end.unwrap_or_default();
            self.form.end(out, item, &values, &end)
        });
        let Some(mut ticket) = ticket else {
            written.unwrap_or_else(|failure| self.give_up(out, failure));
            return;
        };
        self.parts = None;
        match written {
            Ok(()) => self.form.close(out),
            Err(failure) => {
                ticket.set_outcome(failure.outcome);
                self.fail(out, &ticket, failure);
            }
        }
        self.ending.set(ticket);
    }

    /// Something cannot be written: nothing more is computed for this client.
    fn give_up(&mut self, out: &mut Vec<u8>, failure: Failure) {
        if let Some(parts) = self.parts.take() {
            let ticket = parts.give_up(failure.outcome);
            self.fail(out, &ticket, failure);
            self.ending.set(ticket);
        }
    }

    fn fail(&mut self, out: &mut Vec<u8>, ticket: &Ticket, failure: Failure) {
        failure_log::tell(&self.recipient.request_id, ticket.deployment(), &failure);
        let failure = self.recipient.shown(failure);
        self.form.failure(out, &failure, &self.recipient.request_id);
    }
}

/// Says how the request ends if its client did not read. A client that has left is counted by the parts themselves.
impl Drop for PartsBody {
    fn drop(&mut self) {
        let Some(parts) = self.parts.take_if(|parts| parts.is_given_up() || self.ending.is_given_up()) else { return };
        let ticket = parts.give_up(Outcome::TooSlow);
        let detail = "the client did not read its answer for too long (body_timeout_s); its connection was closed";
        let failure = Failure::new(Outcome::TooSlow, detail);
        failure_log::tell(&self.recipient.request_id, ticket.deployment(), &failure);
        self.ending.set(ticket);
    }
}

impl Body for PartsBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let body = &mut *self;
        if body.parts.is_none() {
            return Poll::Ready(None);
        }
        let mut out = body.write(cx);
        if out.is_empty() {
            // The end of an answer may have nothing to say.
            if body.parts.is_none() {
                return Poll::Ready(None);
            }
            if body.silence.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            out = body.form.comment().to_vec();
        }
        let rings = tokio::time::Instant::now() + LONGEST_SILENCE;
        body.silence.as_mut().reset(rings);
        Poll::Ready(Some(Ok(Frame::data(out.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_none()
    }
}
