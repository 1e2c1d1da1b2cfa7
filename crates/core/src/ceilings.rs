//! How many items of a group fit into the memory of the device, learned from batches that did not.

use crate::lanes::Kin;
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
struct Ceiling {
    most: usize,
    /// From when a larger batch may be tried.
    try_at: Time,
    wait: Duration,
}

/// The ceilings of all groups that have one.
#[derive(Clone, Debug, Default)]
pub struct Ceilings {
    by_kin: FxHashMap<Kin, Ceiling>,
}

impl Ceilings {
    /// The most items of a group, of `limit` at most. When it is time for a trial, twice as many as are known to fit.
    pub fn most(&self, kin: Kin, limit: usize, now: Time) -> usize {
        match self.by_kin.get(&kin) {
            Some(ceiling) if now >= ceiling.try_at => limit.min(ceiling.most * 2),
            Some(ceiling) => limit.min(ceiling.most),
            None => limit,
        }
    }

    /// The groups that have one.
    pub fn groups(&self) -> impl Iterator<Item = Kin> + '_ {
        self.by_kin.keys().copied()
    }

    /// That of a group, if it has one: the most items, and from when more are tried.
    pub fn of(&self, kin: Kin) -> Option<(usize, Time)> {
        self.by_kin.get(&kin).map(|ceiling| (ceiling.most, ceiling.try_at))
    }

    /// A batch of so many items did not fit. Returns what is taken to fit now.
    pub fn too_large(&mut self, kin: Kin, items: usize, now: Time) -> usize {
        let known = self.by_kin.get(&kin);
        let was_trial = known.is_some_and(|ceiling| now >= ceiling.try_at && items > ceiling.most);
        let wait = match known {
            Some(ceiling) if was_trial => (ceiling.wait * 2).min(LONGEST),
            Some(ceiling) => ceiling.wait,
            None => FIRST_TRIAL_AFTER,
        };
        let most = known.map_or(items, |ceiling| ceiling.most.min(items));
        let most = if was_trial { most } else { most.min(items.div_ceil(2)).max(1) };
        if known.is_none() && self.by_kin.len() == MOST_REMEMBERED {
            let first = self.by_kin.iter().min_by_key(|(kin, ceiling)| (ceiling.try_at, kin.0)).map(|(kin, _)| *kin);
            first.map(|kin| self.by_kin.remove(&kin));
        }
        self.by_kin.insert(kin, Ceiling { most, try_at: now + wait, wait });
        most
    }

    /// A batch of so many items did fit.
    pub fn fitted(&mut self, kin: Kin, items: usize, limit: usize) {
        if let Some(ceiling) = self.by_kin.get_mut(&kin).filter(|ceiling| items > ceiling.most) {
            ceiling.most = items;
            if items >= limit {
                self.by_kin.remove(&kin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIN: Kin = Kin(1);

    fn at(seconds: u64) -> Time {
        Time(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn what_did_not_fit_is_halved_for_its_group_alone() {
        let mut ceilings = Ceilings::default();
        assert_eq!(ceilings.too_large(KIN, 32, at(0)), 16);
        assert_eq!(ceilings.too_large(KIN, 16, at(1)), 8);
        assert_eq!((ceilings.most(KIN, 32, at(2)), ceilings.most(Kin(2), 32, at(2))), (8, 32));
        assert_eq!(ceilings.too_large(KIN, 1, at(2)), 1, "never below one");
    }

    #[test]
    fn it_is_tried_again_later_and_then_later_still() {
        let mut ceilings = Ceilings::default();
        ceilings.too_large(KIN, 16, at(0));
        assert_eq!((ceilings.most(KIN, 32, at(59)), ceilings.most(KIN, 32, at(60))), (8, 16));
        assert_eq!(ceilings.too_large(KIN, 16, at(60)), 8, "the trial failed: what was known holds");
        assert_eq!((ceilings.most(KIN, 32, at(179)), ceilings.most(KIN, 32, at(180))), (8, 16));
    }

    #[test]
    fn a_trial_that_fits_raises_the_ceiling_until_there_is_none() {
        let mut ceilings = Ceilings::default();
        ceilings.too_large(KIN, 32, at(0));
        ceilings.fitted(KIN, 12, 32);
        assert_eq!(ceilings.most(KIN, 32, at(1)), 16);
        ceilings.fitted(KIN, 32, 32);
        assert_eq!(ceilings.most(KIN, 32, at(61)), 32);
        assert!(ceilings.by_kin.is_empty());
    }

    #[test]
    fn it_is_bounded() {
        let mut ceilings = Ceilings::default();
        (0..3000).for_each(|kin| _ = ceilings.too_large(Kin(kin), 8, at(kin)));
        assert_eq!(ceilings.by_kin.len(), MOST_REMEMBERED);
    }
}
