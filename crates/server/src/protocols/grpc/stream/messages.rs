//! The messages of a stream, bounded in size, in memory, and in the time that one of them takes.

use crate::base::clock;
use crate::base::ledger::{Account, CountedBytes};
use crate::engine::deployment::ticket::{Arriving, OutcomeCounts};
use crate::engine::room;
use crate::engine::server_state::ServerState;
use crate::protocols::connection::least_rate::LeastRate;
use crate::protocols::connection::upload::Upload;
use crate::protocols::grpc::frame;
use crate::protocols::grpc::frame::{PREFIX, PlainMessage};
use crate::protocols::request::body;
use crate::protocols::request::compression::Coding;
use crate::values::answer::Failure;
use crate::values::chunks::Chunks;
use bytes::{Buf, BytesMut};
use http_body::Body as _;
use hyper::body::Frame;
use jitney_core::tables::outcome::Outcome;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, timeout_at};

/// How often a stream looks whether the server is ending.
const LOOK: Duration = Duration::from_millis(500);

/// What the messages of a stream may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Bytes of one, also inflated.
    pub(crate) most: u64,
    /// How long one may take to arrive.
    pub(crate) allowed: Duration,
}

/// A message before it is decompressed. It may also be uncompressed.
pub(crate) struct Packed {
    pub(super) message: Chunks,
    pub(super) coding: Option<Coding>,
    pub(super) is_compressed: bool,
    pub(super) most: u64,
    /// Where it counts when it has been inflated.
    pub(super) received: Account,
    /// Counts the request until it has been decoded; `None` if messages ask for no items.
    pub(super) arriving: Option<ArrivingMessage>,
}

pub(super) type ArrivingMessage = Arriving<Arc<OutcomeCounts>>;

impl Packed {
    /// The message itself.
    pub(crate) async fn plain(self, state: &ServerState) -> Result<PlainMessage, Failure> {
        let Packed { message, coding, is_compressed, most, received, arriving } = self;
        let plain = frame::plain(message, is_compressed, coding, most, state, &received).await;
        arriving.into_iter().for_each(Arriving::end);
        plain
    }
}

/// The messages of a stream, bounded in size, in memory, and in the time that one of them takes.
pub(crate) struct Messages<'a> {
    state: &'a ServerState,
    body: Upload,
    coding: Option<Coding>,
    bounds: Bounds,
    buffer: BytesMut,
    held: CountedBytes,
    /// Where messages are counted; `None` if they ask for no items.
    counts: Option<Arc<OutcomeCounts>>,
    /// Counts the message that has begun to come.
    begun: Option<ArrivingMessage>,
}

impl<'a> Messages<'a> {
    pub(crate) fn new(state: &'a ServerState, body: Upload, coding: Option<Coding>, bounds: Bounds) -> Messages<'a> {
        let held = body.account().hold(0);
        Messages { state, body, coding, bounds, buffer: BytesMut::new(), held, counts: None, begun: None }
    }

    /// The same where each message is a request of items, which are counted there.
    pub(crate) fn counted_in(mut self, counts: &Arc<OutcomeCounts>) -> Messages<'a> {
        self.counts = Some(counts.clone());
        self
    }

    /// Counts the message whose first bytes are here.
    fn begin(&mut self) {
        if !self.buffer.is_empty() && self.begun.is_none() {
            self.begun = self.counts.as_ref().map(OutcomeCounts::arrive_for_task);
        }
    }

    /// Counts the message that has begun: the stream ends with this outcome. A client that leaves between two messages has
    /// cancelled nothing.
    pub(super) fn end(&mut self, outcome: Outcome) {
        if let Some(begun) = self.begun.take()
            && outcome != Outcome::Cancelled
            && let Some(counts) = &self.counts
        {
            begun.end();
            drop(counts.refuse(outcome));
        }
    }

    /// The next message; `None` at the end of the stream. Its time begins anew when this is dropped and called again.
    pub(crate) async fn next(&mut self) -> Result<Option<Packed>, Failure> {
        let message = self.read_next().await;
        if let Err(failure) = &message {
            self.end(failure.outcome);
        }
        message
    }

    async fn read_next(&mut self) -> Result<Option<Packed>, Failure> {
        let options = &self.state.options;
        let Bounds { most, allowed } = self.bounds;
        let silence = options.body_timeout();
        // The end of its time, and the rate at which it comes, once it has begun.
        let mut begun: Option<(Instant, LeastRate)> = None;
        loop {
            if let Some(start) = self.buffer.first_chunk() {
                let (is_compressed, length) = frame::prefix(*start)?;
                if length as u64 > most {
                    let remedy = body::remedy(most, self.state);
                    let detail = format!("a message has {length} bytes, the limit is {most}; {remedy}");
                    return Err(Failure::new(Outcome::TooLarge, detail));
                }
                if self.buffer.len() >= PREFIX + length {
                    self.buffer.advance(PREFIX);
                    let message = self.buffer.split_to(length).freeze();
                    self.held = self.body.account().hold(self.buffer.len());
                    let arriving = self.begun.take();
                    self.begin();
                    let (message, coding, received) = (message.into(), self.coding, self.body.account().clone());
                    return Ok(Some(Packed { message, coding, is_compressed, most, received, arriving }));
                }
            }
            let upload = &mut self.body;
            let frame = poll_fn(|cx| Pin::new(&mut *upload).poll_frame(cx));
            // Between messages a stream may be silent for any time.
            let frame = if self.buffer.is_empty() {
                frame.await
            } else {
                let start = || {
                    let now = Instant::now();
                    (clock::after(now, allowed), LeastRate::new(silence))
                };
                let (end, rate) = begun.get_or_insert_with(start);
                timeout_at(rate.end().min(*end), frame).await.map_err(|_| too_slow(rate, allowed, *end))?
            };
            match frame {
                None if self.buffer.is_empty() => return Ok(None),
                None => return Err(frame::malformed("the stream ends inside of it")),
                Some(Err(error)) => {
                    return Err(Failure::new(Outcome::Cancelled, format!("the stream was broken off: {error}")));
                }
                Some(Ok(frame)) => {
                    let Ok(data) = Frame::into_data(frame) else { continue };
                    begun.iter_mut().for_each(|(_, rate)| rate.add(data.len() as u64));
                    self.buffer.extend_from_slice(&data);
                    self.begin();
                    room::receive(&mut self.held, data.len(), options)?;
                }
            }
        }
    }
}

fn too_slow(rate: &LeastRate, allowed: Duration, end: Instant) -> Failure {
    let detail = if end <= rate.end() {
        format!("a message took longer than the {} s that it may take; send it faster", allowed.as_secs_f64())
    } else {
        format!("a message {}; send it faster", rate.describe())
    };
    Failure::new(Outcome::BodyTimeout, detail)
}

/// What is waited for, or the word that the server ends: a stream that waits would keep it from that.
pub(crate) async fn unless_draining<T>(
    state: &ServerState,
    looks: &mut Interval,
    waiting: impl Future<Output = T>,
) -> Result<T, Failure> {
    // Not begun anew at each look: what it has waited for counts.
    let mut waiting = pin!(waiting);
    loop {
        tokio::select! {
            result = &mut waiting => return Ok(result),
            _ = looks.tick() => if state.readiness().draining {
                return Err(Failure::new(Outcome::Draining, "the server is shutting down; open a stream to another"));
            },
        }
    }
}

/// When such a stream looks.
pub(crate) fn looks() -> Interval {
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks
}
