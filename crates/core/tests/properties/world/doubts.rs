//! Replicas that are silent: what they have is given to others too, and the first answer counts.

use super::{Item, Place, Promise, World};
use jitney_core::request::{BatchId, ItemId, ReplicaId};
use std::collections::BTreeSet;

impl Item {
    /// All batches that have it.
    pub(super) fn holders(&self) -> Vec<BatchId> {
        let own = match self.place {
            Place::Batch(batch) => Some(batch),
            Place::Waiting | Place::Suspect => None,
        };
        own.into_iter().chain(self.copies.iter().copied()).collect()
    }

    /// Where it waits if it must run again.
    fn queue(&self) -> Place {
        if self.record.is_suspect() { Place::Suspect } else { Place::Waiting }
    }
}

impl World {
    pub(crate) fn doubt(&mut self, id: ReplicaId) {
        self.scheduler.doubt(id, true);
        let replica = self.replicas.get_mut(&id).expect("it is up");
        replica.doubtful = true;
        let held = replica.batches.clone();
        let held: Vec<_> = held.into_iter().filter(|batch| self.rules.retry && !self.batches[batch].alone).collect();
        for batch in held {
            let of_batch = self.items.iter().filter(|(_, item)| item.place == Place::Batch(batch));
            for id in of_batch.map(|(id, _)| *id).collect::<Vec<_>>() {
                self.runs_elsewhere(id, batch);
                self.items.get_mut(&id).expect("listed above").copies.push(batch);
            }
        }
        self.settle();
    }

    pub(crate) fn trust(&mut self, id: ReplicaId) {
        self.scheduler.trust(id);
        let replica = self.replicas.get_mut(&id).expect("it is up");
        replica.doubtful = false;
        let held = replica.batches.clone();
        for item in self.items.values_mut().filter(|item| !matches!(item.place, Place::Batch(_))) {
            if let Some(&batch) = item.copies.iter().find(|batch| held.contains(batch)) {
                item.copies.retain(|&copy| copy != batch);
                item.place = Place::Batch(batch);
            }
        }
        self.settle();
    }

    /// A batch has answered an item: the other workers may still die of it.
    pub(super) fn dropped_by_all_but(&mut self, batch: BatchId, id: ItemId) {
        let item = self.items[&id].clone();
        for other in item.holders().into_iter().filter(|&other| other != batch) {
            self.batches.get_mut(&other).expect("held batches are known").left.insert(id, item.clone());
        }
    }

    /// A batch has an item no longer. Whether no other replica that is heard has it, and it waits for none.
    pub(super) fn has_last(&mut self, id: ItemId, batch: BatchId) -> bool {
        let Some(item) = self.items.get_mut(&id).filter(|item| item.holders().contains(&batch)) else { return false };
        item.copies.retain(|&copy| copy != batch);
        if item.place != Place::Batch(batch) {
            if item.place == Place::Waiting {
                item.place = item.queue();
            }
            return false;
        }
        let is_heard =
            |copy: &BatchId| self.batches.get(copy).is_some_and(|batch| !self.replicas[&batch.replica].doubtful);
        let Some(heard) = item.copies.iter().copied().find(is_heard) else { return true };
        item.copies.retain(|&copy| copy != heard);
        item.place = Place::Batch(heard);
        false
    }

    /// A batch has lost an item, which must run again unless another replica has it.
    pub(super) fn runs_elsewhere(&mut self, id: ItemId, batch: BatchId) {
        if self.has_last(id, batch) {
            let item = self.items.get_mut(&id).expect("it has a holder");
            item.place = item.queue();
        }
    }

    /// An item is with each replica once, with several only if all but one of them were silent, and with none without `retry`.
    pub(super) fn check_copies(&mut self) {
        let mut wrong = Vec::new();
        for (id, item) in &self.items {
            let replicas: Vec<_> = item.holders().iter().map(|batch| self.batches[batch].replica).collect();
            let unique: BTreeSet<_> = replicas.iter().collect();
            if unique.len() != replicas.len() || !item.copies.is_empty() && !self.rules.retry {
                wrong.push((*id, replicas));
            }
        }
        self.hold(Promise::EndsOnce, wrong.is_empty(), || format!("copies: {wrong:?}"));
    }
}
