//! How fast one replica computes compared with the others, and how long the way to it is. Replicas of one deployment may run on
//! different devices, or next to a busy neighbour.

use crate::replicas::paces::link_way::LinkWay;
use crate::request::ReplicaId;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::time::Duration;

/// Weight of the newest batch in a factor, …
const NEWEST: f64 = 0.25;
/// … where durations scatter by this share. Where they scatter more a batch says less, and weighs less, …
const USUAL_SCATTER: f64 = 0.15;
/// … but never less than this.
const LEAST_WEIGHT: f64 = 1.0 / 32.0;
/// No replica is taken to be slower or faster than another by more than this.
const MOST: f64 = 16.0;
/// Batches of a replica before its factor is believed.
const BELIEVED_AFTER: u32 = 3;
/// A factor whose logarithm is within this of the median is the median: replicas that are equal scatter …
const EQUAL: f64 = 0.3;
/// … and one that was different must come this close to be like the others again.
const EQUAL_AGAIN: f64 = 0.15;
/// Two factors whose logarithms differ by this are of neighbouring ranks.
const RANK: f64 = 0.35;
/// The rank of the slowest replicas; minus this is the rank of the fastest.
pub const SLOWEST: i8 = 8;
/// A replica that is slower than the median by this …
const SLOW: f64 = 4.0;
/// … for so many batches is named once; it is named again after it was faster than half of that.
const NAMED_AFTER: u32 = 10;
/// A slow replica that gets nothing would count as slow without end. So it is given one item each time that so many
/// batches, …
const TRIED_AFTER: u64 = 128;
/// … and so many for each replica, have left since it got the last one.
const TRIED_AFTER_EACH: u64 = 16;

/// What is believed about one replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// How many times as long as the median replica it takes for a batch; exactly 1 for all that are equal.
    pub factor: f64,
    /// The order in which idle replicas are given a batch, the smallest first. It counts the way of an item too. 0 for all that are
    /// equal.
    pub rank: i8,
}

impl Pace {
    /// Like most others.
    pub const USUAL: Pace = Pace { factor: 1.0, rank: 0 };
}

#[derive(Clone, Debug)]
struct Learned {
    /// The logarithm of measured over expected, averaged.
    log: f64,
    batches: u32,
    is_different: bool,
    /// Batches in a row for which it was slow.
    slow: u32,
    is_named: bool,
    pace: Pace,
    way: Option<LinkWay>,
    /// When it is tried, if it is slow: the number of that launch.
    tried_at: Option<u64>,
}

/// How the logarithms of all believed factors are spread, in steps of 0.05: their median is found without a walk over replicas.
#[derive(Clone, Debug)]
struct Spread {
    counts: [u32; 2 * Spread::HALF + 1],
    total: u32,
}

impl Spread {
    const HALF: usize = 56;
    const STEP: f64 = 0.05;

    fn place(log: f64) -> usize {
        ((log / Spread::STEP).round() as i64 + Spread::HALF as i64).clamp(0, 2 * Spread::HALF as i64) as usize
    }

    fn change(&mut self, log: f64, joins: bool) {
        let count = &mut self.counts[Spread::place(log)];
        if joins {
            (*count, self.total) = (*count + 1, self.total + 1);
        } else {
            (*count, self.total) = (*count - 1, self.total - 1);
        }
    }

    /// Of an even number the smaller one of the two in the middle: of two replicas the fast one is the usual one.
    fn median(&self) -> f64 {
        let mut left = self.total.div_ceil(2);
        for (place, &count) in self.counts.iter().enumerate() {
            if count >= left {
                return (place as f64 - Spread::HALF as f64) * Spread::STEP;
            }
            left -= count;
        }
        0.0
    }
}

/// The paces of all replicas of a deployment.
#[derive(Clone, Debug)]
pub struct ReplicaPaces {
    learned: FxHashMap<ReplicaId, Learned>,
    spread: Spread,
    /// Slow replicas by the number of the launch with which each is tried.
    trials: BTreeSet<(u64, ReplicaId)>,
    launches: u64,
    /// Replicas on other machines. Without any, no way is looked for.
    far: usize,
    is_off: bool,
}

impl Default for ReplicaPaces {
    fn default() -> ReplicaPaces {
        ReplicaPaces {
            learned: FxHashMap::default(),
            spread: Spread { counts: [0; 2 * Spread::HALF + 1], total: 0 },
            trials: BTreeSet::new(),
            launches: 0,
            far: 0,
            is_off: false,
        }
    }
}

/// What a batch said about its replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// What is believed from now on.
    pub pace: Pace,
    /// The replica has been slow for so long that people should know; its factor.
    pub is_slow: Option<f64>,
}

