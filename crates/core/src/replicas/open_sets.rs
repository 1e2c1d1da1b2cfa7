//! The open sets of replicas whose model works in steps: items join and leave them one by one, between two steps. Which
//! replica has the most room, and which of them take no item for now.

use crate::request::ReplicaId;
use crate::time::Time;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::time::Duration;

/// An empty replica whose model had no room for an item is offered the next one after this.
const PAUSE: Duration = Duration::from_millis(100);

/// What one replica holds, and why it takes no more.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each of them begins and ends for itself")]
struct OpenSet {
    items: usize,
    cost: u128,
    /// Items that have joined since the last step.
    newcomers: usize,
    /// As many have joined as may before the next step.
    waits_for_step: bool,
    /// The model had no room for an item: nothing joins until an item has ended …
    waits_for_end: bool,
    /// … or, if the model has no item, until then.
    pauses_until: Option<Time>,
    /// It is given to a suspect, which must be alone.
    is_reserved: bool,
    /// It gets nothing more.
    is_condemned: bool,
    /// Its link is silent: nothing joins until something is heard.
    is_doubtful: bool,
    /// When it last reported a step.
    reported: Option<Time>,
}

impl OpenSet {
    fn takes(&self) -> bool {
        let waits = self.waits_for_step || self.waits_for_end || self.pauses_until.is_some();
        !(waits || self.is_reserved || self.is_condemned || self.is_doubtful)
    }

    /// The smallest has the most room.
    fn key(&self, id: ReplicaId) -> (u128, usize, ReplicaId) {
        (self.cost, self.items, id)
    }
}

/// The open sets of all replicas of a deployment.
#[derive(Debug, Default)]
pub struct OpenSets {
    by_id: FxHashMap<ReplicaId, OpenSet>,
    /// Those that take items, by what they hold.
    room: BTreeSet<(u128, usize, ReplicaId)>,
    pauses: BTreeSet<(Time, ReplicaId)>,
    reserved: Option<ReplicaId>,
    /// Items and their cost in replicas that are not condemned.
    items: usize,
    cost: u128,
}

impl OpenSets {
    // ------------------------------------------------------------------------------------------ questions

    /// The replica with the most room, if an item of this cost has a place in it: a replica may hold `most` items, and
    /// `max_cost` units.
    pub fn roomiest(&self, cost: u64, most: usize, max_cost: u64) -> Option<ReplicaId> {
        let &(held, _, id) = self.room.iter().find(|&&(_, items, _)| items < most)?;
        (held + u128::from(cost) <= u128::from(max_cost)).then_some(id)
    }

    /// Items that the replicas hold, and their cost in cost units.
    pub fn load(&self) -> (usize, u128) {
        (self.items, self.cost)
    }

    /// Items that a replica holds.
    pub fn items(&self, id: ReplicaId) -> usize {
        self.by_id.get(&id).map_or(0, |set| set.items)
    }

    /// When a replica last reported a step.
    pub fn reported(&self, id: ReplicaId) -> Option<Time> {
        self.by_id.get(&id)?.reported
    }

    /// When the first pause ends.
    pub fn next_pause(&self) -> Option<Time> {
        self.pauses.first().map(|&(at, _)| at)
    }

    // ------------------------------------------------------------------------------------------ replicas

    /// A replica is loaded and empty.
    pub fn add(&mut self, id: ReplicaId) {
        self.by_id.insert(id, OpenSet::default());
        self.change(id, |_| ());
    }

    /// A replica is lost.
    pub fn remove(&mut self, id: ReplicaId) {
        self.condemn(id);
        self.by_id.remove(&id);
    }

    /// A replica gets nothing more.
    pub fn condemn(&mut self, id: ReplicaId) {
        let Some(set) = self.by_id.get(&id) else { return };
        if !set.is_condemned {
            (self.items, self.cost) = (self.items - set.items, self.cost - set.cost);
        }
        if self.reserved == Some(id) {
            self.reserved = None;
        }
        self.change(id, |set| (set.is_condemned, set.pauses_until) = (true, None));
    }

