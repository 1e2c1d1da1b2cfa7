//! A deployment as protocols see it: what it takes, and one way to call it.

use crate::call::{Answer, Call, Failure, Timing};
use crate::heavy;
use crate::held::Held;
use crate::later::{ITEM_BYTES, Later};
use crate::link::front::Link;
use crate::link::results_frame::ReceivedResults;
use crate::pieces::Pieces;
use crate::statistics::Statistics;
use crate::telemetry::Telemetry;
use crate::tensors::signature::Signature;
use jitney_core::explanation::Explanation;
use jitney_core::lane::BatchLimits;
use jitney_core::load::Load;
use jitney_core::manifest::DeploymentManifest;
use jitney_core::metrics;
use jitney_core::outcome::Outcome;
use jitney_core::request::{BatchId, ItemId, ReplicaId};
use jitney_core::scheduler::{Door, Loss};
use prometheus::{Histogram, IntCounter};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// An engine that is alive answers in microseconds; nobody who looks is kept waiting for one that is not.
const EXPLAINS_WITHIN: Duration = Duration::from_millis(500);
/// When to come back to a server whose engine has ended.
const GONE_FOR: Duration = Duration::from_secs(1);
/// A later piece of a request that finds no room tries again after this long, or earlier.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// What protocols, links and the supervisor send to the engine task.
#[derive(Debug)]
pub enum Inbound {
    /// A new item; the engine answers exactly once.
    Submit(Box<Call>, oneshot::Sender<Answer>),
    /// Items of one request, admitted together; the engine answers each exactly once.
    SubmitMany {
        /// Each with where its answer goes.
        items: Vec<(Box<Call>, oneshot::Sender<Answer>)>,
        /// The first items of the same request were let in before.
        continues: bool,
    },
    /// The caller went away.
    Cancel(ItemId),
    /// A worker begins to compute a batch.
    Started(BatchId),
    /// A worker has results.
    Results(ReplicaId, ReceivedResults),
    /// What batches took when a worker tried them, before it was ready.
    Profiled(Vec<(Load, Duration)>),
    /// A replica is loaded and free.
    Up(ReplicaId, Link),
    /// A replica is to finish what it holds and to end.
    Retire(ReplicaId),
    /// A replica is gone.
    Lost(ReplicaId, Loss),
    /// Whether new items are let in.
    Door(Door),
    /// Somebody wants to know what was learned and decided.
    Explain(oneshot::Sender<Explanation>),
}

/// A handle; cheap to share.
#[derive(Clone, Debug)]
pub struct Deployment {
    /// What it takes and returns.
    pub manifest: Arc<DeploymentManifest>,
    /// The same as tensors.
    pub signature: Arc<Signature>,
    inbound: mpsc::UnboundedSender<Inbound>,
    ended: Arc<Ended>,
    later: Arc<Later>,
    /// For its clock: whoever polls a call may be no thread of it.
    runtime: Handle,
}

/// Counts how requests end: the one place, for every protocol.
#[derive(Debug)]
struct Ended {
    outcomes: Vec<IntCounter>,
    seconds: Histogram,
    statistics: Statistics,
}

