//! Receives a body: bounded in size, in time, and in the memory that all bodies together hold while they arrive.

use crate::base::clock;
use crate::base::ledger::CountedBytes;
use crate::engine::room;
use crate::engine::server_state::ServerState;
use crate::protocols::connection::least_rate::LeastRate;
use crate::protocols::connection::limits::{COPY_BELOW, QUESTION_BYTES, SMALL_BYTES};
use crate::protocols::connection::upload::Upload;
use crate::protocols::reply::problem::Problem;
use crate::values::chunks::Chunks;
use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use hyper::body::Frame;
use jitney_core::tables::outcome::Outcome;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// A body that has arrived.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) chunks: Chunks,
    /// What it counts for, until it has been looked into: parsing is slower than sending.
    pub(crate) held: Option<CountedBytes>,
    /// When waiting for it began; `None` if it was all there with its head.
    pub(crate) waited_since: Option<std::time::Instant>,
}

/// How long a whole body may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) total: Duration,
    /// Whether the request is over with it, or only the body too slow.
    pub(crate) is_deadline: bool,
}

impl Patience {
    /// For a request that may take `allowed`, or less or more by the caller's word: more is for the wait, not for sending.
    pub(crate) fn of(allowed: Duration, asked: Option<Duration>) -> Patience {
        Patience {
            total: asked.map_or(allowed, |asked| asked.min(allowed)),
            is_deadline: asked.is_none_or(|asked| asked <= allowed),
        }
    }

    /// The time has passed.
    pub(crate) fn end(self) -> Problem {
        let (outcome, advice) = if self.is_deadline {
            (Outcome::DeadlineExceeded, "send it faster or allow more time")
        } else {
            (Outcome::BodyTimeout, "send it faster")
        };
        let seconds = self.total.as_secs_f64();
        Problem::new(outcome, format!("the body took longer than the {seconds} s that it may take; {advice}"))
    }
}

/// The whole body.
pub(crate) async fn receive(body: &mut Upload, state: &ServerState, patience: Patience) -> Result<Received, Problem> {
    receive_within(state.options.max_body_bytes, body, state, patience).await
}

/// The body of a request that no model answers, which may take as long as a pause in another body.
pub(crate) async fn question(
    body: &mut Upload,
    state: &ServerState,
    asked: Option<Duration>,
) -> Result<Chunks, Problem> {
    let allowed = state.options.body_timeout();
    let most = state.options.max_body_bytes.min(QUESTION_BYTES);
    Ok(receive_within(most, body, state, Patience::of(allowed, asked)).await?.chunks)
}

async fn receive_within(
    most: u64,
    body: &mut Upload,
    state: &ServerState,
    patience: Patience,
) -> Result<Received, Problem> {
    let declared = body.size_hint().exact();
    if let Some(length) = declared.filter(|&length| length > most) {
        return Err(too_large(&format!("{length} bytes"), most, state));
    }
    // Most bodies are here with their head, in one piece: they cost neither a timer nor an account.
    let Some(first) = next(body, None).await? else {
        return Ok(Received { chunks: Chunks::from(Bytes::new()), held: None, waited_since: None });
    };
    match first {
        Some(first) if body.is_end_stream() && first.len() as u64 <= most => {
            Ok(Received { chunks: Chunks::from(own(first)), held: None, waited_since: None })
        }
        first => {
            let waited_since = Some(std::time::Instant::now());
            // On the heap: what a slow body needs should not make every request's future larger.
            let (chunks, held) = Box::pin(slow(most, body, first, state, patience)).await?;
            Ok(Received { chunks, held: Some(held), waited_since })
        }
    }
}

/// A short piece is copied: it would otherwise keep the read buffer of its connection.
fn own(piece: Bytes) -> Bytes {
    if piece.len() < COPY_BELOW { Bytes::copy_from_slice(&piece) } else { piece }
}

/// The next piece: `None` at the end, `Some(None)` if there is none yet and no time to wait was given.
async fn next(body: &mut Upload, wait: Option<&Wait>) -> Result<Option<Option<Bytes>>, Problem> {
    loop {
        let frame = match wait {
            None => {
                poll_fn(|cx| match Pin::new(&mut *body).poll_frame(cx) {
                    Poll::Ready(frame) => Poll::Ready(Some(frame)),
                    Poll::Pending => Poll::Ready(None),
                })
                .await
            }
            Some(wait) => {
                let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx));
                let time_out = sleep_until(wait.end.min(wait.rate.end()));
                let (mut frame, mut time_out) = (pin!(frame), pin!(time_out));
                let frame = poll_fn(|cx| match frame.as_mut().poll(cx) {
                    Poll::Ready(frame) => Poll::Ready(Some(Some(frame))),
                    Poll::Pending => time_out.as_mut().poll(cx).map(|()| None),
                });
                match frame.await {
                    Some(frame) => frame,
                    None if wait.end <= wait.rate.end() => return Err(wait.patience.end().close()),
                    None => return Err(too_slow(&wait.rate)),
                }
            }
        };
        match frame {
            None => return Ok(Some(None)),
            Some(None) => return Ok(None),
            Some(Some(Ok(frame))) => {
                // Trailers say nothing that we ask for.
                if let Some(bytes) = Frame::into_data(frame).ok().filter(|bytes| !bytes.is_empty()) {
                    return Ok(Some(Some(bytes)));
                }
                if body.is_end_stream() {
                    return Ok(None);
                }
            }
            Some(Some(Err(error))) => {
                let detail = format!(
                    "the body ended early or is framed wrongly ({error}); send it whole, with the length that it declares"
                );
                // In HTTP/2 it is the stream that has ended, and its request with it.
                let is_over = body.is_http2() || has_left(&error);
                let outcome = if is_over { Outcome::Cancelled } else { Outcome::MalformedBody };
                return Err(Problem::new(outcome, detail).close());
            }
        }
    }
}

