//! How many items of a group fit into the memory of the device, learned from batches that did not.

use crate::request::GroupId;
use crate::time::Time;
use rustc_hash::FxHashMap;
use std::time::Duration;

/// A ceiling is tried again after this; each time that it proves true, after twice as long …
const FIRST_TRIAL_AFTER: Duration = Duration::from_secs(60);
/// … and at most after this.
const LONGEST: Duration = Duration::from_secs(3600);
/// Groups remembered; of more, the one that is tried again first is forgotten.
const MOST_REMEMBERED: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct MemoryLimit {
    most: usize,
    /// From when a larger batch may be tried.
    try_at: Time,
    wait: Duration,
}

/// The ceilings of all groups that have one.
#[derive(Clone, Debug, Default)]
pub struct MemoryLimits {
    by_group: FxHashMap<GroupId, MemoryLimit>,
}

impl MemoryLimits {
    /// The most items of a group, of `limit` at most. When it is time for a trial, twice as many as are known to fit.
    pub fn most(&self, group: GroupId, limit: usize, now: Time) -> usize {
        match self.by_group.get(&group) {
            Some(memory_limit) if now >= memory_limit.try_at => limit.min(memory_limit.most * 2),
            Some(memory_limit) => limit.min(memory_limit.most),
            None => limit,
        }
    }

    /// The groups that have one.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.by_group.keys().copied()
    }

    /// That of a group, if it has one: the most items, and from when more are tried.
    pub fn of(&self, group: GroupId) -> Option<(usize, Time)> {
        self.by_group.get(&group).map(|memory_limit| (memory_limit.most, memory_limit.try_at))
    }

    /// A batch of so many items did not fit. Returns what is taken to fit now.
    pub fn too_large(&mut self, group: GroupId, items: usize, now: Time) -> usize {
        let known = self.by_group.get(&group);
        let was_trial = known.is_some_and(|memory_limit| now >= memory_limit.try_at && items > memory_limit.most);
        let wait = match known {
            Some(memory_limit) if was_trial => (memory_limit.wait * 2).min(LONGEST),
            Some(memory_limit) => memory_limit.wait,
            None => FIRST_TRIAL_AFTER,
        };
        let most = known.map_or(items, |memory_limit| memory_limit.most.min(items));
        let most = if was_trial { most } else { most.min(items.div_ceil(2)).max(1) };
        if known.is_none() && self.by_group.len() == MOST_REMEMBERED {
            let first = self
                .by_group
                .iter()
                .min_by_key(|(group, memory_limit)| (memory_limit.try_at, group.0))
                .map(|(group, _)| *group);
            first.map(|group| self.by_group.remove(&group));
        }
        self.by_group.insert(group, MemoryLimit { most, try_at: now + wait, wait });
        most
    }

    /// A batch of so many items did fit.
    pub fn fitted(&mut self, group: GroupId, items: usize, limit: usize) {
        if let Some(memory_limit) = self.by_group.get_mut(&group).filter(|memory_limit| items > memory_limit.most) {
            memory_limit.most = items;
            if items >= limit {
                self.by_group.remove(&group);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId(1);

    fn at(seconds: u64) -> Time {
        Time(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn what_did_not_fit_is_halved_for_its_group_alone() {
        let mut memory_limits = MemoryLimits::default();
        assert_eq!(memory_limits.too_large(GROUP, 32, at(0)), 16);
        assert_eq!(memory_limits.too_large(GROUP, 16, at(1)), 8);
        assert_eq!((memory_limits.most(GROUP, 32, at(2)), memory_limits.most(GroupId(2), 32, at(2))), (8, 32));
        assert_eq!(memory_limits.too_large(GROUP, 1, at(2)), 1, "never below one");
    }

    #[test]
    fn it_is_tried_again_later_and_then_later_still() {
        let mut memory_limits = MemoryLimits::default();
        memory_limits.too_large(GROUP, 16, at(0));
        assert_eq!((memory_limits.most(GROUP, 32, at(59)), memory_limits.most(GROUP, 32, at(60))), (8, 16));
        assert_eq!(memory_limits.too_large(GROUP, 16, at(60)), 8, "the trial failed: what was known holds");
        assert_eq!((memory_limits.most(GROUP, 32, at(179)), memory_limits.most(GROUP, 32, at(180))), (8, 16));
    }

    #[test]
    fn a_trial_that_fits_raises_the_ceiling_until_there_is_none() {
        let mut memory_limits = MemoryLimits::default();
        memory_limits.too_large(GROUP, 32, at(0));
        memory_limits.fitted(GROUP, 12, 32);
        assert_eq!(memory_limits.most(GROUP, 32, at(1)), 16);
        memory_limits.fitted(GROUP, 32, 32);
        assert_eq!(memory_limits.most(GROUP, 32, at(61)), 32);
        assert!(memory_limits.by_group.is_empty());
    }

    #[test]
    fn it_is_bounded() {
        let mut memory_limits = MemoryLimits::default();
        (0..3000).for_each(|group| _ = memory_limits.too_large(GroupId(group), 8, at(group)));
        assert_eq!(memory_limits.by_group.len(), MOST_REMEMBERED);
    }
}
