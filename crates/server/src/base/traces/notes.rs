//! What is noted of requests and of batches while they run. When nothing refers to a note any more, all is known, and it goes to its
//! keeper.

use crate::base::traces::context::{PARENT_BYTES, TraceContext, fresh, mix};
use crate::base::traces::messages::{KeyValue, Link};
use crate::base::traces::why::facts::{BatchFacts, Lengths, Usual};
use jitney_core::tables::outcome::Outcome;
use smallvec::SmallVec;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Why a request is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Its caller or the ratio says so.
    Sampled,
    Slow,
    Failed,
}

impl Kept {
    /// As an attribute.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Kept::Sampled => "sampled",
            Kept::Slow => "slow",
            Kept::Failed => "failed",
        }
    }
}

/// What is decided about a request that is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verdict {
    pub(crate) kept: Kept,
    pub(crate) is_logged: bool,
    /// The median of its deployment.
    pub(crate) usual: Option<Duration>,
}

/// What a keeper gets.
#[derive(Debug)]
pub(crate) enum Finished {
    Request(Box<FinishedRequest>),
    Batch(Box<FinishedBatch>),
    /// Everything so far is to be sent at once.
    Flush(oneshot::Sender<()>),
}

/// Decides which requests are kept, and takes what was noted of them.
pub(crate) trait Keeper: Debug + Send + Sync {
    /// Whether a request that has ended is kept.
    fn judge(
        &self,
        request: &RequestTrace,
        deployment: &str,
        outcome: Option<Outcome>,
        at: Instant,
        counted: Option<Duration>,
    ) -> Option<Verdict>;

    /// An item that takes longer may be one of a slow request.
    fn least_slow(&self) -> Duration;

    /// Takes a note. It does not block.
    fn finish(&self, finished: Finished);
}

/// Links of one span, as other libraries bound them.
const MOST_LINKS: usize = 128;

/// What is known about a batch when it is launched.
#[derive(Debug)]
pub(crate) struct BatchLaunch {
    pub(crate) deployment: String,
    /// Its number in the deployment.
    pub(crate) number: u64,
    /// The number of its replica among those of the deployment.
    pub(crate) replica: u64,
    pub(crate) batch: BatchFacts,
    /// What is usual for its deployment; `None` while too few requests have ended.
    pub(crate) usual: Option<Usual>,
    pub(crate) cost: u64,
    pub(crate) padded_cost: u64,
    /// Items that stayed in the queue.
    pub(crate) left_waiting: u64,
    /// Replicas that were up.
    pub(crate) replicas: usize,
    pub(crate) launched: Instant,
}

/// How long its worker spent in each stage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stages {
    pub(crate) decode: Duration,
    pub(crate) predict: Duration,
    pub(crate) encode: Duration,
}

/// How it ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct BatchEnded {
    pub(crate) at: Option<Instant>,
    /// `None` if the worker did not say.
    pub(crate) stages: Option<Stages>,
    /// Why it has no results.
    pub(crate) lost: Option<&'static str>,
}

/// The requests of it that were kept.
#[derive(Debug, Default)]
pub(crate) struct Riders {
    pub(crate) links: Vec<Link>,
    pub(crate) dropped: u32,
    /// Their ids, for who looks for the trace of a request.
    pub(crate) request_ids: Vec<Arc<str>>,
}

/// A batch while its requests refer to it.
#[derive(Debug)]
pub(crate) struct BatchTrace {
    keeper: Arc<dyn Keeper>,
    /// The span of the whole batch.
    pub(crate) context: TraceContext,
    /// The span of `predict`, below which the model's own spans hang if the batch is one of several requests.
    pub(crate) predict: u64,
    /// `None` once it is over.
    facts: Option<Box<BatchLaunch>>,
    ended: Mutex<BatchEnded>,
    riders: Mutex<Riders>,
}

