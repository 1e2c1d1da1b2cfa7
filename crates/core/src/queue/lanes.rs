//! All lanes of a deployment: found by group key, ordered by the rank of their heads. A lane without items is freed.

use crate::config::limits::BatchLimits;
use crate::queue::group_key::GroupKey;
use crate::queue::groups::Groups;
use crate::queue::lane::Lane;
use crate::queue::sorted::SortedQueue;
use crate::queue::waiting::Waiting;
use crate::request::{GroupId, ItemId};
use crate::time::Time;
use rustc_hash::FxHashMap;

/// Lanes that are looked at to say how much is ahead of a new item. Of more, as many are taken, evenly spread over all.
const LANES_SAMPLED: usize = 64;

/// A live lane. Numbers are reused once a lane has been freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u32);

/// What leaves before a new item, if all lanes are served in turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// Batches before the one that the new item joins.
    pub batches: usize,
    /// Items in all lanes.
    pub items: usize,
    /// Those of them in the lane of the new item.
    pub own: usize,
}

#[derive(Debug)]
struct Slot {
    group: GroupId,
    lane: Lane,
    state: State,
}

/// What the orders and counters know of a lane.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    head: Option<Waiting>,
    oldest: Option<Time>,
    is_full: bool,
    items: usize,
    cost: u128,
    batches: usize,
}

impl State {
    fn new(lane: &Lane, limits: BatchLimits) -> State {
        State {
            head: lane.head(),
            oldest: lane.oldest(),
            is_full: lane.is_full(limits),
            items: lane.len(),
            cost: lane.cost(),
            batches: lane.batches(limits),
        }
    }
}

/// The lanes that hold something, at most `most` of them.
#[derive(Debug)]
pub struct Lanes {
    limits: BatchLimits,
    most: usize,
    groups: Groups,
    by_group: FxHashMap<GroupId, LaneId>,
    slots: Vec<Option<Slot>>,
    free: Vec<LaneId>,
    by_rank: SortedQueue<(Time, LaneId)>,
    by_age: SortedQueue<(Time, LaneId)>,
    full: SortedQueue<(Time, LaneId)>,
    /// No waiting item has a later rank.
    latest: Time,
    items: usize,
    cost: u128,
    batches: usize,
}

impl Lanes {
    /// No lanes yet.
    pub fn new(limits: BatchLimits, most: usize) -> Lanes {
        Lanes {
            limits,
            most,
            groups: Groups::default(),
            by_group: FxHashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            by_rank: SortedQueue::default(),
            by_age: SortedQueue::default(),
            full: SortedQueue::default(),
            latest: Time(0),
            items: 0,
            cost: 0,
            batches: 0,
        }
    }

    // ------------------------------------------------------------------------------------------ all lanes

    /// Items in all lanes.
    pub fn items(&self) -> usize {
        self.items
    }

    /// The cost of the items of all lanes together, in cost units.
    pub fn cost(&self) -> u128 {
        self.cost
    }

    /// The mean cost of the waiting items and of one more item of this cost.
    pub fn mean_cost_with(&self, cost: u64) -> f64 {
        (self.cost as f64 + cost as f64) / (self.items + 1) as f64
    }

    /// Batches that it takes to empty all lanes.
    pub fn batches(&self) -> usize {
        self.batches
    }

    /// Lanes that hold something.
    pub fn len(&self) -> usize {
        self.by_group.len()
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
        self.by_group.len() < self.most || self.lane_of(key).is_some()
    }

