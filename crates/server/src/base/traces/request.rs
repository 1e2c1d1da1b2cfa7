//! What is noted of one request while it runs. When nothing refers to it any more, all is known of it, and it becomes spans if it
//! is kept.

use crate::base::traces::batch::BatchTrace;
use crate::base::traces::context::{PARENT_BYTES, TraceContext, fresh};
use crate::base::traces::otlp::messages::KeyValue;
use crate::base::traces::tracer::{Finished, Kept, Tracer};
use jitney_core::tables::outcome::Outcome;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Batches that are noted of one request; one of many items may have more.
const MOST_RIDES: usize = 64;

/// One request.
#[derive(Debug)]
pub(crate) struct RequestTrace {
    pub(crate) tracer: Arc<Tracer>,
    /// Its own span.
    pub(crate) context: TraceContext,
    /// The span of its caller; 0 without one.
    pub(super) parent: u64,
    /// Its `tracestate`.
    pub(super) state: Box<str>,
    /// Whether it may be kept because it is slow or fails.
    pub(super) may_be_kept: bool,
    pub(super) began: Instant,
    pub(super) facts: Mutex<RequestFacts>,
}

/// What happened to it.
#[derive(Debug, Default)]
pub(crate) struct RequestFacts {
    /// Items that waited before it.
    pub(crate) ahead: u64,
    /// The batches that its items were in, in the order of their launches.
    pub(crate) rides: Vec<Ride>,
    /// Further batches.
    pub(crate) left_out: u64,
    /// `None` if it is not kept.
    pub(crate) ended: Option<Box<RequestEnded>>,
}

/// The items of one request in one batch.
#[derive(Debug)]
pub(crate) struct Ride {
    pub(crate) batch: Arc<BatchTrace>,
    /// The span above.
    pub(crate) parent: u64,
    pub(crate) span: u64,
    /// The span of `predict`, below which the spans of the model hang.
    pub(crate) predict: u64,
    pub(crate) items: u64,
    /// The place of its first item in the batch.
    pub(crate) position: u64,
    /// 1, or more if the items were in a batch before that gave no result.
    pub(crate) attempt: u64,
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
    /// How long it was in the queue, for one that was in no batch.
    pub(crate) queue: Duration,
    pub(crate) description: Description,
}

/// What its protocol says of it.
#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) request_id: Arc<str>,
    pub(crate) name: String,
    pub(crate) attributes: Vec<KeyValue>,
    /// Whether the status of the answer says that the server failed.
    pub(crate) is_error: bool,
}

impl RequestTrace {
    fn lock(&self) -> MutexGuard<'_, RequestFacts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request has ended. `describe` is asked if it is kept.
    pub(crate) fn end(
        &self,
        deployment: &str,
        outcome: Option<Outcome>,
        queue: Duration,
        describe: impl FnOnce() -> Description,
    ) {
        let at = Instant::now();
        let Some(verdict) = self.tracer.judge(self, deployment, outcome, at - self.began) else { return };
        let description = describe();
        let (kept, is_logged, usual) = (verdict.kept, verdict.is_logged, verdict.usual);
        let ended = RequestEnded { at, outcome, kept, is_logged, usual, queue, description };
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
        self.tracer.finish(Finished::Request(Box::new(finished)));
    }
}

/// A request that is over and kept.
#[derive(Debug)]
pub(crate) struct FinishedRequest {
    pub(crate) context: TraceContext,
    pub(crate) parent: u64,
    pub(crate) state: Box<str>,
    pub(crate) began: Instant,
    pub(crate) facts: RequestFacts,
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

    /// Writes what a model gets: a `traceparent`, and behind a line feed the `tracestate` if there is one. Without a span of its
    /// own an item has that of its request.
    pub(crate) fn text(&self, span: u64) -> Vec<u8> {
        let state = &self.request.state;
        let mut text = Vec::with_capacity(PARENT_BYTES + 1 + state.len());
        let span = if span == 0 { self.parent } else { span };
        TraceContext { span, ..self.request.context }.write(&mut text);
        if !state.is_empty() {
            text.push(b'\n');
            text.extend_from_slice(state.as_bytes());
        }
        text
    }

    /// An item enters a queue behind so many others.
    pub(crate) fn entered(&self, ahead: usize) {
        let mut facts = self.request.lock();
        facts.ahead = facts.ahead.max(ahead as u64);
    }

    /// An item is launched at this place of a batch; `before` is the batch that it was in before. Returns the span of `predict`.
    pub(crate) fn launched(&self, batch: &Arc<BatchTrace>, before: Option<&Arc<BatchTrace>>, position: usize) -> u64 {
        let mut facts = self.request.lock();
        if let Some(ride) = facts.rides.iter_mut().rev().find(|ride| ride.is(batch, self.parent)) {
            ride.items += 1;
            return ride.predict;
        }
        if facts.rides.len() >= MOST_RIDES {
            facts.left_out += 1;
            return self.parent;
        }
        let earlier = before.and_then(|before| facts.rides.iter().rev().find(|ride| ride.is(before, self.parent)));
        let ride = Ride {
            batch: batch.clone(),
            parent: self.parent,
            span: fresh(),
            predict: fresh(),
            items: 1,
            position: position as u64,
            attempt: earlier.map_or(1, |ride| ride.attempt + 1),
            arrival: None,
            began: batch.facts().launched,
            results: None,
            predict_took: Duration::ZERO,
        };
        let predict = ride.predict;
        facts.rides.push(ride);
        predict
    }

    /// An item of this batch has its result, or fails there. It entered the queue at `arrival`, and the batch began to run at `began`.
    pub(crate) fn answered(&self, batch: &Arc<BatchTrace>, times: [Instant; 3], predict: Duration) {
        let [arrival, began, results] = times;
        let mut facts = self.request.lock();
        if let Some(ride) = facts.rides.iter_mut().rev().find(|ride| ride.is(batch, self.parent)) {
            ride.arrival = Some(ride.arrival.map_or(arrival, |earlier| earlier.min(arrival)));
            ride.began = ride.results.map_or(began, |_| ride.began.min(began));
            ride.results = Some(ride.results.map_or(results, |earlier| earlier.max(results)));
            ride.predict_took = ride.predict_took.max(predict);
        }
    }
}

impl Ride {
    fn is(&self, batch: &Arc<BatchTrace>, parent: u64) -> bool {
        Arc::ptr_eq(&self.batch, batch) && self.parent == parent
    }
}
