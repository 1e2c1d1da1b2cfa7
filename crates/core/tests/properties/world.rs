//! A scheduler next to a naive reference that recounts everything after every event. It only polls at events and at the
//! wakes that the scheduler asks for, as the engine does. What it finds broken it notes by promise.
//!
//! Here are its state and the events; `actions` checks what the scheduler does about them, `losses` knows what becomes of
//! the items of lost workers, `doubts` which of them several workers have.

mod actions;
mod doubts;
mod losses;

use jitney_core::config::rules::Rules;
use jitney_core::queue::group_key::{GroupKey, KeyPart};
use jitney_core::replicas::loss_history::Loss;
use jitney_core::request::{BatchId, ItemId, Priority, ReplicaClass, ReplicaId};
use jitney_core::scheduler::item::{NewItem, Payload};
use jitney_core::scheduler::state::Scheduler;
use jitney_core::tables::outcome::Outcome;
use jitney_core::time::Time;
use losses::Record;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a test can ask about; each has its own test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Every admitted item ends once and its payload comes back once.
    EndsOnce,
    /// What lost workers do to the items that they held.
    Suspects,
    /// An item that no request waits for is not launched, and expires when its deadline comes.
    NobodyWaits,
    /// Bounds hold, refusals leave no trace, counters are true.
    Bounds,
    /// Nothing ready waits while a replica is free; nothing leaves before its time.
    Conserving,
    /// What may share a batch, and how much of it.
    Batches,
    /// Order of arrival, and how often an older head is passed.
    Order,
    /// Between two wakes there is nothing to do.
    Wakes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Input {
    pub(crate) id: u64,
    pub(crate) fingerprint: u64,
}

impl Payload for Input {
    type Input = u64;

    fn input(&self) -> &u64 {
        &self.fingerprint
    }

    fn fingerprint(input: &u64) -> u64 {
        *input
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) group: u8,
    pub(crate) cost: u64,
    pub(crate) bytes: u64,
    pub(crate) priority: Priority,
    pub(crate) timeout: Option<Duration>,
    pub(crate) fingerprint: u64,
}

/// Whether there are replicas for what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Open,
    Closed(Outcome),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Waiting,
    Suspect,
    Batch(BatchId),
}

/// How an item ended: with its result, without a request that waits, or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Answered,
    Cancelled,
    Failed(Outcome),
}

#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) asked: Arrival,
    pub(crate) arrival: Time,
    deadline: Time,
    pub(crate) place: Place,
    /// Further batches that have it, because their replicas were silent.
    copies: Vec<BatchId>,
    record: Record,
    /// Suspected for what its like did.
    is_like: bool,
    was_started: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) replica: ReplicaId,
    pub(crate) items: Vec<ItemId>,
    pub(crate) started: bool,
    alone: bool,
    /// Which items left while it was in flight.
    left: BTreeMap<ItemId, Item>,
}

#[derive(Clone, Debug)]
pub(crate) struct Replica {
    pub(crate) batches: Vec<BatchId>,
    pub(crate) condemned: bool,
    pub(crate) doubtful: bool,
    runs_since: Time,
}

pub(crate) struct World {
    pub(crate) rules: Rules,
    pub(crate) scheduler: Scheduler<Input>,
    pub(crate) now: Time,
    pub(crate) items: BTreeMap<ItemId, Item>,
    pub(crate) ended: BTreeMap<ItemId, End>,
    pub(crate) batches: BTreeMap<BatchId, Batch>,
    pub(crate) replicas: BTreeMap<ReplicaId, Replica>,
    /// Everything that the scheduler said, in order.
    pub(crate) log: Vec<String>,
    /// Bytes of each answer, and what batches take to compute: where it is little, the bytes close them.
    pub(crate) work: (u64, Duration),
    door: Door,
    is_draining: bool,
    convicted: Vec<(Time, u64)>,
    watched: Vec<(Time, u64, Record)>,
    foreseen: BTreeMap<ItemId, Outcome>,
    /// What replicas were asked to drop since the last action of another kind.
    forgotten: Vec<(ReplicaId, ItemId)>,
    passes: u32,
    next_item: u64,
    next_replica: u32,
    broken: Vec<(Promise, String)>,
}

impl World {
    pub(crate) fn new(rules: Rules) -> World {
        World {
            rules,
            scheduler: Scheduler::new(rules),
            now: Time(0),
            items: BTreeMap::new(),
            ended: BTreeMap::new(),
            batches: BTreeMap::new(),
            replicas: BTreeMap::new(),
            log: Vec::new(),
            work: (0, Duration::ZERO),
            door: Door::Closed(Outcome::Loading),
            is_draining: false,
            convicted: Vec::new(),
            watched: Vec::new(),
            foreseen: BTreeMap::new(),
            forgotten: Vec::new(),
            passes: 0,
            next_item: 1,
            next_replica: 1,
            broken: Vec::new(),
        }
    }

    /// What was found broken of this promise.
    pub(crate) fn broken(&self, promise: Promise) -> Vec<&str> {
        self.broken.iter().filter(|(of, _)| *of == promise).map(|(_, what)| what.as_str()).collect()
    }

