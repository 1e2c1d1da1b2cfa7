//! All lanes of a deployment: found by group key, ordered by the rank of their heads. Empty ones are freed.

use crate::group_key::GroupKey;
use crate::lane::{BatchLimits, Lane, Waiting, rank};
use crate::request::{ItemId, Priority};
use crate::time::Time;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::time::Duration;

/// A live lane. Numbers are reused once a lane has been freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u32);

/// What all lanes of one group key have in common, also those that were freed in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kin(pub u64);

impl Kin {
    /// That of a group key.
    pub fn of(key: &GroupKey) -> Kin {
        Kin(FxBuildHasher.hash_one(key))
    }
}

/// What leaves before an item that comes now, if all lanes are served in turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// Batches before the one that it would join.
    pub batches: usize,
    /// Items in any lane.
    pub items: usize,
    /// Those of them in its own.
    pub own: usize,
}

#[derive(Debug)]
struct Slot {
    key: GroupKey,
    kin: Kin,
    lane: Lane,
    head: Option<(Time, Waiting)>,
    oldest: Option<Time>,
    full: bool,
}

/// The lanes that hold something, at most `most` of them.
#[derive(Debug)]
pub struct Lanes {
    limits: BatchLimits,
    boost: Duration,
    most: usize,
    by_key: FxHashMap<GroupKey, LaneId>,
    slots: Vec<Option<Slot>>,
    free: Vec<LaneId>,
    by_rank: BTreeSet<(Time, LaneId)>,
    by_age: BTreeSet<(Time, LaneId)>,
    full: BTreeSet<(Time, LaneId)>,
    items: usize,
    by_class: [usize; 3],
    cost: u128,
    batches: usize,
}

impl Lanes {
    /// No lanes yet.
    pub fn new(limits: BatchLimits, boost: Duration, most: usize) -> Lanes {
        Lanes {
            limits,
            boost,
            most,
            by_key: FxHashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            by_rank: BTreeSet::new(),
            by_age: BTreeSet::new(),
            full: BTreeSet::new(),
            items: 0,
            by_class: [0; 3],
            cost: 0,
            batches: 0,
        }
    }

    /// Items in all lanes.
    pub fn items(&self) -> usize {
        self.items
    }

    /// What the items of all lanes cost together.
    pub fn cost(&self) -> u128 {
        self.cost
    }

    /// What an item costs in the mean, of those that wait and one more of this cost.
    pub fn mean_cost_with(&self, cost: u64) -> f64 {
        (self.cost as f64 + cost as f64) / (self.items + 1) as f64
    }

