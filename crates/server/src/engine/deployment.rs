//! A deployment as protocols see it: what it takes, and one way to call it.

pub mod demand;
pub(crate) mod exchange_phases;
pub mod inbox;
pub(crate) mod live;
pub mod published;
pub mod statistics;
pub(crate) mod streams;
pub mod ticket;

use crate::base::ledger::{Account, CountedBytes};
use crate::base::offload;
use crate::base::telemetry::Telemetry;
use crate::engine::deployment::exchange_phases::ExchangePhases;
use crate::engine::deployment::inbox::Inbox;
pub use crate::engine::deployment::inbox::{Inbound, Submission};
use crate::engine::deployment::published::Published;
use crate::engine::deployment::statistics::Statistics;
use crate::engine::deployment::streams::StreamMeters;
use crate::engine::deployment::ticket::{OutcomeCounts, Ticket};
use crate::engine::large_request::pieces::Pieces;
use crate::engine::large_request::turns::{ITEM_BYTES, LargeRequests};
use crate::engine::reply;
use crate::engine::reply::{ReplyReceiver, UnreadParts};
use crate::open_inference::signature::Signature;
use crate::values::answer::{Answer, Failure, Timing};
use crate::values::call::Call;
use jitney_core::config::limits::BatchLimits;
use jitney_core::config::manifest::DeploymentManifest;
use jitney_core::request::ItemId;
use jitney_core::scheduler::explanation::Explanation;
use jitney_core::tables::metrics;
use jitney_core::tables::outcome::Outcome;
use prometheus::Histogram;
use smallvec::{SmallVec, smallvec};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Longest wait for an answer of the engine about its state. An engine that is alive answers in microseconds.
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);
/// A later piece of a request that finds no room tries again after this long, or earlier.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// The version of a deployment that replaces no other.
pub const FIRST_VERSION: &str = "1";

/// A handle; cheap to share.
#[derive(Clone, Debug)]
pub struct Deployment {
    /// What it takes and returns.
    pub manifest: Arc<DeploymentManifest>,
    /// Which version of its name this is.
    pub version: String,
    /// What it takes and returns, as tensors.
    pub signature: Arc<Signature>,
    /// How many replicas work now, and how many items may wait; its engine keeps it true.
    pub published: Published,
    inbound: Inbox,
    pub(crate) outcomes: Arc<OutcomeCounts>,
    /// Durations of requests, by how they end.
    seconds: [Histogram; 3],
    /// What HTTP adds to the time of its requests.
    pub(crate) exchanged: Arc<ExchangePhases>,
    statistics: Arc<Statistics>,
    /// `None` if its answers have no parts.
    pub(crate) streams: Option<Arc<StreamMeters>>,
    large_requests: Arc<LargeRequests>,
    /// Counts the items that wait in its queue or on the way there, and their bytes. Each connection has a part of it.
    pub waiting: Account,
    /// The runtime whose clock is used: a call may be polled by a thread outside of the runtime.
    runtime: Handle,
}

impl Deployment {
    /// A handle to what reads `inbound`, such as the task of an engine. Made in its runtime.
    pub fn new(manifest: Arc<DeploymentManifest>, inbound: impl Into<Inbox>, telemetry: &Telemetry) -> Deployment {
        let outcomes = OutcomeCounts::new(telemetry, &manifest.name);
        let seconds = telemetry.endings(metrics::REQUEST_SECONDS, &manifest.name);
        let exchanged = Arc::new(ExchangePhases::new(telemetry, manifest.deployment()));
        let signature = Arc::new(Signature::of(&manifest));
        let account = Account::default();
        telemetry.show_account(metrics::LATER_BYTES, &[manifest.deployment()], &account);
        let large_requests = Arc::new(LargeRequests::new(account, manifest.options.max_queued_bytes));
        let (waiting, published) = (Account::default(), Published::default());
        let streams = StreamMeters::of(&manifest, telemetry);
        let version = FIRST_VERSION.to_owned();
        Deployment {
            manifest,
            version,
            signature,
            published,
            inbound: inbound.into(),
            outcomes,
            seconds,
            exchanged,
            statistics: Arc::default(),
            streams,
            large_requests,
            waiting,
            runtime: Handle::current(),
        }
    }

    /// The handle of another method of the same model: the engine, its queue and its replicas are the same.
    pub(crate) fn of_method(&self, manifest: Arc<DeploymentManifest>, telemetry: &Telemetry) -> Deployment {
        Deployment {
            outcomes: OutcomeCounts::new(telemetry, &manifest.name),
            seconds: telemetry.endings(metrics::REQUEST_SECONDS, &manifest.name),
            signature: Arc::new(Signature::of(&manifest)),
            statistics: Arc::default(),
            streams: StreamMeters::of(&manifest, telemetry),
            manifest,
            ..self.clone()
        }
    }

