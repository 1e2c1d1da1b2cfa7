//! Where the items of a deployment go: to the task of its engine, or to the front itself.

use crate::engine::reply::ReplySender;
use crate::link::front::events::{BatchEvent, BatchListener};
use crate::link::front::link::Link;
use crate::values::call::Call;
use jitney_core::learn::batch_cost::BatchCost;
use jitney_core::queue::group_key::GroupKey;
use jitney_core::replicas::loss_history::Loss;
use jitney_core::request::{ItemId, ReplicaId};
use jitney_core::scheduler::explanation::Explanation;
use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// An item, and where its answer goes.
pub type Submission = (Box<Call>, ReplySender);

/// What protocols, links and the supervisor send to the engine task.
#[derive(Debug)]
pub enum Inbound {
    /// A new item; the engine answers exactly once.
    Submit(Box<Call>, ReplySender),
    /// Items of one request, admitted together; the engine answers each exactly once.
    SubmitMany {
        /// The items.
        items: Vec<Submission>,
        /// The engine has admitted the first items of the same request before.
        continues: bool,
    },
    /// The caller went away.
    Cancel(ItemId),
    /// The client of a paused item has read.
    Resume(ItemId),
    /// A worker says something of its batches.
    Batch(ReplicaId, BatchEvent),
    /// What batches took when a worker tried them, before it was ready. The key is that of a method if there are several.
    Profiled(GroupKey, Vec<(BatchCost, Duration)>),
    /// A replica is loaded and free.
    Up(ReplicaId, Link),
    /// A replica is to finish what it holds and to end.
    Retire(ReplicaId),
    /// Nothing was heard of a replica for a while (true), or it is heard again (false).
    Doubt(ReplicaId, bool),
    /// A replica does not exist any more.
    Lost(ReplicaId, Loss),
    /// The server ends: no further item is admitted.
    Drain,
    /// The workers keep dying. Items that wait are ended, and none is admitted until a replica is up.
    CrashLooping,
    /// Somebody wants to know what was learned and decided.
    Explain(oneshot::Sender<Explanation>),
    /// Metrics of what was learned are wanted as of now: arrivals fade although nothing happens.
    ShowLearned(oneshot::Sender<()>),
}

impl BatchListener for mpsc::UnboundedSender<Inbound> {
    fn batch_event(&self, worker: ReplicaId, event: BatchEvent) -> io::Result<()> {
        self.send(Inbound::Batch(worker, event)).map_err(|_| io::Error::other("the engine has ended"))
    }
}

/// What carries items out without an engine.
pub(crate) trait CarriesOut: Send + Sync + Debug {
    /// Takes a message, and answers each item in it exactly once. It does not block.
    fn receive(&self, message: Inbound);
}

/// Takes the messages for one deployment. Clones are the same inbox.
#[derive(Clone, Debug)]
pub struct Inbox(Reader);

#[derive(Clone, Debug)]
enum Reader {
    Engine(mpsc::UnboundedSender<Inbound>),
    Front(Arc<dyn CarriesOut>),
}

/// The engine has ended.
#[derive(Debug)]
pub(crate) struct Gone;

impl Inbox {
    /// The inbox of a deployment that the front carries out.
    pub(crate) fn of_front(carries_out: Arc<dyn CarriesOut>) -> Inbox {
        Inbox(Reader::Front(carries_out))
    }

    /// Hands a message over.
    pub(super) fn send(&self, message: Inbound) -> Result<(), Gone> {
        match &self.0 {
            Reader::Engine(engine) => engine.send(message).map_err(|_| Gone),
            Reader::Front(carries_out) => {
                carries_out.receive(message);
                Ok(())
            }
        }
    }
}

impl From<mpsc::UnboundedSender<Inbound>> for Inbox {
    fn from(engine: mpsc::UnboundedSender<Inbound>) -> Inbox {
        Inbox(Reader::Engine(engine))
    }
}
