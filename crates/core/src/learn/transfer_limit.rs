//! How many items fill a batch whose bytes take longer to move than to compute, learned from the batches there were.
//!
//! To move a batch is work for the front, the worker and both sockets, in turn: a batch of 64 megabytes that takes no time to
//! compute keeps the worker waiting while the front sends and receives, and the front while the worker does. Two
//! small batches, one ahead of the other, keep both busy, and what is moved stays in the caches of the cores.

use crate::request::GroupId;
use rustc_hash::FxHashMap;
use std::time::Duration;

/// What moving a byte takes at least, there or back, on this machine.
pub const MOVING_S_PER_BYTE: f64 = 1e-10;
/// No batch is closed by fewer bytes than these, there and back: so many fit into the caches, and a launch costs less.
const LEAST_BYTES: f64 = 8e6;
/// Batches that take less than this share of their moving to compute are halved, …
const LITTLE: f64 = 0.25;
/// … those that take more than this are doubled: half of them take at most twice the share, so neither follows the other.
const MUCH: f64 = 0.5;
/// A limit above this is none.
const MOST_BYTES: f64 = 16e9;
/// Weight of each item in the bytes of one: about the last hundred count.
const WEIGHT: f64 = 1.0 / 32.0;
/// Groups remembered; with more all are learned anew.
const MOST_REMEMBERED: usize = 1024;

/// The limits of all groups that have one.
#[derive(Clone, Debug, Default)]
pub struct TransferLimits {
    by_group: FxHashMap<GroupId, Limit>,
}

#[derive(Clone, Copy, Debug)]
struct Limit {
    most_bytes: f64,
    /// Those of an item, there and back.
    item_bytes: f64,
}

impl Limit {
    fn items(&self) -> usize {
        ((self.most_bytes / self.item_bytes.max(1.0)) as usize).max(1)
    }
}

impl TransferLimits {
    /// A batch of a group with so many items, and bytes there and back, was computed in this time, where moving a byte takes so
    /// many seconds.
    pub fn learn(&mut self, group: GroupId, items: usize, bytes: u64, computing: Duration, s_per_byte: f64) {
        let (bytes, each) = (bytes as f64, bytes as f64 / items.max(1) as f64);
        let share = computing.as_secs_f64() / (bytes * s_per_byte).max(f64::MIN_POSITIVE);
        let is_moved = share < LITTLE && bytes > LEAST_BYTES;
        let Some(limit) = self.by_group.get_mut(&group) else {
            if is_moved {
                if self.by_group.len() == MOST_REMEMBERED {
                    self.by_group.clear();
                }
                self.by_group.insert(group, Limit { most_bytes: (bytes / 2.0).max(LEAST_BYTES), item_bytes: each });
            }
            return;
        };
        limit.item_bytes += (1.0 - (1.0 - WEIGHT).powi(items as i32)) * (each - limit.item_bytes);
        if is_moved {
            limit.most_bytes = (limit.most_bytes.min(bytes) / 2.0).max(LEAST_BYTES);
        } else if share > MUCH && bytes > LEAST_BYTES / 2.0 {
            limit.most_bytes *= 2.0;
            if limit.most_bytes > MOST_BYTES {
                self.by_group.remove(&group);
            }
        }
    }

    /// So many items of a group are as good as more; `None` if their bytes do not matter.
    pub fn enough(&self, group: GroupId) -> Option<usize> {
        self.by_group.get(&group).map(Limit::items)
    }

    /// The groups that have a limit.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.by_group.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGABYTE: u64 = 1_000_000;
    const GROUP: GroupId = GroupId(1);

    /// After a hundred batches of `waiting` items at most, of two megabytes each and with this to compute: how many leave
    /// together.
    fn settled(transfer_limits: &mut TransferLimits, waiting: usize, computing: impl Fn(usize) -> Duration) -> usize {
        let items =
            |transfer_limits: &TransferLimits| transfer_limits.enough(GROUP).map_or(waiting, |most| most.min(waiting));
        for _ in 0..100 {
            let items = items(transfer_limits);
            transfer_limits.learn(GROUP, items, items as u64 * 2 * MEGABYTE, computing(items), MOVING_S_PER_BYTE);
        }
        items(transfer_limits)
    }

