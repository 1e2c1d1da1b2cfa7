//! The items that a replica holds. Items join and leave one by one: this is an open set, not a closed batch.

use crate::replicas::loss_history::LossHistory;
use crate::request::{BatchId, ItemId};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;

/// An item whose client no longer waits while a worker has it. If that worker is lost, the item may be why.
#[derive(Clone, Debug)]
pub struct Departed<I> {
    /// The input; it shares the memory of the payload.
    pub input: I,
    /// The hash of the whole input, if it was computed.
    pub whole: Option<u64>,
    /// The workers that were lost with it before.
    pub history: LossHistory,
}

/// One item that a replica holds.
#[derive(Clone, Debug)]
pub struct HeldItem<I> {
    /// The batch that it came with.
    pub batch: BatchId,
    /// Its cost, in cost units.
    pub cost: u64,
    /// Whether `predict` was called with it, as far as is known.
    pub is_started: bool,
    /// Set once no client waits for it any more.
    pub departed: Option<Box<Departed<I>>>,
    /// Counts the items that have joined, so that they can be listed in that order.
    joined: u64,
}

/// The items of one replica.
#[derive(Debug)]
pub struct HeldItems<I> {
    by_id: FxHashMap<ItemId, HeldItem<I>>,
    /// Wider than one cost: clients may send any.
    cost: u128,
    joined: u64,
}

impl<I> Default for HeldItems<I> {
    fn default() -> HeldItems<I> {
        HeldItems { by_id: FxHashMap::default(), cost: 0, joined: 0 }
    }
}

impl<I> HeldItems<I> {
    /// An item joins with a batch.
    pub fn join(&mut self, id: ItemId, batch: BatchId, cost: u64) {
        self.joined += 1;
        self.cost += u128::from(cost);
        self.by_id.insert(id, HeldItem { batch, cost, is_started: false, departed: None, joined: self.joined });
    }

    /// The model begins on the items of a batch.
    pub fn start(&mut self, batch: BatchId) {
        self.by_id.values_mut().filter(|item| item.batch == batch).for_each(|item| item.is_started = true);
    }

    /// No client waits for an item any more; the worker still has it.
    pub fn depart(&mut self, id: ItemId, departed: Departed<I>) {
        if let Some(item) = self.by_id.get_mut(&id) {
            item.departed = Some(Box::new(departed));
        }
    }

    /// The batch with which an item came.
    pub fn batch_of(&self, id: ItemId) -> Option<BatchId> {
        self.by_id.get(&id).map(|item| item.batch)
    }

    /// All items, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (ItemId, &HeldItem<I>)> {
        self.by_id.iter().map(|(&id, item)| (id, item))
    }

    /// The hash of the whole input of an item that no client waits for any more was computed.
    pub fn fingerprinted(&mut self, id: ItemId, whole: u64) {
        if let Some(departed) = self.by_id.get_mut(&id).and_then(|item| item.departed.as_mut()) {
            departed.whole = Some(whole);
        }
    }

    /// The worker is done with an item of a batch. Returns its cost, in cost units; `None` if it is not here.
    pub fn end(&mut self, batch: BatchId, id: ItemId) -> Option<u64> {
        let Entry::Occupied(item) = self.by_id.entry(id) else { return None };
        let cost = (item.get().batch == batch).then(|| item.remove().cost)?;
        self.cost -= u128::from(cost);
        Some(cost)
    }

    /// The batches whose items are here, in the order in which they joined.
    pub fn batches(&self) -> Vec<BatchId> {
        let mut batches: Vec<_> = self.by_id.values().map(|item| (item.joined, item.batch)).collect();
        batches.sort_unstable();
        batches.dedup_by_key(|&mut (_, batch)| batch);
        batches.into_iter().map(|(_, batch)| batch).collect()
    }

    /// Takes all items of a batch that the worker is not done with, in the order in which they joined.
    pub fn take_batch(&mut self, batch: BatchId) -> Vec<(ItemId, HeldItem<I>)> {
        let mut taken: Vec<_> = self.by_id.extract_if(|_, item| item.batch == batch).collect();
        taken.sort_unstable_by_key(|(_, item)| item.joined);
        self.cost -= taken.iter().map(|(_, item)| u128::from(item.cost)).sum::<u128>();
        taken
    }

    /// How many items the replica holds.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether the replica holds no item.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The cost of all items together, in cost units.
    pub fn cost(&self) -> u128 {
        self.cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_join_and_leave_one_by_one() {
        let mut held: HeldItems<()> = HeldItems::default();
        for (id, batch, cost) in [(1, 1, 5), (2, 1, 7), (3, 2, u64::MAX)] {
            held.join(ItemId(id), BatchId(batch), cost);
        }
        held.start(BatchId(1));
        held.end(BatchId(2), ItemId(1));
        assert_eq!(held.len(), 3, "that item did not come with this batch");
        held.end(BatchId(1), ItemId(1));
        assert_eq!((held.len(), held.cost()), (2, u128::from(u64::MAX) + 7));
        let left: Vec<_> = held.take_batch(BatchId(1)).into_iter().map(|(id, item)| (id.0, item.is_started)).collect();
        assert_eq!((left, held.len()), (vec![(2, true)], 1));
        let left: Vec<_> = held.take_batch(BatchId(2)).into_iter().map(|(id, item)| (id.0, item.is_started)).collect();
        assert_eq!((left, held.is_empty(), held.cost()), (vec![(3, false)], true, 0));
    }
}
