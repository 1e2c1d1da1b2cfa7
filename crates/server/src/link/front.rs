//! The front's end of a link: one task reads, one writes. Batches and results go between the engine and the worker;
//! everything about the worker's life goes to the supervisor.

use super::frame::{Frame, FrameReader, Kind, Segments, small_frame};
use super::{batch_frame, results_frame};
use crate::call::Call;
use crate::clock::Clock;
use crate::deployment::Inbound;
use crate::report::Report;
use bytes::{Buf, Bytes};
use jitney_core::request::{BatchId, ItemId, ReplicaId};
use jitney_core::time::Time;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

/// A worker must say who it is within this.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// No hello is longer. Who sends it is not known yet, so it gets no more memory than that.
const LONGEST_HELLO: usize = 4 << 10;

/// What a worker says first.
#[derive(Debug, serde::Deserialize)]
pub struct Hello {
    /// The secret that its front gave it.
    pub secret: String,
    /// The number that its front gave it.
    pub worker: u32,
}

/// A handle to a worker's link; cheap to share. Sending never waits: what may be on its way is bounded by the
/// scheduler (one batch that runs, one ahead).
#[derive(Clone, Debug)]
pub struct Link {
    outgoing: mpsc::UnboundedSender<Segments>,
    heard: Arc<AtomicU64>,
    engine: Arc<OnceLock<mpsc::UnboundedSender<Inbound>>>,
}

impl Link {
    /// Reads the first frame of a new connection, which must be a hello.
    pub async fn greet<R: AsyncRead + Unpin>(reader: &mut FrameReader<R>) -> io::Result<Hello> {
        let frame = tokio::time::timeout(HELLO_TIMEOUT, reader.next_within(LONGEST_HELLO)).await??;
        let frame = frame.ok_or(io::ErrorKind::UnexpectedEof)?;
        if frame.kind != Kind::Hello {
            return Err(io::Error::other("the first frame is not a hello"));
        }
        Ok(serde_json::from_slice(&frame.table)?)
    }

    /// Starts the two tasks of a link and reports it as connected, before anything that comes over it.
    pub fn start<R, W>(
        reader: FrameReader<R>,
        writer: W,
        worker: ReplicaId,
        clock: Clock,
        reports: mpsc::UnboundedSender<Report>,
    ) where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let (outgoing, queue) = mpsc::unbounded_channel();
        let heard = Arc::new(AtomicU64::new(clock.now().0));
        let link = Link { outgoing, heard, engine: Arc::default() };
        tokio::spawn(write_all(writer, queue));
        let receiver = Receiver {
            worker,
            clock,
            heard: link.heard.clone(),
            engine: link.engine.clone(),
            reports,
            has_served: false,
        };
        receiver.report(Report::Connected(worker, link));
        tokio::spawn(receiver.run(reader));
    }

    /// From now on batches of this worker belong to this engine.
    pub fn attach(&self, engine: mpsc::UnboundedSender<Inbound>) {
        // Attached once, when the worker is assigned; a second time would be the same engine.
        let _ = self.engine.set(engine);
    }

    /// When something was last heard over this link.
    pub fn heard(&self) -> Time {
        Time(self.heard.load(Ordering::Relaxed))
    }

    /// Counts as heard now, although nothing was: this end was not listening.
    pub fn excuse(&self, now: Time) {
        self.heard.store(now.0, Ordering::Relaxed);
    }

    /// Sends a batch; the payloads are not copied unless they are small.
    pub fn batch(&self, id: BatchId, items: &[(&Call, Duration)]) {
        self.send(batch_frame::encode(id, items));
    }

    /// Nobody waits for this item any more.
    pub fn cancel(&self, item: ItemId) {
        self.send(small_frame(Kind::Cancel, &item.0.to_le_bytes()));
    }

    /// Asks for a sign of life.
    pub fn ping(&self) {
        self.send(small_frame(Kind::Ping, b""));
    }

    /// Tells the worker which replica it is (JSON).
    pub fn assign(&self, assignment: &[u8]) {
        self.send(small_frame(Kind::Assign, assignment));
    }

    /// Tells the worker to finish and end.
    pub fn shutdown(&self) {
        self.send(small_frame(Kind::Shutdown, b""));
    }

    fn send(&self, segments: Segments) {
        // A link whose writer has ended is lost; the reader tells the supervisor, and the scheduler takes it from there.
        let _ = self.outgoing.send(segments);
    }
}

