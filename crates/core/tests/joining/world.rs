//! A scheduler of a model that works in steps, next to a naive reference that recounts everything after every event. What it
//! finds broken it notes. Here are the events; `checks` looks at what the scheduler does about them.

use jitney_core::config::rules::Rules;
use jitney_core::queue::group_key::{GroupKey, KeyPart};
use jitney_core::replicas::loss_history::Loss;
use jitney_core::request::{BatchId, ItemId, Priority, ReplicaClass, ReplicaId};
use jitney_core::scheduler::item::{EndedItem, NewItem, Payload};
use jitney_core::scheduler::results::steps::Step;
use jitney_core::scheduler::state::Scheduler;
use jitney_core::tables::outcome::Outcome;
use jitney_core::time::Time;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct Input {
    id: u64,
    /// A part of the answer was sent.
    has_part: bool,
}

impl Payload for Input {
    type Input = u64;

    fn input(&self) -> &u64 {
        &self.id
    }

    fn fingerprint(input: &u64) -> u64 {
        *input
    }

    fn may_run_again(&self) -> bool {
        !self.has_part
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) group: u8,
    pub(crate) cost: u64,
    pub(crate) bytes: u64,
    pub(crate) priority: Priority,
    pub(crate) timeout: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Waiting,
    Suspect,
    Batch(BatchId),
}

#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) asked: Arrival,
    pub(crate) arrival: Time,
    pub(crate) rank: Time,
    pub(crate) deadline: Time,
    pub(crate) place: Place,
    pub(crate) has_part: bool,
    losses: u8,
}

/// An item that a worker has, whether or not a client waits for it.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) id: ItemId,
    pub(crate) batch: BatchId,
    pub(crate) cost: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Replica {
    pub(crate) held: Vec<Held>,
    pub(crate) is_condemned: bool,
    pub(crate) is_killed: bool,
    pub(crate) waits_for_end: bool,
    pub(crate) pauses_until: Option<Time>,
    pub(crate) reported: Time,
}

impl Replica {
    pub(crate) fn cost(&self) -> u128 {
        self.held.iter().map(|held| u128::from(held.cost)).sum()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) replica: ReplicaId,
    pub(crate) is_started: bool,
    pub(crate) is_trial: bool,
    /// When it joined, or when it last sent a part.
    pub(crate) sign: Time,
}

pub(crate) struct World {
    pub(crate) rules: Rules,
    pub(crate) scheduler: Scheduler<Input>,
    pub(crate) now: Time,
    pub(crate) items: BTreeMap<ItemId, Item>,
    pub(crate) ended: BTreeMap<ItemId, Option<Outcome>>,
    pub(crate) batches: BTreeMap<BatchId, Batch>,
    pub(crate) replicas: BTreeMap<ReplicaId, Replica>,
    /// Items whose clients do not read, and when each ends unless its client does.
    pub(crate) paused: BTreeMap<ItemId, Option<Time>>,
    /// As many items fit into the memory of a device.
    pub(crate) fits: usize,
    /// A newcomer costs nothing, so that each item joins as soon as there is room.
    pub(crate) joins_at_once: bool,
    /// What must fail before the next event.
    pub(crate) foreseen: BTreeMap<ItemId, Outcome>,
    pub(crate) log: Vec<String>,
    pub(crate) broken: Vec<String>,
    closed: Option<Outcome>,
    is_draining: bool,
    next_item: u64,
    next_replica: u32,
}

