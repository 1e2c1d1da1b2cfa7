//! Answers of gRPC: messages, and a status in the trailers.

use crate::protocols::grpc::frame::MessagePieces;
use crate::protocols::grpc::waiting::Counted;
use crate::protocols::reply::payload::{BrokenOff, Reply, ReplyBody};
use crate::protocols::reply::problem::REASON;
use crate::protocols::reply::problem::{Problem, WrittenProblem};
use crate::values::answer::Failure;
use crate::values::text::shortened;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use http_body::{Body, Frame};
use hyper::Response;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use jitney_core::tables::outcome::Outcome;
use prost::Message as _;
use prost_types::{Any, Duration};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// Longest text of a status: clients take headers of 8 KiB together, and a byte may become three. What is longer is a
/// model's own.
const MESSAGE_BYTES: usize = 2048;

/// The status of a call that went well.
pub(crate) fn ok() -> HeaderMap {
    HeaderMap::from_iter([(STATUS, HeaderValue::from_static("0"))])
}

/// The status of a failure, with when to come back if that is known.
pub(crate) fn status(failure: &Failure) -> Vec<(HeaderName, HeaderValue)> {
    let code = failure.outcome.grpc_code();
    let detail = shortened(&failure.detail, MESSAGE_BYTES);
    let mut headers = vec![(STATUS, HeaderValue::from(u16::from(code))), (MESSAGE, percent_encoded(&detail))];
    if let Some(after) = failure.retry_after {
        let seconds = i64::try_from(after.as_secs()).unwrap_or(i64::MAX);
        let nanos = i32::try_from(after.subsec_nanos()).unwrap_or(0);
        let retry = crate::open_inference::messages::rpc::RetryInfo { retry_delay: Some(Duration { seconds, nanos }) };
        let any = Any { type_url: "type.googleapis.com/google.rpc.RetryInfo".into(), value: retry.encode_to_vec() };
        let message = detail.into_owned();
        let details =
            crate::open_inference::messages::rpc::Status { code: i32::from(code), message, details: vec![any] };
        let text = STANDARD_NO_PAD.encode(details.encode_to_vec());
        headers.extend(HeaderValue::try_from(text).ok().map(|value| (DETAILS, value)));
    }
    headers
}

/// The same as the end of a stream.
pub(crate) fn failed(failure: &Failure) -> HeaderMap {
    let mut trailers = HeaderMap::from_iter(status(failure));
    trailers.insert(REASON, HeaderValue::from_static(failure.outcome.reason()));
    trailers
}

/// A problem as an answer that is nothing but its trailers, which then stand in the head.
pub(crate) fn form(problem: &Problem, _request_id: &str) -> WrittenProblem {
    WrittenProblem { status: 200, media: "application/grpc", body: vec![], headers: status(problem.failure()) }
}

/// Text as gRPC writes it in a header: what is not printable ASCII, and the percent sign, as `%XX`.
fn percent_encoded(text: &str) -> HeaderValue {
    use std::fmt::Write as _;
    let mut written = String::with_capacity(text.len());
    for byte in text.bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            written.push(char::from(byte));
        } else {
            // A String takes everything.
            let _ = write!(written, "%{byte:02X}");
        }
    }
    HeaderValue::try_from(written).unwrap_or_else(|_| HeaderValue::from_static("the message cannot be written"))
}

/// An answer of one message.
pub(crate) fn message(pieces: MessagePieces) -> Reply {
    let whole = Whole { pieces: pieces.into_iter(), is_ended: false };
    reply(ReplyBody::message(Box::pin(whole)))
}

/// An answer that comes in pieces. If the client leaves, the task that makes the pieces is aborted.
pub(crate) fn stream(pieces: mpsc::Receiver<Piece>, maker: AbortHandle) -> Reply {
    reply(ReplyBody::stream(Box::pin(Stream { pieces, rest: vec![].into_iter(), maker, is_ended: false })))
}

fn reply(payload: ReplyBody) -> Reply {
    let mut reply = Response::new(payload);
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    reply
}

/// One message, then the status.
struct Whole {
    pieces: smallvec::IntoIter<[Bytes; 2]>,
    is_ended: bool,
}

impl Body for Whole {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        if let Some(piece) = self.pieces.next() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let is_ended = std::mem::replace(&mut self.is_ended, true);
        Poll::Ready((!is_ended).then(|| Ok(Frame::trailers(ok()))))
    }
}

/// What a stream is made of.
pub(crate) enum Piece {
    /// Bytes of messages.
    Data(Bytes),
    /// One message or several, whose pieces are counted until the connection asks for them. They follow each other.
    Messages(Vec<Counted>),
    /// The status; nothing follows.
    End(HeaderMap),
}

struct Stream {
    pieces: mpsc::Receiver<Piece>,
    /// What is left of the messages that are being sent.
    rest: std::vec::IntoIter<Counted>,
    maker: AbortHandle,
    is_ended: bool,
}

impl Body for Stream {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        if self.is_ended {
            return Poll::Ready(None);
        }
        loop {
            if let Some(counted) = self.rest.next() {
                return Poll::Ready(Some(Ok(Frame::data(counted.piece()))));
            }
            let end = match ready!(self.pieces.poll_recv(cx)) {
                Some(Piece::Data(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Some(Piece::Messages(messages)) => {
                    self.rest = messages.into_iter();
                    continue;
                }
                Some(Piece::End(trailers)) => trailers,
                // Its maker ended without a word.
                None => failed(&Failure::new(Outcome::Internal, "the server failed; the rest of the stream is lost")),
            };
            self.is_ended = true;
            return Poll::Ready(Some(Ok(Frame::trailers(end))));
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // The client has left, so the remaining pieces are not needed.
        self.maker.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_percent_encoded() {
        assert_eq!(percent_encoded("100 % „ä“\n"), "100 %25 %E2%80%9E%C3%A4%E2%80%9C%0A");
    }

    #[test]
    fn a_status_is_no_longer_than_clients_take() {
        let detail = format!("begin {} end", "\u{e4}".repeat(1 << 20));
        let retry_after = Some(std::time::Duration::from_secs(1));
        let failure = Failure { retry_after, ..Failure::new(Outcome::ModelFailed, detail) };
        let headers = status(&failure);
        assert!(headers.iter().all(|(_, value)| value.len() < 7000));
        let said = String::from_utf8_lossy(headers[1].1.as_bytes()).into_owned();
        assert!(said.starts_with("begin ") && said.ends_with(" end"), "{said}");
    }

    #[test]
    fn a_refusal_says_when_to_come_back() {
        let retry_after = Some(std::time::Duration::from_millis(1500));
        let failure = Failure { retry_after, ..Failure::new(Outcome::QueueFull, "full") };
        let headers = HeaderMap::from_iter(status(&failure));
        assert_eq!(headers[STATUS], "8");
        let details = STANDARD_NO_PAD.decode(headers[DETAILS].as_bytes()).unwrap();
        let details = crate::open_inference::messages::rpc::Status::decode(&details[..]).unwrap();
        let retry = crate::open_inference::messages::rpc::RetryInfo::decode(&details.details[0].value[..]).unwrap();
        assert_eq!((details.code, retry.retry_delay), (8, Some(Duration { seconds: 1, nanos: 500_000_000 })));
    }
}
