//! Where users go: which group they ask for after an answer of another. Whoever chooses a picture's size at random comes back
//! to any of them, and whoever always asks for the same comes back to that.

use crate::lanes::Kin;
use rustc_hash::FxHashMap;

/// Groups that are known, and groups that are known to follow each; of more, those seen longest ago and least are forgotten.
const MOST: usize = 32;
/// Requests after which the first ones have faded.
const MEMORY: u32 = 64;

/// Of each group, the shares of the groups that follow its answers.
#[derive(Clone, Debug, Default)]
pub struct Moves {
    after: FxHashMap<Kin, Row>,
    learned: u64,
}

#[derive(Clone, Debug)]
struct Row {
    /// They sum to 1 but for what was forgotten.
    shares: Vec<(Kin, f64)>,
    known: u32,
    /// When it changed last, in requests.
    seen: u64,
}

impl Row {
    /// Until more is known users stay where they are.
    fn of(kin: Kin) -> Row {
        Row { shares: vec![(kin, 1.0)], known: 1, seen: 0 }
    }

    fn learn(&mut self, to: Kin) {
        self.known = (self.known + 1).min(MEMORY);
        let weight = 1.0 / f64::from(self.known);
        self.shares.iter_mut().for_each(|(_, share)| *share *= 1.0 - weight);
        if let Some((_, share)) = self.shares.iter_mut().find(|(kin, _)| *kin == to) {
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

impl Moves {
    /// Somebody asked for `to` after an answer of `from`.
    pub fn learn(&mut self, from: Kin, to: Kin) {
        self.learned += 1;
        if self.after.len() == MOST && !self.after.contains_key(&from) {
            let oldest = self.after.iter().min_by_key(|(_, row)| row.seen).map(|(kin, _)| *kin);
            oldest.map(|kin| self.after.remove(&kin));
        }
        let row = self.after.entry(from).or_insert_with(|| Row::of(from));
        row.learn(to);
        row.seen = self.learned;
    }

    /// The share of the answers of `from` that is followed by a request of `to`.
    pub fn share(&self, from: Kin, to: Kin) -> f64 {
        match self.after.get(&from) {
            Some(row) => row.shares.iter().find(|(kin, _)| *kin == to).map_or(0.0, |(_, share)| *share),
            None => f64::from(u8::from(from == to)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Kin = Kin(1);
    const B: Kin = Kin(2);

    #[test]
    fn users_stay_until_they_are_seen_to_move() {
        let mut moves = Moves::default();
        assert!(moves.share(A, A) > 0.99 && moves.share(A, B) < 0.01, "{moves:?}");
        for n in 0..400 {
            moves.learn(A, if n % 4 == 0 { B } else { A });
        }
        assert!((0.7..0.8).contains(&moves.share(A, A)), "{moves:?}");
        assert!((0.2..0.3).contains(&moves.share(A, B)), "{moves:?}");
        assert!(moves.share(B, B) > 0.99, "what those of A do says nothing of those of B");
    }

    #[test]
    fn who_changes_habits_is_soon_expected_elsewhere() {
        let mut moves = Moves::default();
        (0..1000).for_each(|_| moves.learn(A, A));
        (0..200).for_each(|_| moves.learn(A, B));
        assert!(moves.share(A, B) > 0.9, "{moves:?}");
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_common_ones_stay() {
        let mut moves = Moves::default();
        for kin in (3..1000).map(Kin) {
            moves.learn(A, kin);
            moves.learn(A, A);
            moves.learn(kin, A);
        }
        assert!(moves.after.len() <= MOST && moves.after.values().all(|row| row.shares.len() <= MOST));
        assert!(moves.share(A, A) > 0.4, "{moves:?}");
    }
}
