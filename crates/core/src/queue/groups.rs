//! The numbers of groups. What is learned about a group is kept under its number, so two groups never share one: clients
//! choose the values of a group key, and a hash of them could be made to collide.

use crate::queue::group_key::GroupKey;
use crate::request::GroupId;
use std::collections::HashMap;

/// Groups in one generation.
const MOST_IN_USE: usize = 2048;

/// The groups that were used recently.
///
/// There are two generations. A group that is used moves to the younger one; when that is full it becomes the older one,
/// and the older one is dropped. A group that comes back after that gets a new number.
///
/// The maps use the standard library's hasher, which is seeded at random, so that no client can make them slow. The
/// empty key is the key of all items of a deployment without `group_by`. It has a fixed number and is not looked up.
#[derive(Debug, Default)]
pub struct Groups {
    younger: HashMap<GroupKey, GroupId>,
    older: HashMap<GroupKey, GroupId>,
    next: u64,
    empty: GroupKey,
}

/// The group of the empty key. All others have higher numbers.
pub const WITHOUT_KEY: GroupId = GroupId(0);

impl Groups {
    /// The number of a key's group, if the group was used recently.
    pub fn find(&self, key: &GroupKey) -> Option<GroupId> {
        if key.0.is_empty() {
            return Some(WITHOUT_KEY);
        }
        self.younger.get(key).or_else(|| self.older.get(key)).copied()
    }

    /// The number of a key's group; a group that was not used recently gets a new one.
    pub fn number(&mut self, key: &GroupKey) -> GroupId {
        if key.0.is_empty() {
            return WITHOUT_KEY;
        }
        if let Some(&group) = self.younger.get(key) {
            return group;
        }
        let group = self.older.remove(key).unwrap_or_else(|| {
            self.next += 1;
            GroupId(self.next)
        });
        if self.younger.len() >= MOST_IN_USE {
            self.older = std::mem::take(&mut self.younger);
        }
        self.younger.insert(key.clone(), group);
        group
    }

    /// All groups that were used recently, in no order.
    pub fn keys(&self) -> impl Iterator<Item = (GroupId, &GroupKey)> {
        let keyed = self.younger.iter().chain(&self.older).map(|(key, &group)| (group, key));
        std::iter::once((WITHOUT_KEY, &self.empty)).chain(keyed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::group_key::KeyPart;
    use rustc_hash::FxBuildHasher;
    use std::hash::BuildHasher;

    fn key(n: i64) -> GroupKey {
        GroupKey([KeyPart::Int(n)].into_iter().collect())
    }

    #[test]
    fn a_group_in_use_keeps_its_number_and_others_are_forgotten() {
        let mut groups = Groups::default();
        let first = groups.number(&key(0));
        for n in 1..10_000 {
            assert_eq!(groups.number(&key(0)), first);
            assert_ne!(groups.number(&key(n)), first);
        }
        assert_eq!(groups.find(&key(1)), None);
        assert!(groups.keys().count() <= 2 * MOST_IN_USE);
    }

    #[test]
    fn keys_whose_unkeyed_hash_is_equal_are_different_groups() {
        // FxHash adds a word and multiplies, so one word can make up for another: this is its factor.
        const FACTOR: i64 = 0xf135_7aea_2e62_a9c5_u64 as i64;
        let pair = |a, b| GroupKey([KeyPart::Int(a), KeyPart::Int(b)].into_iter().collect());
        let keys = [pair(0, 0), pair(1, FACTOR.wrapping_mul(FACTOR).wrapping_neg())];
        assert_eq!(FxBuildHasher.hash_one(&keys[0]), FxBuildHasher.hash_one(&keys[1]), "they were made to collide");
        let mut groups = Groups::default();
        assert_ne!(groups.number(&keys[0]), groups.number(&keys[1]));
    }
}
