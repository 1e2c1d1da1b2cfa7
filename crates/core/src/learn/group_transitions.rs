//! Where users go: which group they ask for after an answer of another. Users who choose a picture's size at random come back
//! to any of them, and users who always ask for the same size come back to that.

use crate::request::GroupId;
use rustc_hash::FxHashMap;

/// Groups that are known, and groups that are known to follow each; of more, those seen longest ago and least are forgotten.
const MOST: usize = 32;
/// Requests after which the first ones have faded.
const MEMORY: u32 = 64;

/// Of each group, the shares of the groups that follow its answers.
#[derive(Clone, Debug, Default)]
pub struct GroupTransitions {
    after: FxHashMap<GroupId, Row>,
    learned: u64,
}

#[derive(Clone, Debug)]
struct Row {
    /// They sum to 1 but for what was forgotten.
    shares: Vec<(GroupId, f64)>,
    known: u32,
    /// When it changed last, in requests.
    seen: u64,
}

impl Row {
    /// Until more is known users stay where they are.
    fn of(group: GroupId) -> Row {
        Row { shares: vec![(group, 1.0)], known: 1, seen: 0 }
    }

    fn learn(&mut self, to: GroupId) {
        self.known = (self.known + 1).min(MEMORY);
        let weight = 1.0 / f64::from(self.known);
        self.shares.iter_mut().for_each(|(_, share)| *share *= 1.0 - weight);
        if let Some((_, share)) = self.shares.iter_mut().find(|(group, _)| *group == to) {
            *share += weight;
            return;
        }
        if self.shares.len() == MOST {
            let least = (0..MOST).min_by(|&a, &b| self.shares[a].1.total_cmp(&self.shares[b].1));
            least.map(|place| self.shares.swap_remove(place));
        }
        self.shares.push((to, weight));
    }
}

impl GroupTransitions {
    /// Somebody asked for `to` after an answer of `from`.
    pub fn learn(&mut self, from: GroupId, to: GroupId) {
        self.learned += 1;
        if self.after.len() == MOST && !self.after.contains_key(&from) {
            let oldest = self.after.iter().min_by_key(|(_, row)| row.seen).map(|(group, _)| *group);
            oldest.map(|group| self.after.remove(&group));
        }
        let row = self.after.entry(from).or_insert_with(|| Row::of(from));
        row.learn(to);
        row.seen = self.learned;
    }

    /// The share of the answers of `from` that is followed by a request of `to`.
    pub fn share(&self, from: GroupId, to: GroupId) -> f64 {
        match self.after.get(&from) {
            Some(row) => row.shares.iter().find(|(group, _)| *group == to).map_or(0.0, |(_, share)| *share),
            None => f64::from(u8::from(from == to)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: GroupId = GroupId(1);
    const B: GroupId = GroupId(2);

    #[test]
    fn users_stay_until_they_are_seen_to_move() {
        let mut transitions = GroupTransitions::default();
        assert!(transitions.share(A, A) > 0.99 && transitions.share(A, B) < 0.01, "{transitions:?}");
        for n in 0..400 {
            transitions.learn(A, if n % 4 == 0 { B } else { A });
        }
        assert!((0.7..0.8).contains(&transitions.share(A, A)), "{transitions:?}");
        assert!((0.2..0.3).contains(&transitions.share(A, B)), "{transitions:?}");
        assert!(transitions.share(B, B) > 0.99, "users of A do not predict users of B");
    }

    #[test]
    fn who_changes_habits_is_soon_expected_elsewhere() {
        let mut transitions = GroupTransitions::default();
        (0..1000).for_each(|_| transitions.learn(A, A));
        (0..200).for_each(|_| transitions.learn(A, B));
        assert!(transitions.share(A, B) > 0.9, "{transitions:?}");
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_common_ones_stay() {
        let mut transitions = GroupTransitions::default();
        for group in (3..1000).map(GroupId) {
            transitions.learn(A, group);
            transitions.learn(A, A);
            transitions.learn(group, A);
        }
        assert!(transitions.after.len() <= MOST && transitions.after.values().all(|row| row.shares.len() <= MOST));
        assert!(transitions.share(A, A) > 0.4, "{transitions:?}");
    }
}
