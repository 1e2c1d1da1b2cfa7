//! The task that reads a worker's link. Batches and results concern the engine; the worker's life concerns the supervisor.

use crate::base::clock::Clock;
use crate::link::answer_limit::AnswerLimit;
use crate::link::batch_end::BatchEnd;
use crate::link::batch_frame;
use crate::link::frame::header::Segments;
use crate::link::frame::kind::Kind;
use crate::link::frame::reader::{Frame, FrameReader};
use crate::link::frame::writer::write_all;
use crate::link::front::events::BatchEvent;
use crate::link::front::link::{Attached, Link};
use crate::link::front::worker_event::WorkerEvent;
use crate::link::liveness::{Life, Watched};
use crate::link::results_frame;
use crate::link::results_frame::ReceivedResults;
use crate::link::step_frame;
use jitney_core::request::{BatchId, ReplicaId};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::yield_now;

/// After so many bytes the other tasks have their turn, also while more bytes are there: the engine, which may pause the item
/// that they belong to. A worker that writes as fast as the front reads could send hundreds of megabytes in one turn.
const TURN_BYTES: usize = 256 << 10;

/// Starts the two tasks of a link over any byte stream, and reports it as connected.
pub fn start<R, W>(
    reader: FrameReader<R>,
    writer: W,
    worker: ReplicaId,
    clock: Clock,
    events: mpsc::UnboundedSender<WorkerEvent>,
) where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    start_with(reader, writer, worker, clock, events, |link| WorkerEvent::Connected(worker, link));
}

/// Starts the two tasks of a link, and reports it by this event before all others.
pub fn start_with<R, W>(
    reader: FrameReader<R>,
    writer: W,
    worker: ReplicaId,
    clock: Clock,
    events: mpsc::UnboundedSender<WorkerEvent>,
    arrived: impl FnOnce(Link) -> WorkerEvent,
) where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (outgoing, queue) = mpsc::unbounded_channel();
    let life = Life::new(clock);
    let engine = Attached::default();
    let limit = Arc::new(AnswerLimit::default());
    let answers = outgoing.downgrade();
    let link = Link::new(outgoing, life.clone(), engine.clone(), limit.clone());
    tokio::spawn(write_all(Watched::new(writer, &life), queue));
    let receiver = Receiver { worker, engine, limit, events, outgoing: answers, has_served: false };
    receiver.report(arrived(link));
    let mut reader = reader.map(|stream| Watched::new(stream, &life));
    reader.cut_by(|kind, table, len| match kind {
        Kind::Parts => step_frame::cuts(table, len),
        Kind::Ask => Ok(Vec::new()),
        _ => results_frame::cuts(table, len),
    });
    tokio::spawn(receiver.run(reader));
}

struct Receiver {
    worker: ReplicaId,
    engine: Attached,
    limit: Arc<AnswerLimit>,
    events: mpsc::UnboundedSender<WorkerEvent>,
    /// Takes the answers to what the model asks. It does not keep the connection open: that ends with the last `Link`.
    outgoing: mpsc::WeakUnboundedSender<Segments>,
    has_served: bool,
}

impl Receiver {
    async fn run<R: AsyncRead + Unpin>(mut self, mut reader: FrameReader<R>) {
        let mut turn = 0;
        let end = loop {
            match reader.next_within(self.limit.frame_bytes()).await {
                Ok(Some(frame)) => {
                    turn += frame.table.len() + frame.payload.len();
                    if let Err(error) = self.receive(frame) {
                        break Some(error);
                    }
                    if turn >= TURN_BYTES {
                        turn = 0;
                        yield_now().await;
                    }
                }
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        if let Some(error) = end {
            tracing::debug!(worker = self.worker.0, %error, "the link broke");
        }
        // A worker without an assignment has no engine, and has asked nothing.
        let _ = self.tell_engine(BatchEvent::Disconnected);
        self.report(WorkerEvent::LinkLost(self.worker));
    }

    fn receive(&mut self, frame: Frame) -> io::Result<()> {
        match frame.kind {
            Kind::Pong => Ok(()),
            Kind::Results => {
                let mut results = results_frame::decode(&frame.table, &frame.payload)?;
                results.limit(&self.limit);
                self.note_served(&results);
                self.tell_engine(BatchEvent::Results(results))
            }
            Kind::Parts => {
                let (step, mut results) = step_frame::decode(&frame.table, &frame.payload)?;
                results.limit(&self.limit);
                self.note_served(&results);
                self.tell_engine(BatchEvent::Step(step, results))
            }
            Kind::BatchEnd => self.tell_engine(BatchEvent::Ended(BatchEnd::decode(&frame.table)?)),
            Kind::Started => {
                let id = frame.table.as_ref().try_into().map_err(|_| io::Error::other("a batch id has 8 bytes"))?;
                self.tell_engine(BatchEvent::Started(BatchId(u64::from_le_bytes(id))))
            }
            Kind::Ask | Kind::Withdraw | Kind::PartsTaken => {
                let answers = self.outgoing.upgrade().ok_or(io::ErrorKind::NotConnected)?;
                self.tell_engine(BatchEvent::Asks(frame, answers))
            }
            Kind::InputsAgain => {
                let (batch, items) = batch_frame::decode_ids(&frame.table)?;
                self.tell_engine(BatchEvent::InputsAgain(batch, items))
            }
            Kind::Manifest | Kind::Progress | Kind::Ready | Kind::Failed | Kind::Measured => {
                self.report(WorkerEvent::Message(self.worker, frame.kind, frame.table));
                Ok(())
            }
            other => Err(io::Error::other(format!("a worker does not send {other:?}"))),
        }
    }

    fn note_served(&mut self, results: &ReceivedResults) {
        if !self.has_served && results.has_values() {
            self.has_served = true;
            self.report(WorkerEvent::Served(self.worker));
        }
    }

    fn tell_engine(&self, event: BatchEvent) -> io::Result<()> {
        let engine = self.engine.get().ok_or_else(|| io::Error::other("results before an assignment"))?;
        engine.batch_event(self.worker, event)
    }

    fn report(&self, event: WorkerEvent) {
        // Without a supervisor the server is going down, and the worker with it.
        let _ = self.events.send(event);
    }
}