impl BatchTrace {
    /// A batch that is launched now.
    pub(crate) fn new(keeper: Arc<dyn Keeper>, is_sampled: bool, facts: BatchLaunch) -> Arc<BatchTrace> {
        Arc::new(BatchTrace {
            keeper,
            context: TraceContext { is_sampled, ..TraceContext::root() },
            predict: fresh(),
            facts: Some(Box::new(facts)),
            ended: Mutex::default(),
            riders: Mutex::default(),
        })
    }

    /// What was known at its launch.
    pub(crate) fn facts(&self) -> &BatchLaunch {
        self.facts.as_ref().expect("there until it is dropped")
    }

    /// The `traceparent` for those of its spans that belong to no single request.
    pub(crate) fn traceparent(&self) -> Vec<u8> {
        let mut text = Vec::new();
        TraceContext { span: self.predict, ..self.context }.write(&mut text);
        text
    }

    fn lock(&self) -> MutexGuard<'_, BatchEnded> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its worker is done with it.
    pub(crate) fn end(&self, now: Instant, stages: Option<Stages>) {
        let mut ended = self.lock();
        (ended.at, ended.stages) = (Some(now), stages);
    }

    /// Its worker is lost.
    pub(crate) fn lost(&self, now: Instant, why: &'static str) {
        let mut ended = self.lock();
        (ended.at, ended.lost) = (Some(now), Some(why));
    }

    /// How it has ended.
    pub(crate) fn ended(&self) -> BatchEnded {
        self.lock().clone()
    }

    /// A request that has items in it is kept.
    pub(crate) fn keep(&self, rider: Link, request_id: &Arc<str>) {
        let mut riders = self.riders.lock().unwrap_or_else(PoisonError::into_inner);
        if riders.links.len() < MOST_LINKS {
            riders.links.push(rider);
            riders.request_ids.push(request_id.clone());
        } else {
            riders.dropped += 1;
        }
    }
}

impl Drop for BatchTrace {
    fn drop(&mut self) {
        let riders = std::mem::take(self.riders.get_mut().unwrap_or_else(PoisonError::into_inner));
        let ended = std::mem::take(self.ended.get_mut().unwrap_or_else(PoisonError::into_inner));
        let Some(facts) = self.facts.take().filter(|_| !riders.links.is_empty()) else { return };
        let (context, predict) = (self.context, self.predict);
        self.keeper.finish(Finished::Batch(Box::new(FinishedBatch { context, predict, facts, ended, riders })));
    }
}

/// A batch that is over, of which a request was kept.
#[derive(Debug)]
pub(crate) struct FinishedBatch {
    pub(crate) context: TraceContext,
    pub(crate) predict: u64,
    pub(crate) facts: Box<BatchLaunch>,
    pub(crate) ended: BatchEnded,
    pub(crate) riders: Riders,
}

/// Batches that are noted of one request; one of many items may have more.
const MOST_STAYS: usize = 64;

/// One request.
#[derive(Debug)]
pub(crate) struct RequestTrace {
    pub(crate) keeper: Arc<dyn Keeper>,
    /// Its own span.
    pub(crate) context: TraceContext,
    /// The span of its caller; 0 without one.
    pub(super) parent: u64,
    /// Its `tracestate`.
    pub(super) state: Box<str>,
    /// Whether it may be kept because it is slow or fails.
    pub(super) may_be_kept: bool,
    pub(super) began: Instant,
    pub(super) facts: Mutex<RequestNotes>,
}

/// What happened to it.
#[derive(Debug, Default)]
pub(crate) struct RequestNotes {
    /// Items that waited before it.
    pub(crate) ahead: u64,
    /// The batches that its items were in, in the order of their launches.
    pub(crate) stays: SmallVec<[Stay; 1]>,
    /// Further batches.
    pub(crate) left_out: u64,
    /// `None` if it is not kept.
    pub(crate) ended: Option<Box<RequestEnded>>,
}