    /// Nothing joins a replica while it is doubtful.
    pub fn set_doubtful(&mut self, id: ReplicaId, is_doubtful: bool) {
        if is_doubtful && self.reserved == Some(id) {
            self.release();
        }
        self.change(id, |set| set.is_doubtful = is_doubtful);
    }

    /// This process did not run for so long.
    pub fn excuse(&mut self, away: Duration) {
        for set in self.by_id.values_mut() {
            set.reported = set.reported.map(|at| at + away);
        }
    }

    // ------------------------------------------------------------------------------------------ items

    /// An item joins; at most `most_joins` may between two steps.
    pub fn join(&mut self, id: ReplicaId, cost: u64, most_joins: usize) {
        self.count(id, |items, total| (items + 1, total + u128::from(cost)));
        self.change(id, |set| {
            // Nothing runs in an empty replica whose steps an earlier newcomer could delay.
            set.newcomers = if set.items == 1 { 1 } else { set.newcomers + 1 };
            set.waits_for_step = set.newcomers >= most_joins;
        });
    }

    /// An item has ended.
    pub fn leave(&mut self, id: ReplicaId, cost: u64) {
        self.count(id, |items, total| (items - 1, total - u128::from(cost)));
        self.change(id, |set| {
            set.waits_for_end = false;
            set.waits_for_step &= set.items > 0;
        });
    }

    /// The model has no room for an item, which goes back to its lane.
    pub fn later(&mut self, id: ReplicaId, cost: u64, now: Time) {
        self.leave(id, cost);
        self.change(id, |set| {
            set.waits_for_end = set.items > 0;
            set.pauses_until = (set.items == 0).then_some(now + PAUSE);
        });
    }

    /// A replica reports a step. Returns how many items it holds.
    pub fn stepped(&mut self, id: ReplicaId, now: Time) -> usize {
        self.change(id, |set| (set.newcomers, set.waits_for_step, set.reported) = (0, false, Some(now)));
        self.items(id)
    }

    /// Ends the pauses that are over.
    pub fn resume(&mut self, now: Time) {
        while let Some(&(at, id)) = self.pauses.first()
            && at <= now
        {
            self.change(id, |set| set.pauses_until = None);
        }
    }

    // ------------------------------------------------------------------------------------------ suspects

    /// An empty replica for a suspect. While there is none, the one with the fewest items takes no other until it is empty.
    pub fn reserve(&mut self) -> Option<ReplicaId> {
        let is_empty = |set: &OpenSet| set.items == 0 && set.pauses_until.is_none();
        if self.reserved.and_then(|id| self.by_id.get(&id)).is_some_and(is_empty) {
            return self.reserved;
        }
        let empty = self.room.first().filter(|&&(_, items, _)| items == 0).map(|&(.., id)| id);
        if self.reserved.is_none() || empty.is_some() {
            self.release();
            let working = self.by_id.iter().filter(|(_, set)| !(set.is_condemned || set.is_doubtful));
            let fewest = || working.min_by_key(|&(&id, set)| (set.items, id)).map(|(&id, _)| id);
            let id = empty.or_else(fewest)?;
            self.reserved = Some(id);
            self.change(id, |set| set.is_reserved = true);
        }
        empty
    }

    /// No suspect needs a replica.
    pub fn release(&mut self) {
        if let Some(id) = self.reserved.take() {
            self.change(id, |set| set.is_reserved = false);
        }
    }

    // ------------------------------------------------------------------------------------------ orders

    /// Counts what a replica holds, and what all hold that are not condemned.
    fn count(&mut self, id: ReplicaId, counted: impl Fn(usize, u128) -> (usize, u128)) {
        let is_working = self.by_id.get(&id).is_some_and(|set| !set.is_condemned);
        if is_working {
            (self.items, self.cost) = counted(self.items, self.cost);
        }
        self.change(id, |set| (set.items, set.cost) = counted(set.items, set.cost));
    }

