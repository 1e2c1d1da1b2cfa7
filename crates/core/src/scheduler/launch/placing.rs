//! Which replica gets the next batch, where replicas differ in speed or distance: each waiting item would go to the replica that
//! is done with it first (list scheduling). From that rule follow two decisions. The batch goes to the fastest idle replica. And if
//! busy ones would be done with all that waits before that one is done with a single item, nothing leaves yet.

use crate::learn::size_model::SizeModel;
use crate::replicas::paces::idle_speeds::speed;
use crate::replicas::paces::replica_pace::Pace;
use crate::request::ReplicaId;
use crate::scheduler::item::Payload;
use crate::scheduler::state::Scheduler;
use crate::time::Time;
use std::time::Duration;

/// Busy replicas that are looked at one by one for one decision: those that are free first. The others of their rank are counted as if
/// each were free as late as the last one.
const BUSY_LOOKED_AT: usize = 5;
/// A busy replica that is late by this share of what the idle one takes for an item is not relied on.
const LATE: f64 = 0.25;

/// Where the next batch goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// To this replica, now.
    Here(ReplicaId),
    /// One item goes to this replica, to see whether it is still slow.
    Trial(ReplicaId),
    /// Busy replicas will be done with all that waits before this one, the fastest of the idle ones, is done with an item. It is decided
    /// again at this instant.
    LeftToBusy(ReplicaId, Time),
    /// No replica is idle. From this instant on one is so nearly done that its next batch should be on its way.
    AllBusy(Option<Time>),
}

impl<P: Payload> Scheduler<P> {
    /// Until when all that waits is left to busy replicas, although a slower one is idle; `None` if it is not.
    pub fn left_to_busy_until(&self, now: Time) -> Option<Time> {
        match self.place(now) {
            Place::LeftToBusy(_, until) if !self.lanes.is_empty() => Some(until),
            _ => None,
        }
    }

    /// Where the next batch goes.
    pub(super) fn place(&self, now: Time) -> Place {
        let Some(idle) = self.replicas.idle() else {
            return match self.replicas.almost_free() {
                Some((at, replica)) if at <= now => Place::Here(replica),
                almost => Place::AllBusy(almost.map(|(at, _)| at)),
            };
        };
        if self.replicas.are_equal() {
            return Place::Here(idle);
        }
        if let Some(slow) = self.paces.trial().filter(|&slow| self.replicas.is_idle(slow)) {
            return Place::Trial(slow);
        }
        self.left_to_busy(now, idle).map_or(Place::Here(idle), |at| Place::LeftToBusy(idle, at))
    }

    /// When to decide again, if busy replicas that are faster than the fastest idle one would be done with all that waits before
    /// that one is done with one item.
    fn left_to_busy(&self, now: Time, idle: ReplicaId) -> Option<Time> {
        let (class, pace) = self.replicas.kind(idle);
        let size_model = self.models.of(class).all();
        let one_s = size_model.seconds(1) * pace.factor + self.paces.both_ways(idle).as_secs_f64();
        let (done, allowance) = (now + Duration::from_secs_f64(one_s), Duration::from_secs_f64(LATE * one_s));
        let most = self.rules.batch.max_items;
        let fits = |frees_at: Time, id| {
            let seconds = (done - frees_at.max(now)).as_secs_f64() - self.paces.both_ways(id).as_secs_f64();
            size_model.within(seconds / self.replicas.pace(id).factor, most)
        };
        let (mut left, mut again, mut looked_at) = (self.lanes.items(), Time(u64::MAX), 0);
        for (rank, ..) in self.replicas.busy().firsts().take_while(|&(rank, ..)| rank < pace.rank) {
            if looked_at + 1 >= BUSY_LOOKED_AT {
                return None;
            }
            let mut unseen = self.replicas.busy_count(rank);
            for (_, frees_at, id) in self.replicas.busy().of_rank(rank).take(BUSY_LOOKED_AT - 1 - looked_at) {
                (looked_at, unseen) = (looked_at + 1, unseen - 1);
                let fit = if frees_at + allowance > now { fits(frees_at, id) } else { 0 };
                if fit > 0 {
                    again = again.min(frees_at + allowance);
                    left = left.saturating_sub(fit);
                }
                if left == 0 {
                    return Some(again);
                }
            }
            // Those that were not looked at are free no later than the last one.
            if let Some((_, frees_at, id)) = self.replicas.busy().of_rank(rank).next_back().filter(|_| unseen > 0) {
                looked_at += 1;
                left = left.saturating_sub(unseen.saturating_mul(fits(frees_at, id)));
            }
            if left == 0 {
                return Some(again.min(now + allowance));
            }
        }
        None
    }