    /// Runs one item. Dropping the future cancels it.
    pub async fn call(&self, call: Call) -> Answer {
        open(self, call, &self.waiting, Instant::now()).await.0
    }

    /// Hands an item to the engine. Its parts count in `unread`, if it is given. Dropping the guard cancels the item.
    pub(super) fn begin(
        &self,
        call: Call,
        waiting: &Account,
        unread: Option<&UnreadParts>,
    ) -> (ReplyReceiver, CancelOnDrop) {
        let guard = CancelOnDrop::new(self, SmallVec::from_elem(call.id, 1));
        let ((call, reply), answer) = with_reply(call, waiting, unread);
        // An engine that has ended has dropped the sender, and the receiver says so.
        let _ = self.inbound.send(Inbound::Submit(call, reply));
        (answer, guard)
    }

    /// Hands the items of one request to the engine: they are admitted together, or all refused. Their parts count in
    /// `unread`. Dropping the guard cancels all of them.
    pub(super) fn begin_parts(
        &self,
        mut calls: SmallVec<[Call; 1]>,
        waiting: &Account,
        unread: &UnreadParts,
    ) -> (SmallVec<[ReplyReceiver; 1]>, CancelOnDrop) {
        if calls.len() == 1
            && let Some(call) = calls.pop()
        {
            let (answer, guard) = self.begin(call, waiting, Some(unread));
            return (smallvec![answer], guard);
        }
        let guard = CancelOnDrop::new(self, calls.iter().map(|call| call.id).collect());
        let (items, answers): (Vec<_>, SmallVec<_>) =
            calls.into_iter().map(|call| with_reply(call, waiting, Some(unread))).unzip();
        let _ = self.inbound.send(Inbound::SubmitMany { items, continues: false });
        (answers, guard)
    }

    /// Hands items to the engine together, as `begin_parts` does. Each has its own guard and may be cancelled alone.
    pub(super) fn begin_each(&self, mut calls: Vec<Call>, continues: bool) -> Vec<(ReplyReceiver, CancelOnDrop)> {
        if calls.len() == 1 && !continues {
            return calls.pop().map(|call| self.begin(call, &self.waiting, None)).into_iter().collect();
        }
        let guards = calls.iter().map(|call| CancelOnDrop::new(self, SmallVec::from_elem(call.id, 1)));
        let guards = guards.collect::<Vec<_>>();
        let (items, answers): (Vec<_>, Vec<_>) =
            calls.into_iter().map(|call| with_reply(call, &self.waiting, None)).unzip();
        let _ = self.inbound.send(Inbound::SubmitMany { items, continues });
        answers.into_iter().zip(guards).collect()
    }

    /// Counts the memory of a request that the queue does not count, until what is returned is dropped. This is the memory of
    /// its items, with `bytes` of values, unless the request fits into its first piece; and the `asked` bytes that it keeps
    /// for its answer. `None` if that is little. Fails if large requests leave no room.
    pub(crate) fn hold(&self, items: usize, bytes: usize, asked: usize) -> Result<Option<CountedBytes>, Failure> {
        self.large_requests.hold(items, bytes, asked, self.first_piece())
    }

    /// Least number of items in the first piece of a large request. Up to this number, all items of a request enter at
    /// once.
    pub(crate) fn first_piece(&self) -> usize {
        let limits = BatchLimits::from(&self.manifest.options);
        let alike = self.manifest.group_by.is_empty() && limits.max_cost == u64::MAX;
        Pieces::first(limits, self.published.replicas(), alike)
    }

    /// Runs the items of one request. They are admitted together, or all are refused. They may be in different batches,
    /// and each may fail without the others. A large request goes to the engine in pieces, one after the other. Answers
    /// come in the order of `calls`. Dropping the future cancels the items that have no answer yet. Items that the
    /// engine has and no worker has count in `waiting`, a part of the account of the deployment.
    pub async fn open_many(&self, calls: Vec<Call>, waiting: &Account) -> (Result<Vec<Answer>, Failure>, Ticket) {
        let started = Instant::now();
        let mut guard = CancelOnDrop::new(self, SmallVec::new());
        let answers = self.piece_by_piece(started, calls, waiting, &mut guard).await;
        guard.disarm();
        let (outcome, timing) = match &answers {
            Ok(answers) => Answer::summary(answers),
            Err(failure) => (failure.outcome, Timing::default()),
        };
        let ticket = self.answered(started, outcome, timing);
        (answers, ticket)
    }

