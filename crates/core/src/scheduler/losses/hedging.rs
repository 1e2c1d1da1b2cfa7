//! Copies of items. What a replica has whose link is silent is given to another one too, and the first answer counts.

use crate::request::{BatchId, ItemId, ReplicaId};
use crate::scheduler::action::Action;
use crate::scheduler::item::{Payload, Stage};
use crate::scheduler::state::Scheduler;

impl<P: Payload> Scheduler<P> {
    /// Nothing is heard of a replica. It gets nothing until `trust`. With `copies` its items wait for another replica too, if
    /// they may run twice. Items that run alone as suspects do not, nor those of open sets.
    pub fn doubt(&mut self, id: ReplicaId, copies: bool) {
        self.has_news = true;
        self.replicas.set_doubtful(id, true);
        self.open_sets.set_doubtful(id, true);
        for batch in self.batches.values_mut().filter(|batch| batch.replica == id) {
            batch.was_doubtful = true;
        }
        if !copies || !self.rules.retry || self.rules.joins {
            return;
        }
        for (item, batch) in self.held_by(id) {
            let is_alone = self.batches.get(&batch).is_none_or(|batch| batch.suspect.is_some());
            let entry = self.entries.get(&item).filter(|entry| entry.stage == Stage::Batch(batch));
            if entry.is_some_and(|entry| !is_alone && entry.payload.may_run_again()) {
                if !self.has_heard_copy(item) {
                    self.wait_again(item);
                }
                self.entries.get_mut(&item).into_iter().for_each(|entry| entry.copies.push(batch));
            }
        }
    }

    /// A doubtful replica is heard again. It keeps those of its items that no other replica has got meanwhile.
    pub fn trust(&mut self, id: ReplicaId) {
        self.has_news = true;
        self.replicas.set_doubtful(id, false);
        self.open_sets.set_doubtful(id, false);
        for (item, batch) in self.held_by(id) {
            let waits = |stage| !matches!(stage, Stage::Batch(_));
            if self.entries.get(&item).is_some_and(|entry| waits(entry.stage) && entry.copies.contains(&batch)) {
                self.take_back(batch, item);
            }
        }
    }

    /// A batch has the first answer for an item, or a part of it. All other replicas that have the item drop it.
    pub fn answered_by(&mut self, batch: BatchId, id: ItemId) {
        if self.entries.get(&id).is_some_and(|entry| entry.copies.contains(&batch)) {
            self.take_back(batch, id);
        }
        let is_its = self.entries.get(&id).is_some_and(|entry| entry.stage == Stage::Batch(batch));
        if is_its {
            self.drop_copies(id);
        }
    }

    /// Whether further replicas have an item.
    pub(in crate::scheduler) fn has_copies(&self, id: ItemId) -> bool {
        self.entries.get(&id).is_some_and(|entry| !entry.copies.is_empty())
    }

    /// A batch that had an item has ended without an answer to it. True if nothing is to be done for the item: another replica that is
    /// heard has it, or it waits for one.
    pub(in crate::scheduler) fn goes_on(&mut self, batch: BatchId, id: ItemId) -> bool {
        let Some(entry) = self.entries.get_mut(&id) else { return false };
        if let Some(place) = entry.copies.iter().position(|&copy| copy == batch) {
            entry.copies.remove(place);
            if matches!(entry.stage, Stage::Lane(_)) && entry.history.is_suspect() {
                // The loss of this replica has made it one.
                self.stop_waiting(id);
                self.wait_again(id);
            }
            return true;
        }
        self.has_heard_copy(id)
    }

    /// Whether a replica that is heard has a copy of an item. Then the item is that of this replica.
    fn has_heard_copy(&mut self, id: ItemId) -> bool {
        let Some(entry) = self.entries.get_mut(&id) else { return false };
        let is_heard =
            |copy: &BatchId| self.batches.get(copy).is_some_and(|batch| !self.replicas.is_doubtful(batch.replica));
        let Some(heard) = entry.copies.iter().position(is_heard) else { return false };
        entry.stage = Stage::Batch(entry.copies.remove(heard));
        true
    }

    /// All further replicas that have an item drop it. If one of them is lost first, the item may be why.
    pub(in crate::scheduler) fn drop_copies(&mut self, id: ItemId) {
        let Some(entry) = self.entries.get_mut(&id).filter(|entry| !entry.copies.is_empty()) else { return };
        let copies = std::mem::take(&mut entry.copies);
        let departed = entry.departed();
        for batch in copies {
            let Some(replica) = self.batches.get(&batch).map(|batch| batch.replica) else { continue };
            if let Some(items) = self.replicas.items(replica) {
                items.depart(id, departed.clone());
            }
            self.pending.push_back(Action::Forget(replica, id));
        }
    }

    /// An item is that of this batch, which has a copy of it. If another batch has the item, that one has the copy now.
    fn take_back(&mut self, batch: BatchId, id: ItemId) {
        self.stop_waiting(id);
        let size = self.batches.get(&batch).map_or(1, |batch| batch.size);
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.copies.retain(|&copy| copy != batch);
        match std::mem::replace(&mut entry.stage, Stage::Batch(batch)) {
            Stage::Batch(other) => entry.copies.push(other),
            Stage::Lane(_) | Stage::Suspect => entry.payload.waits_no_longer(),
        }
        entry.batch_size = size as u32;
    }

    /// The items that a replica has, each with its batch, in the order in which they came.
    fn held_by(&mut self, id: ReplicaId) -> Vec<(ItemId, BatchId)> {
        let Some(items) = self.replicas.items(id) else { return Vec::new() };
        let mut held: Vec<_> = items.iter().map(|(item, held)| (item, held.batch)).collect();
        held.sort_unstable();
        held
    }
}