/// Whether a body cannot be read because its client has closed the connection.
fn has_left(error: &hyper::Error) -> bool {
    let gone = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    error.is_incomplete_message() || source.is_some_and(|source| gone.contains(&source.kind()))
}

/// How long to wait for a piece.
struct Wait {
    rate: LeastRate,
    end: Instant,
    patience: Patience,
}

/// A body in several pieces, or one that is not here yet.
async fn slow(
    most: u64,
    body: &mut Upload,
    first: Option<Bytes>,
    state: &ServerState,
    patience: Patience,
) -> Result<(Chunks, CountedBytes), Problem> {
    let options = &state.options;
    let rate = LeastRate::new(options.body_timeout());
    let end = Instant::now().checked_add(patience.total);
    let end = end.unwrap_or_else(|| clock::after(Instant::now(), Duration::MAX));
    let mut wait = Wait { rate, end, patience };
    let is_small = body.size_hint().upper().is_some_and(|left| left <= SMALL_BYTES);
    let mut held = body.account().hold(0);
    let mut gathered = Gathered::default();
    let mut received = 0;
    let mut piece = first;
    loop {
        if let Some(bytes) = piece.take() {
            received += bytes.len() as u64;
            wait.rate.add(bytes.len() as u64);
            if received > most {
                return Err(too_large("more", most, state));
            }
            // A large body that begins may take only half of the bytes. The other half is for the bodies that are
            // already in progress: each may need twice what it holds before it ends. Otherwise all would come half-way,
            // and none would end.
            let all = options.max_receiving_bytes;
            let is_new = received == bytes.len() as u64 && !is_small;
            let most_held = if is_new { all.div_ceil(2).max(received).min(all) } else { all };
            room::receive_within(&mut held, bytes.len(), most_held, options)
                .map_err(|failure| Problem::from(failure).close())?;
            gathered.push(bytes);
        }
        if body.is_end_stream() {
            return Ok((gathered.finish(), held));
        }
        match next(body, Some(&wait)).await? {
            Some(next) => piece = next,
            None => return Ok((gathered.finish(), held)),
        }
    }
}

/// The pieces of a body in order. Short pieces are joined, the others are not copied.
#[derive(Default)]
struct Gathered {
    chunks: Chunks,
    short: BytesMut,
}

impl Gathered {
    fn push(&mut self, piece: Bytes) {
        if piece.len() < COPY_BELOW {
            self.short.extend_from_slice(&piece);
            return;
        }
        self.flush();
        self.chunks.0.push(piece);
    }

    fn flush(&mut self) {
        if !self.short.is_empty() {
            self.chunks.0.push(self.short.split().freeze());
        }
    }

    fn finish(mut self) -> Chunks {
        self.flush();
        self.chunks
    }
}

fn too_large(got: &str, most: u64, state: &ServerState) -> Problem {
    let detail = format!("the body has {got}, the limit is {most} bytes; {}", remedy(most, state));
    Problem::new(Outcome::TooLarge, detail).close()
}

/// The advice to a client that has sent more than `most` bytes.
pub(crate) fn remedy(most: u64, state: &ServerState) -> &'static str {
    if most < state.options.max_body_bytes { "send less" } else { "send less, or raise max_body_bytes" }
}

fn too_slow(rate: &LeastRate) -> Problem {
    Problem::new(Outcome::BodyTimeout, format!("the body {}; send it faster", rate.describe())).close()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_pieces_are_joined_and_long_ones_kept() {
        let long = Bytes::from(vec![7; COPY_BELOW]);
        let mut gathered = Gathered::default();
        for piece in [b"a".as_slice().into(), b"b".as_slice().into(), long.clone(), b"c".as_slice().into()] {
            gathered.push(piece);
        }
        let chunks = gathered.finish();
        assert_eq!(chunks.0.iter().map(Bytes::len).collect::<Vec<_>>(), [2, COPY_BELOW, 1]);
        assert_eq!(chunks.0[1].as_ptr(), long.as_ptr());
    }
}