impl ReplicaPaces {
    /// Treats all replicas as equal, for good: a simulation compares with it.
    pub fn turn_off(&mut self) {
        self.is_off = true;
    }

    /// The link to a replica leaves this machine.
    pub fn set_far(&mut self, id: ReplicaId) {
        if let Some(learned) = self.learned.get_mut(&id)
            && learned.way.replace(LinkWay::default()).is_none()
        {
            self.far += 1;
        }
    }

    /// A replica is up.
    pub fn add(&mut self, id: ReplicaId) {
        let learned = Learned {
            log: 0.0,
            batches: 0,
            is_different: false,
            slow: 0,
            is_named: false,
            pace: Pace::USUAL,
            way: None,
            tried_at: None,
        };
        self.learned.insert(id, learned);
    }

    /// A replica is lost.
    pub fn remove(&mut self, id: ReplicaId) {
        let Some(learned) = self.learned.remove(&id) else { return };
        self.far -= usize::from(learned.way.is_some());
        if learned.batches >= BELIEVED_AFTER {
            self.spread.change(learned.log, false);
        }
        if let Some(at) = learned.tried_at {
            self.trials.remove(&(at, id));
        }
    }

    /// What is believed about a replica.
    pub fn of(&self, id: ReplicaId) -> Pace {
        self.learned.get(&id).map_or(Pace::USUAL, |learned| learned.pace)
    }

    /// The way to a replica on another machine; `None` for one on this machine.
    pub fn way(&self, id: ReplicaId) -> Option<&LinkWay> {
        if self.far == 0 { None } else { self.learned.get(&id)?.way.as_ref() }
    }

    /// What a batch like the last one needs for both ways; zero on this machine.
    pub fn both_ways(&self, id: ReplicaId) -> Duration {
        self.way(id).map_or(Duration::ZERO, LinkWay::both_ways)
    }

    /// The way to a replica on another machine, to learn.
    pub fn way_mut(&mut self, id: ReplicaId) -> Option<&mut LinkWay> {
        if self.far == 0 { None } else { self.learned.get_mut(&id)?.way.as_mut() }
    }

    /// A batch of a replica took `seconds` where `expected` were expected of the median replica, while durations scatter by the share
    /// `scatter` and one item takes `one_s`.
    pub fn learn(&mut self, id: ReplicaId, seconds: f64, expected: f64, scatter: f64, one_s: f64) -> Option<Measured> {
        if self.is_off {
            return None;
        }
        let learned = self.learned.get_mut(&id)?;
        let off = (seconds / expected).ln().clamp(-MOST.ln(), MOST.ln());
        if learned.batches >= BELIEVED_AFTER {
            self.spread.change(learned.log, false);
        }
        let usual = NEWEST * (USUAL_SCATTER / scatter.max(USUAL_SCATTER)).powi(2);
        let first = 1.0 / f64::from(learned.batches + 1);
        learned.log += usual.max(LEAST_WEIGHT).max(first) * (off - learned.log);
        learned.batches = learned.batches.saturating_add(1);
        if learned.batches < BELIEVED_AFTER {
            return None;
        }
        self.spread.change(learned.log, true);
        let log = learned.log - self.spread.median();
        learned.is_different = log.abs() > if learned.is_different { EQUAL_AGAIN } else { EQUAL };
        let factor = if learned.is_different { log.exp().clamp(1.0 / MOST, MOST) } else { 1.0 };
        let way = learned.way.as_ref().map_or(0.0, |way| way.round_trip_s() / one_s);
        let rank = if (factor + way).ln().abs() > EQUAL || learned.is_different {
            ((factor + way).ln() / RANK).round().clamp(-f64::from(SLOWEST), f64::from(SLOWEST)) as i8
        } else {
            0
        };
        learned.pace = Pace { factor, rank };
        learned.slow = if factor > SLOW { learned.slow.saturating_add(1) } else { 0 };
        learned.is_named &= factor > SLOW / 2.0;
        let is_slow = (learned.slow >= NAMED_AFTER && !learned.is_named).then_some(factor);
        learned.is_named |= is_slow.is_some();
        let pace = learned.pace;
        self.set_trial(id, pace.rank > 0);
        Some(Measured { pace, is_slow })
    }

    /// A batch leaves for a replica.
    pub fn launched(&mut self, id: ReplicaId) {
        self.launches += 1;
        if !self.trials.is_empty() && self.learned.get(&id).is_some_and(|learned| learned.tried_at.is_some()) {
            self.set_trial(id, true);
        }
    }

    /// The slow replica that was given nothing for the longest time, if that is too long.
    pub fn trial(&self) -> Option<ReplicaId> {
        self.trials.first().filter(|(at, _)| *at <= self.launches).map(|&(_, id)| id)
    }

