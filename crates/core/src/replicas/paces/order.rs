//! Replicas in order of their rank and then of a time. The first one of each rank is found without a walk over the others.

use crate::replicas::paces::replica_pace::SLOWEST;
use crate::request::ReplicaId;
use crate::time::Time;
use std::collections::BTreeSet;
use std::ops::Bound;

/// Where a replica stands.
pub type Place = (i8, Time, ReplicaId);

/// Replicas in order.
#[derive(Debug, Default)]
pub struct Order(BTreeSet<Place>);

impl Order {
    /// A replica changes its place, enters, or leaves.
    pub fn replace(&mut self, old: Option<Place>, new: Option<Place>) {
        if old == new {
            return;
        }
        if let Some(old) = old {
            self.0.remove(&old);
        }
        if let Some(new) = new {
            self.0.insert(new);
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The first one of all.
    pub fn first(&self) -> Option<Place> {
        self.0.first().copied()
    }

    /// The first one of each rank, of the fastest rank first.
    pub fn firsts(&self) -> impl Iterator<Item = Place> + '_ {
        let after = |rank: i8| {
            let from = Bound::Excluded((rank, Time(u64::MAX), ReplicaId(u32::MAX)));
            self.0.range((from, Bound::Unbounded)).next().copied()
        };
        std::iter::successors(self.first(), move |&(rank, ..)| (rank < SLOWEST).then(|| after(rank)).flatten())
    }

    /// Those of one rank, in order.
    pub fn of_rank(&self, rank: i8) -> impl DoubleEndedIterator<Item = Place> + '_ {
        self.0.range((rank, Time(0), ReplicaId(0))..=(rank, Time(u64::MAX), ReplicaId(u32::MAX))).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_each_rank_is_found() {
        let mut order = Order::default();
        let place = |rank, at, id| (rank, Time(at), ReplicaId(id));
        for (rank, at, id) in [(0, 5, 1), (0, 3, 2), (SLOWEST, 1, 3), (-2, 9, 4), (SLOWEST, 0, 5)] {
            order.replace(None, Some(place(rank, at, id)));
        }
        let firsts = |order: &Order| order.firsts().map(|(.., id)| id.0).collect::<Vec<_>>();
        assert_eq!(firsts(&order), [4, 2, 5]);
        order.replace(Some(place(0, 3, 2)), Some(place(1, 3, 2)));
        assert_eq!((firsts(&order), order.of_rank(SLOWEST).count()), (vec![4, 1, 2, 5], 2));
    }
}
