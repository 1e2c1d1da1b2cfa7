//! What the engine knows of a request that took long or failed, for the live page.

use crate::base::traces::why::facts::{FailureFacts, Story};
use crate::base::traces::why::sentence::sentence;
use crate::values::answer::Failure;

pub(crate) use crate::base::traces::why::facts::{BatchFacts, Largest, Lengths, Usual};
pub(crate) use crate::base::traces::why::numbers::{bytes, count, number};
pub(crate) use crate::base::traces::why::sentence::is_far_larger;

/// What is known about one request that took long or failed.
#[derive(Clone, Debug)]
pub(crate) struct RequestFacts {
    pub(crate) request_id: Box<str>,
    /// When it ended, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    pub(crate) lengths: Lengths,
    /// Items that waited when it arrived.
    pub(crate) ahead: usize,
    pub(crate) bytes: u64,
    pub(crate) cost: u64,
    /// How often it came back to the queue: its worker was lost, or had no room.
    pub(crate) returns: u32,
    /// Replicas that were ready when it ended.
    pub(crate) replicas: usize,
    /// `None` if it was in no batch.
    pub(crate) batch: Option<BatchFacts>,
    /// `None` if it was answered.
    pub(crate) failure: Option<Failure>,
    /// `None` while too few requests have ended.
    pub(crate) usual: Option<Usual>,
}

/// Why it took as long as it did, or why it failed. The log and its trace say the same of it.
pub(crate) fn why(facts: &RequestFacts) -> String {
    let failure = facts.failure.as_ref();
    sentence(&Story {
        lengths: facts.lengths,
        usual: facts.usual,
        failure: failure
            .map(|failure| FailureFacts { reason: failure.outcome.reason(), detail: Some(&failure.detail) }),
        ahead: facts.ahead as u64,
        bytes: facts.bytes,
        cost: facts.cost,
        returns: facts.returns.into(),
        replicas: facts.replicas,
        batch: facts.batch,
        ..Story::default()
    })
}