    /// How many replicas like this one are as good as all idle ones, for what waits: by their speed, or by how the items would be
    /// spread if each went to the replica that is done with it first. A slow one to which nothing would fall counts for nothing.
    pub(in crate::scheduler) fn idle_worth(&self, pace: Pace, size_model: &SizeModel) -> f64 {
        let idle = self.replicas.idle_count().max(1) as f64;
        if self.replicas.are_equal() {
            return idle;
        }
        let own = pace.factor;
        let by_speed = (self.replicas.idle_speeds().sum as f64 / speed(own) as f64).max(1.0);
        let (waiting, launch_s, item_s) = (self.lanes.items() as f64, size_model.launch_s(), size_model.item_s());
        if item_s <= 0.0 || !size_model.has_line() {
            return by_speed;
        }
        // All that get something are done at the same time: `seconds`, if they are the ranks so far.
        let (mut count, mut power, mut seconds) = (0.0, 0.0, f64::INFINITY);
        for (replicas, factor) in self.replicas.idle_speeds().ranks() {
            if factor * (launch_s + item_s) >= seconds {
                break;
            }
            count += f64::from(replicas);
            power += f64::from(replicas) / factor;
            seconds = (waiting * item_s + count * launch_s) / power;
        }
        let own_items = ((seconds / own - launch_s) / item_s).max(1.0);
        by_speed.min((waiting / own_items).max(1.0))
    }