    /// All factors that are believed.
    pub fn factors(&self) -> impl Iterator<Item = (ReplicaId, f64)> + '_ {
        let believed = self.learned.iter().filter(|(_, learned)| learned.batches >= BELIEVED_AFTER);
        believed.map(|(&id, learned)| (id, learned.pace.factor))
    }

    /// The ways to replicas on other machines, as far as they were measured.
    pub fn link_ways(&self) -> impl Iterator<Item = (ReplicaId, &LinkWay)> + '_ {
        let far = if self.far == 0 { None } else { Some(&self.learned) };
        let ways = far.into_iter().flatten().filter_map(|(&id, learned)| Some((id, learned.way.as_ref()?)));
        ways.filter(|(_, way)| way.round_trip_s() > 0.0)
    }

    fn set_trial(&mut self, id: ReplicaId, is_slow: bool) {
        let at = self.launches + TRIED_AFTER.max(TRIED_AFTER_EACH * self.learned.len() as u64);
        let Some(learned) = self.learned.get_mut(&id) else { return };
        if let Some(old) = learned.tried_at.take() {
            self.trials.remove(&(old, id));
        }
        if is_slow {
            learned.tried_at = Some(at);
            self.trials.insert((at, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paces(count: u32) -> ReplicaPaces {
        let mut paces = ReplicaPaces::default();
        (0..count).for_each(|id| paces.add(ReplicaId(id)));
        paces
    }

    fn learn(paces: &mut ReplicaPaces, id: u32, seconds: f64) -> Option<Measured> {
        paces.learn(ReplicaId(id), seconds, 1.0, 0.1, 1.0)
    }

    #[test]
    fn replicas_that_are_equal_have_exactly_the_factor_one() {
        let mut paces = paces(4);
        for round in 0..50 {
            (0..4).for_each(|id| {
                _ = learn(&mut paces, id, 0.9 + 0.05 * f64::from((round * 7 + id * 3) % 5));
            });
        }
        assert!((0..4).all(|id| paces.of(ReplicaId(id)) == Pace::USUAL));
    }

    #[test]
    fn one_replica_alone_is_never_slow_however_its_model_changes() {
        let mut paces = paces(1);
        (0..50).for_each(|_| assert!(learn(&mut paces, 0, 30.0).is_none_or(|measured| measured.pace == Pace::USUAL)));
    }

    #[test]
    fn a_slow_one_is_named_once_and_is_believed_to_be_fast_again() {
        let mut paces = paces(4);
        (0..9).for_each(|_| (0..4).for_each(|id| _ = learn(&mut paces, id, 1.0)));
        let named: Vec<_> =
            (0..40).filter_map(|_| learn(&mut paces, 2, 10.0).and_then(|measured| measured.is_slow)).collect();
        assert!(named.len() == 1 && named[0] > 8.0, "{named:?}");
        let pace = paces.of(ReplicaId(2));
        assert!((9.0..10.5).contains(&pace.factor) && pace.rank > 5, "{pace:?}");
        (0..12).for_each(|_| _ = learn(&mut paces, 2, 1.0));
        assert_eq!(paces.of(ReplicaId(2)), Pace::USUAL);
    }

    #[test]
    fn half_of_the_replicas_may_be_slow() {
        let mut paces = paces(4);
        for _ in 0..20 {
            [2.0, 2.0, 8.0, 8.0].iter().enumerate().for_each(|(id, &s)| _ = learn(&mut paces, id as u32, s));
        }
        let factors = [0, 1, 2, 3].map(|id| paces.of(ReplicaId(id)).factor);
        assert!(factors[..2] == [1.0, 1.0] && factors[2..].iter().all(|f| (3.7..4.3).contains(f)), "{factors:?}");
        paces.remove(ReplicaId(0));
        paces.remove(ReplicaId(1));
        (0..20).for_each(|_| [2, 3].iter().for_each(|&id| _ = learn(&mut paces, id, 8.0)));
        assert_eq!(paces.of(ReplicaId(2)), Pace::USUAL, "all that are left are equal");
    }

    #[test]
    fn a_slow_one_that_gets_nothing_is_tried_after_a_while() {
        let mut paces = paces(2);
        (0..9).for_each(|_| [(0, 1.0), (1, 9.0)].iter().for_each(|&(id, s)| _ = learn(&mut paces, id, s)));
        assert_eq!(paces.trial(), None);
        (0..TRIED_AFTER).for_each(|_| paces.launched(ReplicaId(0)));
        assert_eq!(paces.trial(), Some(ReplicaId(1)));
        paces.launched(ReplicaId(1));
        assert_eq!(paces.trial(), None);
    }
}
