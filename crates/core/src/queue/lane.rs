//! A lane: items of one group, which may share a batch, in order of rank. Items leave it at once when they end, so the length
//! of a lane is what a batch would really hold.

use crate::config::limits::BatchLimits;
use crate::queue::sorted::SortedQueue;
use crate::queue::waiting::Waiting;
use crate::request::ItemId;
use crate::time::Time;

/// The waiting items of one group.
#[derive(Debug, Default)]
pub struct Lane {
    by_rank: SortedQueue<Waiting>,
    by_age: SortedQueue<(Time, ItemId)>,
    /// Wider than one cost: clients may send any, and a sum that saturates does not come back when items leave.
    cost: u128,
}

impl Lane {
    /// The items in order of rank.
    pub fn in_order(&self) -> impl Iterator<Item = Waiting> + '_ {
        self.by_rank.iter()
    }

    /// The cost of all items together, in cost units.
    pub fn cost(&self) -> u128 {
        self.cost
    }

    /// How many items wait here.
    pub fn len(&self) -> usize {
        self.by_rank.len()
    }

    /// How many items leave before a later item of this rank.
    pub fn before(&self, rank: Time) -> usize {
        self.by_rank.count_while(|item| item.rank <= rank)
    }

    /// Whether nothing waits here.
    pub fn is_empty(&self) -> bool {
        self.by_rank.is_empty()
    }

    /// The item that leaves first.
    pub fn head(&self) -> Option<Waiting> {
        self.by_rank.first()
    }

    /// When the item that has waited for longest arrived; an item with a head start may leave before it.
    pub fn oldest(&self) -> Option<Time> {
        self.by_age.first().map(|(arrival, _)| arrival)
    }

    /// Whether a batch taken now would be closed by a limit.
    pub fn is_full(&self, limits: BatchLimits) -> bool {
        self.len() >= limits.max_items || self.cost >= u128::from(limits.max_cost)
    }

    /// Batches that it takes to empty this lane; it may take more.
    pub fn batches(&self, limits: BatchLimits) -> usize {
        let by_cost = if limits.max_cost == u64::MAX { 0 } else { self.cost.div_ceil(limits.max_cost.max(1).into()) };
        // No batch is empty, so items above the cost limit count as one batch each, however far above they are.
        self.len().div_ceil(limits.max_items).max(by_cost.min(self.len() as u128) as usize)
    }

    /// How many of these batches are full: one more item would join the batch after them.
    pub fn full_batches(&self, limits: BatchLimits) -> usize {
        let by_cost = if limits.max_cost == u64::MAX { 0 } else { self.cost / u128::from(limits.max_cost.max(1)) };
        (self.len() / limits.max_items).max(by_cost.min(self.len() as u128) as usize)
    }

    /// Adds an item at its place: the end, unless it has a head start or a lost worker sent it back.
    pub fn push(&mut self, item: Waiting) {
        self.by_rank.insert(item);
        self.by_age.insert((item.arrival, item.id));
        self.cost += u128::from(item.cost);
    }

    /// Removes an item wherever it stands; false if it is not here.
    pub fn remove(&mut self, item: Waiting) -> bool {
        let removed = self.by_rank.remove(item);
        if let Some(item) = removed {
            self.forget(item);
        }
        removed.is_some()
    }

    /// Takes the next batch in order of rank, at least one item.
    pub fn take(&mut self, limits: BatchLimits) -> Vec<ItemId> {
        let mut taken = Vec::with_capacity(limits.max_items.min(self.len()));
        let mut cost = 0u128;
        while let Some(item) = self.by_rank.first() {
            if limits.is_closed(taken.len(), cost, item.cost) {
                break;
            }
            cost += u128::from(item.cost);
            self.by_rank.remove_at(0);
            self.forget(item);
            taken.push(item.id);
        }
        taken
    }

    /// Takes the chosen items, in order of rank, and counts a pass for each item that they leave behind.
    pub fn take_these(&mut self, chosen: &[ItemId]) -> Vec<ItemId> {
        let mut taken = Vec::with_capacity(chosen.len());
        let mut index = 0;
        while taken.len() < chosen.len()
            && let Some(item) = self.by_rank.get_mut(index)
        {
            if chosen.contains(&item.id) {
                let item = *item;
                self.by_rank.remove_at(index);
                self.forget(item);
                taken.push(item.id);
            } else {
                item.passed += 1;
                index += 1;
            }
        }
        taken
    }

    fn forget(&mut self, item: Waiting) {
        self.by_age.remove((item.arrival, item.id));
        self.cost -= u128::from(item.cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::waiting::rank;
    use crate::request::Priority;
    use std::time::Duration;

    const BOOST: Duration = Duration::from_nanos(10);
    const ANY: BatchLimits = BatchLimits { max_items: 8, max_cost: u64::MAX };

    fn item(arrival: u64, priority: Priority) -> Waiting {
        let (id, arrival) = (ItemId(arrival), Time(arrival));
        let rank = rank(arrival, priority, BOOST);
        Waiting { rank, arrival, id, priority, cost: 1, due: Time(u64::MAX), passed: 0 }
    }

    fn normal(arrival: u64) -> Waiting {
        item(arrival, Priority::Normal)
    }

    fn ids(lane: &mut Lane) -> Vec<u64> {
        lane.take(ANY).iter().map(|id| id.0).collect()
    }

    #[test]
    fn a_class_is_a_bounded_head_start() {
        let mut lane = Lane::default();
        let items = [(1, Priority::Low), (5, Priority::Normal), (14, Priority::High), (22, Priority::High)];
        items.into_iter().for_each(|(arrival, priority)| lane.push(item(arrival, priority)));
        assert_eq!(lane.oldest(), Some(Time(1)), "it waits for longest and is not the first to leave");
        assert_eq!(ids(&mut lane), [14, 5, 1, 22], "high passes what is at most one boost per class older, never more");
        assert_eq!(lane.oldest(), None);
    }

    #[test]
    fn an_item_that_comes_back_takes_its_old_place() {
        let mut lane = Lane::default();
        for arrival in [2, 4, 3, 1] {
            lane.push(normal(arrival));
        }
        assert!(lane.remove(normal(3)));
        assert!(!lane.remove(normal(3)));
        assert_eq!((lane.len(), lane.cost(), ids(&mut lane)), (3, 3, vec![1, 2, 4]));
    }

    #[test]
    fn chosen_items_leave_in_order_and_pass_those_before_them() {
        let mut lane = Lane::default();
        (1..=5).for_each(|arrival| lane.push(normal(arrival)));
        assert_eq!(lane.take_these(&[ItemId(4), ItemId(2)]), [ItemId(2), ItemId(4)]);
        let left: Vec<_> = lane.in_order().map(|item| (item.id.0, item.passed)).collect();
        assert_eq!(left, [(1, 1), (3, 1), (5, 0)]);
    }

    #[test]
    fn cost_closes_a_batch_and_an_item_above_the_limit_rides_alone() {
        let mut lane = Lane::default();
        for (arrival, cost) in [(1, 50), (2, 4), (3, 4), (4, 4)] {
            lane.push(Waiting { cost, ..normal(arrival) });
        }
        let limits = BatchLimits { max_items: 8, max_cost: 10 };
        let sizes: Vec<usize> = std::iter::from_fn(|| Some(lane.take(limits).len()).filter(|&n| n > 0)).collect();
        assert_eq!(sizes, [1, 2, 1]);
    }
}
