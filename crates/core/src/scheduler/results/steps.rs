//! What workers report of open sets: of models that work in steps, and of items that run side by side.

use crate::learn::batch_cost::BatchCost;
use crate::queue::groups::WITHOUT_KEY;
use crate::replicas::batch::Batch;
use crate::request::{BatchId, ItemId, ReplicaId};
use crate::scheduler::item::{Payload, Stage};
use crate::scheduler::state::Scheduler;
use crate::time::Time;
use std::time::Duration;

/// One step of a model, as its worker reports it. Where items run side by side, what one turn of the event loop brought: only
/// `joined` is not 0 then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Items that the step computed: all of one group key, without those that were left out.
    pub active: usize,
    /// Items that joined right before it.
    pub joined: usize,
    /// What the step took, without the next.
    pub took: Duration,
    /// What it took to decode and to admit the newcomers.
    pub join_took: Duration,
    /// Whether all items together were too many for the memory of the device.
    pub is_out_of_memory: bool,
}

impl<P: Payload> Scheduler<P> {
    /// A replica made a step. This is said before the ends of items that the step brought: an item stays until the end of its
    /// last step.
    pub fn stepped(&mut self, now: Time, replica: ReplicaId, step: Step) {
        let Some(class) = self.replicas.class(replica).filter(|_| self.rules.joins) else { return };
        let items = self.open_sets.stepped(replica, now);
        // What was computed in several calls teaches nothing.
        if self.rules.side_by_side || step.is_out_of_memory {
            return;
        }
        let stepping = items.saturating_sub(self.pauses.of(replica));
        let models = self.models.learn_of(class);
        models.steps.joined(step.joined, step.join_took.as_secs_f64());
        if step.active > 0 {
            models.profiled(BatchCost::alike(step.active, 1), step.took);
            models.steps.stepped(step.active, stepping, step.took.as_secs_f64());
            // Before that time there may still be more items than are taken to fit.
            if self.memory_limits.of(WITHOUT_KEY).is_some_and(|(_, try_at)| now >= try_at) {
                self.memory_limits.fitted(WITHOUT_KEY, items, self.rules.batch.max_items);
            }
        }
    }

    /// The items of a replica were too many for the memory of its device. Returns how many are taken to fit. This is said before the
    /// step, which may bring ends.
    pub fn open_set_too_large(&mut self, now: Time, replica: ReplicaId) -> usize {
        self.memory_limits.too_large(WITHOUT_KEY, self.open_sets.items(replica), now)
    }

    /// The batch with which an item came to a replica that holds it; its client may have left.
    pub fn batch_of(&mut self, replica: ReplicaId, id: ItemId) -> Option<BatchId> {
        self.replicas.items(replica)?.batch_of(id)
    }

    /// For how long this batch has been with its replica.
    pub fn runs_for(&self, now: Time, batch: BatchId) -> Duration {
        let since = self.batches.get(&batch).and_then(|batch| batch.runs_since);
        since.map_or(Duration::ZERO, |since| now - since)
    }

    /// Whether items of this batch have not ended.
    pub fn has_batch(&self, batch: BatchId) -> bool {
        self.batches.contains_key(&batch)
    }

    /// The model has no room for an item now: the item goes back to its place in its lane.
    pub fn later(&mut self, now: Time, batch: BatchId, id: ItemId) {
        let Some(replica) = self.batches.get(&batch).filter(|_| self.rules.joins).map(|batch| batch.replica) else {
            return;
        };
        let Some(cost) = self.replicas.items(replica).and_then(|items| items.end(batch, id)) else { return };
        self.open_sets.later(replica, cost, now);
        let is_suspect = self.left(batch);
        let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.stage == Stage::Batch(batch)) else { return };
        (entry.launched, entry.batch_size) = (None, 0);
        self.pauses.remove(id);
        self.queued_bytes += entry.bytes;
        entry.payload.waits_again();
        if is_suspect {
            entry.stage = Stage::Suspect;
            self.quarantine.add_suspect(id);
        } else {
            self.put_back(id);
        }
    }

    /// The worker is done with an item of an open set, whose place is free now.
    pub(super) fn place_is_free(&mut self, batch: BatchId, cost: u64) {
        let Some(&Batch { replica, class, runs_since, .. }) = self.batches.get(&batch) else { return };
        let models = self.models.learn_of(class);
        match runs_since.zip(self.open_sets.reported(replica)) {
            // The report that brings an end is noted before it.
            Some((joined, ended)) if self.rules.side_by_side => models.stays.ended(ended - joined),
            _ => models.steps.ended(),
        }
        self.open_sets.leave(replica, cost);
        self.left(batch);
    }

    /// One item of a batch has left its replica. The batch ends with its last item. Returns whether it was that of a suspect.
    fn left(&mut self, id: BatchId) -> bool {
        let Some(batch) = self.batches.get_mut(&id) else { return false };
        batch.left -= 1;
        let is_suspect = batch.suspect.is_some();
        if batch.left == 0 {
            self.remove_batch(id);
        }
        is_suspect
    }
}
