//! The handle by which the engine and the supervisor send to a worker.

use crate::link::answer_limit::AnswerLimit;
use crate::link::batch_frame;
use crate::link::frame::header::{Segments, small_frame};
use crate::link::frame::kind::Kind;
use crate::link::front::events::BatchListener;
use crate::link::liveness::Life;
use crate::values::call::Call;
use jitney_core::request::{BatchId, ItemId};
use jitney_core::time::Time;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::mpsc;

/// The engine whose batches the worker has, once that is known.
pub(crate) type Attached = Arc<OnceLock<Box<dyn BatchListener>>>;

/// A handle to a worker's link; cheap to share. Sending never waits, because the scheduler bounds the batches in flight:
/// one that runs and one that is next.
#[derive(Clone)]
pub struct Link {
    outgoing: mpsc::UnboundedSender<Segments>,
    life: Life,
    engine: Attached,
    limit: Arc<AnswerLimit>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("life", &self.life).finish_non_exhaustive()
    }
}

impl Link {
    pub(crate) fn new(
        outgoing: mpsc::UnboundedSender<Segments>,
        life: Life,
        engine: Attached,
        limit: Arc<AnswerLimit>,
    ) -> Link {
        Link { outgoing, life, engine, limit }
    }

    /// From now on an item's answer may have this many bytes, a batch this many items, and what its model asks this many bytes.
    pub fn limit_answers(&self, max_answer_bytes: u64, max_batch_size: u64, max_body_bytes: u64) {
        self.limit.set(max_answer_bytes, max_batch_size, max_body_bytes);
    }

    /// From now on this engine gets what the worker says of its batches.
    pub fn attach(&self, engine: impl BatchListener) {
        // Called once, when the worker is assigned; a second time it would be the same engine.
        let _ = self.engine.set(Box::new(engine));
    }

    /// The time of the worker's last sign of life.
    pub fn heard(&self) -> Time {
        self.life.last()
    }

    /// Counts as a sign of life at this time, although none was seen: this end was not listening.
    pub fn excuse(&self, now: Time) {
        self.life.excuse(now);
    }

    /// Sends a batch; payloads are not copied unless they are small.
    pub fn batch(&self, id: BatchId, items: &[(&Call, Duration)]) {
        self.send(batch_frame::encode(id, items));
    }

    /// Sends inputs of a batch that the worker has, again.
    pub fn inputs(&self, id: BatchId, calls: &[&Call]) {
        // The time that is left for these items is known to the worker.
        let items: Vec<_> = calls.iter().map(|&call| (call, Duration::ZERO)).collect();
        self.send(batch_frame::encode_again(id, &items));
    }

    /// Sends that an item was cancelled.
    pub fn cancel(&self, item: ItemId) {
        self.send(small_frame(Kind::Cancel, &item.0.to_le_bytes()));
    }

    /// Sends that no further part of an item is to be made, or that it may go on.
    pub fn pause(&self, item: ItemId, is_paused: bool) {
        let mut table = [0; 9];
        table[..8].copy_from_slice(&item.0.to_le_bytes());
        table[8] = is_paused.into();
        self.send(small_frame(Kind::Pause, &table));
    }

    /// Asks for a sign of life.
    pub fn ping(&self) {
        self.send(small_frame(Kind::Ping, b""));
    }

    /// Sends the token for the worker's next connection.
    pub fn token(&self, token: &str) {
        self.send(small_frame(Kind::Token, serde_json::json!({ "token": token }).to_string().as_bytes()));
    }

    /// Sends the replica that the worker becomes (JSON).
    pub fn assign(&self, assignment: &[u8]) {
        self.send(small_frame(Kind::Assign, assignment));
    }

    /// Asks the worker to finish and exit.
    pub fn shutdown(&self) {
        self.send(small_frame(Kind::Shutdown, b""));
    }

    fn send(&self, segments: Segments) {
        // A link whose writer has ended is lost; the reader reports that, and the scheduler does the rest.
        let _ = self.outgoing.send(segments);
    }
}
