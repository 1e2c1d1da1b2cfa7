//! One batch at a replica.

use crate::learn::batch_cost::BatchCost;
use crate::request::{BatchId, GroupId, ItemId, ReplicaClass, ReplicaId};
use crate::time::Time;

/// What is known about a batch from its launch until its end. Its items are held by the replica.
#[derive(Debug)]
pub struct Batch {
    /// The batch.
    pub id: BatchId,
    /// The replica that holds it.
    pub replica: ReplicaId,
    /// The class of that replica.
    pub class: ReplicaClass,
    /// The group of its items; `None` for a suspect.
    pub group: Option<GroupId>,
    /// Items at its launch.
    pub size: usize,
    /// Items that its worker is not done with, where each one leaves by itself.
    pub left: usize,
    /// The items that `predict` was called with, as far as is known.
    pub computed: BatchCost,
    /// The bytes of all inputs.
    pub bytes: u64,
    /// When it is taken for a hang, unless it sends a part before; set while it is the running batch.
    pub hangs_at: Option<Time>,
    /// When its worker last sent a part of an answer.
    pub progressed: Option<Time>,
    /// Since when it is the running batch.
    pub runs_since: Option<Time>,
    /// Its replica was silent meanwhile, so how long it took says nothing about the model.
    pub was_doubtful: bool,
    /// The suspect that is computed alone in it.
    pub suspect: Option<ItemId>,
}
