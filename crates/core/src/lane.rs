//! A lane: items that may share a batch. Three classes, each in order of arrival; a class is a bounded head start.
//! Removal is immediate, so a lane's length is what a batch would really hold.

use crate::request::{ItemId, Priority};
use crate::time::Time;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Duration;

/// One item that waits.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// When it arrived; kept when a lost worker sends it back.
    pub arrival: Time,
    /// Which item.
    pub id: ItemId,
    /// What it counts against a batch's cost limit.
    pub cost: u64,
    /// When its answer is wanted: its deadline, or the latency target if that is sooner.
    pub due: Time,
    /// Launches that left it behind and took somebody of a later rank.
    pub passed: u32,
}

impl Waiting {
    fn key(&self) -> (Time, ItemId) {
        (self.arrival, self.id)
    }
}

// An item is the same however often it was passed.
impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// What bounds one batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    /// Most items.
    pub max_items: usize,
    /// Most cost; an item above it rides alone.
    pub max_cost: u64,
}

impl BatchLimits {
    /// Items of a full batch, if an item costs so much in the mean.
    pub fn items(&self, mean_cost: f64) -> usize {
        ((self.max_cost as f64 / mean_cost) as usize).clamp(1, self.max_items.max(1))
    }

    /// Whether one more item of this cost must open another batch than one of so many items and so much cost.
    pub fn is_closed(&self, items: usize, cost: u128, more: u64) -> bool {
        items >= self.max_items || items > 0 && cost + u128::from(more) > u128::from(self.max_cost)
    }
}

/// Where an item stands among all that wait: its arrival, shifted by its class. Smaller is sooner.
pub fn rank(arrival: Time, priority: Priority, boost: Duration) -> Time {
    arrival + boost.saturating_mul(priority as u32)
}

/// A queue of items of one group key.
#[derive(Debug, Default)]
pub struct Lane {
    classes: [VecDeque<Waiting>; 3],
    len: usize,
    /// Wider than a cost: clients may send any, and a sum that saturates does not come back when items leave.
    cost: u128,
}