/// The items of one request in one batch.
#[derive(Debug)]
pub(crate) struct Stay {
    pub(crate) batch: Arc<BatchTrace>,
    /// The span above.
    pub(crate) parent: u64,
    pub(crate) span: u64,
    /// The span of `predict`, below which the spans of the model hang.
    pub(crate) predict: u64,
    pub(crate) items: u64,
    /// How many items of the batch stand before its first one.
    pub(crate) position: u64,
    /// 1, or more if the items were in a batch before that gave no result.
    pub(crate) attempt: u64,
    /// Of the largest of its items.
    pub(crate) bytes: u64,
    pub(crate) cost: u64,
    /// When its first item entered the queue; `None` if the batch gave it no result.
    pub(crate) arrival: Option<Instant>,
    /// When the batch began to run.
    pub(crate) began: Instant,
    pub(crate) results: Option<Instant>,
    pub(crate) predict_took: Duration,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct RequestEnded {
    pub(crate) at: Instant,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) kept: Kept,
    /// Whether the log has a line about it.
    pub(crate) is_logged: bool,
    /// The median of its deployment.
    pub(crate) usual: Option<Duration>,
    /// What the engine says of its slowest item, for a request whose batches were not noted.
    pub(crate) passed: Passed,
    pub(crate) description: Description,
}

/// How long the engine had the slowest item of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Passed {
    pub(crate) lengths: Lengths,
    /// When the engine had answered; `None` if that was when the request ended, or if the engine never had it.
    pub(crate) answered: Option<Instant>,
    /// Its duration in the histogram of requests, if it is known.
    pub(crate) counted: Option<Duration>,
}

/// What its protocol says of it.
#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) request_id: Arc<str>,
    /// Its deployment, or its path if that is not known.
    pub(crate) whose: String,
    pub(crate) name: String,
    pub(crate) attributes: Vec<KeyValue>,
    /// Whether the status of the answer says that the server failed.
    pub(crate) is_error: bool,
}

impl RequestTrace {
    fn lock(&self) -> MutexGuard<'_, RequestNotes> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request has ended. `describe` is asked if it is kept.
    pub(crate) fn end(
        &self,
        deployment: &str,
        outcome: Option<Outcome>,
        passed: Passed,
        describe: impl FnOnce() -> Description,
    ) {
        let at = Instant::now();
        let Some(verdict) = self.keeper.judge(self, deployment, outcome, at, passed.counted) else { return };
        let description = describe();
        let (kept, is_logged, usual) = (verdict.kept, verdict.is_logged, verdict.usual);
        let ended = RequestEnded { at, outcome, kept, is_logged, usual, passed, description };
        self.lock().ended = Some(Box::new(ended));
    }
}

impl Drop for RequestTrace {
    fn drop(&mut self) {
        let facts = std::mem::take(self.facts.get_mut().unwrap_or_else(PoisonError::into_inner));
        if facts.ended.is_none() {
            return;
        }
        let (context, parent, began) = (self.context, self.parent, self.began);
        let state = std::mem::take(&mut self.state);
        let finished = FinishedRequest { context, parent, state, began, facts };
        self.keeper.finish(Finished::Request(Box::new(finished)));
    }
}

/// A request that is over and kept.
#[derive(Debug)]
pub(crate) struct FinishedRequest {
    pub(crate) context: TraceContext,
    pub(crate) parent: u64,
    pub(crate) state: Box<str>,
    pub(crate) began: Instant,
    pub(crate) facts: RequestNotes,
}

/// A request as its items have it.
#[derive(Clone, Debug)]
pub struct TraceNote {
    pub(crate) request: Arc<RequestTrace>,
    /// The span below which the spans of these items hang.
    parent: u64,
}

impl PartialEq for TraceNote {
    fn eq(&self, other: &TraceNote) -> bool {
        Arc::ptr_eq(&self.request, &other.request) && self.parent == other.parent
    }
}

impl Eq for TraceNote {}

impl TraceNote {
    /// Of the items that its client sent.
    pub(crate) fn new(request: Arc<RequestTrace>) -> TraceNote {
        let parent = request.context.span;
        TraceNote { request, parent }
    }

    /// Of what a model asks for these items, in `predict` of this span.
    pub(crate) fn below(&self, span: u64) -> TraceNote {
        TraceNote { request: self.request.clone(), parent: span }
    }