    fn hold(&mut self, promise: Promise, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.broken.push((promise, format!("at {}: {}", self.now.0, what())));
        }
    }

    // ------------------------------------------------------------------------------------------ events

    pub(crate) fn arrive(&mut self, asked: &Arrival) -> Result<ItemId, Outcome> {
        let id = ItemId(self.next_item);
        self.next_item += 1;
        let timeout = asked.timeout.unwrap_or(self.rules.request_timeout);
        let certain = self.certain_refusal(asked);
        let predicted = self.scheduler.predicted_wait(self.now);
        let item = NewItem {
            id,
            group: key(asked.group),
            cost: asked.cost,
            bytes: asked.bytes,
            priority: asked.priority,
            timeout: asked.timeout,
            payload: Input { id: id.0, fingerprint: asked.fingerprint },
        };
        let result = self.scheduler.submit(self.now, item);
        self.log.push(format!("{id:?} {:?}", result.as_ref().err().map(|(_, refusal)| refusal)));
        let result = match result {
            Ok(()) => {
                let (arrival, deadline) = (self.now, self.now + timeout);
                let record = self.record_of(asked.fingerprint);
                let is_like = record.is_suspect();
                let place = if is_like { Place::Suspect } else { Place::Waiting };
                let asked = asked.clone();
                let copies = Vec::new();
                let item = Item { asked, arrival, deadline, place, copies, record, is_like, was_started: false };
                self.items.insert(id, item);
                Ok(id)
            }
            Err((payload, refusal)) => {
                self.hold(Promise::EndsOnce, payload.id == id.0, || format!("{id:?}: refused with another payload"));
                let seconds = refusal.retry_after.map(|after| (after.as_secs(), after.subsec_nanos()));
                let is_whole = seconds.is_none_or(|(seconds, rest)| (1..=30).contains(&seconds) && rest == 0);
                self.hold(Promise::Bounds, is_whole, || format!("{id:?}: retry after {seconds:?}"));
                Err(refusal.outcome)
            }
        };
        let by_wait = matches!(result, Err(Outcome::WaitTooLong | Outcome::DeadlineUnreachable)) && predicted.is_some();
        let is_right = result.err() == certain || matches!(certain, None | Some(Outcome::Quarantined)) && by_wait;
        self.hold(Promise::Bounds, is_right, || format!("{id:?} {asked:?}: expected {certain:?}, was {result:?}"));
        self.settle();
        result
    }

    /// The refusal that follows from the state alone, without any measured pace.
    fn certain_refusal(&mut self, asked: &Arrival) -> Option<Outcome> {
        let now = self.now;
        self.convicted.retain(|&(until, _)| until > now);
        let (items, bytes) = self.waiting();
        match self.door {
            _ if self.is_draining => Some(Outcome::Draining),
            Door::Closed(outcome) => Some(outcome),
            Door::Open if items >= self.rules.queue.max_items => Some(Outcome::QueueFull),
            Door::Open if bytes > 0 && bytes + asked.bytes > self.rules.queue.max_bytes => {
                Some(Outcome::QueueBytesFull)
            }
            // Last: the whole item must be read for it.
            Door::Open if self.convicted.iter().any(|&(_, like)| like == asked.fingerprint) => {
                Some(Outcome::Quarantined)
            }
            Door::Open => None,
        }
    }

    pub(crate) fn cancel(&mut self, id: ItemId) {
        let replica = self.scheduler.replica_of(id);
        let held = self.items.get(&id).and_then(|item| match item.place {
            Place::Batch(batch) => self.batches.get(&batch).map(|batch| batch.replica),
            _ => None,
        });
        self.hold(Promise::NobodyWaits, replica == held, || format!("{id:?} is at {held:?}, not at {replica:?}"));
        let is_in = self.items.contains_key(&id);
        let ended = self.scheduler.cancel(id);
        self.hold(Promise::EndsOnce, ended.is_some() == is_in, || format!("{id:?}: cancel gave {ended:?}"));
        if let Some(ended) = ended {
            self.leaves(id);
            self.end(&ended, End::Cancelled);
        }
        self.settle();
    }

    pub(crate) fn start(&mut self, id: BatchId) {
        self.scheduler.batch_started(id);
        if let Some(batch) = self.batches.get_mut(&id).filter(|batch| !batch.started) {
            batch.started = true;
            let items = batch.items.clone();
            for id in items {
                let Some(item) = self.items.get_mut(&id) else { continue };
                let again = item.was_started && !self.rules.retry;
                item.was_started = true;
                self.hold(Promise::Suspects, !again, || format!("{id:?} was started again without retry"));
            }
        }
        self.settle();
    }

    /// An answer for an item of a batch; both may be anything.
    pub(crate) fn item_done(&mut self, batch: BatchId, id: ItemId) {
        let expected = self.items.get(&id).is_some_and(|item| item.holders().contains(&batch));
        let ended = self.scheduler.item_ended(batch, id);
        if let Some(batch) = self.batches.get_mut(&batch) {
            batch.left.remove(&id); // The worker is done with it.
        }
        self.log.push(format!("done {batch:?} {ended:?}"));
        self.hold(Promise::EndsOnce, ended.is_some() == expected, || format!("{id:?} of {batch:?} gave {ended:?}"));
        if let Some(ended) = ended {
            if self.batches[&batch].alone {
                self.acquit(self.items[&id].asked.fingerprint);
            }
            self.dropped_by_all_but(batch, id);
            self.end(&ended, End::Answered);
        }
        self.settle();
    }

    /// A replica says that a batch is done; both may be anything.
    pub(crate) fn batch_done(&mut self, replica: ReplicaId, id: BatchId, is_clean: bool) {
        if is_clean && let Some(batch) = self.batches.get(&id) {
            let (answer, computing) = self.work;
            self.scheduler.moved(id, answer * batch.items.len() as u64, computing);
        }
        self.scheduler.batch_ended(self.now, replica, id, is_clean);
        if let Some(held) = self.replicas.get_mut(&replica)
            && let Some(place) = held.batches.iter().position(|&batch| batch == id)
        {
            held.batches.remove(place);
            if place == 0 {
                held.runs_since = self.now;
            }
            let batch = self.batches.remove(&id).expect("held batches are known");
            for item in batch.items {
                if self.has_last(item, id) {
                    self.foreseen.insert(item, Outcome::Internal);
                }
            }
        }
        self.settle();
    }

    pub(crate) fn up(&mut self) {
        let id = ReplicaId(self.next_replica);
        self.next_replica += 1;
        self.scheduler.replica_up(self.now, id, ReplicaClass::default());
        self.replicas
            .insert(id, Replica { batches: Vec::new(), condemned: false, doubtful: false, runs_since: self.now });
        if matches!(self.door, Door::Closed(Outcome::Loading | Outcome::CrashLooping)) {
            self.door = Door::Open;
        }
        self.settle();
    }

    pub(crate) fn retire(&mut self, replica: ReplicaId) {
        self.scheduler.retire(replica);
        self.replicas.get_mut(&replica).expect("it is up").condemned = true;
        self.settle();
    }

    /// The workers keep dying.
    pub(crate) fn crash_loop(&mut self) {
        self.scheduler.crash_looping();
        self.door = Door::Closed(Outcome::CrashLooping);
        for (id, item) in &self.items {
            if !matches!(item.place, Place::Batch(_)) {
                self.foreseen.insert(*id, Outcome::CrashLooping);
            }
        }
        self.settle();
    }

    /// The server drains: nothing new is admitted, for good.
    pub(crate) fn close(&mut self) {
        self.scheduler.drain();
        self.is_draining = true;
        self.settle();
    }

    /// Lets time pass: polls at each wake on the way, and looks whether anything is due in between.
    pub(crate) fn wait(&mut self, length: Duration) {
        let end = self.now + length;
        while let Some(wake) = self.scheduler.next_wake().filter(|&wake| wake <= end) {
            self.now = wake;
            self.settle();
            if self.scheduler.next_wake().is_some_and(|next| next <= self.now) {
                break; // Noted as broken; going on would not end.
            }
        }
        self.now = end;
        if let Some(action) = self.scheduler.poll(self.now) {
            self.hold(Promise::Wakes, false, || format!("{action:?} was due, but no wake-up was requested"));
            self.act(action);
            self.settle();
        }
    }

    /// The server drains: nothing new, and every replica works through what there is.
    pub(crate) fn drain(&mut self) {
        self.close();
        let silent: Vec<_> = self.replicas.iter().filter(|(_, replica)| replica.doubtful).map(|(id, _)| *id).collect();
        silent.into_iter().for_each(|id| self.trust(id));
        for _ in 0..10_000 {
            if self.scheduler.is_empty() {
                break;
            }
            if self.replicas.values().all(|replica| replica.condemned) {
                self.up();
            }
            let mut moved = false;
            for (id, replica) in self.replicas.clone() {
                if replica.condemned {
                    self.lose(id, Loss::Crashed);
                    moved = true;
                } else if let Some(&batch) = replica.batches.first() {
                    self.start(batch);
                    for item in self.batches[&batch].items.clone().into_iter().rev() {
                        self.item_done(batch, item);
                    }
                    self.batch_done(id, batch, true);
                    moved = true;
                }
            }
            if !moved {
                let Some(wake) = self.scheduler.next_wake() else { break };
                self.wait(wake - self.now);
            }
        }
        let left: Vec<_> = self.items.keys().copied().collect();
        self.hold(Promise::EndsOnce, left.is_empty(), || format!("left after the drain: {left:?}"));
        let wake = self.scheduler.next_wake().filter(|_| self.batches.is_empty());
        self.hold(Promise::Wakes, wake.is_none(), || format!("wakes at {wake:?} for an empty queue"));
    }

    fn settle(&mut self) {
        while let Some(action) = self.scheduler.poll(self.now) {
            self.act(action);
        }
        self.check_rest();
    }
}

fn key(group: u8) -> GroupKey {
    GroupKey([KeyPart::Int(i64::from(group))].into_iter().collect())
}
