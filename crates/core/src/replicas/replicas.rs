//! The replicas that are up: which one is idle, which one may be sent a full batch ahead, and when the next one is free. Each
//! of these questions has its own order, so that no answer takes longer with more replicas than their logarithm.

use crate::replicas::held_items::{HeldItem, HeldItems};
use crate::replicas::records::Records;
use crate::request::{BatchId, ItemId, ReplicaClass, ReplicaId};
use crate::time::Time;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

#[derive(Debug)]
struct Replica<I> {
    class: ReplicaClass,
    items: HeldItems<I>,
    /// The batches in the order of their turns, each with the time that it should take. The first one runs.
    turns: VecDeque<(BatchId, Duration)>,
    /// Since when the replica is idle, or since when its first batch runs.
    since: Time,
    /// Its batch is a suspect, which must be alone: no batch is sent ahead to it.
    holds_suspect: bool,
    /// It was asked to end, or is killed because it hangs: it gets nothing more.
    is_condemned: bool,
    /// Its link is silent: it gets nothing until something is heard.
    is_doubtful: bool,
}

impl<I> Replica<I> {
    fn standing(&self) -> Standing {
        if self.is_condemned || self.is_doubtful {
            return Standing::default();
        }
        let frees_at = self.turns.iter().fold(self.since, |at, &(_, takes)| at + takes);
        Standing {
            works: true,
            idle_since: self.turns.is_empty().then_some(self.since),
            may_get_ahead: (self.turns.len() == 1 && !self.holds_suspect).then_some(self.since),
            frees_at: (!self.turns.is_empty()).then_some(frees_at),
            sent_ahead: self.turns.len().saturating_sub(1),
        }
    }
}

/// Where a replica stands in the orders.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    works: bool,
    idle_since: Option<Time>,
    may_get_ahead: Option<Time>,
    frees_at: Option<Time>,
    sent_ahead: usize,
}

/// Replicas in order of a time.
#[derive(Debug, Default)]
struct Order(BTreeSet<(Time, ReplicaId)>);

impl Order {
    fn replace(&mut self, id: ReplicaId, old: Option<Time>, new: Option<Time>) {
        if old == new {
            return;
        }
        if let Some(at) = old {
            self.0.remove(&(at, id));
        }
        if let Some(at) = new {
            self.0.insert((at, id));
        }
    }

    fn first(&self) -> Option<(Time, ReplicaId)> {
        self.0.first().copied()
    }
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
    busy: Order,
    working: usize,
    sent_ahead: usize,
}

impl<I> Default for Replicas<I> {
    fn default() -> Replicas<I> {
        Replicas {
            records: Records::default(),
            idle: Order::default(),
            may_get_ahead: Order::default(),
            busy: Order::default(),
            working: 0,
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
        self.idle.0.len()
    }

    /// The replica that has been idle for longest.
    pub fn idle(&self) -> Option<ReplicaId> {
        self.idle.first().map(|(_, id)| id)
    }

    /// The replica that may be sent a full batch ahead: the one whose batch has run for longest.
    pub fn ready_for_ahead(&self) -> Option<ReplicaId> {
        self.may_get_ahead.first().map(|(_, id)| id)
    }

    /// Batches that wait at a busy replica for their turn.
    pub fn sent_ahead(&self) -> usize {
        self.sent_ahead
    }

    /// When the next busy replica should be free; `None` if none is busy.
    pub fn next_free(&self) -> Option<Time> {
        self.busy.first().map(|(at, _)| at)
    }

    /// The class of the replica that will take the next batch: an idle one, or else the one that is free next.
    pub fn next_class(&self) -> Option<ReplicaClass> {
        let (_, id) = self.idle.first().or_else(|| self.busy.first())?;
        self.class(id)
    }

    /// The class of a replica.
    pub fn class(&self, id: ReplicaId) -> Option<ReplicaClass> {
        self.records.get(id).map(|replica| replica.class)
    }

    /// How many items a replica holds, and their cost in cost units.
    pub fn load(&self, id: ReplicaId) -> Option<(usize, u128)> {
        self.records.get(id).map(|replica| (replica.items.len(), replica.items.cost()))
    }

    // ------------------------------------------------------------------------------------------ events

    /// A replica is loaded and idle.
    pub fn add(&mut self, id: ReplicaId, class: ReplicaClass, now: Time) {
        let replica = Replica {
            class,
            items: HeldItems::default(),
            turns: VecDeque::new(),
            since: now,
            holds_suspect: false,
            is_condemned: false,
            is_doubtful: false,
        };
        let standing = replica.standing();
        self.records.insert(id, replica);
        self.restand(id, Standing::default(), standing);
    }

    /// A replica is lost. Returns the batches that it held, the running one first.
    pub fn remove(&mut self, id: ReplicaId) -> Vec<LostBatch<I>> {
        let Some(mut replica) = self.records.remove(id) else { return Vec::new() };
        self.restand(id, replica.standing(), Standing::default());
        let turns = std::mem::take(&mut replica.turns).into_iter().map(|(batch, _)| batch);
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

    /// A batch that should take this long goes to a replica; returns whether it runs at once.
    pub fn launch(
        &mut self,
        id: ReplicaId,
        batch: BatchId,
        items: impl IntoIterator<Item = (ItemId, u64)>,
        takes: Duration,
        is_suspect: bool,
        now: Time,
    ) -> bool {
        let launch = |replica: &mut Replica<I>| {
            items.into_iter().for_each(|(item, cost)| replica.items.join(item, batch, cost));
            replica.turns.push_back((batch, takes));
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
            let turn = replica.turns.iter().position(|&(other, _)| other == batch)?;
            replica.turns.remove(turn);
            replica.holds_suspect = false;
            let items = replica.items.take_batch(batch);
            if turn > 0 {
                return Some(Finished { ran_since: None, next: None, items }); // The running batch still runs.
            }
            let since = std::mem::replace(&mut replica.since, now);
            Some(Finished { ran_since: Some(since), next: replica.turns.front().map(|&(next, _)| next), items })
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
        let old = replica.standing();
        let result = act(replica);
        let new = replica.standing();
        self.restand(id, old, new);
        Some(result)
    }

    fn restand(&mut self, id: ReplicaId, old: Standing, new: Standing) {
        self.idle.replace(id, old.idle_since, new.idle_since);
        self.may_get_ahead.replace(id, old.may_get_ahead, new.may_get_ahead);
        self.busy.replace(id, old.frees_at, new.frees_at);
        self.working = self.working + usize::from(new.works) - usize::from(old.works);
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
            assert!(replicas.launch(ReplicaId(id), BatchId(id.into()), [], takes * MS, false, at(1)));
        }
        assert_eq!(
            (replicas.idle(), replicas.idle_count(), replicas.next_free()),
            (Some(ReplicaId(2)), 1, Some(at(4)))
        );
        assert_eq!(replicas.ready_for_ahead(), Some(ReplicaId(0)));
        assert!(!replicas.launch(ReplicaId(0), BatchId(7), [(ItemId(1), 5)], MS, false, at(2)));
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
                replicas.launch(id, BatchId(n.into()), [(ItemId(n.into()), 1)], MS, false, now);
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
