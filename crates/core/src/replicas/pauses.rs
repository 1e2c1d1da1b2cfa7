//! Items whose parts wait for their clients. A paused item keeps its place in its replica and makes no step: it counts for room
//! and for cost, and not for what a step takes.

use crate::request::{ItemId, ReplicaId};
use crate::time::Time;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// The items that are paused.
#[derive(Debug, Default)]
pub struct Pauses {
    /// With the replica that has the item, and when the item ends unless its client reads.
    items: FxHashMap<ItemId, (ReplicaId, Time)>,
    ends: BTreeSet<(Time, ItemId)>,
    in_replica: FxHashMap<ReplicaId, usize>,
}

impl Pauses {
    /// An item is paused; false if it is already.
    pub fn add(&mut self, id: ItemId, replica: ReplicaId, end: Time) -> bool {
        if self.items.contains_key(&id) {
            return false;
        }
        self.items.insert(id, (replica, end));
        self.ends.insert((end, id));
        *self.in_replica.entry(replica).or_default() += 1;
        true
    }

    /// The item is not paused any more. Returns the replica that has it, if it was.
    pub fn remove(&mut self, id: ItemId) -> Option<ReplicaId> {
        // Most models have no paused item, ever.
        if self.items.is_empty() {
            return None;
        }
        let (replica, end) = self.items.remove(&id)?;
        self.ends.remove(&(end, id));
        if let Some(count) = self.in_replica.get_mut(&replica) {
            *count -= 1;
            if *count == 0 {
                self.in_replica.remove(&replica);
            }
        }
        Some(replica)
    }

    /// Items of a replica that are paused.
    pub fn of(&self, replica: ReplicaId) -> usize {
        self.in_replica.get(&replica).copied().unwrap_or(0)
    }

    /// Items that are paused.
    pub fn count(&self) -> usize {
        self.items.len()
    }

    /// The item that ends first unless its client reads, and when.
    pub fn first(&self) -> Option<(Time, ItemId)> {
        self.ends.first().copied().filter(|(end, _)| end.0 != u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_paused_once_and_the_first_end_comes_first() {
        let (mut pauses, one, other) = (Pauses::default(), ReplicaId(1), ReplicaId(2));
        assert!(pauses.add(ItemId(1), one, Time(9)) && pauses.add(ItemId(2), one, Time(5)));
        assert!(!pauses.add(ItemId(2), one, Time(1)) && pauses.add(ItemId(3), other, Time(u64::MAX)));
        assert_eq!((pauses.count(), pauses.of(one), pauses.of(other)), (3, 2, 1));
        assert_eq!(pauses.first(), Some((Time(5), ItemId(2))));
        assert_eq!((pauses.remove(ItemId(2)), pauses.remove(ItemId(2))), (Some(one), None));
        assert_eq!((pauses.of(one), pauses.first()), (1, Some((Time(9), ItemId(1)))));
        pauses.remove(ItemId(1));
        assert_eq!((pauses.of(one), pauses.first(), pauses.count()), (0, None, 1), "the last one has no end");
    }
}
