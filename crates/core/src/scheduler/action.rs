//! What the engine must do.

use crate::learn::batch_cost::BatchCost;
use crate::policy::batch_policy::CloseReason;
use crate::request::{BatchId, ItemId, ReplicaId};
use crate::scheduler::item::EndedItem;
use crate::tables::outcome::Outcome;
use std::time::Duration;

/// What the engine must do.
#[derive(Debug)]
pub enum Action<P> {
    /// Send these items to a replica.
    Launch(Launch),
    /// Answer this item, which has ended without a result.
    Fail(EndedItem<P>, Outcome),
    /// Report to a replica that no client waits for this item any more.
    Forget(ReplicaId, ItemId),
    /// End a replica: its batch has run for longer than `batch_timeout_s`.
    Kill(ReplicaId),
}

/// A batch that leaves.
#[derive(Debug, PartialEq, Eq)]
pub struct Launch {
    /// The batch; no other one of this deployment has this number.
    pub batch: BatchId,
    /// The replica that gets it.
    pub replica: ReplicaId,
    /// Its items in order; their payloads are still with the scheduler.
    pub items: Vec<ItemId>,
    /// How many items there are and what they cost.
    pub load: BatchCost,
    /// Why it was closed.
    pub reason: CloseReason,
    /// How many of the items another replica has too, whose link is silent or was.
    pub copies: usize,
    /// For how long a replica had been idle next to the waiting items.
    pub held: Duration,
}