    /// The busy replica that would be done with a full batch first, if it may be sent one ahead.
    pub(super) fn ready_for_ahead(&self, now: Time) -> Option<ReplicaId> {
        if self.replicas.are_equal() {
            return self.replicas.ready_for_ahead();
        }
        let full_s = self.group_models().all().seconds(self.rules.batch.max_items);
        let done = |frees_at: Time, id| {
            let comes = frees_at.max(now + self.paces.both_ways(id));
            comes + Duration::from_secs_f64(full_s * self.replicas.pace(id).factor)
        };
        // Slower ranks would be done later than those that are looked at.
        let firsts = self.replicas.busy().firsts().take(BUSY_LOOKED_AT);
        let soonest = firsts.min_by_key(|&(_, frees_at, id)| done(frees_at, id));
        soonest.map(|(.., id)| id).filter(|&id| self.replicas.may_get_ahead(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::options::DeploymentOptions;
    use crate::config::rules::Rules;
    use crate::queue::group_key::GroupKey;
    use crate::request::{ItemId, Priority, ReplicaClass};
    use crate::scheduler::action::{Action, Launch};
    use crate::scheduler::item::NewItem;
    use std::collections::BTreeMap;

    #[derive(Debug)]
    struct Input;

    impl Payload for Input {
        type Input = ();

        fn input(&self) -> &() {
            &()
        }

        fn fingerprint((): &()) -> u64 {
            0
        }
    }

    const MS: Duration = Duration::from_millis(1);

    /// A replica takes 20 ms and one more for each item, times its factor.
    struct World {
        scheduler: Scheduler<Input>,
        factors: Vec<u32>,
        now: Time,
        next: u64,
        ends: BTreeMap<(Time, u64), Launch>,
        free: Vec<Time>,
        /// The most records that one call looked at.
        looked_at: usize,
        launches: Vec<(u32, usize)>,
    }

    impl World {
        fn new(factors: Vec<u32>) -> World {
            let options = DeploymentOptions { max_batch_size: 32, ..DeploymentOptions::for_test() };
            let mut scheduler = Scheduler::new(Rules::new(&options).expect("the options are valid"));
            let count = factors.len();
            (0..count as u32).for_each(|id| scheduler.replica_up(Time(0), ReplicaId(id), ReplicaClass::default()));
            let (ends, free) = (BTreeMap::new(), vec![Time(0); count]);
            World { scheduler, factors, now: Time(0), next: 0, ends, free, looked_at: 0, launches: Vec::new() }
        }

        fn look(&mut self) {
            self.looked_at = self.looked_at.max(self.scheduler.replicas.take_looked_at());
        }

        fn arrive(&mut self) {
            self.next += 1;
            let (id, group, priority) = (ItemId(self.next), GroupKey::default(), Priority::Normal);
            let item = NewItem { id, group, cost: 1, bytes: 9, priority, timeout: None, payload: Input };
            self.scheduler.replicas.take_looked_at();
            assert!(self.scheduler.enter(self.now, item).is_ok());
            self.look();
            self.act();
        }

        fn act(&mut self) {
            while let Some(action) = self.scheduler.poll(self.now) {
                self.look();
                let Action::Launch(launch) = action else { continue };
                let id = launch.replica.0 as usize;
                self.launches.push((launch.replica.0, launch.items.len()));
                let takes = (20 * MS + MS * launch.items.len() as u32) * self.factors[id];
                self.free[id] = self.free[id].max(self.now) + takes;
                self.ends.insert((self.free[id], launch.batch.0), launch);
            }
            self.look();
        }

        /// Until this time.
        fn run(&mut self, until: Time) {
            while let Some((&(at, batch), _)) = self.ends.first_key_value().filter(|((at, _), _)| *at <= until) {
                let launch = self.ends.remove(&(at, batch)).expect("it is there");
                self.now = at;
                launch.items.iter().for_each(|&id| _ = self.scheduler.item_ended(launch.batch, id));
                self.scheduler.replicas.take_looked_at();
                self.scheduler.batch_ended(at, launch.replica, launch.batch, true);
                self.look();
                self.act();
            }
            self.now = until;
        }

        /// Items come one by one, so far apart.
        fn serve(&mut self, items: u32, apart: Duration) {
            for _ in 0..items {
                self.run(self.now + apart);
                self.arrive();
            }
        }
    }

    #[test]
    fn an_item_is_left_to_a_busy_replica_that_will_be_done_with_it_sooner() {
        let mut world = World::new(vec![1, 10]);
        world.serve(6000, 3 * MS);
        let slow = world.launches.iter().rev().take(200).filter(|(id, _)| *id == 1).count();
        assert!(slow <= 2, "only trials go to the slow one: {slow} of 200");
        // More than the fast one can do: the slow one helps.
        world.launches.clear();
        (0..400).for_each(|_| world.arrive());
        world.run(world.now + 500 * MS);
        assert!(world.launches.iter().any(|(id, items)| *id == 1 && *items > 1), "{:?}", world.launches);
    }

    #[test]
    fn replicas_that_are_equal_are_used_in_turn() {
        let mut world = World::new(vec![1; 4]);
        world.serve(400, 40 * MS);
        let last: Vec<u32> = world.launches.iter().rev().take(8).map(|(id, _)| *id).collect();
        assert!(last[..4] == last[4..] && (0..4).all(|id| last[..4].contains(&id)), "{last:?}");
    }

    #[test]
    fn no_event_looks_at_many_replicas_however_they_differ() {
        for count in [1, 10, 100, 1000_u32] {
            let bound = 8 + count.ilog2() as usize;
            for factors in [vec![1; count as usize], (0..count).map(|id| 1 + id % 16).collect::<Vec<_>>()] {
                let power: f64 = factors.iter().map(|&factor| 1.0 / f64::from(factor)).sum();
                for load in [0.3, 0.9] {
                    let mut world = World::new(factors.clone());
                    let apart = Duration::from_secs_f64(52e-3 / 32.0 / power / load);
                    world.serve(1000 + 60 * count, apart);
                    assert!(world.looked_at <= bound, "{count} replicas: {} looked at", world.looked_at);
                    assert!(count == 1 || factors[1] == 1 || !world.scheduler.replicas.are_equal());
                }
            }
        }
    }
}
