//! The replicas that are up: which one is idle, which one may be sent a full batch ahead, and when the next one is free. Each
//! of these questions has its own order, so that no answer takes longer with more replicas than their logarithm.

use crate::replicas::held_items::{HeldItem, HeldItems};
use crate::replicas::paces::idle_speeds::{Speeds, USUAL_SPEED};
use crate::replicas::paces::order::{Order, Place};
use crate::replicas::paces::replica_pace::Pace;
use crate::replicas::records::Records;
use crate::request::{BatchId, ItemId, ReplicaClass, ReplicaId};
use crate::time::Time;
use std::collections::VecDeque;
use std::time::Duration;

#[derive(Debug)]
struct Replica<I> {
    class: ReplicaClass,
    pace: Pace,
    /// What is taken off the end of its running batch: the next one is on its way meanwhile.
    lead: Duration,
    items: HeldItems<I>,
    /// The batches in the order of their turns. The first one runs.
    turns: VecDeque<Turn>,
    /// Since when the replica is idle, or since when its first batch runs.
    since: Time,
    /// Its batch is a suspect, which must be alone: no batch is sent ahead to it.
    holds_suspect: bool,
    /// It was asked to end, or is killed because it hangs: it gets nothing more.
    is_condemned: bool,
    /// Its link is silent: it gets nothing until something is heard.
    is_doubtful: bool,
}

/// A batch that a replica has.
#[derive(Clone, Copy, Debug)]
struct Turn {
    batch: BatchId,
    /// What the model should take.
    takes: Duration,
    /// When it was sent, and both ways: its answers cannot be here earlier, whatever the model takes.
    there_and_back: Time,
}

impl<I> Replica<I> {
    fn standing(&self, id: ReplicaId) -> Standing {
        if self.is_condemned || self.is_doubtful {
            return Standing::default();
        }
        let frees_at = self.turns.iter().fold(self.since, |at, turn| at.max(turn.there_and_back) + turn.takes);
        let rank = self.pace.rank;
        let may_get_ahead = self.turns.len() == 1 && !self.holds_suspect;
        // Never before the batch began: two batches at a replica are the most.
        let lead = self.turns.front().map_or(Duration::ZERO, |turn| self.lead.min(turn.takes));
        Standing {
            works: Some(self.pace),
            idle: self.turns.is_empty().then_some((rank, self.since, id)),
            may_get_ahead: may_get_ahead.then_some((0, self.since, id)),
            almost_free: (may_get_ahead && !lead.is_zero()).then(|| (0, frees_at.before(lead), id)),
            busy: (!self.turns.is_empty()).then_some((rank, frees_at, id)),
            sent_ahead: self.turns.len().saturating_sub(1),
        }
    }
}

/// Where a replica stands in the orders.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    works: Option<Pace>,
    idle: Option<Place>,
    may_get_ahead: Option<Place>,
    almost_free: Option<Place>,
    busy: Option<Place>,
    sent_ahead: usize,
}

/// What a finished batch leaves.
#[derive(Debug)]
pub struct Finished<I> {
    /// Since when the batch ran; `None` if it ended out of turn.
    pub ran_since: Option<Time>,
    /// The batch that runs from now on.
    pub next: Option<BatchId>,
    /// The items that the worker gave no result for.
    pub items: Vec<(ItemId, HeldItem<I>)>,
}

/// A batch of a lost replica, with the items that its worker was not done with.
#[derive(Debug)]
pub struct LostBatch<I> {
    /// The batch.
    pub batch: BatchId,
    /// Its items.
    pub items: Vec<(ItemId, HeldItem<I>)>,
}

/// The replicas that are up, and what they hold. `I` is the input of an item.
#[derive(Debug)]
pub struct Replicas<I> {
    records: Records<Replica<I>>,
    idle: Order,
    may_get_ahead: Order,
    /// Those on other machines, by when the next batch should leave for them.
    almost_free: Order,
    busy: Order,
    working: usize,
    speeds: Speeds,
    idle_speeds: Speeds,
    /// Those that work and are faster or slower than most, or farther away.
    different: usize,
    sent_ahead: usize,
}

impl<I> Default for Replicas<I> {
    fn default() -> Replicas<I> {
        Replicas {
            records: Records::default(),
            idle: Order::default(),
            may_get_ahead: Order::default(),
            almost_free: Order::default(),
            busy: Order::default(),
            working: 0,
            speeds: Speeds::default(),
            idle_speeds: Speeds::default(),
            different: 0,
            sent_ahead: 0,
        }
    }
}