pub(crate) fn key(group: u8) -> GroupKey {
    GroupKey([KeyPart::Int(group.into())].into_iter().collect())
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
            paused: BTreeMap::new(),
            fits: usize::MAX,
            joins_at_once: true,
            foreseen: BTreeMap::new(),
            log: Vec::new(),
            broken: Vec::new(),
            closed: Some(Outcome::Loading),
            is_draining: false,
            next_item: 1,
            next_replica: 1,
        }
    }

    pub(crate) fn hold(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.broken.push(format!("at {}: {}", self.now.0, what()));
        }
    }

    pub(crate) fn arrive(&mut self, asked: &Arrival) {
        let id = ItemId(self.next_item);
        self.next_item += 1;
        let (waiting, bytes) = self.waiting();
        let certain = match self.closed {
            _ if self.is_draining => Some(Outcome::Draining),
            Some(outcome) => Some(outcome),
            None if waiting >= self.rules.queue.max_items => Some(Outcome::QueueFull),
            None if bytes > 0 && bytes + asked.bytes > self.rules.queue.max_bytes => Some(Outcome::QueueBytesFull),
            None if asked.cost > self.rules.batch.max_cost => Some(Outcome::TooLarge),
            None => None,
        };
        let is_predicted = self.scheduler.predicted_wait(self.now).is_some();
        let &Arrival { group, cost, bytes, priority, timeout } = asked;
        let payload = Input { id: id.0, has_part: false };
        let item = NewItem { id, group: key(group), cost, bytes, priority, timeout, payload };
        let result = self.scheduler.submit(self.now, item).map_err(|(_, refusal)| refusal.outcome);
        self.log.push(format!("{id:?} {result:?}"));
        let by_wait = matches!(result, Err(Outcome::WaitTooLong | Outcome::DeadlineUnreachable)) && is_predicted;
        let is_right = result.err() == certain || by_wait && matches!(certain, None | Some(Outcome::TooLarge));
        self.hold(is_right, || format!("{asked:?}: expected {certain:?}, was {result:?}"));
        if result.is_ok() {
            let item = Item {
                asked: asked.clone(),
                arrival: self.now,
                rank: self.now + self.rules.boost * priority as u32,
                deadline: self.now + timeout.unwrap_or(self.rules.request_timeout),
                place: Place::Waiting,
                has_part: false,
                losses: 0,
            };
            self.items.insert(id, item);
        }
        self.settle();
    }

    pub(crate) fn cancel(&mut self, id: ItemId) {
        let is_in = self.items.contains_key(&id);
        let ended = self.scheduler.cancel(id);
        self.hold(ended.is_some() == is_in, || format!("{id:?}: cancel gave {ended:?}"));
        if let Some(ended) = ended {
            self.end(&ended, None);
        }
        self.settle();
    }

    pub(crate) fn part(&mut self, batch: BatchId, id: ItemId) {
        if let Some(payload) = self.scheduler.item_of(batch, id) {
            payload.has_part = true;
        }
        self.scheduler.part_sent(self.now, batch, id);
        if let Some(item) = self.items.get_mut(&id).filter(|item| item.place == Place::Batch(batch)) {
            if !item.has_part && item.asked.timeout.is_none() {
                item.deadline = item.arrival + self.rules.stream_timeout;
            }
            item.has_part = true;
        }
        if let Some(batch) = self.batches.get_mut(&batch) {
            batch.sign = self.now;
        }
        self.settle();
    }

    pub(crate) fn pause(&mut self, id: ItemId, patience: Option<Duration>) {
        let replica = self.replica_of(id).filter(|_| !self.paused.contains_key(&id));
        let to = self.scheduler.pause(self.now, id, patience);
        self.hold(to == replica, || format!("{id:?}: pause gave {to:?}, not {replica:?}"));
        if replica.is_some() {
            self.paused.insert(id, patience.map(|patience| self.now + patience));
        }
        self.settle();
    }

    pub(crate) fn resume(&mut self, id: ItemId) {
        let replica = self.replica_of(id).filter(|_| self.paused.remove(&id).is_some());
        let to = self.scheduler.resume(id);
        self.hold(to == replica, || format!("{id:?}: resume gave {to:?}, not {replica:?}"));
        self.settle();
    }

    fn replica_of(&self, id: ItemId) -> Option<ReplicaId> {
        match self.items.get(&id)?.place {
            Place::Batch(batch) => Some(self.batches.get(&batch)?.replica),
            Place::Waiting | Place::Suspect => None,
        }
    }

    /// The worker is done with an item: with its result, or because no client waits for it.
    pub(crate) fn item_done(&mut self, batch: BatchId, id: ItemId) {
        let is_in = self.items.get(&id).is_some_and(|item| item.place == Place::Batch(batch));
        let ended = self.scheduler.item_ended(batch, id);
        self.hold(ended.is_some() == is_in, || format!("{id:?} of {batch:?} gave {ended:?}"));
        if let Some(replica) = self.let_go(batch, id) {
            self.replicas.get_mut(&replica).expect("it holds it").waits_for_end = false;
        }
        if let Some(ended) = ended {
            self.end(&ended, None);
        }
        self.settle();
    }

    /// The model has no room for it.
    pub(crate) fn later(&mut self, batch: BatchId, id: ItemId) {
        let is_trial = self.batches.get(&batch).is_some_and(|batch| batch.is_trial);
        self.scheduler.later(self.now, batch, id);
        if let Some(replica) = self.let_go(batch, id) {
            let replica = self.replicas.get_mut(&replica).expect("it held it");
            replica.waits_for_end = !replica.held.is_empty();
            replica.pauses_until = replica.held.is_empty().then(|| self.now + Duration::from_millis(100));
            if let Some(item) = self.items.get_mut(&id) {
                item.place = if is_trial { Place::Suspect } else { Place::Waiting };
                self.paused.remove(&id);
            }
        }
        self.settle();
    }

    /// Takes an item out of the open set of its replica.
    fn let_go(&mut self, batch: BatchId, id: ItemId) -> Option<ReplicaId> {
        let replica = self.batches.get(&batch)?.replica;
        let held = &mut self.replicas.get_mut(&replica)?.held;
        let place = held.iter().position(|held| (held.id, held.batch) == (id, batch))?;
        held.remove(place);
        if held.iter().all(|held| held.batch != batch) {
            self.batches.remove(&batch);
        }
        Some(replica)
    }

    pub(crate) fn step(&mut self, id: ReplicaId, step: Step) {
        self.scheduler.stepped(self.now, id, step);
        if let Some(replica) = self.replicas.get_mut(&id) {
            replica.reported = self.now;
        }
        self.settle();
    }

    pub(crate) fn start(&mut self, id: BatchId) {
        self.scheduler.batch_started(id);
        if let Some(batch) = self.batches.get_mut(&id) {
            batch.is_started = true;
        }
    }

    pub(crate) fn too_large(&mut self, batch: BatchId) {
        if let Some(fits) = self.scheduler.too_large(self.now, batch) {
            self.fits = fits;
        }
        self.settle();
    }

    pub(crate) fn excuse(&mut self, away: Duration) {
        self.now = self.now + away;
        self.scheduler.excuse(away);
        self.batches.values_mut().for_each(|batch| batch.sign = batch.sign + away);
        self.replicas.values_mut().for_each(|replica| replica.reported = replica.reported + away);
        self.settle();
    }

    pub(crate) fn up(&mut self) {
        let id = ReplicaId(self.next_replica);
        self.next_replica += 1;
        self.scheduler.replica_up(self.now, id, ReplicaClass::default());
        self.replicas.insert(id, Replica::default());
        self.closed = None;
        self.settle();
    }

    pub(crate) fn retire(&mut self, id: ReplicaId) {
        self.scheduler.retire(id);
        self.replicas.get_mut(&id).expect("it is up").is_condemned = true;
        self.settle();
    }

    pub(crate) fn crash_loop(&mut self) {
        self.scheduler.crash_looping();
        self.closed = Some(Outcome::CrashLooping);
        let waiting = self.items.iter().filter(|(_, item)| !matches!(item.place, Place::Batch(_)));
        self.foreseen.extend(waiting.map(|(id, _)| (*id, Outcome::CrashLooping)));
        self.settle();
    }

    pub(crate) fn lose(&mut self, id: ReplicaId, loss: Loss) {
        self.scheduler.replica_lost(self.now, id, loss);
        for held in self.replicas.remove(&id).map(|replica| replica.held).unwrap_or_default() {
            let batch = self.batches[&held.batch].clone();
            let is_started = batch.is_started || self.rules.retry;
            let Some(item) = self.items.get_mut(&held.id).filter(|item| item.place == Place::Batch(held.batch)) else {
                continue;
            };
            item.losses += 1;
            self.paused.remove(&held.id);
            let is_cause = batch.is_trial && (is_started || item.losses >= 3);
            let ends = is_started && (item.has_part || !self.rules.retry);
            item.place = if is_started || batch.is_trial || item.losses >= 3 { Place::Suspect } else { Place::Waiting };
            // Whether a kill is a proof, `poison` checks.
            let is_proof = is_cause && !self.scheduler_has(held.id);
            if ends || is_proof {
                self.foreseen.insert(held.id, Outcome::WorkerLost);
            }
        }
        self.batches.retain(|_, batch| batch.replica != id);
        self.settle();
    }

    fn scheduler_has(&self, id: ItemId) -> bool {
        self.scheduler.payload(id, self.now).is_some()
    }

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
            self.hold(false, || format!("{action:?} was due, but no wake-up was requested"));
            self.act(action);
            self.settle();
        }
    }

    pub(crate) fn close(&mut self) {
        self.scheduler.drain();
        self.is_draining = true;
        self.settle();
    }

    /// The server drains, and every replica works through what there is.
    pub(crate) fn drain(&mut self) {
        self.close();
        for _ in 0..1000 {
            if self.scheduler.is_empty() {
                break;
            }
            let killed: Vec<_> = self.replicas.iter().filter(|(_, r)| r.is_killed).map(|(id, _)| *id).collect();
            killed.into_iter().for_each(|id| self.lose(id, Loss::Killed));
            if self.replicas.values().all(|replica| replica.is_condemned) {
                self.up();
            }
            let held: Vec<_> = self.replicas.values().flat_map(|replica| replica.held.clone()).collect();
            held.into_iter().for_each(|held| self.item_done(held.batch, held.id));
            self.wait(Duration::from_millis(20));
        }
        let left = self.scheduler.len();
        self.hold(left == 0, || format!("{left} items are left after a drain"));
    }

    pub(crate) fn end(&mut self, ended: &EndedItem<Input>, outcome: Option<Outcome>) {
        let (id, payload) = (ended.id, ended.payload.id);
        self.paused.remove(&id);
        let is_once = self.items.remove(&id).is_some() && self.ended.insert(id, outcome).is_none();
        self.hold(is_once && payload == id.0, || {
            format!("{id:?} ended a second time or with another payload: {ended:?}")
        });
        self.log.push(format!("{id:?} {outcome:?}"));
    }
}