    async fn piece_by_piece(
        &self,
        started: Instant,
        calls: Vec<Call>,
        waiting: &Account,
        guard: &mut CancelOnDrop,
    ) -> Result<Vec<Answer>, Failure> {
        let count = calls.len();
        let mut pieces = self.pieces(calls);
        let mut answers = self.submit(pieces.cut(), false, waiting, guard).await;
        pieces.took(started.elapsed());
        if no_room(&answers).is_some()
            && let Err(refused) = answers.swap_remove(0).result
        {
            // Many small pieces of memory are given back.
            offload::run(count * ITEM_BYTES, || drop(pieces)).await;
            return Err(refused);
        }
        while answers.len() < count {
            answers.append(&mut self.submit_later(started, &mut pieces, waiting, guard).await);
        }
        Ok(answers)
    }

    fn pieces(&self, calls: Vec<Call>) -> Pieces {
        let options = &self.manifest.options;
        let queue = usize::try_from(options.max_queued_items).unwrap_or(usize::MAX);
        Pieces::new(calls, BatchLimits::from(options), self.published.replicas(), queue)
    }

    /// Hands items to the engine and waits for their answers.
    async fn submit(
        &self,
        calls: Vec<Call>,
        continues: bool,
        waiting: &Account,
        guard: &mut CancelOnDrop,
    ) -> Vec<Answer> {
        guard.ids = calls.iter().rev().map(|call| call.id).collect();
        let (items, replies): (Vec<_>, Vec<_>) = calls.into_iter().map(|call| with_reply(call, waiting, None)).unzip();
        let mut answers = Vec::with_capacity(replies.len());
        // An engine that has ended has dropped the senders: each receiver says so.
        let _ = self.inbound.send(Inbound::SubmitMany { items, continues });
        for mut reply in replies {
            answers.push(reply.end().await);
            guard.ids.pop();
        }
        answers
    }

    /// Submits a later piece of a request that began at `started`, when it is its turn. The request was admitted
    /// already. So a piece that finds no room tries again until the time of the request is over.
    async fn submit_later(
        &self,
        started: Instant,
        pieces: &mut Pieces,
        waiting: &Account,
        guard: &mut CancelOnDrop,
    ) -> Vec<Answer> {
        let default = self.manifest.options.request_timeout();
        let left = |call: &Call| call.timeout.unwrap_or(default).saturating_sub(started.elapsed());
        pieces.set_replicas(self.published.replicas());
        let calls = pieces.cut();
        let longest = || calls.iter().map(left).max().unwrap_or_default();
        loop {
            let turn = self.large_requests.turn(&self.runtime, longest()).await;
            let (began, waited) = (Instant::now(), started.elapsed());
            let piece = calls.iter().map(|call| Call { timeout: Some(left(call)), ..call.clone() });
            let mut answers = self.submit(piece.collect(), true, waiting, guard).await;
            let longest = longest();
            let Some(after) = no_room(&answers).filter(|_| !longest.is_zero()) else {
                pieces.took(began.elapsed());
                answers.iter_mut().for_each(|answer| answer.timing.queue += waited);
                return answers;
            };
            // Other items may be admitted during the wait, such as those of a higher class.
            drop(turn);
            let wait = after.min(AGAIN_AFTER).min(longest);
            // A task of the runtime, because this may be polled from outside, and after the runtime has ended.
            drop(self.runtime.spawn(async move { tokio::time::sleep(wait).await }).await);
        }
    }

    /// Stops admitting items: the server, or the program that holds the engine, is ending.
    pub fn close(&self) {
        // An engine that has ended admits nothing, so the message may be lost.
        let _ = self.inbound.send(Inbound::Drain);
    }

    /// What its engine has learned and decided; `None` if that does not answer soon.
    pub async fn explain(&self) -> Option<Explanation> {
        let (reply, answer) = oneshot::channel();
        self.inbound.send(Inbound::Explain(reply)).ok()?;
        tokio::time::timeout(ANSWERS_WITHIN, answer).await.ok()?.ok()
    }

    /// Brings its metrics up to date, unless its engine does not answer soon.
    pub async fn show_learned(&self) {
        if let Some(shown) = self.showing_learned() {
            let _ = tokio::time::timeout(ANSWERS_WITHIN, shown).await;
        }
    }