    #[test]
    fn what_is_hardly_computed_leaves_in_small_batches() {
        assert_eq!(settled(&mut TransferLimits::default(), 64, |_| Duration::from_micros(50)), 4);
    }

    #[test]
    fn a_model_that_gains_from_batches_gets_them() {
        let each = |items: usize| Duration::from_millis(5) + Duration::from_micros(100) * items as u32;
        assert_eq!(settled(&mut TransferLimits::default(), 64, each), 64);
    }

    #[test]
    fn between_the_two_it_settles_where_computing_is_hidden_behind_moving() {
        let mut transfer_limits = TransferLimits::default();
        let constant = |_| Duration::from_millis(2);
        let most = settled(&mut transfer_limits, 64, constant);
        assert_eq!(most, 32, "2 ms next to 12.8 ms of moving for 64, next to 6.4 ms for 32");
        assert_eq!(settled(&mut transfer_limits, 64, constant), most);
    }

    #[test]
    fn a_model_that_takes_long_again_is_not_held_small() {
        let mut transfer_limits = TransferLimits::default();
        assert_eq!(settled(&mut transfer_limits, 64, |_| Duration::ZERO), 4);
        assert_eq!(settled(&mut transfer_limits, 64, |_| Duration::from_millis(50)), 64);
        assert_eq!(transfer_limits.enough(GROUP), None);
    }

    #[test]
    fn small_items_are_left_alone() {
        let mut transfer_limits = TransferLimits::default();
        (0..100).for_each(|_| transfer_limits.learn(GROUP, 64, 64 * 2000, Duration::from_micros(5), MOVING_S_PER_BYTE));
        (0..100).for_each(|_| transfer_limits.learn(GROUP, 0, 0, Duration::ZERO, MOVING_S_PER_BYTE));
        assert_eq!(transfer_limits.enough(GROUP), None);
    }

    #[test]
    fn one_group_does_not_speak_for_another() {
        let mut transfer_limits = TransferLimits::default();
        (0..100).for_each(|_| transfer_limits.learn(GROUP, 64, 64 * MEGABYTE, Duration::ZERO, MOVING_S_PER_BYTE));
        (0..100)
            .for_each(|_| transfer_limits.learn(GroupId(2), 64, 64 * 200, Duration::from_millis(5), MOVING_S_PER_BYTE));
        assert_eq!((transfer_limits.enough(GROUP), transfer_limits.enough(GroupId(2))), (Some(8), None));
    }

    #[test]
    fn one_large_item_does_not_speak_for_many_small_ones() {
        let mut transfer_limits = TransferLimits::default();
        (0..10).for_each(|_| transfer_limits.learn(GROUP, 64, 64 * MEGABYTE, Duration::ZERO, MOVING_S_PER_BYTE));
        assert_eq!(transfer_limits.enough(GROUP), Some(8));
        transfer_limits.learn(GROUP, 1, 20 * MEGABYTE, Duration::ZERO, MOVING_S_PER_BYTE);
        assert_eq!(transfer_limits.enough(GROUP), Some(5));
        transfer_limits.learn(GROUP, 64, 64 * MEGABYTE, Duration::ZERO, MOVING_S_PER_BYTE);
        assert_eq!(transfer_limits.enough(GROUP), Some(7));
    }

    #[test]
    fn an_item_that_is_too_large_rides_alone() {
        let mut transfer_limits = TransferLimits::default();
        (0..100).for_each(|_| transfer_limits.learn(GROUP, 2, 200 * MEGABYTE, Duration::ZERO, MOVING_S_PER_BYTE));
        assert_eq!(transfer_limits.enough(GROUP), Some(1));
    }

    #[test]
    fn it_is_bounded() {
        let mut transfer_limits = TransferLimits::default();
        (0..3000).for_each(|group| {
            transfer_limits.learn(GroupId(group), 2, 200 * MEGABYTE, Duration::ZERO, MOVING_S_PER_BYTE);
        });
        assert!(transfer_limits.by_group.len() <= MOST_REMEMBERED);
    }
}