    /// Writes what a model gets behind its length: a `traceparent`, and behind a line feed the `tracestate` if there is one.
    /// An item without a span has that of its request.
    pub(crate) fn write(&self, span: u64, text: &mut Vec<u8>) {
        let state = &self.request.state;
        let length = PARENT_BYTES + if state.is_empty() { 0 } else { 1 + state.len() };
        text.extend_from_slice(&(length as u32).to_le_bytes());
        let span = if span == 0 { self.parent } else { span };
        TraceContext { span, ..self.request.context }.write(text);
        if !state.is_empty() {
            text.push(b'\n');
            text.extend_from_slice(state.as_bytes());
        }
    }

    /// The span of `predict` of its items in this batch.
    pub(crate) fn predict(&self, batch: &BatchTrace) -> u64 {
        mix(batch.predict ^ self.request.context.span.rotate_left(32) ^ self.parent)
    }

    /// Whether all that happens to its items is to be noted. Otherwise that is done for items that fail or take long.
    pub(crate) fn is_noted(&self) -> bool {
        self.request.context.is_sampled
    }

    /// An item was in the queue behind so many others, and ended there.
    pub(crate) fn waited(&self, ahead: u32) {
        let mut facts = self.request.lock();
        facts.ahead = facts.ahead.max(ahead.into());
    }

    /// Notes what happened to an item in a batch.
    pub(crate) fn stayed(&self, one: &ItemStay<'_>) {
        let mut facts = self.request.lock();
        facts.ahead = facts.ahead.max(one.ahead.into());
        if let Some(stay) = facts.stays.iter_mut().rev().find(|stay| stay.is(one.batch, self.parent)) {
            stay.items += 1;
            (stay.bytes, stay.cost) = (stay.bytes.max(one.bytes), stay.cost.max(one.cost));
            stay.position = stay.position.min(one.position.into());
            stay.arrival = stay.arrival.into_iter().chain(one.arrival).min();
            stay.began = stay.began.min(one.began);
            stay.results = stay.results.into_iter().chain(one.results).max();
            stay.predict_took = stay.predict_took.max(one.predict_took);
            return;
        }
        if facts.stays.len() >= MOST_STAYS {
            facts.left_out += 1;
            return;
        }
        facts.stays.push(Stay {
            batch: one.batch.clone(),
            parent: self.parent,
            span: fresh(),
            predict: self.predict(one.batch),
            items: 1,
            position: one.position.into(),
            attempt: one.attempt.into(),
            bytes: one.bytes,
            cost: one.cost,
            arrival: one.arrival,
            began: one.began,
            results: one.results,
            predict_took: one.predict_took,
        });
    }
}

/// What the traced items of a batch have in common.
pub(crate) struct Traced {
    pub(crate) keeper: Arc<dyn Keeper>,
    pub(crate) is_sampled: bool,
}

impl Traced {
    /// `None` if no item is traced.
    pub(crate) fn of<'n>(mut notes: impl Iterator<Item = &'n TraceNote>) -> Option<Traced> {
        let first = &notes.next()?.request;
        let is_sampled = first.context.is_sampled || notes.any(|note| note.request.context.is_sampled);
        Some(Traced { keeper: first.keeper.clone(), is_sampled })
    }
}

/// What happened to one item in a batch; see `Stay`.
#[derive(Debug)]
pub(crate) struct ItemStay<'b> {
    pub(crate) batch: &'b Arc<BatchTrace>,
    pub(crate) ahead: u32,
    pub(crate) position: u32,
    pub(crate) attempt: u32,
    pub(crate) bytes: u64,
    pub(crate) cost: u64,
    pub(crate) arrival: Option<Instant>,
    pub(crate) began: Instant,
    pub(crate) results: Option<Instant>,
    pub(crate) predict_took: Duration,
}

impl Stay {
    fn is(&self, batch: &Arc<BatchTrace>, parent: u64) -> bool {
        Arc::ptr_eq(&self.batch, batch) && self.parent == parent
    }
}

#[cfg(test)]
mod tests;