    /// Lanes by the rank of their heads, the smallest rank first.
    pub fn by_rank(&self) -> impl Iterator<Item = LaneId> + '_ {
        self.by_rank.iter().map(|(_, id)| id)
    }

    /// The full lane whose head has the smallest rank.
    pub fn first_full(&self) -> Option<LaneId> {
        self.full.first().map(|(_, id)| id)
    }

    /// When the oldest item of all lanes arrived.
    pub fn oldest(&self) -> Option<Time> {
        self.by_age.first().map(|(arrival, _)| arrival)
    }

    /// The group keys in use, by the numbers of their groups.
    pub fn keys(&self) -> impl Iterator<Item = (GroupId, &GroupKey)> {
        self.groups.keys()
    }

    /// The group of a key; `None` if no item of it has come recently.
    pub fn group_of(&self, key: &GroupKey) -> Option<GroupId> {
        self.groups.find(key)
    }

    // ------------------------------------------------------------------------------------------ one lane

    /// A live lane.
    pub fn lane(&self, id: LaneId) -> &Lane {
        &self.slot(id).lane
    }

    /// The items of a live lane in order of rank.
    pub fn in_order(&self, id: LaneId) -> impl Iterator<Item = Waiting> + '_ {
        self.lane(id).in_order()
    }

    /// The group of a live lane.
    pub fn group(&self, id: LaneId) -> GroupId {
        self.slot(id).group
    }

    /// The item that leaves a live lane first.
    pub fn head(&self, id: LaneId) -> Waiting {
        self.slot(id).state.head.expect("a live lane holds something")
    }

    /// When the oldest item of a live lane arrived.
    pub fn oldest_in(&self, id: LaneId) -> Time {
        self.slot(id).state.oldest.expect("a live lane holds something")
    }

    /// Whether a batch taken from this lane now would be closed by a limit.
    pub fn is_full(&self, id: LaneId) -> bool {
        self.slot(id).state.is_full
    }

    // ------------------------------------------------------------------------------------------ changes

    /// The number of a key's group, before an item of it has come.
    pub fn number(&mut self, key: &GroupKey) -> GroupId {
        self.groups.number(key)
    }

    /// Adds an item to the lane of its key.
    pub fn push(&mut self, key: &GroupKey, item: Waiting) -> LaneId {
        let group = self.groups.number(key);
        let id = self.by_group.get(&group).copied().unwrap_or_else(|| self.open(group));
        self.latest = if self.is_empty() { item.rank } else { self.latest.max(item.rank) };
        self.change(id, |lane| lane.push(item));
        id
    }

    /// Removes an item from a live lane.
    pub fn remove(&mut self, id: LaneId, item: Waiting) {
        self.change(id, |lane| lane.remove(item));
    }

    /// Takes the next batch of a live lane, at most `size` items.
    pub fn take(&mut self, id: LaneId, size: usize) -> Vec<ItemId> {
        let limits = BatchLimits { max_items: size.min(self.limits.max_items), ..self.limits };
        self.change(id, |lane| lane.take(limits))
    }

    /// Takes the chosen items of a live lane into one batch, and counts a pass for each item that they leave behind.
    pub fn take_these(&mut self, id: LaneId, chosen: &[ItemId]) -> Vec<ItemId> {
        self.change(id, |lane| lane.take_these(chosen))
    }

    fn slot(&self, id: LaneId) -> &Slot {
        self.slots[id.0 as usize].as_ref().expect("the lane is live")
    }

    fn lane_of(&self, key: &GroupKey) -> Option<LaneId> {
        self.groups.find(key).and_then(|group| self.by_group.get(&group).copied())
    }

    fn open(&mut self, group: GroupId) -> LaneId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            LaneId(self.slots.len() as u32 - 1)
        });
        self.slots[id.0 as usize] = Some(Slot { group, lane: Lane::default(), state: State::default() });
        self.by_group.insert(group, id);
        id
    }

    /// Every change goes through here, so that the orders and the counters always agree with the lane.
    fn change<R>(&mut self, id: LaneId, act: impl FnOnce(&mut Lane) -> R) -> R {
        let slot = self.slots[id.0 as usize].as_mut().expect("the lane is live");
        let result = act(&mut slot.lane);
        let new = State::new(&slot.lane, self.limits);
        let old = std::mem::replace(&mut slot.state, new);
        self.items = self.items + new.items - old.items;
        self.cost = self.cost + new.cost - old.cost;
        self.batches = self.batches + new.batches - old.batches;
        let rank = |state: State| state.head.map(|head| (head.rank, id));
        let age = |state: State| state.oldest.map(|arrival| (arrival, id));
        let full = |state: State| rank(state).filter(|_| state.is_full);
        self.by_rank.replace(rank(old), rank(new));
        self.by_age.replace(age(old), age(new));
        self.full.replace(full(old), full(new));
        if new.head.is_none() {
            self.by_group.remove(&slot.group);
            self.slots[id.0 as usize] = None;
            self.free.push(id);
        }
        result
    }

    // ------------------------------------------------------------------------------------------ what is ahead

    /// What leaves before a new item of this key and rank. Where other items have a later rank, it looks at a bounded number of
    /// lanes, and concludes from them how much is ahead in the others.
    pub fn ahead(&self, key: &GroupKey, rank: Time) -> Ahead {
        let own = self.lane_of(key);
        let mut ahead = self.ahead_in_own(own, rank);
        if rank >= self.latest {
            let own_batches = own.map_or(0, |id| self.lane(id).batches(self.limits));
            ahead.items = self.items;
            ahead.batches += self.batches - own_batches;
            return ahead;
        }
        let (lanes, step) = self.lanes_before(rank);
        let (mut items, mut batches, mut looked_at) = (0, 0, 0);
        for id in self.sample(lanes, step).filter(|&id| Some(id) != own) {
            let lane = self.lane(id);
            let before = lane.before(rank);
            items += before;
            batches += (lane.batches(self.limits) * before).div_ceil(lane.len());
            looked_at += 1;
        }
        // Exact where all lanes were looked at.
        let others = if step == 1 { looked_at } else { lanes - usize::from(own.is_some() && ahead.own > 0) };
        ahead.items += (items * others).div_ceil(looked_at.max(1));
        ahead.batches += (batches * others).div_ceil(looked_at.max(1));
        ahead
    }

    fn ahead_in_own(&self, own: Option<LaneId>, rank: Time) -> Ahead {
        let Some(lane) = own.map(|id| self.lane(id)) else { return Ahead::default() };
        let items = lane.before(rank);
        let batches = (items / self.limits.max_items).max(lane.full_batches(self.limits) * items / lane.len());
        Ahead { batches, items, own: items }
    }

    /// How many lanes have a head that leaves before this rank, and every how many of them one is looked at.
    fn lanes_before(&self, rank: Time) -> (usize, usize) {
        let lanes = self.by_rank.count_while(|&(head, _)| head <= rank);
        (lanes, lanes.div_ceil(LANES_SAMPLED).max(1))
    }

    fn sample(&self, lanes: usize, step: usize) -> impl Iterator<Item = LaneId> + '_ {
        (0..lanes).step_by(step).filter_map(|index| self.by_rank.get(index)).map(|(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::group_key::KeyPart;
    use crate::queue::waiting::rank;
    use crate::request::Priority;
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);
    const LIMITS: BatchLimits = BatchLimits { max_items: 10, max_cost: u64::MAX };

    fn key(n: i64) -> GroupKey {
        GroupKey([KeyPart::Int(n)].into_iter().collect())
    }

    fn item(id: u64, priority: Priority, arrival: Time) -> Waiting {
        let rank = rank(arrival, priority, SECOND);
        Waiting { rank, arrival, id: ItemId(id), priority, cost: 1, due: arrival, passed: 0 }
    }

    #[test]
    fn only_what_ranks_before_is_ahead() {
        let now = Time(0) + 10 * SECOND;
        let mut lanes = Lanes::new(LIMITS, 8);
        let [own, other, empty] = [1, 2, 3].map(key);
        let mut id = 0;
        let mut fill = |key: &GroupKey, priority, arrival, items: u64| {
            for _ in 0..items {
                id += 1;
                lanes.push(key, item(id, priority, arrival));
            }
        };
        fill(&own, Priority::Normal, now, 12);
        fill(&own, Priority::Low, now, 9);
        fill(&other, Priority::Low, now, 25);
        // Older than a head start, so that it ranks before what is normal now.
        fill(&other, Priority::Low, Time(0), 5);
        let ahead = |key, priority| {
            let Ahead { batches, items, own } = lanes.ahead(key, rank(now, priority, SECOND));
            (batches, items, own)
        };
        assert_eq!(ahead(&own, Priority::High), (1, 5, 0), "the old ones are a batch");
        assert_eq!(ahead(&own, Priority::Normal), (2, 17, 12), "and one full batch of the own lane");
        assert_eq!(ahead(&other, Priority::Normal), (2, 17, 5), "it joins the old ones");
        assert_eq!(ahead(&other, Priority::Low), (6, 51, 30));
        assert_eq!(ahead(&empty, Priority::Low), (6, 51, 0));
    }

    #[test]
    fn of_many_lanes_a_bounded_number_is_looked_at() {
        let mut lanes = Lanes::new(LIMITS, 1024);
        // One item of the lowest class in each lane, one every millisecond; half of them are older than the head start.
        for n in 0..1000 {
            lanes.push(
                &key(n),
                item(n.unsigned_abs(), Priority::Low, Time(0) + SECOND * n.unsigned_abs() as u32 / 1000),
            );
        }
        let newcomer = rank(Time(0) + SECOND * 3 / 2, Priority::Normal, SECOND);
        let (before, step) = lanes.lanes_before(newcomer);
        assert_eq!(before, 501);
        assert!(lanes.sample(before, step).count() <= LANES_SAMPLED);
        let ahead = lanes.ahead(&key(-1), newcomer);
        assert_eq!((ahead.items, ahead.batches, ahead.own), (501, 501, 0));
        let ahead = lanes.ahead(&key(0), newcomer);
        assert_eq!((ahead.items, ahead.own), (501, 1), "its own lane is counted apart");
    }
}