impl Lane {
    /// What waits here, soonest first, each with its class.
    pub fn in_order(&self, boost: Duration) -> impl Iterator<Item = (Priority, Waiting)> + '_ {
        let mut classes = Priority::ALL.map(|class| (class, self.classes[class as usize].iter().peekable()));
        std::iter::from_fn(move || {
            let heads = classes.iter_mut().filter_map(|(class, items)| {
                let head = **items.peek()?;
                Some((rank(head.arrival, *class, boost), head, *class))
            });
            let (_, _, soonest) = heads.min()?;
            let (class, items) = classes.iter_mut().find(|(class, _)| *class == soonest)?;
            Some((*class, *items.next()?))
        })
    }

    /// What all that wait here cost together.
    pub fn cost(&self) -> u128 {
        self.cost
    }

    /// Items that wait here.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Items that wait here, by class.
    pub fn by_class(&self) -> [usize; 3] {
        self.classes.each_ref().map(VecDeque::len)
    }

    /// Items that leave before one of this rank that has yet to come.
    pub fn before(&self, sooner_than: Time, boost: Duration) -> usize {
        let of = |class: Priority| {
            self.classes[class as usize].partition_point(|item| rank(item.arrival, class, boost) <= sooner_than)
        };
        Priority::ALL.into_iter().map(of).sum()
    }

    /// Whether nothing waits here.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a batch taken now would be closed by a limit.
    pub fn is_full(&self, limits: BatchLimits) -> bool {
        self.len >= limits.max_items || self.cost >= u128::from(limits.max_cost)
    }

    /// Batches that it takes to empty this lane, at the least.
    pub fn batches(&self, limits: BatchLimits) -> usize {
        let by_cost = if limits.max_cost == u64::MAX { 0 } else { self.cost.div_ceil(limits.max_cost.max(1).into()) };
        // No batch is empty, so items above the cost limit count as one batch each, however far above they are.
        self.len.div_ceil(limits.max_items).max(by_cost.min(self.len as u128) as usize)
    }

    /// Those of them that are full: one more item would join the batch after them.
    pub fn full_batches(&self, limits: BatchLimits) -> usize {
        let by_cost = if limits.max_cost == u64::MAX { 0 } else { self.cost / u128::from(limits.max_cost.max(1)) };
        (self.len / limits.max_items).max(by_cost.min(self.len as u128) as usize)
    }

    /// Adds an item at its place: the end, unless a lost worker sent it back.
    pub fn push(&mut self, priority: Priority, item: Waiting) {
        let class = &mut self.classes[priority as usize];
        if class.back().is_none_or(|last| *last < item) {
            class.push_back(item);
        } else {
            let place = class.partition_point(|other| *other < item);
            class.insert(place, item);
        }
        self.len += 1;
        self.cost += u128::from(item.cost);
    }

    /// Removes an item wherever it stands; false if it is not here.
    pub fn remove(&mut self, priority: Priority, item: Waiting) -> bool {
        let class = &mut self.classes[priority as usize];
        let Ok(place) = class.binary_search(&item) else {
            return false;
        };
        class.remove(place);
        self.forget(item);
        true
    }

    /// The item that leaves first, with its rank.
    pub fn head(&self, boost: Duration) -> Option<(Time, Waiting)> {
        self.next(boost).map(|(priority, item)| (rank(item.arrival, priority, boost), item))
    }

    /// When the item that has waited for longest arrived; a class with a head start may leave before it.
    pub fn oldest(&self) -> Option<Time> {
        self.classes.iter().filter_map(|class| class.front()).map(|item| item.arrival).min()
    }

    /// Takes the next batch in order of rank, at least one item.
    pub fn take(&mut self, limits: BatchLimits, boost: Duration) -> Vec<ItemId> {
        let mut taken = Vec::with_capacity(limits.max_items.min(self.len));
        let mut cost = 0u128;
        while let Some((priority, item)) = self.next(boost) {
            if limits.is_closed(taken.len(), cost, item.cost) {
                break;
            }
            cost += u128::from(item.cost);
            self.classes[priority as usize].pop_front();
            self.forget(item);
            taken.push(item.id);
        }
        taken
    }

    /// Takes these, in order of rank, and counts those that they pass.
    pub fn take_these(&mut self, chosen: &[ItemId], boost: Duration) -> Vec<ItemId> {
        let mut missing = chosen.len();
        let mut until_last = |item: &(Priority, Waiting)| {
            let goes_on = missing > 0;
            missing -= usize::from(goes_on && chosen.contains(&item.1.id));
            goes_on
        };
        let order: Vec<(Priority, Waiting)> = self.in_order(boost).take_while(&mut until_last).collect();
        let mut taken = Vec::with_capacity(chosen.len());
        for (class, item) in order {
            if chosen.contains(&item.id) {
                self.remove(class, item);
                taken.push(item.id);
            } else {
                let waits = &mut self.classes[class as usize];
                let place = waits.binary_search(&item);
                place.into_iter().for_each(|place| waits[place].passed += 1);
            }
        }
        taken
    }

    fn next(&self, boost: Duration) -> Option<(Priority, Waiting)> {
        let heads = Priority::ALL.iter().filter_map(|&p| Some((p, *self.classes[p as usize].front()?)));
        heads.min_by_key(|(p, item)| (rank(item.arrival, *p, boost), *item))
    }

    fn forget(&mut self, item: Waiting) {
        self.len -= 1;
        self.cost -= u128::from(item.cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOST: Duration = Duration::from_nanos(10);
    const ANY: BatchLimits = BatchLimits { max_items: 8, max_cost: u64::MAX };

    fn item(arrival: u64) -> Waiting {
        Waiting { arrival: Time(arrival), id: ItemId(arrival), cost: 1, due: Time(u64::MAX), passed: 0 }
    }

    fn ids(lane: &mut Lane) -> Vec<u64> {
        lane.take(ANY, BOOST).iter().map(|id| id.0).collect()
    }

    #[test]
    fn a_class_is_a_bounded_head_start() {
        let mut lane = Lane::default();
        lane.push(Priority::Low, item(1));
        lane.push(Priority::Normal, item(5));
        lane.push(Priority::High, item(14));
        lane.push(Priority::High, item(22));
        assert_eq!(ids(&mut lane), [14, 5, 1, 22], "high passes what is at most one boost per class older, never more");
    }

    #[test]
    fn an_item_that_comes_back_takes_its_old_place() {
        let mut lane = Lane::default();
        for arrival in [2, 4, 3, 1] {
            lane.push(Priority::Normal, item(arrival));
        }
        assert!(lane.remove(Priority::Normal, item(3)));
        assert!(!lane.remove(Priority::Normal, item(3)));
        assert_eq!((lane.len(), ids(&mut lane)), (3, vec![1, 2, 4]));
    }

    #[test]
    fn cost_closes_a_batch_and_an_item_above_the_limit_rides_alone() {
        let mut lane = Lane::default();
        for (arrival, cost) in [(1, 50), (2, 4), (3, 4), (4, 4)] {
            lane.push(Priority::Normal, Waiting { cost, ..item(arrival) });
        }
        let limits = BatchLimits { max_items: 8, max_cost: 10 };
        let sizes: Vec<usize> =
            std::iter::from_fn(|| Some(lane.take(limits, BOOST).len()).filter(|&n| n > 0)).collect();
        assert_eq!(sizes, [1, 2, 1]);
    }
}