impl<I> Replicas<I> {
    // ------------------------------------------------------------------------------------------ questions

    /// Replicas that work: they are up and may get batches.
    pub fn len(&self) -> usize {
        self.working
    }

    /// Whether no replica works.
    pub fn is_empty(&self) -> bool {
        self.working == 0
    }

    /// Replicas that hold nothing.
    pub fn idle_count(&self) -> usize {
        self.idle.count()
    }

    /// The fastest idle replica; of those that are equal the one that has been idle for longest.
    pub fn idle(&self) -> Option<ReplicaId> {
        self.idle.first().map(|(.., id)| id)
    }

    /// Whether a replica is idle.
    pub fn is_idle(&self, id: ReplicaId) -> bool {
        self.records.get(id).is_some_and(|replica| replica.standing(id).idle.is_some())
    }

    /// Whether no replica that works is known to be faster, slower or farther away than the others.
    pub fn are_equal(&self) -> bool {
        self.different == 0
    }

    /// The replica that is farthest beyond the time at which its next batch should leave for it, and that time.
    pub fn almost_free(&self) -> Option<(Time, ReplicaId)> {
        self.almost_free.first().map(|(_, at, id)| (at, id))
    }

    /// How many usual replicas are as fast as all that work, together.
    pub fn power(&self) -> f64 {
        self.speeds.sum as f64 / USUAL_SPEED as f64
    }

    /// How fast the idle replicas are.
    pub fn idle_speeds(&self) -> &Speeds {
        &self.idle_speeds
    }

    /// How many replicas of a rank are busy.
    pub fn busy_count(&self, rank: i8) -> usize {
        self.speeds.count(rank) - self.idle_speeds.count(rank)
    }

    /// The busy replicas, in order of their rank and of when each should be free.
    pub fn busy(&self) -> &Order {
        &self.busy
    }

    /// How fast a replica is.
    pub fn pace(&self, id: ReplicaId) -> Pace {
        self.records.get(id).map_or(Pace::USUAL, |replica| replica.pace)
    }

    /// Whether a full batch may be sent ahead to a replica.
    pub fn may_get_ahead(&self, id: ReplicaId) -> bool {
        let may = |replica: &Replica<I>| replica.standing(id).may_get_ahead.is_some();
        self.records.get(id).is_some_and(may)
    }

    /// The replica that may be sent a full batch ahead: the one whose batch has run for longest.
    pub fn ready_for_ahead(&self) -> Option<ReplicaId> {
        self.may_get_ahead.first().map(|(.., id)| id)
    }

    /// Batches that wait at a busy replica for their turn.
    pub fn sent_ahead(&self) -> usize {
        self.sent_ahead
    }

    /// When the next busy replica should be free; `None` if none is busy.
    pub fn next_free(&self) -> Option<Time> {
        self.next_busy().map(|(_, at, _)| at)
    }

    /// The replica that will take the next batch: an idle one, or else the one that is free next.
    pub fn next(&self) -> Option<ReplicaId> {
        self.idle.first().or_else(|| self.next_busy()).map(|(.., id)| id)
    }

    /// The busy replica that should be free next. It is asked for each item, and most replicas are equal.
    fn next_busy(&self) -> Option<Place> {
        if self.are_equal() { self.busy.first() } else { self.busy.firsts().min_by_key(|&(_, at, _)| at) }
    }

    /// The class of that replica.
    pub fn next_class(&self) -> Option<ReplicaClass> {
        self.class(self.next()?)
    }

    /// The class of a replica.
    pub fn class(&self, id: ReplicaId) -> Option<ReplicaClass> {
        self.records.get(id).map(|replica| replica.class)
    }

    /// The class of a replica and how fast it is.
    pub fn kind(&self, id: ReplicaId) -> (Option<ReplicaClass>, Pace) {
        self.records.get(id).map_or((None, Pace::USUAL), |replica| (Some(replica.class), replica.pace))
    }

    /// How many items a replica holds, and their cost in cost units.
    pub fn load(&self, id: ReplicaId) -> Option<(usize, u128)> {
        self.records.get(id).map(|replica| (replica.items.len(), replica.items.cost()))
    }

    /// How often a record was looked at since the last call.
    #[cfg(test)]
    pub fn take_looked_at(&self) -> usize {
        self.records.take_looked_at()
    }

    // ------------------------------------------------------------------------------------------ events

