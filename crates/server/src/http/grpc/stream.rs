//! Streams: messages as they come, and `ModelStreamInfer`, which answers each of them in their order.

use super::frame::{self, PREFIX, Pieces};
use super::infer;
use super::reply::{self, Piece};
use super::waiting::{Counted, Waiting};
use crate::call::{Chunks, Failure};
use crate::held::Held;
use crate::http::body;
use crate::http::coding::Coding;
use crate::http::fault;
use crate::http::headers::RequestId;
use crate::http::intake::{self, Wanted};
use crate::http::service::Reply;
use crate::http::upload::Upload;
use crate::messages::inference::{ModelInferRequest, ModelInferResponse, ModelStreamInferResponse};
use crate::site::Site;
use bytes::{Buf, BytesMut};
use http_body::Body as _;
use hyper::body::Frame;
use hyper::header::HeaderMap;
use jitney_core::metrics;
use jitney_core::outcome::Outcome;
use prost::Message;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, timeout, timeout_at};

/// Requests of one stream that are computed at once; it is then read no further.
const AT_ONCE: usize = 64;

/// How often a stream looks whether the server is ending.
const LOOK: Duration = Duration::from_millis(500);
/// Longer than any stream.
const FAR_AWAY: Duration = Duration::from_secs(86_400 * 365);

/// What the messages of a stream may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Bytes of one, also inflated.
    pub(super) most: u64,
    /// How long one may take to arrive.
    pub(super) allowed: Duration,
}

/// A message as it came, which may be compressed.
pub(super) struct Packed {
    message: Chunks,
    coding: Option<Coding>,
    is_compressed: bool,
    most: u64,
}

impl Packed {
    /// The message itself.
    pub(super) async fn plain(self, site: &Site) -> Result<Chunks, Failure> {
        let Packed { message, coding, is_compressed, most } = self;
        frame::plain(message, is_compressed, coding, most, site).await
    }
}

/// The messages of a stream, bounded in size, in memory, and in the time that one of them takes.
pub(super) struct Messages<'a> {
    site: &'a Site,
    body: Upload,
    coding: Option<Coding>,
    bounds: Bounds,
    buffer: BytesMut,
    held: Held,
}