/// A new id for an item. Ids are never reused.
pub fn next_item_id() -> ItemId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    ItemId(NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Deployment {
    /// A handle to the engine task that reads `inbound`. Made in the runtime of that task.
    pub fn new(
        manifest: Arc<DeploymentManifest>,
        inbound: mpsc::UnboundedSender<Inbound>,
        telemetry: &Telemetry,
    ) -> Deployment {
        let outcomes = telemetry.outcomes(&manifest.name);
        let seconds = telemetry.histogram(metrics::REQUEST_SECONDS, &[&manifest.name]);
        let signature = Arc::new(Signature::of(&manifest));
        let ended = Arc::new(Ended { outcomes, seconds, statistics: Statistics::default() });
        let held = telemetry.gauge(metrics::LATER_BYTES, &[&manifest.name]);
        let limits = BatchLimits::from(&manifest.options);
        let alike = manifest.group_by.is_empty() && limits.max_cost == u64::MAX;
        let piece = Pieces::first(limits, manifest.options.replicas as usize, alike);
        let later = Arc::new(Later::new(held, manifest.options.max_queued_bytes, piece));
        Deployment { manifest, signature, inbound, ended, later, runtime: Handle::current() }
    }

    /// Runs one item. Dropping the future cancels it.
    pub async fn call(&self, call: Call) -> Answer {
        self.open(call).await.0
    }

    /// Like `call`, for a protocol that may still fail to hand the answer over: the request ends with the ticket.
    pub async fn open(&self, call: Call) -> (Answer, Ticket<'_>) {
        let started = Instant::now();
        let (reply, answer) = oneshot::channel();
        let guard = CancelOnDrop::new(self, SmallVec::from_elem(call.id, 1));
        let answer = match self.inbound.send(Inbound::Submit(Box::new(call), reply)) {
            Ok(()) => answer.await.unwrap_or_else(|_| gone()),
            Err(_) => gone(),
        };
        guard.disarm();
        let ticket = self.answered(started, answer.outcome(), &answer.timing);
        (answer, ticket)
    }

    /// Counts what a request of so many items, and bytes of them all, holds until this is dropped; refuses one for which
    /// large ones leave no room. To be asked before its items are kept anywhere.
    pub(crate) fn hold(&self, items: usize, bytes: usize) -> Result<Option<Held>, Failure> {
        self.later.hold(items, bytes)
    }

    /// Runs the items of one request: they are admitted together, or all refused; they may ride in different batches and
    /// fail one by one. A large request goes to the engine in pieces, one after the other. Answers come in the order of
    /// `calls`. Dropping the future cancels what has not been answered.
    pub async fn open_many(&self, calls: Vec<Call>) -> (Result<Vec<Answer>, Failure>, Ticket<'_>) {
        let started = Instant::now();
        let mut guard = CancelOnDrop::new(self, SmallVec::new());
        let answers = self.piece_by_piece(started, calls, &mut guard).await;
        guard.disarm();
        let all = answers.as_deref().unwrap_or_default();
        let outcomes = || all.iter().map(Answer::outcome);
        let outcome = match &answers {
            Ok(_) => outcomes().find(|&outcome| outcome == Outcome::Ok).or(outcomes().next()).unwrap_or(Outcome::Ok),
            Err(failure) => failure.outcome,
        };
        let slowest = all.iter().map(|answer| answer.timing).max_by_key(|timing| timing.queue + timing.model);
        let ticket = self.answered(started, outcome, &slowest.unwrap_or_default());
        (answers, ticket)
    }

    async fn piece_by_piece(
        &self,
        started: Instant,
        calls: Vec<Call>,
        guard: &mut CancelOnDrop<'_>,
    ) -> Result<Vec<Answer>, Failure> {
        let count = calls.len();
        let mut pieces = self.pieces(calls);
        let mut answers = self.submit(pieces.cut(), false, guard).await;
        pieces.took(started.elapsed());
        if no_room(&answers).is_some()
            && let Err(refused) = answers.swap_remove(0).result
        {
            // Many small pieces of memory are given back.
            heavy::run(count * ITEM_BYTES, || drop(pieces)).await;
            return Err(refused);
        }
        while answers.len() < count {
            answers.append(&mut self.submit_later(started, &mut pieces, guard).await);
        }
        Ok(answers)
    }

    fn pieces(&self, calls: Vec<Call>) -> Pieces {
        let options = &self.manifest.options;
        let queue = usize::try_from(options.max_queued_items).unwrap_or(usize::MAX);
        Pieces::new(calls, BatchLimits::from(options), options.replicas as usize, queue)
    }

    /// Hands items to the engine and waits for their answers.
    async fn submit(&self, calls: Vec<Call>, continues: bool, guard: &mut CancelOnDrop<'_>) -> Vec<Answer> {
        guard.ids = calls.iter().rev().map(|call| call.id).collect();
        let (items, replies): (Vec<_>, Vec<_>) = calls
            .into_iter()
            .map(|call| {
                let (reply, answer) = oneshot::channel();
                ((Box::new(call), reply), answer)
            })
            .unzip();
        let mut answers = Vec::with_capacity(replies.len());
        // If the engine is gone, so are the senders: each receiver says so.
        let _ = self.inbound.send(Inbound::SubmitMany { items, continues });
        for reply in replies {
            answers.push(reply.await.unwrap_or_else(|_| gone()));
            guard.ids.pop();
        }
        answers
    }

    /// Submits a later piece of a request that began at `started`, when it is its turn. The request was let in, so a piece
    /// that finds no room tries again for as long as the request has time.
    async fn submit_later(&self, started: Instant, pieces: &mut Pieces, guard: &mut CancelOnDrop<'_>) -> Vec<Answer> {
        let default = Duration::try_from_secs_f64(self.manifest.options.request_timeout_s).unwrap_or(Duration::MAX);
        let left = |call: &Call| call.timeout.unwrap_or(default).saturating_sub(started.elapsed());
        let calls = pieces.cut();
        let longest = || calls.iter().map(left).max().unwrap_or_default();
        loop {
            let turn = self.later.turn(&self.runtime, longest()).await;
            let (began, waited) = (Instant::now(), started.elapsed());
            let piece = calls.iter().map(|call| Call { timeout: Some(left(call)), ..call.clone() });
            let mut answers = self.submit(piece.collect(), true, guard).await;
            let longest = longest();
            let Some(after) = no_room(&answers).filter(|_| !longest.is_zero()) else {
                pieces.took(began.elapsed());
                answers.iter_mut().for_each(|answer| answer.timing.queue += waited);
                return answers;
            };
            // Others may be let in meanwhile, those of a higher class for one.
            drop(turn);
            let wait = after.min(AGAIN_AFTER).min(longest);
            // A task of the runtime, because this may be polled from outside, and after the runtime has ended.
            drop(self.runtime.spawn(async move { tokio::time::sleep(wait).await }).await);
        }
    }

    /// Lets nothing new in: the server, or the program that holds the engine, is ending.
    pub fn close(&self) {
        // An engine that has ended lets nobody in either.
        let _ = self.inbound.send(Inbound::Door(Door::Closed(Outcome::Draining)));
    }

    /// What its engine has learned and decided; `None` if that does not answer soon.
    pub async fn explain(&self) -> Option<Explanation> {
        tokio::time::timeout(EXPLAINS_WITHIN, self.explaining()?).await.ok()?.ok()
    }

    /// The same, as soon as the engine answers; its metrics are as of then.
    pub fn explaining(&self) -> Option<oneshot::Receiver<Explanation>> {
        let (reply, answer) = oneshot::channel();
        self.inbound.send(Inbound::Explain(reply)).ok()?;
        Some(answer)
    }

    /// What it has done so far.
    pub fn statistics(&self) -> &Statistics {
        &self.ended.statistics
    }

    fn answered(&self, started: Instant, outcome: Outcome, timing: &Timing) -> Ticket<'_> {
        let length = started.elapsed();
        self.ended.seconds.observe(length.as_secs_f64());
        self.ended.statistics.ended(outcome == Outcome::Ok, length, timing);
        Ticket { deployment: self, outcome }
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

/// When to come back, if these answers are the refusal of a request for which there is no room. What would be late may have
/// been let in and be refused after all, one by one: at the door all are.
fn no_room(answers: &[Answer]) -> Option<Duration> {
    let first = answers.first()?;
    // What rode in a batch was let in: a model may say the same of what it needs itself.
    let failure = first.result.as_ref().err().filter(|_| first.timing.batch_size == 0)?;
    let is_full = match failure.outcome {
        Outcome::QueueFull | Outcome::QueueBytesFull | Outcome::WaitTooLong => true,
        Outcome::WouldBeLate => answers.iter().all(|answer| answer.outcome() == Outcome::WouldBeLate),
        _ => false,
    };
    failure.retry_after.filter(|_| is_full)
}

fn gone() -> Answer {
    let detail = "the server is going down, or starts again; come back in a second";
    Answer::failed(Failure { retry_after: Some(GONE_FOR), ..Failure::new(Outcome::Draining, detail) })
}

/// Cancels what has not been answered yet when its caller goes away.
struct CancelOnDrop<'a> {
    deployment: &'a Deployment,
    /// Those that the engine has and that are without an answer, the next one last.
    ids: SmallVec<[ItemId; 1]>,
    is_armed: bool,
}

impl<'a> CancelOnDrop<'a> {
    fn new(deployment: &'a Deployment, ids: SmallVec<[ItemId; 1]>) -> CancelOnDrop<'a> {
        CancelOnDrop { deployment, ids, is_armed: true }
    }

    fn disarm(mut self) {
        self.is_armed = false;
    }
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if !self.is_armed {
            return;
        }
        self.deployment.count(Outcome::Cancelled);
        for &id in &self.ids {
            // The engine may be gone; then nobody computes the item either.
            let _ = self.deployment.inbound.send(Inbound::Cancel(id));
        }
    }
}