    /// What waits in a live lane, soonest first, each with its class.
    pub fn in_order(&self, id: LaneId) -> impl Iterator<Item = (Priority, Waiting)> + '_ {
        self.lane(id).in_order(self.boost)
    }

    /// Batches that it takes to empty all lanes.
    pub fn batches(&self) -> usize {
        self.batches
    }

    /// What leaves before an item of this key and class that comes now. Where somebody of a later class waits, it takes a
    /// look at each lane whose head ranks before.
    pub fn ahead(&self, now: Time, key: &GroupKey, priority: Priority) -> Ahead {
        let own = self.by_key.get(key).copied();
        if self.by_class[priority as usize + 1..].iter().all(|&items| items == 0) {
            let own = own.map(|id| self.lane(id));
            let joins = own.map_or(0, |lane| lane.batches(self.limits) - lane.full_batches(self.limits));
            return Ahead { batches: self.batches - joins, items: self.items, own: own.map_or(0, Lane::len) };
        }
        let rank = rank(now, priority, self.boost);
        let mut ahead = Ahead::default();
        for &(_, id) in self.by_rank.range(..=(rank, LaneId(u32::MAX))) {
            let lane = self.lane(id);
            let items = lane.before(rank, self.boost);
            ahead.items += items;
            if Some(id) == own {
                ahead.own = items;
                ahead.batches +=
                    (items / self.limits.max_items).max(lane.full_batches(self.limits) * items / lane.len());
            } else {
                ahead.batches += (lane.batches(self.limits) * items).div_ceil(lane.len());
            }
        }
        ahead
    }

    /// Lanes that hold something.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// What bounds a batch.
    pub fn limits(&self) -> BatchLimits {
        self.limits
    }

    /// Whether an item of this key finds a lane or may open one.
    pub fn has_room(&self, key: &GroupKey) -> bool {
        self.by_key.len() < self.most || self.by_key.contains_key(key)
    }

    /// Lanes by the rank of their heads, soonest first.
    pub fn by_rank(&self) -> impl Iterator<Item = LaneId> + '_ {
        self.by_rank.iter().map(|&(_, id)| id)
    }

    /// The full lane whose head is soonest.
    pub fn first_full(&self) -> Option<LaneId> {
        self.full.first().map(|&(_, id)| id)
    }

    /// When the oldest item of all lanes arrived.
    pub fn oldest(&self) -> Option<Time> {
        self.by_age.first().map(|&(at, _)| at)
    }

    /// When the oldest item of a live lane arrived.
    pub fn oldest_in(&self, id: LaneId) -> Time {
        self.slot(id).oldest.expect("a live lane holds something")
    }

    /// A live lane.
    pub fn lane(&self, id: LaneId) -> &Lane {
        &self.slot(id).lane
    }

    /// What the items of a live lane agree on.
    pub fn key(&self, id: LaneId) -> &GroupKey {
        &self.slot(id).key
    }

    /// Which group a live lane is of.
    pub fn kin(&self, id: LaneId) -> Kin {
        self.slot(id).kin
    }

    /// The item that leaves a live lane first.
    pub fn head(&self, id: LaneId) -> Waiting {
        self.slot(id).head.expect("a live lane holds something").1
    }

    /// Whether a batch taken from this lane now would be closed by a limit.
    pub fn is_full(&self, id: LaneId) -> bool {
        self.slot(id).full
    }

    /// Adds an item to the lane of its key.
    pub fn push(&mut self, key: &GroupKey, priority: Priority, item: Waiting) -> LaneId {
        let id = self.by_key.get(key).copied().unwrap_or_else(|| self.open(key));
        self.items += 1;
        self.change(id, |lane| lane.push(priority, item));
        id
    }

    /// Removes an item from a live lane.
    pub fn remove(&mut self, id: LaneId, priority: Priority, item: Waiting) {
        if self.change(id, |lane| lane.remove(priority, item)) {
            self.items -= 1;
        }
    }

    /// Takes the next batch of a live lane, at most `size` items.
    pub fn take(&mut self, id: LaneId, size: usize) -> Vec<ItemId> {
        let limits = BatchLimits { max_items: size.min(self.limits.max_items), ..self.limits };
        let boost = self.boost;
        let taken = self.change(id, |lane| lane.take(limits, boost));
        self.items -= taken.len();
        taken
    }

    /// Takes these items of a live lane into one batch, and counts those that they pass.
    pub fn take_these(&mut self, id: LaneId, chosen: &[ItemId]) -> Vec<ItemId> {
        let boost = self.boost;
        let taken = self.change(id, |lane| lane.take_these(chosen, boost));
        self.items -= taken.len();
        taken
    }

    fn slot(&self, id: LaneId) -> &Slot {
        self.slots[id.0 as usize].as_ref().expect("the lane is live")
    }

    fn open(&mut self, key: &GroupKey) -> LaneId {
        let slot =
            Slot { key: key.clone(), kin: Kin::of(key), lane: Lane::default(), head: None, oldest: None, full: false };
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            LaneId(self.slots.len() as u32 - 1)
        });
        self.slots[id.0 as usize] = Some(slot);
        self.by_key.insert(key.clone(), id);
        id
    }

    /// Every change goes through here, so that the orders and the counters always agree with the lane.
    fn change<R>(&mut self, id: LaneId, act: impl FnOnce(&mut Lane) -> R) -> R {
        let slot = self.slots[id.0 as usize].as_mut().expect("the lane is live");
        let (old_head, was_full, old_batches) = (slot.head, slot.full, slot.lane.batches(self.limits));
        let (old_cost, old_classes) = (slot.lane.cost(), slot.lane.by_class());
        let was_oldest = slot.oldest;
        let result = act(&mut slot.lane);
        slot.head = slot.lane.head(self.boost);
        slot.oldest = slot.lane.oldest();
        slot.full = slot.lane.is_full(self.limits);
        self.cost = self.cost + slot.lane.cost() - old_cost;
        for (all, (new, old)) in self.by_class.iter_mut().zip(slot.lane.by_class().into_iter().zip(old_classes)) {
            *all = *all + new - old;
        }
        self.batches = self.batches + slot.lane.batches(self.limits) - old_batches;
        let (old_rank, rank) = (old_head.map(|h| h.0), slot.head.map(|h| h.0));
        if old_rank != rank {
            old_rank.map(|r| self.by_rank.remove(&(r, id)));
            rank.map(|r| self.by_rank.insert((r, id)));
        }
        if was_oldest != slot.oldest {
            was_oldest.map(|at| self.by_age.remove(&(at, id)));
            slot.oldest.map(|at| self.by_age.insert((at, id)));
        }
        if (old_rank, was_full) != (rank, slot.full) {
            old_rank.filter(|_| was_full).map(|r| self.full.remove(&(r, id)));
            rank.filter(|_| slot.full).map(|r| self.full.insert((r, id)));
        }
        if rank.is_none() {
            let slot = self.slots[id.0 as usize].take().expect("the lane is live");
            self.by_key.remove(&slot.key);
            self.free.push(id);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_ranks_before_is_ahead() {
        let second = Duration::from_secs(1);
        let (now, limits) = (Time(0) + 10 * second, BatchLimits { max_items: 10, max_cost: u64::MAX });
        let mut lanes = Lanes::new(limits, second, 8);
        let [own, other, empty] =
            [1, 2, 3].map(|n| GroupKey([crate::group_key::KeyPart::Int(n)].into_iter().collect()));
        let mut id = 0;
        let mut fill = |key: &GroupKey, priority, arrival, items: u64| {
            for _ in 0..items {
                id += 1;
                lanes.push(key, priority, Waiting { arrival, id: ItemId(id), cost: 1, due: now, passed: 0 });
            }
        };
        fill(&own, Priority::Normal, now, 12);
        fill(&own, Priority::Low, now, 9);
        fill(&other, Priority::Low, now, 25);
        // Older than a head start, so that it ranks before what is normal now.
        fill(&other, Priority::Low, Time(0), 5);
        let of = |key, priority| {
            let Ahead { batches, items, own } = lanes.ahead(now, key, priority);
            (batches, items, own)
        };
        assert_eq!(of(&own, Priority::High), (1, 5, 0), "the old ones are a batch");
        assert_eq!(of(&own, Priority::Normal), (2, 17, 12), "one full batch of its own besides");
        assert_eq!(of(&other, Priority::Normal), (2, 17, 5), "it joins the old ones");
        assert_eq!(of(&other, Priority::Low), (6, 51, 30));
        assert_eq!(of(&empty, Priority::Low), (6, 51, 0));
    }
}