    /// Resolves when its metrics are up to date, however long that takes; `None` if its engine has ended.
    pub fn showing_learned(&self) -> Option<oneshot::Receiver<()>> {
        self.exchanged.show();
        let (reply, shown) = oneshot::channel();
        self.inbound.send(Inbound::ShowLearned(reply)).ok()?;
        Some(shown)
    }

    /// What it has done so far.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    pub(super) fn answered(&self, started: Instant, outcome: Outcome, timing: Timing) -> Ticket {
        let now = Instant::now();
        let length = now - started;
        self.seconds[outcome.ending() as usize].observe(length.as_secs_f64());
        if outcome == Outcome::Ok {
            self.published.live().durations.add(length);
        }
        self.statistics.ended(outcome == Outcome::Ok, now, length, &timing);
        self.outcomes.ended(outcome, timing, Some((now, length)))
    }

    /// A request that ended before the engine had it, e.g. because its body is malformed.
    pub fn refuse(&self, outcome: Outcome) -> Ticket {
        self.outcomes.refuse(outcome)
    }
}

/// The submission of an item, which counts in `waiting`, and where its answer arrives. Its parts count in `unread`, if it is
/// given.
fn with_reply(call: Call, waiting: &Account, unread: Option<&UnreadParts>) -> (Submission, ReplyReceiver) {
    let (mut reply, answer) = reply::channel();
    reply.count_in(waiting, call.bytes());
    unread.into_iter().for_each(|unread| reply.count_parts(unread.clone()));
    ((Box::new(call), reply), answer)
}

/// Like `Deployment::call`, for a protocol that may still fail to hand the answer over: the request ends with the ticket. The
/// item counts in `waiting`, a part of the account of the deployment. The time from `started` to its answer is that of the
/// request. The engine has the item when this returns, so the future that waits for the answer is small. A program owns the
/// deployment that it calls, a protocol borrows it.
pub(super) fn open<D: Deref<Target = Deployment>>(
    deployment: D,
    call: Call,
    waiting: &Account,
    started: Instant,
) -> impl Future<Output = (Answer, Ticket)> + use<D> {
    let (mut answer, guard) = deployment.begin(call, waiting, None);
    async move {
        let answer = answer.end().await;
        guard.disarm();
        let ticket = deployment.answered(started, answer.outcome(), answer.timing);
        (answer, ticket)
    }
}

/// When to try again, if these answers say that admission refused the request because there is no room. `WouldBeLate`
/// has two causes: admission refuses all items of a request, but an item that was admitted may also be refused later,
/// without the others.
fn no_room(answers: &[Answer]) -> Option<Duration> {
    let first = answers.first()?;
    // An item that was in a batch was admitted. Then the failure comes from the model, which may use the same outcomes.
    let failure = first.result.as_ref().err().filter(|_| first.timing.batch_size == 0)?;
    let is_full = match failure.outcome {
        Outcome::QueueFull | Outcome::QueueBytesFull | Outcome::WaitTooLong => true,
        Outcome::WouldBeLate => answers.iter().all(|answer| answer.outcome() == Outcome::WouldBeLate),
        _ => false,
    };
    failure.retry_after.filter(|_| is_full)
}

/// Cancels what has not been answered yet when its caller goes away. It borrows nothing, so it may live with the body of an
/// answer.
pub(super) struct CancelOnDrop {
    inbound: Inbox,
    outcomes: Arc<OutcomeCounts>,
    /// Those that the engine has and that are without an answer, the next one last.
    ids: SmallVec<[ItemId; 1]>,
    is_armed: bool,
}

impl CancelOnDrop {
    fn new(deployment: &Deployment, ids: SmallVec<[ItemId; 1]>) -> CancelOnDrop {
        CancelOnDrop { inbound: deployment.inbound.clone(), outcomes: deployment.outcomes.clone(), ids, is_armed: true }
    }

    pub(super) fn disarm(mut self) {
        self.is_armed = false;
    }

    pub(super) fn cancel(&self) {
        for &id in &self.ids {
            // The engine may have ended. Then it computes nothing, and nothing is left to cancel.
            let _ = self.inbound.send(Inbound::Cancel(id));
        }
    }

    /// The client reads again: the item at this place may go on.
    pub(super) fn resume(&self, place: usize) {
        if let Some(&id) = self.ids.get(place) {
            // An engine that has ended resumes nothing.
            let _ = self.inbound.send(Inbound::Resume(id));
        }
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if !self.is_armed {
            return;
        }
        self.outcomes.count(Outcome::Cancelled);
        self.cancel();
    }
}
