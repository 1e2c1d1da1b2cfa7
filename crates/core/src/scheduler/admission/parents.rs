//! What items pass on to others that their model asks for: the terms of the requests behind them.

use crate::request::{ItemId, Priority, ReplicaId};
use crate::scheduler::item::Payload;
use crate::scheduler::state::Scheduler;
use crate::time::Time;

/// The terms of the items for which a model asks: it is their latest deadline, their oldest request, their most urgent class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParentTerms {
    /// After it no parent waits for the answer.
    pub deadline: Time,
    /// When the oldest of the requests behind the parents arrived.
    pub since: Time,
    /// The class.
    pub priority: Priority,
    /// The first part of an answer moves the deadline of one of them.
    pub may_stream: bool,
}

impl<P: Payload> Scheduler<P> {
    /// The terms of these items, without those that this replica does not have or that have ended; `None` if none is left.
    pub fn parent_terms(&self, replica: ReplicaId, items: &[ItemId]) -> Option<ParentTerms> {
        let held = items.iter().filter(|&&id| self.replica_of(id) == Some(replica));
        let terms = held.filter_map(|id| self.entries.get(id)).map(|entry| ParentTerms {
            deadline: entry.deadline,
            since: entry.since,
            priority: entry.waiting.priority,
            may_stream: entry.may_stream,
        });
        terms.reduce(|one, other| ParentTerms {
            deadline: one.deadline.max(other.deadline),
            since: one.since.min(other.since),
            priority: one.priority.min(other.priority),
            may_stream: one.may_stream || other.may_stream,
        })
    }
}