    /// A replica is loaded and idle.
    pub fn add(&mut self, id: ReplicaId, class: ReplicaClass, now: Time) {
        let replica = Replica {
            class,
            pace: Pace::USUAL,
            lead: Duration::ZERO,
            items: HeldItems::default(),
            turns: VecDeque::new(),
            since: now,
            holds_suspect: false,
            is_condemned: false,
            is_doubtful: false,
        };
        let standing = replica.standing(id);
        self.records.insert(id, replica);
        self.restand(Standing::default(), standing);
    }

    /// A replica is lost. Returns the batches that it held, the running one first.
    pub fn remove(&mut self, id: ReplicaId) -> Vec<LostBatch<I>> {
        let Some(mut replica) = self.records.remove(id) else { return Vec::new() };
        self.restand(replica.standing(id), Standing::default());
        let turns = std::mem::take(&mut replica.turns).into_iter().map(|turn| turn.batch);
        let mut lost: Vec<_> = turns.map(|batch| LostBatch { batch, items: replica.items.take_batch(batch) }).collect();
        // Items that joined an open set have no turn.
        let joined = replica.items.batches().into_iter();
        lost.extend(joined.map(|batch| LostBatch { batch, items: replica.items.take_batch(batch) }));
        lost
    }

    /// Items join the open set of a replica.
    pub fn join(&mut self, id: ReplicaId, batch: BatchId, items: impl IntoIterator<Item = (ItemId, u64)>) {
        let held = self.items(id).expect("items join replicas that are up");
        items.into_iter().for_each(|(item, cost)| held.join(item, batch, cost));
    }

    /// Gives a replica nothing more.
    pub fn condemn(&mut self, id: ReplicaId) {
        self.change(id, |replica| replica.is_condemned = true);
    }

    /// Gives a replica nothing while it is doubtful.
    pub fn set_doubtful(&mut self, id: ReplicaId, is_doubtful: bool) {
        self.change(id, |replica| replica.is_doubtful = is_doubtful);
    }

    /// Whether the link of a replica is silent.
    pub fn is_doubtful(&self, id: ReplicaId) -> bool {
        self.records.get(id).is_some_and(|replica| replica.is_doubtful)
    }

    /// It became known how fast a replica is, and how long before the end of its batch the next one should leave.
    pub fn set_pace(&mut self, id: ReplicaId, pace: Pace, lead: Duration) {
        self.change(id, |replica| (replica.pace, replica.lead) = (pace, lead));
    }

    /// A batch that should take this long, and be away for `ways` longer, goes to a replica; returns whether it runs at once.
    #[expect(clippy::too_many_arguments, reason = "each is a fact about the batch that leaves")]
    pub fn launch(
        &mut self,
        id: ReplicaId,
        batch: BatchId,
        items: impl IntoIterator<Item = (ItemId, u64)>,
        takes: Duration,
        ways: Duration,
        is_suspect: bool,
        now: Time,
    ) -> bool {
        let launch = |replica: &mut Replica<I>| {
            items.into_iter().for_each(|(item, cost)| replica.items.join(item, batch, cost));
            replica.turns.push_back(Turn { batch, takes, there_and_back: now + ways });
            replica.holds_suspect = is_suspect;
            let runs = replica.turns.len() == 1;
            if runs {
                replica.since = now;
            }
            runs
        };
        self.change(id, launch).expect("launches go to replicas that are up")
    }

    /// A batch has ended; `None` if the replica does not hold it.
    pub fn finish(&mut self, id: ReplicaId, batch: BatchId, now: Time) -> Option<Finished<I>> {
        let finish = |replica: &mut Replica<I>| {
            let turn = replica.turns.iter().position(|turn| turn.batch == batch)?;
            replica.turns.remove(turn);
            replica.holds_suspect = false;
            let items = replica.items.take_batch(batch);
            if turn > 0 {
                return Some(Finished { ran_since: None, next: None, items }); // The running batch still runs.
            }
            let since = std::mem::replace(&mut replica.since, now);
            Some(Finished { ran_since: Some(since), next: replica.turns.front().map(|next| next.batch), items })
        };
        self.change(id, finish).flatten()
    }

    /// The items of a replica, to be changed one by one. They do not decide what the replica is given next.
    pub fn items(&mut self, id: ReplicaId) -> Option<&mut HeldItems<I>> {
        self.records.get_mut(id).map(|replica| &mut replica.items)
    }

