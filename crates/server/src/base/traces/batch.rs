//! What is noted of one batch in which a traced request rode. When nothing refers to it any more, it becomes a trace of its own
//! if one of those requests was kept.

use crate::base::traces::context::{TraceContext, fresh};
use crate::base::traces::otlp::messages::Link;
use crate::base::traces::tracer::{Finished, Tracer};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Links of one span, as other libraries bound them.
const MOST_LINKS: usize = 128;

/// What is known of a batch when it is launched.
#[derive(Debug)]
pub(crate) struct BatchFacts {
    pub(crate) deployment: String,
    /// Its number in the deployment.
    pub(crate) number: u64,
    /// The number of its replica among those of the deployment.
    pub(crate) replica: u64,
    /// Why it was closed.
    pub(crate) reason: &'static str,
    pub(crate) items: u64,
    pub(crate) cost: u64,
    pub(crate) padded_cost: u64,
    /// For how long a replica had been idle beside the items.
    pub(crate) held: Duration,
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
    pub(crate) lost: Option<String>,
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
    tracer: Arc<Tracer>,
    /// The span of the whole batch.
    pub(crate) context: TraceContext,
    /// The span of `predict`, below which the model's own spans hang if the batch is one of several requests.
    pub(crate) predict: u64,
    /// `None` once it is over.
    facts: Option<Box<BatchFacts>>,
    ended: Mutex<BatchEnded>,
    riders: Mutex<Riders>,
}

impl BatchTrace {
    /// A batch that is launched now.
    pub(crate) fn new(tracer: Arc<Tracer>, is_sampled: bool, facts: BatchFacts) -> Arc<BatchTrace> {
        Arc::new(BatchTrace {
            tracer,
            context: TraceContext { is_sampled, ..TraceContext::root() },
            predict: fresh(),
            facts: Some(Box::new(facts)),
            ended: Mutex::default(),
            riders: Mutex::default(),
        })
    }

    /// What was known at its launch.
    pub(crate) fn facts(&self) -> &BatchFacts {
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
    pub(crate) fn lost(&self, now: Instant, why: String) {
        let mut ended = self.lock();
        (ended.at, ended.lost) = (Some(now), Some(why));
    }

    /// How it has ended.
    pub(crate) fn ended(&self) -> BatchEnded {
        self.lock().clone()
    }

    /// A request that rode in it is kept.
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
        self.tracer.finish(Finished::Batch(Box::new(FinishedBatch { context, predict, facts, ended, riders })));
    }
}

/// A batch that is over, of which a request was kept.
#[derive(Debug)]
pub(crate) struct FinishedBatch {
    pub(crate) context: TraceContext,
    pub(crate) predict: u64,
    pub(crate) facts: Box<BatchFacts>,
    pub(crate) ended: BatchEnded,
    pub(crate) riders: Riders,
}
