//! What is due: the next action, and when to look again.

use crate::replicas::held_items::HeldItem;
use crate::request::{BatchId, ItemId, ReplicaId};
use crate::scheduler::action::Action;
use crate::scheduler::item::{EndedItem, Payload};
use crate::scheduler::state::Scheduler;
use crate::tables::outcome::Outcome;
use crate::time::Time;
use smallvec::SmallVec;
use std::time::Duration;

impl<P: Payload> Scheduler<P> {
    /// The next thing to do; `None` once there is nothing left.
    pub fn poll(&mut self, now: Time) -> Option<Action<P>> {
        let due = self.pending.pop_front().or_else(|| self.expire(now)).or_else(|| self.end_pause(now));
        due.or_else(|| self.hang(now)).or_else(|| self.launch(now))
    }

    /// When to call `poll` again although nothing has happened.
    pub fn next_wake(&self) -> Option<Time> {
        let deadline = self.deadlines.first().map(|&(at, _)| at);
        let hang = self.hangs.first().map(|&(at, _)| at);
        let pause = self.pauses.first().map(|(at, _)| at);
        let policy = Some(self.ask_again).filter(|at| at.0 != u64::MAX);
        [deadline, pause, hang, policy, self.open_sets.next_pause()].into_iter().flatten().min()
    }

    /// The caller of an item went away. Returns the item if it had not ended.
    pub fn cancel(&mut self, id: ItemId) -> Option<EndedItem<P>> {
        self.depart(id);
        self.end(id)
    }

    /// The client of an item does not read what there is: no further part of it is computed until `resume`. After `patience` it
    /// ends. Returns the replica that must know; `None` if no replica has the item, or if it is paused already.
    pub fn pause(&mut self, now: Time, id: ItemId, patience: Option<Duration>) -> Option<ReplicaId> {
        let replica = self.replica_of(id)?;
        let end = patience.map_or(Time(u64::MAX), |patience| now + patience);
        self.pauses.add(id, replica, end).then_some(replica)
    }

    /// The client of a paused item has read. Returns the replica that must know; `None` if the item was not paused.
    pub fn resume(&mut self, id: ItemId) -> Option<ReplicaId> {
        self.pauses.remove(id)
    }

    /// Items that are paused.
    pub fn paused_items(&self) -> usize {
        self.pauses.count()
    }

    /// Ends an item that was paused for too long.
    fn end_pause(&mut self, now: Time) -> Option<Action<P>> {
        let (_, id) = self.pauses.first().filter(|&(end, _)| end <= now)?;
        self.depart(id);
        self.fail(id, Outcome::TooSlow);
        self.pending.pop_front()
    }

    /// Whether a batch runs that could be taken for a hang.
    pub fn is_watching(&self) -> bool {
        !self.hangs.is_empty()
    }

    /// This process did not run for this long, and perhaps the workers did not either: no batch is taken for a hang because of
    /// it.
    pub fn excuse(&mut self, away: Duration) {
        self.open_sets.excuse(away);
        for (at, id) in std::mem::take(&mut self.hangs) {
            let at = at + away;
            self.hangs.insert((at, id));
            if let Some(batch) = self.batches.get_mut(&id) {
                batch.hangs_at = Some(at);
                batch.progressed = batch.progressed.map(|progressed| progressed + away);
            }
        }
    }

    fn expire(&mut self, now: Time) -> Option<Action<P>> {
        let &(at, id) = self.deadlines.first()?;
        if at > now {
            return None;
        }
        self.depart(id);
        self.fail(id, Outcome::DeadlineExceeded);
        self.pending.pop_front()
    }

    fn hang(&mut self, now: Time) -> Option<Action<P>> {
        let &(at, id) = self.hangs.first()?;
        if at > now {
            return None;
        }
        self.hangs.pop_first();
        let batch = self.batches.get_mut(&id)?;
        // A part or a step costs only a note, however many come. They are looked at here.
        let progressed = batch.progressed.max(self.open_sets.reported(batch.replica));
        let later = progressed.map(|progressed| progressed + self.rules.batch_timeout).filter(|&later| later > now);
        batch.hangs_at = later;
        if let Some(later) = later {
            self.hangs.insert((later, id));
            return self.hang(now);
        }
        let replica = batch.replica;
        self.fail_hung(replica, id);
        self.replicas.condemn(replica);
        self.open_sets.condemn(replica);
        // In an open set all batches of the replica run. It is killed once.
        for (id, batch) in self.batches.iter_mut().filter(|(_, batch)| batch.replica == replica) {
            if let Some(at) = batch.hangs_at.take() {
                self.hangs.remove(&(at, *id));
            }
        }
        Some(Action::Kill(replica))
    }

    /// Ends the item of a batch that hangs, if it is the only one that the model still computes: it would hang again, and cost
    /// another worker. Of several items each may be the one that hangs.
    fn fail_hung(&mut self, replica: ReplicaId, batch: BatchId) {
        let Some(held) = self.replicas.items(replica) else { return };
        // In an open set all items run.
        let is_running = |held: &HeldItem<P::Input>| self.rules.joins || held.batch == batch;
        let running: SmallVec<[ItemId; 2]> =
            held.iter().filter(|(_, held)| is_running(held)).map(|(id, _)| id).take(2).collect();
        let [id] = running[..] else { return };
        if self.has_copies(id) {
            return; // It goes on elsewhere.
        }
        self.depart(id);
        if let Some(ended) = self.end(id) {
            self.pending.push_back(Action::Forget(replica, id));
            self.pending.push_back(Action::Fail(EndedItem { hung_alone: true, ..ended }, Outcome::WorkerLost));
        }
    }
}