impl<'a> Messages<'a> {
    pub(super) fn new(site: &'a Site, body: Upload, coding: Option<Coding>, bounds: Bounds) -> Messages<'a> {
        Messages { site, body, coding, bounds, buffer: BytesMut::new(), held: account(site) }
    }

    /// The next message; `None` at the end of the stream. Its time begins anew when this is dropped and called again.
    pub(super) async fn next(&mut self) -> Result<Option<Packed>, Failure> {
        let options = &self.site.options;
        let Bounds { most, allowed } = self.bounds;
        let silence = Duration::try_from_secs_f64(options.body_timeout_s).unwrap_or(Duration::MAX);
        let mut began = None;
        loop {
            if let Some(start) = self.buffer.first_chunk() {
                let (is_compressed, length) = frame::prefix(*start)?;
                if length as u64 > most {
                    let remedy = body::remedy(most, self.site);
                    let detail = format!("a message has {length} bytes, the limit is {most}; {remedy}");
                    return Err(Failure::new(Outcome::TooLarge, detail));
                }
                if self.buffer.len() >= PREFIX + length {
                    self.buffer.advance(PREFIX);
                    let message = self.buffer.split_to(length).freeze();
                    self.held = account(self.site);
                    self.held.grow(self.buffer.len(), u64::MAX);
                    return Ok(Some(Packed { message: message.into(), coding: self.coding, is_compressed, most }));
                }
            }
            let upload = &mut self.body;
            let frame = poll_fn(|cx| Pin::new(&mut *upload).poll_frame(cx));
            // Between messages a stream may be silent for as long as it likes.
            let frame = if self.buffer.is_empty() {
                frame.await
            } else {
                let left = allowed.saturating_sub(began.get_or_insert_with(Instant::now).elapsed());
                timeout(silence.min(left), frame).await.map_err(|_| too_slow(silence, allowed, left))?
            };
            match frame {
                None if self.buffer.is_empty() => return Ok(None),
                None => return Err(frame::malformed("the stream ends inside of it")),
                Some(Err(error)) => {
                    return Err(Failure::new(Outcome::Cancelled, format!("the stream was broken off: {error}")));
                }
                Some(Ok(frame)) => {
                    let Ok(data) = Frame::into_data(frame) else { continue };
                    if !self.held.grow(data.len(), options.max_receiving_bytes) {
                        let most = options.max_receiving_bytes;
                        let detail =
                            format!("bodies that are being received already hold the {most} bytes that they may");
                        let retry_after = Some(Duration::from_secs(1));
                        return Err(Failure { retry_after, ..Failure::new(Outcome::QueueBytesFull, detail) });
                    }
                    self.buffer.extend_from_slice(&data);
                }
            }
        }
    }
}

fn too_slow(silence: Duration, allowed: Duration, left: Duration) -> Failure {
    let detail = if left <= silence {
        format!("a message took longer than the {} s that it may take; send it faster", allowed.as_secs_f64())
    } else {
        format!("a message stopped for {} s; send it without such pauses", silence.as_secs_f64())
    };
    Failure::new(Outcome::BodyTimeout, detail)
}

/// What is waited for, or the word that the server ends: a stream that waits would keep it from that.
pub(super) async fn unless_draining<T>(
    site: &Site,
    looks: &mut Interval,
    waiting: impl Future<Output = T>,
) -> Result<T, Failure> {
    // Not begun anew at each look: what it has waited for counts.
    let mut waiting = pin!(waiting);
    loop {
        tokio::select! {
            result = &mut waiting => return Ok(result),
            _ = looks.tick() => if site.readiness().draining {
                return Err(Failure::new(Outcome::Draining, "the server is shutting down; open a stream to another"));
            },
        }
    }
}

/// When such a stream looks.
pub(super) fn looks() -> Interval {
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks
}

fn account(site: &Site) -> Held {
    Held::new(site.telemetry.gauge(metrics::RECEIVING_BYTES, &[]))
}

/// One request that is being computed; dropping it cancels it.
struct Computed(JoinHandle<Result<Vec<Counted>, Failure>>);

impl Drop for Computed {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// How the requests of a stream are to be answered.
#[derive(Clone)]
struct Terms {
    wanted: Wanted,
    /// The client would rather have the stream end with an error than find it in a message.
    is_strict: bool,
    /// The stream's own id, for the log.
    id: Arc<str>,
}

/// `ModelStreamInfer`.
pub(super) fn answer(
    site: Arc<Site>,
    body: Upload,
    headers: &HeaderMap,
    wanted: Wanted,
    coding: Option<Coding>,
    id: &RequestId,
) -> Reply {
    let is_strict = headers.get("triton_grpc_error").is_some_and(|value| value == "true");
    let terms = Terms { wanted, is_strict, id: id.text().into() };
    let end = wanted.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let (pieces, sent) = mpsc::channel(2);
    let running = tokio::spawn(async move {
        let (started, mut computed) = mpsc::channel(AT_ONCE);
        let read = read(&site, body, coding, &terms, end, started);
        let write = async {
            while let Some(Computed(running)) = computed.recv().await.as_mut() {
                let result = running
                    .await
                    .unwrap_or_else(|_| Err(Failure::new(Outcome::Internal, "the server failed on this request")));
                match result {
                    Ok(message) => {
                        for piece in message {
                            // If nobody listens any more, this task is about to be aborted.
                            let _ = pieces.send(Piece::Counted(piece)).await;
                        }
                    }
                    Err(failure) => return Some(failure),
                }
            }
            None
        };
        // A failure of the stream is told when the answers before it have been.
        let (mut read, mut write) = (std::pin::pin!(read), std::pin::pin!(write));
        let ended = tokio::select! {
            written = &mut write => written,
            read = &mut read => write.await.or(read.err()),
        };
        ended.iter().for_each(|failure| fault::tell(&terms.id, failure));
        let trailers = ended.map_or_else(reply::ok, |failure| reply::failed(&failure));
        let _ = pieces.send(Piece::End(trailers)).await;
    });
    reply::stream(sent, running.abort_handle(), id)
}

/// Starts what comes, until the stream, its time or the server ends.
async fn read(
    site: &Arc<Site>,
    body: Upload,
    coding: Option<Coding>,
    terms: &Terms,
    end: Option<Instant>,
    started: mpsc::Sender<Computed>,
) -> Result<(), Failure> {
    let bounds = Bounds { most: site.options.max_body_bytes, allowed: super::allowed(site) };
    let mut messages = Messages::new(site, body, coding, bounds);
    let mut looks = looks();
    let receiving = site.telemetry.gauge(metrics::RECEIVING_BYTES, &[]);
    let waiting = Waiting::new(receiving, site.untaken.clone());
    loop {
        // A place first: what is read is computed.
        let Ok(place) = started.reserve().await else { return Ok(()) };
        let late = end.unwrap_or_else(|| Instant::now() + FAR_AWAY);
        let next = async {
            waiting.room().await;
            messages.next().await
        };
        let message = unless_draining(site, &mut looks, timeout_at(late, next)).await?;
        let Ok(message) = message else {
            return Err(Failure::new(Outcome::DeadlineExceeded, "the time of the stream is over"));
        };
        let Some(message) = message? else { return Ok(()) };
        let timeout = end.map(|end| end.saturating_duration_since(Instant::now()));
        let terms = Terms { wanted: Wanted { timeout, ..terms.wanted }, ..terms.clone() };
        let (site, waiting) = (site.clone(), waiting.clone());
        let asked = waiting.ask(message.message.len());
        let running = async move {
            let _asked = asked;
            // Counted where it is computed: it may be long before those before it have been taken.
            compute(site, message, terms).await.map(|pieces| waiting.add(pieces))
        };
        place.send(Computed(tokio::spawn(running)));
    }
}

/// The answer to one request, as a message of the stream.
async fn compute(site: Arc<Site>, message: Packed, terms: Terms) -> Result<Pieces, Failure> {
    let message = message.plain(&site).await?;
    let result = match intake::check_room(&site) {
        Ok(()) => infer::infer(&site, message.clone(), None, terms.wanted).await.map_err(|(failure, _)| failure),
        Err(failure) => Err(failure),
    };
    let failure = match result {
        Ok(answer) => return answer.in_stream(),
        Err(failure) if terms.is_strict => return Err(failure),
        Err(failure) => failure,
    };
    fault::tell(&terms.id, &failure);
    // Whose error it is: clients keep several requests in the air.
    let head = infer::tear(message).map(|(head, _)| head).unwrap_or_default();
    let ModelInferRequest { model_name, id, .. } = ModelInferRequest::decode(&head[..]).unwrap_or_default();
    let whose = ModelInferResponse { model_name, id, ..ModelInferResponse::default() };
    let response = ModelStreamInferResponse { error_message: failure.detail, infer_response: Some(whose) };
    frame::message(&response)
}
