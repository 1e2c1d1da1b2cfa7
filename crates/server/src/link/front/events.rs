//! What a worker's link reports to the engine. The link knows no engine: it calls a listener.

use crate::link::batch_end::BatchEnd;
use crate::link::frame::header::Segments;
use crate::link::frame::reader::Frame;
use crate::link::results_frame::ReceivedResults;
use jitney_core::request::{BatchId, ItemId, ReplicaId};
use jitney_core::scheduler::results::steps::Step;
use std::io;
use tokio::sync::mpsc;

/// What a worker says of its batches.
#[derive(Debug)]
pub enum BatchEvent {
    /// `predict` begins on this batch.
    Started(BatchId),
    /// The worker needs the inputs of these items again: a second call of `predict` follows, and the first may have
    /// overwritten them.
    InputsAgain(BatchId, Vec<ItemId>),
    /// Outcomes of some items of a batch, or parts of them.
    Results(ReceivedResults),
    /// A model that works in steps made one.
    Step(Step, ReceivedResults),
    /// A batch has ended: no results of it follow.
    Ended(BatchEnd),
    /// Its model calls another deployment, has cancelled such a call, or has taken parts of its answer. The queue takes answers to
    /// the worker.
    Asks(Frame, mpsc::UnboundedSender<Segments>),
    /// The link has ended: the worker gets no answers any more.
    Disconnected,
}

impl BatchEvent {
    /// The batch of which a worker says something; `None` if it names only its own items.
    pub fn batch(&self) -> Option<BatchId> {
        match self {
            BatchEvent::Started(batch) | BatchEvent::InputsAgain(batch, _) => Some(*batch),
            BatchEvent::Results(results) => Some(results.batch),
            BatchEvent::Ended(end) => Some(end.batch),
            BatchEvent::Step(..) | BatchEvent::Asks(..) | BatchEvent::Disconnected => None,
        }
    }
}

/// Gets what workers say of their batches.
pub trait BatchListener: Send + Sync + 'static {
    /// An error ends the link: its results are not needed any more.
    fn batch_event(&self, worker: ReplicaId, event: BatchEvent) -> io::Result<()>;
}