    /// Every change goes through here, so that the orders always agree with the sets.
    fn change(&mut self, id: ReplicaId, act: impl FnOnce(&mut OpenSet)) {
        let Some(set) = self.by_id.get_mut(&id) else { return };
        let old = *set;
        act(set);
        self.room.remove(&old.key(id));
        if set.takes() {
            self.room.insert(set.key(id));
        }
        if old.pauses_until != set.pauses_until {
            old.pauses_until.map(|at| self.pauses.remove(&(at, id)));
            set.pauses_until.map(|at| self.pauses.insert((at, id)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: usize = usize::MAX;

    fn two() -> (OpenSets, ReplicaId, ReplicaId) {
        let (mut sets, one, other) = (OpenSets::default(), ReplicaId(1), ReplicaId(2));
        [one, other].into_iter().for_each(|id| sets.add(id));
        (sets, one, other)
    }

    #[test]
    fn the_replica_with_the_most_room_is_next_and_a_full_one_is_not() {
        let (mut sets, one, other) = two();
        sets.join(one, 7, ANY);
        sets.join(other, 5, ANY);
        sets.join(other, 1, ANY);
        assert_eq!((sets.roomiest(4, 9, 10), sets.roomiest(5, 9, 10)), (Some(other), None), "by cost");
        assert_eq!((sets.roomiest(1, 2, 10), sets.roomiest(1, 1, 10)), (Some(one), None), "by count");
        sets.leave(one, 7);
        assert_eq!((sets.roomiest(10, 9, 10), sets.load()), (Some(one), (2, 6)));
        sets.condemn(other);
        sets.leave(other, 1);
        assert_eq!(sets.load(), (0, 0));
    }

    #[test]
    fn newcomers_beyond_the_limit_wait_for_the_next_step() {
        let mut sets = OpenSets::default();
        let one = ReplicaId(1);
        sets.add(one);
        sets.join(one, 1, 2);
        assert_eq!(sets.roomiest(1, 9, 9), Some(one));
        sets.join(one, 1, 2);
        assert_eq!(sets.roomiest(1, 9, 9), None);
        assert_eq!((sets.stepped(one, Time(5)), sets.roomiest(1, 9, 9)), (2, Some(one)));
        assert_eq!(sets.reported(one), Some(Time(5)));
        sets.join(one, 1, 1);
        (0..3).for_each(|_| sets.leave(one, 1));
        assert_eq!(sets.roomiest(1, 9, 9), Some(one), "an empty replica reports no step");
    }

    #[test]
    fn a_model_without_room_is_asked_again_after_an_end_or_after_a_pause() {
        let mut sets = OpenSets::default();
        let one = ReplicaId(1);
        sets.add(one);
        (0..3).for_each(|_| sets.join(one, 1, ANY));
        sets.later(one, 1, Time(0));
        assert_eq!((sets.roomiest(1, 9, 9), sets.next_pause()), (None, None));
        sets.leave(one, 1);
        assert_eq!(sets.roomiest(1, 9, 9), Some(one));
        sets.later(one, 1, Time(0));
        let end = Time(0) + PAUSE;
        assert_eq!((sets.roomiest(1, 9, 9), sets.next_pause()), (None, Some(end)));
        sets.resume(end);
        assert_eq!((sets.roomiest(1, 9, 9), sets.next_pause()), (Some(one), None));
    }

    #[test]
    fn a_suspect_gets_a_replica_that_is_empty_or_that_takes_no_other_until_it_is() {
        let (mut sets, one, other) = two();
        sets.join(one, 0, ANY);
        assert_eq!(sets.reserve(), Some(other), "it is empty");
        sets.release();
        sets.join(other, 0, ANY);
        sets.join(other, 0, ANY);
        assert_eq!((sets.reserve(), sets.roomiest(0, 9, 9)), (None, Some(other)), "the other one goes on");
        sets.leave(one, 0);
        assert_eq!(sets.reserve(), Some(one));
        sets.join(one, 0, ANY);
        assert_eq!(sets.roomiest(0, 9, 9), Some(other), "no item joins a suspect");
        sets.leave(one, 0);
        sets.release();
        assert_eq!(sets.roomiest(0, 9, 9), Some(one));
    }
}
