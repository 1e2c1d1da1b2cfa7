//! The body of an answer that comes in parts, and how it begins: what fails before the first part has its own status.
//! What fails later is written in the form of the answer, or breaks the body off.

use crate::base::offload;
use crate::engine::deployment::ticket::Ticket;
use crate::engine::request::parts::{AnswerParts, PartEvent};
use crate::protocols::reply::failure_log;
use crate::protocols::reply::parts::form::PartsForm;
use crate::protocols::reply::payload::{BrokenOff, Ending, Reply, ReplyBody};
use crate::protocols::reply::render::OCTETS;
use crate::values::answer::{Answer, Failure};
use bytes::Bytes;
use http_body::{Body, Frame};
use hyper::Response;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use jitney_core::tables::outcome::Outcome;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep, timeout};

/// Without a part for so long, the head of the answer leaves, and later a comment: proxies give silent connections up.
const LONGEST_SILENCE: Duration = Duration::from_secs(15);
/// Parts that wait are written together, up to about this many bytes.
const TOGETHER: usize = 64 << 10;
/// An error of a body drops what the connection has not written yet. So it comes this long after the last part.
const BREAKS_AFTER: Duration = Duration::from_millis(100);
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
        let patience = if self.form.comment().is_empty() { Duration::MAX } else { LONGEST_SILENCE };
        let first = match timeout(patience, self.parts.next()).await {
            Ok(PartEvent::End(item, answer, Some(ticket))) => match answer.result {
                Err(failure) => return Err((self.recipient.shown(failure), ticket)),
                Ok(_) => Some(PartEvent::End(item, answer, Some(ticket))),
            },
            first => first.ok(),
        };
        if let Err(failure) = self.begin(first.as_ref()) {
            let ticket = match first {
                Some(PartEvent::End(_, _, Some(mut ticket))) => {
                    ticket.set_outcome(failure.outcome);
                    ticket
                }
                _ => self.parts.give_up(failure.outcome),
            };
            return Err((failure, ticket));
        }
        let media = HeaderValue::from_str(self.form.media()).unwrap_or(HeaderValue::from_static(OCTETS));
        let first_part = self.parts.until_first_part();
        let (body, ending) = self.body(first);
        ending.set_first_part(first_part);
        let mut reply = Response::new(ReplyBody::parts(Box::pin(body), ending));
        let headers = reply.headers_mut();
        headers.insert(CONTENT_TYPE, media);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(BUFFERING, HeaderValue::from_static("no"));
        Ok(reply)
    }

    fn begin(&mut self, first: Option<&PartEvent>) -> Result<(), Failure> {
        match first {
            Some(PartEvent::Part(_, values)) => self.form.begin(values),
            Some(PartEvent::End(_, answer, _)) => {
                answer.result.as_ref().map_or(Ok(()), |values| self.form.begin(values))
            }
            None => Ok(()),
        }
    }

    /// The body that writes its events, `next` first, and where the ticket of the request is after the end.
    pub(crate) fn body(self, next: Option<PartEvent>) -> (PartsBody, Ending) {
        let OpenAnswer { parts, form, recipient } = self;
        let ending = Ending::default();
        let ends = ending.clone();
        let writer = Box::new(Writer { parts: Some(parts), next, form, recipient, breaks_off: false, ending: ends });
        let silence = Box::pin(sleep(LONGEST_SILENCE));
        (PartsBody { writer: Some(writer), heavy: None, silence, breaks: None }, ending)
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

/// A part, or an end, that is being written where it delays no other request.
type Heavy = Pin<Box<dyn Future<Output = (Box<Writer>, Vec<u8>)> + Send>>;

/// Writes the events of an answer.
pub(crate) struct PartsBody {
    /// `None` while `heavy` has it.
    writer: Option<Box<Writer>>,
    heavy: Option<Heavy>,
    /// Rings when nothing was sent for long.
    silence: Pin<Box<Sleep>>,
    /// Rings when the body may be broken off.
    breaks: Option<Pin<Box<Sleep>>>,
}

/// Writes events in the form that the client takes.
struct Writer {
    /// `None` after the end.
    parts: Option<AnswerParts>,
    /// An event that has come and was not written.
    next: Option<PartEvent>,
    form: Box<dyn PartsForm>,
    recipient: Recipient,
    /// The answer has failed, and its form cannot say that.
    breaks_off: bool,
    ending: Ending,
}

impl Writer {
    /// Writes what has come, up to the end or to an event that is heavy; nothing if nothing has, or if a heavy event is next.
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
            if !offload::is_light(weight(&event)) {
                self.next = Some(event);
                break;
            }
            self.event(&mut out, event);
        }
        self.flush(&mut out);
        out
    }

    fn flush(&mut self, out: &mut Vec<u8>) {
        if let Err(failure) = self.form.flush(out) {
            self.give_up(out, failure);
        }
    }

    /// Begins to write a heavy event, if one is next.
    fn begin_heavy(this: &mut Option<Box<Writer>>) -> Option<Heavy> {
        let weight = weight(this.as_ref()?.next.as_ref()?);
        let mut writer = this.take()?;
        // The writer keeps the event until then: if it is dropped before, it knows what was not written.
        Some(Box::pin(offload::run(weight, move || {
            let mut out = Vec::new();
            if let Some(event) = writer.next.take() {
                writer.event(&mut out, event);
            }
            writer.flush(&mut out);
            (writer, out)
        })))
    }

    fn event(&mut self, out: &mut Vec<u8>, event: PartEvent) {
        match event {
            PartEvent::Part(item, values) => {
                if let Err(failure) = self.form.part(out, item, &values) {
                    self.give_up(out, failure);
                }
            }
            PartEvent::End(item, answer, ticket) => self.end(out, item, *answer, ticket),
        }
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
        if !self.form.can_say_failures() {
            failure_log::tell_of_break(&self.recipient.request_id, ticket.deployment(), &failure, self.form.media());
            self.breaks_off = true;
            return;
        }
        failure_log::tell(&self.recipient.request_id, ticket.deployment(), &failure);
        let failure = self.recipient.shown(failure);
        self.form.failure(out, &failure, &self.recipient.request_id);
    }
}

