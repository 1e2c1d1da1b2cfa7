//! How requests end: the one place that counts them, for every protocol.

use crate::base::telemetry::Telemetry;
use crate::values::answer::Timing;
use jitney_core::tables::outcome::Outcome;
use prometheus::IntCounter;
use std::sync::Arc;

/// What stands for the deployment of a request that named none, or one that is not there. No deployment may have this name.
pub const UNKNOWN: &str = "(unknown)";

/// Counts how the requests of one deployment end.
#[derive(Debug)]
pub struct OutcomeCounts(Vec<IntCounter>);

impl OutcomeCounts {
    /// The counts of the deployment that has this name.
    pub(crate) fn new(telemetry: &Telemetry, deployment: &str) -> Arc<OutcomeCounts> {
        Arc::new(OutcomeCounts(telemetry.outcomes(deployment)))
    }

    pub(super) fn count(&self, outcome: Outcome) {
        self.0[outcome as usize].inc();
    }

    /// A request that ended before the engine had it, e.g. because its body is malformed.
    pub(crate) fn refuse(self: &Arc<OutcomeCounts>, outcome: Outcome) -> Ticket {
        self.ended(outcome, Timing::default())
    }

    pub(super) fn ended(self: &Arc<OutcomeCounts>, outcome: Outcome, timing: Timing) -> Ticket {
        Ticket { counts: self.clone(), outcome, timing }
    }

    /// A request that arrives.
    pub(crate) fn arrive(self: &Arc<OutcomeCounts>) -> Arriving<'_> {
        Arriving(Some(self))
    }
}

/// A request that is being received or decoded. If this is dropped, its client has left, and the request is counted as
/// cancelled.
#[derive(Debug)]
pub(crate) struct Arriving<'a>(Option<&'a Arc<OutcomeCounts>>);

impl Arriving<'_> {
    /// It has arrived: whoever has it now counts it.
    pub(crate) fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for Arriving<'_> {
    fn drop(&mut self) {
        if let Some(counts) = self.0 {
            counts.count(Outcome::Cancelled);
        }
    }
}

/// A request that has ended; counted when this is dropped, which may be with the body of its answer.
#[derive(Debug)]
pub struct Ticket {
    counts: Arc<OutcomeCounts>,
    outcome: Outcome,
    /// Where the time of its slowest item went.
    pub timing: Timing,
}

impl Ticket {
    /// How the request ended.
    pub(crate) fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// How the request is counted: an answer may turn out to be impossible to write.
    pub fn set_outcome(&mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.counts.count(self.outcome);
    }
}
