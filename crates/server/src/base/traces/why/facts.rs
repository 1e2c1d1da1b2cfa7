//! What is known about a request that took long or failed.

use jitney_core::policy::batch_policy::CloseReason;
use std::time::Duration;

/// How long the engine had a request, in parts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Lengths {
    /// From arrival to the launch of its batch.
    pub(crate) queue: Duration,
    /// From launch to results, without the model.
    pub(crate) link: Duration,
    /// In `predict`.
    pub(crate) predict: Duration,
}

impl Lengths {
    /// All of it.
    pub(crate) fn total(&self) -> Duration {
        self.queue + self.link + self.predict
    }
}

/// What is usual for the requests of a deployment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usual {
    /// The median duration of requests.
    pub(crate) total: Duration,
    /// The mean of each part.
    pub(crate) lengths: Lengths,
    /// The mean number of bytes of an item.
    pub(crate) bytes: u64,
    /// Of the largest item of each batch, the mean.
    pub(crate) largest: Largest,
}

/// What the largest item of a batch has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Largest {
    /// 1 without a cost.
    pub(crate) cost: f64,
    pub(crate) bytes: f64,
}

/// The batch that a request was in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchFacts {
    pub(crate) items: usize,
    pub(crate) most_items: usize,
    pub(crate) reason: CloseReason,
    /// For how long a replica had been idle next to the waiting items.
    pub(crate) held: Duration,
    /// What the largest of its items costs; 1 without a cost.
    pub(crate) largest_cost: u64,
    /// Bytes of the largest of its items, and of all.
    pub(crate) largest_bytes: u64,
    pub(crate) bytes: u64,
    /// The number of the replica that computed it, and how many times as long as the median one it takes.
    pub(crate) replica: u32,
    pub(crate) factor: f64,
}

/// Everything that the sentence rests on. The parts of its time add up to the whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct Story<'s> {
    /// From its head until its body was read; 0 if that is not known.
    pub(crate) receive: Duration,
    pub(crate) lengths: Lengths,
    /// From its results until its client had the answer; 0 if that is not known.
    pub(crate) render: Duration,
    /// `None` while too few requests have ended.
    pub(crate) usual: Option<Usual>,
    /// `None` if it was answered.
    pub(crate) failure: Option<FailureFacts<'s>>,
    /// Items that waited when it arrived.
    pub(crate) ahead: u64,
    pub(crate) bytes: u64,
    pub(crate) cost: u64,
    /// How often it came back to the queue: its worker was lost, or had no room.
    pub(crate) returns: u64,
    /// Why its first worker was lost, if that is known.
    pub(crate) lost: Option<&'s str>,
    /// Replicas that were ready.
    pub(crate) replicas: usize,
    /// `None` if it was in no batch.
    pub(crate) batch: Option<BatchFacts>,
}

/// How a request failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailureFacts<'s> {
    pub(crate) reason: &'s str,
    /// What its client reads; `None` where it is not at hand. Then the sentence says where the time went.
    pub(crate) detail: Option<&'s str>,
}