/// Says how the request ends if its client did not read to the end. A client that has left before the end came is counted by the
/// parts themselves.
impl Drop for Writer {
    fn drop(&mut self) {
        let Some(parts) = self.parts.take() else { return };
        let is_too_slow = parts.is_given_up() || self.ending.is_given_up();
        let outcome = if is_too_slow { Outcome::TooSlow } else { Outcome::Cancelled };
        let ticket = match self.next.take() {
            // The end has come, and was not written.
            Some(PartEvent::End(_, _, Some(mut ticket))) => {
                ticket.set_outcome(outcome);
                ticket
            }
            _ if is_too_slow => parts.give_up(outcome),
            _ => return,
        };
        if is_too_slow {
            let detail =
                "the client did not read its answer for too long (body_timeout_s); its stream or connection was closed";
            failure_log::tell(&self.recipient.request_id, ticket.deployment(), &Failure::new(outcome, detail));
        }
        self.ending.set(ticket);
    }
}

impl Body for PartsBody {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let body = &mut *self;
        let out = loop {
            if let Some(heavy) = &mut body.heavy {
                let (writer, out) = ready!(heavy.as_mut().poll(cx));
                (body.writer, body.heavy) = (Some(writer), None);
                if !out.is_empty() {
                    break out;
                }
            }
            let Some(writer) = &mut body.writer else { return Poll::Ready(None) };
            let out = writer.write(cx);
            if !out.is_empty() {
                break out;
            }
            if writer.breaks_off {
                let breaks = body.breaks.get_or_insert_with(|| Box::pin(sleep(BREAKS_AFTER)));
                ready!(breaks.as_mut().poll(cx));
                return Poll::Ready(Some(Err(BrokenOff)));
            }
            if writer.parts.is_none() {
                return Poll::Ready(None);
            }
            let comment = writer.form.comment();
            body.heavy = Writer::begin_heavy(&mut body.writer);
            if body.heavy.is_none() {
                if comment.is_empty() {
                    return Poll::Pending;
                }
                ready!(body.silence.as_mut().poll(cx));
                break comment.to_vec();
            }
        };
        body.silence.as_mut().reset(Instant::now() + LONGEST_SILENCE);
        Poll::Ready(Some(Ok(Frame::data(out.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.parts.is_none() && !writer.breaks_off)
    }
}

/// How much work it is to write an event, in bytes that are written anew.
fn weight(event: &PartEvent) -> usize {
    match event {
        PartEvent::Part(_, values) => values.iter().map(|value| value.data.len()).sum(),
        PartEvent::End(_, answer, _) => answer.bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ledger::Ledger;
    use crate::base::telemetry::Telemetry;
    use crate::engine::deployment::{Deployment, Inbound};
    use crate::engine::program_values::{Terms, call};
    use crate::engine::request;
    use crate::engine::request::RequestItems;
    use crate::open_inference::tests::manifest;
    use crate::protocols::reply::parts::events::Events;
    use crate::values::answer::Timing;
    use crate::values::call::Part;
    use crate::values::tensor::Tag;
    use serde_json::json;
    use smallvec::smallvec;
    use std::sync::Arc;
    use tokio::sync::mpsc;

    #[tokio::test]
    async fn an_end_that_is_not_written_counts_once_and_not_as_ok() {
        for (is_given_up, outcome) in [(false, "cancelled"), (true, "too_slow")] {
            let (telemetry, (inbound, mut engine)) = (Telemetry::new(), mpsc::unbounded_channel());
            let text = json!({ "kind": "text", "arrays": [], "schema": true });
            let manifest = Arc::new(manifest(text.clone(), text, json!({})));
            let deployment = Arc::new(Deployment::new(manifest, inbound, &telemetry));
            let part = Part { tag: Tag::Text, tensor: None, data: Bytes::from_static(b"a").into() };
            let call = call(&deployment.manifest, smallvec![part], &Terms::default());
            let items = RequestItems::new(&deployment, smallvec![call], 1).unwrap();
            let connection = Ledger::default().connection();
            let opened = request::open_parts(&deployment, items, &connection, 1 << 20, Duration::MAX);
            let Ok(mut parts) = opened else { panic!("it is refused") };
            let Some(Inbound::Submit(_, reply)) = engine.recv().await else { panic!("an item") };
            reply.end(Answer { result: Ok(smallvec![]), timing: Timing::default(), tokens: None, end: None });
            let end = parts.next().await;
            let recipient = Recipient { request_id: String::new(), shows_errors: true };
            let (body, ending) = OpenAnswer { parts, form: Box::new(Events), recipient }.body(Some(end));
            if is_given_up {
                ending.give_up();
            }
            drop(body);
            drop(ending.take());
            let text = telemetry.text();
            let counted: Vec<_> =
                text.lines().filter(|line| line.contains("requests_total{") && !line.ends_with(" 0")).collect();
            assert_eq!(counted, [format!("jitney_requests_total{{deployment=\"m\",outcome=\"{outcome}\"}} 1")]);
        }
    }
}