/// Frames that leave in one write if they are there at once.
const FRAMES_AT_ONCE: usize = 64;

/// Writes what is sent until nobody can send any more.
pub(crate) async fn write_all<W: AsyncWrite + Unpin>(mut writer: W, mut queue: mpsc::UnboundedReceiver<Segments>) {
    let mut frames = Vec::with_capacity(FRAMES_AT_ONCE);
    while queue.recv_many(&mut frames, FRAMES_AT_ONCE).await > 0 {
        let segments = frames.drain(..).flatten().collect();
        if write_segments(&mut writer, segments).await.is_err() {
            return;
        }
    }
}

async fn write_segments<W: AsyncWrite + Unpin>(writer: &mut W, segments: Segments) -> io::Result<()> {
    let mut chain = Chain { segments, next: 0 };
    writer.write_all_buf(&mut chain).await
}

/// Segments as one buffer, so that they leave in vectored writes.
struct Chain {
    segments: Vec<Bytes>,
    next: usize,
}

impl Buf for Chain {
    fn remaining(&self) -> usize {
        self.segments[self.next..].iter().map(Bytes::len).sum()
    }

    fn chunk(&self) -> &[u8] {
        self.segments.get(self.next).map_or(&[], |segment| segment)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [io::IoSlice<'a>]) -> usize {
        let rest = &self.segments[self.next..];
        slices.iter_mut().zip(rest).map(|(slice, segment)| *slice = io::IoSlice::new(segment)).count()
    }

    fn advance(&mut self, mut count: usize) {
        while count > 0 || self.segments.get(self.next).is_some_and(Bytes::is_empty) {
            let segment = &mut self.segments[self.next];
            let step = count.min(segment.len());
            segment.advance(step);
            count -= step;
            if segment.is_empty() {
                self.next += 1;
            }
        }
    }
}

struct Receiver {
    worker: ReplicaId,
    clock: Clock,
    heard: Arc<AtomicU64>,
    engine: Arc<OnceLock<mpsc::UnboundedSender<Inbound>>>,
    reports: mpsc::UnboundedSender<Report>,
    has_served: bool,
}

impl Receiver {
    async fn run<R: AsyncRead + Unpin>(mut self, mut reader: FrameReader<R>) {
        reader.cut_by(results_frame::cuts);
        reader.note(self.heard.clone(), self.clock);
        let end = loop {
            match reader.next().await {
                Ok(Some(frame)) => {
                    if let Err(error) = self.receive(frame) {
                        break Some(error);
                    }
                }
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        if let Some(error) = end {
            tracing::debug!(worker = self.worker.0, %error, "the link broke");
        }
        self.report(Report::LinkLost(self.worker));
    }

    fn receive(&mut self, frame: Frame) -> io::Result<()> {
        match frame.kind {
            Kind::Pong => {}
            Kind::Results => {
                let results = results_frame::decode(&frame.table, &frame.payload)?;
                if !self.has_served {
                    self.has_served = true;
                    self.report(Report::Served(self.worker));
                }
                self.to_engine(Inbound::Results(self.worker, results))?;
            }
            Kind::Started => {
                let id = frame.table.as_ref().try_into().map_err(|_| io::Error::other("a batch id has 8 bytes"))?;
                self.to_engine(Inbound::Started(BatchId(u64::from_le_bytes(id))))?;
            }
            Kind::Manifest | Kind::Progress | Kind::Ready | Kind::Failed => {
                self.report(Report::Said(self.worker, frame.kind, frame.table));
            }
            other => return Err(io::Error::other(format!("a worker does not send {other:?}"))),
        }
        Ok(())
    }

    fn to_engine(&self, message: Inbound) -> io::Result<()> {
        let engine = self.engine.get().ok_or_else(|| io::Error::other("results before an assignment"))?;
        engine.send(message).map_err(|_| io::Error::other("the engine has ended"))
    }

    fn report(&self, report: Report) {
        // Without a supervisor the server is going down, and the worker with it.
        let _ = self.reports.send(report);
    }
}