    /// Every change of what a replica does goes through here, so that the orders always agree with it.
    fn change<R>(&mut self, id: ReplicaId, act: impl FnOnce(&mut Replica<I>) -> R) -> Option<R> {
        let replica = self.records.get_mut(id)?;
        let old = replica.standing(id);
        let result = act(replica);
        let new = replica.standing(id);
        self.restand(old, new);
        Some(result)
    }

    fn restand(&mut self, old: Standing, new: Standing) {
        self.idle.replace(old.idle, new.idle);
        self.may_get_ahead.replace(old.may_get_ahead, new.may_get_ahead);
        self.almost_free.replace(old.almost_free, new.almost_free);
        self.busy.replace(old.busy, new.busy);
        // Most events change neither who works nor how fast.
        if old.works != new.works {
            for (works, joins) in [(old.works, false), (new.works, true)] {
                let Some(pace) = works else { continue };
                let change =
                    |count: usize, by: bool| if joins { count + usize::from(by) } else { count - usize::from(by) };
                self.working = change(self.working, true);
                self.different = change(self.different, pace != Pace::USUAL);
                self.speeds.change(pace, joins);
            }
        }
        let idle = |standing: &Standing| standing.works.filter(|_| standing.idle.is_some());
        if idle(&old) != idle(&new) {
            idle(&old).into_iter().for_each(|pace| self.idle_speeds.change(pace, false));
            idle(&new).into_iter().for_each(|pace| self.idle_speeds.change(pace, true));
        }
        self.sent_ahead = self.sent_ahead + new.sent_ahead - old.sent_ahead;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn replicas(count: u32) -> Replicas<()> {
        let mut replicas = Replicas::default();
        (0..count).for_each(|id| replicas.add(ReplicaId(id), ReplicaClass::default(), Time(0)));
        replicas
    }

    #[test]
    fn the_replica_that_is_idle_for_longest_is_next_and_the_first_to_end_is_free_next() {
        let mut replicas = replicas(3);
        let at = |ms: u32| Time(0) + ms * MS;
        for (id, takes) in [(0, 9), (1, 3)] {
            assert_eq!(replicas.idle(), Some(ReplicaId(id)));
            assert!(replicas.launch(ReplicaId(id), BatchId(id.into()), [], takes * MS, Duration::ZERO, false, at(1)));
        }
        assert_eq!(
            (replicas.idle(), replicas.idle_count(), replicas.next_free()),
            (Some(ReplicaId(2)), 1, Some(at(4)))
        );
        assert_eq!(replicas.ready_for_ahead(), Some(ReplicaId(0)));
        assert!(!replicas.launch(ReplicaId(0), BatchId(7), [(ItemId(1), 5)], MS, Duration::ZERO, false, at(2)));
        assert_eq!((replicas.sent_ahead(), replicas.ready_for_ahead()), (1, Some(ReplicaId(1))));
        assert_eq!(replicas.load(ReplicaId(0)), Some((1, 5)));
        let finished = replicas.finish(ReplicaId(0), BatchId(0), at(5)).expect("it holds this batch");
        assert_eq!((finished.ran_since, finished.next), (Some(at(1)), Some(BatchId(7))));
        replicas.condemn(ReplicaId(1));
        assert_eq!((replicas.len(), replicas.next_free()), (2, Some(at(6))));
        let left = replicas.remove(ReplicaId(0));
        assert_eq!(left.iter().map(|lost| (lost.batch.0, lost.items.len())).collect::<Vec<_>>(), [(7, 1)]);
        assert_eq!((replicas.len(), replicas.sent_ahead(), replicas.next_free()), (1, 0, None));
    }

    #[test]
    fn no_event_looks_at_many_replicas() {
        for count in [1, 10, 100, 1000] {
            let mut replicas = replicas(count);
            let bound = 8 + count.ilog2() as usize;
            replicas.records.take_looked_at();
            for n in 0..2000 {
                let now = Time(0) + n * MS;
                let id = replicas.idle().or_else(|| replicas.ready_for_ahead()).expect("one has room");
                replicas.launch(id, BatchId(n.into()), [(ItemId(n.into()), 1)], MS, Duration::ZERO, false, now);
                let questions = (replicas.len(), replicas.idle_count(), replicas.next_free(), replicas.sent_ahead());
                assert!(questions.0 == count as usize && replicas.next_class().is_some());
                assert!(replicas.records.take_looked_at() <= bound, "{count} replicas");
                if n >= count / 2 {
                    replicas.finish(id, BatchId(n.into()), now).expect("it holds this batch");
                    assert!(replicas.records.take_looked_at() <= bound, "{count} replicas");
                }
            }
        }
    }
}
