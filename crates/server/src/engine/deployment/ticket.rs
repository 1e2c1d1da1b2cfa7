//! How requests end: the one place that counts them, for every protocol.

use crate::base::access_log::line::Ended;
use crate::base::telemetry::Telemetry;
use crate::engine::deployment::streams::StreamMeters;
use crate::values::answer::Timing;
use jitney_core::tables::metrics;
use jitney_core::tables::outcome::Outcome;
use prometheus::IntCounter;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What stands for the deployment of a request that named none, or one that is not there. No deployment may have this name.
pub const UNKNOWN: &str = "(unknown)";

/// Counts how the requests of one deployment end.
#[derive(Debug)]
pub struct OutcomeCounts {
    deployment: Box<str>,
    counts: Vec<IntCounter>,
}

impl OutcomeCounts {
    /// The counts of the deployment that has this name.
    pub(crate) fn new(telemetry: &Telemetry, deployment: &str) -> Arc<OutcomeCounts> {
        Arc::new(OutcomeCounts {
            deployment: deployment.into(),
            counts: telemetry.outcomes(metrics::REQUESTS, deployment),
        })
    }

    /// Requests that have ended so.
    pub(crate) fn total(&self, outcome: Outcome) -> u64 {
        self.counts[outcome as usize].get()
    }

    pub(super) fn count(&self, outcome: Outcome) {
        self.counts[outcome as usize].inc();
    }

    /// A request that ended before the engine had it, e.g. because its body is malformed.
    pub(crate) fn refuse(self: &Arc<OutcomeCounts>, outcome: Outcome) -> Ticket {
        self.ended(outcome, Timing::default(), None)
    }

    pub(super) fn ended(
        self: &Arc<OutcomeCounts>,
        outcome: Outcome,
        timing: Timing,
        answered: Option<(Instant, Duration)>,
    ) -> Ticket {
        Ticket { counts: self.clone(), outcome, items: 0, stream: None, timing, answered }
    }

    /// A request that arrives.
    pub(crate) fn arrive(self: &Arc<OutcomeCounts>) -> Arriving<&Arc<OutcomeCounts>> {
        Arriving(Some(self))
    }

    /// A request that arrives and is given to another task.
    pub(crate) fn arrive_for_task(self: &Arc<OutcomeCounts>) -> Arriving<Arc<OutcomeCounts>> {
        Arriving(Some(self.clone()))
    }
}

/// A request that is being received or decoded. If this is dropped, its client has left, and the request is counted as
/// cancelled.
#[derive(Debug)]
pub(crate) struct Arriving<C: AsRef<OutcomeCounts>>(Option<C>);

impl<C: AsRef<OutcomeCounts>> Arriving<C> {
    /// The request has arrived. From now on the code that took it over counts it.
    pub(crate) fn end(mut self) {
        self.0 = None;
    }
}

impl<C: AsRef<OutcomeCounts>> Drop for Arriving<C> {
    fn drop(&mut self) {
        if let Some(counts) = &self.0 {
            counts.as_ref().count(Outcome::Cancelled);
        }
    }
}

/// A request that has ended; counted when this is dropped, which may be with the body of its answer.
#[derive(Debug)]
pub struct Ticket {
    counts: Arc<OutcomeCounts>,
    outcome: Outcome,
    /// Items of the request; 0 if its body was not decoded.
    items: u32,
    /// Counts the request too if it was answered part by part.
    stream: Option<Arc<StreamMeters>>,
    /// Where the time of its slowest item went.
    pub timing: Timing,
    /// When the engine had answered it, and the duration that its histogram counts; `None` if the engine never had it.
    pub(crate) answered: Option<(Instant, Duration)>,
}

impl Ticket {
    /// The deployment that it was for, if there is such a one.
    pub(crate) fn deployment(&self) -> Option<&str> {
        Some(&*self.counts.deployment).filter(|&name| name != UNKNOWN)
    }

    /// The ticket of a request of so many items.
    pub(crate) fn of_items(mut self, items: u32) -> Ticket {
        self.items = items;
        self
    }

    /// The same for a request that was answered part by part.
    pub(crate) fn of_stream(mut self, stream: Option<Arc<StreamMeters>>) -> Ticket {
        self.stream = stream;
        self
    }

    /// Items of the request; 0 if its body was not decoded.
    pub(crate) fn items(&self) -> u32 {
        self.items
    }

    /// How the request ended.
    pub(crate) fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// What the access log says of it.
    pub(crate) fn ended(&self, status: u16) -> Ended<'_> {
        Ended {
            deployment: self.deployment(),
            outcome: Some(self.outcome),
            status,
            items: self.items as usize,
            batch_size: self.timing.batch_size.into(),
        }
    }

    /// How the request is counted: an answer may turn out to be impossible to write.
    pub fn set_outcome(&mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.counts.count(self.outcome);
        if let Some(stream) = &self.stream {
            stream.count(self.outcome);
        }
    }
}
