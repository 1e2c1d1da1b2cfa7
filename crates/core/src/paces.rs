//! What batches take, of the deployment and of each group key: a small picture does not cost what a large one does.

use crate::curve::Curve;
use crate::lanes::Kin;
use crate::load::Load;
use crate::pace::Pace;
use rustc_hash::FxHashMap;
use std::time::Duration;

/// Groups that have a pace of their own; of more, the one that was not seen for longest is forgotten.
const MOST_GROUPS: usize = 32;

/// The paces of a deployment.
#[derive(Clone, Debug, Default)]
pub struct Paces {
    all: Curve,
    /// The one group seen so far: while there is no other, its pace is that of all.
    only: Option<Kin>,
    groups: FxHashMap<Kin, Group>,
    learned: u64,
}

#[derive(Clone, Debug)]
struct Group {
    curve: Curve,
    /// The batches of the deployment when it was seen last.
    seen: u64,
    /// Batches of its own.
    batches: u64,
}

impl Paces {
    /// Learns that a batch of a group occupied a replica for `length`.
    pub fn learn(&mut self, kin: Kin, load: Load, length: Duration) {
        self.learned += 1;
        let only = *self.only.get_or_insert(kin);
        if only != kin || !self.groups.is_empty() {
            if self.groups.is_empty() {
                self.groups.insert(only, Group { curve: self.all.clone(), seen: 0, batches: self.learned - 1 });
            }
            if self.groups.len() == MOST_GROUPS && !self.groups.contains_key(&kin) {
                let oldest = self.groups.iter().min_by_key(|(_, group)| group.seen).map(|(kin, _)| *kin);
                oldest.map(|kin| self.groups.remove(&kin));
            }
            let guess = || Group { curve: self.all.as_a_guess(), seen: 0, batches: 0 };
            let own = self.groups.entry(kin).or_insert_with(guess);
            own.curve.learn(load, length);
            own.seen = self.learned;
            own.batches += 1;
        }
        self.all.learn(load, length);
    }

    /// Learns what was measured before anything was served.
    pub fn profiled(&mut self, load: Load, length: Duration) {
        self.all.learn(load, length);
    }

    /// That of the deployment, by the number of items.
    pub fn all(&self) -> &Pace {
        self.all.by_items()
    }

    /// That of a group, by the number of items.
    pub fn of(&self, kin: Kin) -> &Pace {
        self.curve_of(kin).by_items()
    }

    /// What batches of the deployment take.
    pub fn curve(&self) -> &Curve {
        &self.all
    }

    /// The groups that have a curve of their own.
    pub fn groups(&self) -> impl Iterator<Item = Kin> + '_ {
        self.groups.keys().copied()
    }

    /// What batches of a group take: its own curve, or else the deployment's.
    pub fn curve_of(&self, kin: Kin) -> &Curve {
        self.groups.get(&kin).map_or(&self.all, |group| &group.curve)
    }

    /// What was measured of a group's own batches, and how many those are.
    pub fn own(&self, kin: Kin) -> Option<(&Curve, u64)> {
        match self.groups.get(&kin) {
            Some(group) => Some((&group.curve, group.batches)),
            None if self.groups.is_empty() && self.only == Some(kin) => Some((&self.all, self.learned)),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn groups_of_different_cost_are_told_apart() {
        let mut paces = Paces::default();
        for _ in 0..20 {
            [1, 4].iter().for_each(|&items| {
                paces.learn(Kin(1), Load::alike(items, 1), 10 * MS + MS * items as u32);
                paces.learn(Kin(2), Load::alike(items, 1), 100 * MS + 10 * MS * items as u32);
            });
        }
        let ms = |kin| (paces.of(Kin(kin)).seconds(4) * 1e3).round();
        assert_eq!((ms(1), ms(2)), (14.0, 140.0));
        assert!((14.0..140.0).contains(&ms(3)), "a group that was never seen has the deployment's: {}", ms(3));
    }

    #[test]
    fn a_new_group_begins_with_the_pace_of_all_and_soon_has_its_own() {
        let mut paces = Paces::default();
        (0..50).for_each(|n| paces.learn(Kin(1), Load::alike(1 + n % 4, 1), 10 * MS));
        (0..6).for_each(|_| paces.learn(Kin(2), Load::alike(4, 1), 50 * MS));
        let seconds = paces.of(Kin(2)).seconds(4);
        assert!((0.035..=0.055).contains(&seconds), "{seconds}");
        assert!(paces.of(Kin(1)).seconds(4) < 0.012);
    }

    #[test]
    fn groups_are_bounded() {
        let mut paces = Paces::default();
        (0..1000).for_each(|kin| paces.learn(Kin(kin), Load::one(1), MS));
        assert_eq!(paces.groups.len(), MOST_GROUPS);
        assert!(paces.groups.contains_key(&Kin(999)));
    }
}
