//! A deployment as protocols see it: what it takes, and one way to call it.

use crate::call::{Answer, Call, Failure, Timing};
use crate::link::front::Link;
use crate::link::results_frame::ReceivedResults;
use crate::telemetry::Telemetry;
use jitney_core::manifest::DeploymentManifest;
use jitney_core::metrics;
use jitney_core::outcome::Outcome;
use jitney_core::request::{BatchId, ItemId, ReplicaId};
use jitney_core::scheduler::{Door, Loss};
use prometheus::{Histogram, IntCounter};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tokio::sync::{mpsc, oneshot};

/// What protocols, links and the supervisor send to the engine task.
#[derive(Debug)]
pub enum Inbound {
    /// A new item; the engine answers exactly once.
    Submit(Box<Call>, oneshot::Sender<Answer>),
    /// The caller went away.
    Cancel(ItemId),
    /// A worker begins to compute a batch.
    Started(BatchId),
    /// A worker has results.
    Results(ReplicaId, ReceivedResults),
    /// A replica is loaded and free.
    Up(ReplicaId, Link),
    /// A replica is gone.
    Lost(ReplicaId, Loss),
    /// Whether new items are let in.
    Door(Door),
}

/// A handle; cheap to share.
#[derive(Clone, Debug)]
pub struct Deployment {
    /// What it takes and returns.
    pub manifest: Arc<DeploymentManifest>,
    inbound: mpsc::UnboundedSender<Inbound>,
    ended: Arc<Ended>,
}

/// Counts how requests end: the one place, for every protocol.
#[derive(Debug)]
struct Ended {
    outcomes: Vec<IntCounter>,
    seconds: Histogram,
}

/// A new id for an item. Ids are never reused.
pub fn next_item_id() -> ItemId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    ItemId(NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Deployment {
    /// A handle to the engine task that reads `inbound`.
    pub fn new(
        manifest: Arc<DeploymentManifest>,
        inbound: mpsc::UnboundedSender<Inbound>,
        telemetry: &Telemetry,
    ) -> Deployment {
        let outcomes = telemetry.outcomes(&manifest.name);
        let seconds = telemetry.histogram(metrics::REQUEST_SECONDS, &[&manifest.name]);
        Deployment { manifest, inbound, ended: Arc::new(Ended { outcomes, seconds }) }
    }

    /// Runs one item. Dropping the future cancels it.
    pub async fn call(&self, call: Call) -> Answer {
        self.open(call).await.0
    }

    /// Like `call`, for a protocol that may still fail to hand the answer over: the request ends with the ticket.
    pub async fn open(&self, call: Call) -> (Answer, Ticket<'_>) {
        let started = Instant::now();
        let (reply, answer) = oneshot::channel();
        let mut guard = CancelOnDrop { deployment: self, id: Some(call.id) };
        if self.inbound.send(Inbound::Submit(Box::new(call), reply)).is_err() {
            guard.id = None;
            return (gone(), Ticket { deployment: self, outcome: Outcome::Internal });
        }
        let answer = answer.await.unwrap_or_else(|_| gone());
        guard.id = None;
        self.ended.seconds.observe(started.elapsed().as_secs_f64());
        let outcome = answer.result.as_ref().map_or_else(|failure| failure.outcome, |_| Outcome::Ok);
        (answer, Ticket { deployment: self, outcome })
    }

    /// Counts a request that ended before it became a call, e.g. because its body is malformed.
    pub fn count(&self, outcome: Outcome) {
        self.ended.outcomes[outcome as usize].inc();
    }
}

/// A request that has been answered by the engine; counted when this is dropped.
#[derive(Debug)]
pub struct Ticket<'a> {
    deployment: &'a Deployment,
    outcome: Outcome,
}

impl Ticket<'_> {
    /// The answer could not be handed over after all.
    pub fn fail(&mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.deployment.count(self.outcome);
    }
}

fn gone() -> Answer {
    let failure = Failure::new(Outcome::Internal, "the engine has ended; the server is going down");
    Answer { result: Err(failure), timing: Timing::default() }
}

struct CancelOnDrop<'a> {
    deployment: &'a Deployment,
    id: Option<ItemId>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.deployment.count(Outcome::Cancelled);
            // The engine may be gone; then nobody computes the item either.
            let _ = self.deployment.inbound.send(Inbound::Cancel(id));
        }
    }
}
