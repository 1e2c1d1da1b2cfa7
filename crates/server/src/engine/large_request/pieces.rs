//! A large request goes to the engine in pieces. All of it at once would fill the queue many times over, and other
//! requests would be refused until it is done.

use crate::values::call::Call;
use jitney_core::config::limits::BatchLimits;
use jitney_core::queue::group_key::GroupKey;
use rustc_hash::FxHashMap;
use std::time::Duration;
use std::vec::IntoIter;

/// Least batches of a piece, per replica: one that runs and one that is next, so that no replica waits for items.
/// Admission lets items wait for longer than that, even during overload.
const BATCHES_PER_REPLICA: usize = 2;
/// If a piece is answered within this time, the next piece has twice as many batches: a quick model would wait for
/// items.
const QUICK: Duration = Duration::from_millis(100);
/// If a piece takes longer than this, the next piece has half as many batches. Admission lets items of any model wait
/// for half a second.
const SLOW: Duration = Duration::from_millis(200);
/// A piece takes at most this part of the queue.
const PART_OF_QUEUE: usize = 8;

/// What is left of a request.
#[derive(Debug)]
pub struct Pieces {
    calls: IntoIter<Call>,
    limits: BatchLimits,
    /// The least and the present number of batches of a piece.
    least: usize,
    batches: usize,
    /// Items that are as much of the queue as a piece may take.
    part_of_queue: usize,
}

impl Pieces {
    /// Of a deployment with such batches, replicas and such a queue.
    pub fn new(calls: Vec<Call>, limits: BatchLimits, replicas: usize, max_queued_items: usize) -> Pieces {
        let (least, part_of_queue) = (Pieces::least(replicas), max_queued_items / PART_OF_QUEUE);
        Pieces { calls: calls.into_iter(), limits, least, batches: least, part_of_queue }
    }

    /// Batches go to so many replicas from now on: further ones get work with the next piece.
    pub fn set_replicas(&mut self, replicas: usize) {
        self.least = Pieces::least(replicas);
        self.batches = self.batches.max(self.least);
    }

    /// The most items of a piece.
    fn most(&self) -> usize {
        self.part_of_queue.max(self.least * self.limits.max_items)
    }

    /// Least items of the first piece. Items of one group with no cost limit (`alike`) fill batches; else each item may
    /// be a batch.
    pub fn first(limits: BatchLimits, replicas: usize, alike: bool) -> usize {
        Pieces::least(replicas) * if alike { limits.max_items } else { 1 }
    }

    /// Batches of the first piece.
    fn least(replicas: usize) -> usize {
        BATCHES_PER_REPLICA * replicas.max(1)
    }

    /// The next piece; empty when nothing is left. Items of different groups are never in one batch.
    pub fn cut(&mut self) -> Vec<Call> {
        let (mut piece, mut batches, most) = (Vec::new(), 0, self.most());
        // The items and the cost of the last batch of each.
        let mut groups: FxHashMap<GroupKey, (usize, u128)> = FxHashMap::default();
        while let Some(call) = self.calls.as_slice().first().filter(|_| piece.len() < most) {
            let last = groups.entry(call.group.clone()).or_default();
            let opens = last.0 == 0 || self.limits.is_closed(last.0, last.1, call.cost);
            if opens && batches == self.batches {
                break;
            }
            if opens {
                (batches, *last) = (batches + 1, (0, 0));
            }
            *last = (last.0 + 1, last.1 + u128::from(call.cost));
            piece.extend(self.calls.next());
        }
        piece
    }

    /// The last piece was answered after so long.
    pub fn took(&mut self, length: Duration) {
        if length <= QUICK && self.batches < self.most() {
            self.batches *= 2;
        } else if length > SLOW {
            self.batches = (self.batches / 2).max(self.least);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::call::Encoding;
    use jitney_core::queue::group_key::KeyPart;
    use smallvec::SmallVec;

    const TEN: BatchLimits = BatchLimits { max_items: 10, max_cost: u64::MAX };

    fn calls(groups: impl IntoIterator<Item = i64>) -> Vec<Call> {
        let call = |group| Call {
            group: GroupKey([KeyPart::Int(group)].into_iter().collect()),
            ..Call::new(SmallVec::new(), Encoding::Json)
        };
        groups.into_iter().map(call).collect()
    }

    #[test]
    fn a_piece_is_two_batches_per_replica_and_grows_while_the_model_is_quick() {
        let mut pieces = Pieces::new(calls([0; 1000]), TEN, 2, 800);
        let mut next = |length: u64| {
            pieces.took(Duration::from_millis(length));
            pieces.cut().len()
        };
        assert_eq!([150, 5, 5, 5].map(&mut next), [40, 80, 100, 100], "an eighth of the queue at most");
        assert_eq!([900, 900, 900, 900].map(&mut next), [100, 80, 40, 40]);
    }

    #[test]
    fn a_piece_is_larger_as_soon_as_there_are_more_replicas() {
        let mut pieces = Pieces::new(calls([0; 1000]), TEN, 1, 80);
        assert_eq!(pieces.cut().len(), 20);
        pieces.set_replicas(3);
        assert_eq!(pieces.cut().len(), 60);
        pieces.set_replicas(0);
        pieces.took(Duration::from_millis(201));
        pieces.took(Duration::from_millis(201));
        assert_eq!(pieces.cut().len(), 20, "as for one: it may come back");
    }

    #[test]
    fn items_of_different_groups_count_as_batches() {
        let mut pieces = Pieces::new(calls(0..100), TEN, 1, 4096);
        assert_eq!([pieces.cut().len(), pieces.cut().len()], [2, 2]);
        let mut pieces = Pieces::new(calls((0..100).map(|n| n % 3)), TEN, 1, 4096);
        assert_eq!(pieces.cut().len(), 2, "the third group would be a third batch");
    }

    #[test]
    fn what_counts_as_the_first_piece_is_in_it_whatever_the_groups() {
        for (groups, alike) in [(64, false), (3, false), (1, true)] {
            let mut pieces = Pieces::new(calls((0..64).map(|n| n % groups)), TEN, 2, 4096);
            let (first, cut) = (Pieces::first(TEN, 2, alike), pieces.cut().len());
            assert!(first <= cut, "{groups} groups: {first} items, but {cut} are in it");
        }
        assert_eq!((Pieces::first(TEN, 2, false), Pieces::first(TEN, 2, true)), (4, 40));
    }

    #[test]
    fn what_costs_too_much_for_one_batch_counts_as_several() {
        let mut calls = calls([0; 100]);
        calls.iter_mut().zip([4, 4, 4, 50].into_iter().cycle()).for_each(|(call, cost)| call.cost = cost);
        let mut pieces = Pieces::new(calls, BatchLimits { max_items: 10, max_cost: 10 }, 1, 4096);
        assert_eq!([(); 3].map(|()| pieces.cut().len()), [3, 3, 2], "4 and 4, 4; 50, 4 and 4; 4, 50");
    }

    #[test]
    fn every_item_is_in_one_piece_and_in_order() {
        let all = calls((0..97).map(|n| n % 5));
        let ids: Vec<_> = all.iter().map(|call| call.id).collect();
        let mut pieces = Pieces::new(all, BatchLimits { max_items: 4, ..TEN }, 1, 64);
        let all: Vec<Vec<Call>> = std::iter::from_fn(|| Some(pieces.cut()).filter(|piece| !piece.is_empty())).collect();
        assert_eq!(all.iter().flatten().map(|call| call.id).collect::<Vec<_>>(), ids);
        assert!(all.iter().all(|piece| piece.len() <= 8));
    }
}
