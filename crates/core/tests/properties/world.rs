//! A scheduler beside a naive reference that recounts everything after every event. It only polls at events and at the
//! wakes that the scheduler asks for, as the engine does. What it finds broken it notes by promise.

use jitney_core::group_key::{GroupKey, KeyPart};
use jitney_core::lane::rank;
use jitney_core::outcome::Outcome;
use jitney_core::policy::CloseReason;
use jitney_core::request::{BatchId, ItemId, Priority, ReplicaId};
use jitney_core::rules::{Rules, WhenToLaunch};
use jitney_core::scheduler::{Action, Door, Ended, Launch, Loss, NewItem, Payload, Scheduler};
use jitney_core::time::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a test can ask about; each has its own test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Every admitted item ends once and its payload comes back once.
    EndsOnce,
    /// What lost workers do to the items that they held.
    Suspects,
    /// What nobody waits for is not launched, and expires when its deadline comes.
    NobodyWaits,
    /// Bounds hold, refusals leave no trace, counters are true.
    Bounds,
    /// Nothing ready waits beside a free replica; nothing leaves before its time.
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
    fn fingerprint(&self) -> u64 {
        self.fingerprint
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Waiting,
    Suspect,
    Batch(BatchId),
}

/// How an item ended: with its result, without anybody waiting, or failed.
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
    record: Record,
    /// Suspected for what its like did.
    is_like: bool,
    was_started: bool,
}

/// The workers that were lost with an item or its like: all, those in which it was alone, whether it had started in one.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    losses: u8,
    alone: u8,
    was_started: bool,
}

impl Record {
    fn is_suspect(self) -> bool {
        self.was_started || self.losses >= 3
    }

    fn with(self, other: Record) -> Record {
        Record {
            losses: self.losses.max(other.losses),
            alone: self.alone.max(other.alone),
            was_started: self.was_started || other.was_started,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) replica: ReplicaId,
    pub(crate) items: Vec<ItemId>,
    pub(crate) started: bool,
    alone: bool,
    /// Who left while it was under way.
    left: BTreeMap<ItemId, Item>,
}

#[derive(Clone, Debug)]
pub(crate) struct Replica {
    pub(crate) batches: Vec<BatchId>,
    pub(crate) condemned: bool,
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
    door: Door,
    convicted: Vec<(Time, u64)>,
    watched: Vec<(Time, u64, Record)>,
    foreseen: BTreeMap<ItemId, Outcome>,
    forgotten: Option<(ReplicaId, ItemId)>,
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
            door: Door::Closed(Outcome::Loading),
            convicted: Vec::new(),
            watched: Vec::new(),
            foreseen: BTreeMap::new(),
            forgotten: None,
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
            group: GroupKey([KeyPart::Int(i64::from(asked.group))].into_iter().collect()),
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
                let item = Item { asked, arrival, deadline, place, record, is_like, was_started: false };
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
        let expected = self.items.get(&id).is_some_and(|item| item.place == Place::Batch(batch));
        let ended = self.scheduler.item_done(batch, id);
        self.log.push(format!("done {batch:?} {ended:?}"));
        self.hold(Promise::EndsOnce, ended.is_some() == expected, || format!("{id:?} of {batch:?} gave {ended:?}"));
        if let Some(ended) = ended {
            if self.batches[&batch].alone {
                self.acquit(self.items[&id].asked.fingerprint);
            }
            self.end(&ended, End::Answered);
        }
        self.settle();
    }

    /// A replica says that a batch is done; both may be anything.
    pub(crate) fn batch_done(&mut self, replica: ReplicaId, id: BatchId, is_clean: bool) {
        if is_clean && let Some(batch) = self.batches.get(&id) {
            // Of some batches the bytes matter: that is for the scheduler to find out.
            let answers = id.0 % 4 * 4_000_000 * batch.items.len() as u64;
            self.scheduler.moved(id, answers, Duration::ZERO);
        }
        self.scheduler.batch_done(self.now, replica, id, is_clean);
        if let Some(held) = self.replicas.get_mut(&replica)
            && let Some(place) = held.batches.iter().position(|&batch| batch == id)
        {
            held.batches.remove(place);
            if place == 0 {
                held.runs_since = self.now;
            }
            let batch = self.batches.remove(&id).expect("held batches are known");
            for item in batch.items {
                if self.items.get(&item).is_some_and(|item| item.place == Place::Batch(id)) {
                    self.foreseen.insert(item, Outcome::Internal);
                }
            }
        }
        self.settle();
    }

    pub(crate) fn up(&mut self) {
        let id = ReplicaId(self.next_replica);
        self.next_replica += 1;
        self.scheduler.replica_up(self.now, id);
        self.replicas.insert(id, Replica { batches: Vec::new(), condemned: false, runs_since: self.now });
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

    pub(crate) fn lose(&mut self, replica: ReplicaId, loss: Loss) {
        self.scheduler.replica_lost(self.now, replica, loss);
        let held = self.replicas.remove(&replica).map(|replica| replica.batches).unwrap_or_default();
        for (place, id) in held.into_iter().enumerate() {
            let mut batch = self.batches.remove(&id).expect("held batches are known");
            batch.started |= place == 0 && self.rules.retry;
            let mut traces = Vec::new();
            for &item in &batch.items {
                traces.extend(self.item_lost(item, id, &batch, loss));
            }
            for (fingerprint, record) in traces {
                self.remember(fingerprint, record);
            }
        }
        self.settle();
    }

    /// What must become of an item whose worker died; `poison` checks apart from this that the rule itself is just. Returns
    /// what is remembered of an item that has ended: nothing more if it is convicted.
    fn item_lost(&mut self, id: ItemId, in_batch: BatchId, batch: &Batch, loss: Loss) -> Option<(u64, Option<Record>)> {
        let live = self.items.get(&id).filter(|item| item.place == Place::Batch(in_batch));
        let mut item = live.or(batch.left.get(&id))?.clone();
        let is_live = live.is_some();
        item.record.losses += 1;
        let is_convicted = if batch.alone && (batch.started || item.record.losses >= 3) {
            item.record.alone += 1;
            loss == Loss::Crashed || item.record.alone >= 2
        } else {
            false
        };
        item.record.was_started |= batch.started || batch.alone;
        let (fingerprint, record) = (item.asked.fingerprint, item.record);
        let ends = is_convicted || batch.started && !self.rules.retry;
        if is_live && ends {
            self.foreseen.insert(id, Outcome::WorkerLost);
        } else if is_live {
            item.place = if record.is_suspect() { Place::Suspect } else { Place::Waiting };
        }
        if is_live {
            self.items.insert(id, item);
        }
        (ends || !is_live).then_some((fingerprint, Some(record).filter(|_| !is_convicted)))
    }

    /// Whoever has ended runs no more, but its like does: alone, or not at all.
    fn remember(&mut self, fingerprint: u64, record: Option<Record>) {
        let minute = Duration::from_secs(60);
        // What its like was lost with before counts too.
        let before = self.watched.iter().find(|(_, other, _)| *other == fingerprint).map(|&(.., record)| record);
        let record = record.map(|record| before.map_or(record, |before| record.with(before)));
        self.watched.retain(|&(_, other, _)| other != fingerprint);
        match record {
            Some(record) => self.watched.push((self.now + minute + self.rules.batch_timeout, fingerprint, record)),
            None => self.convicted.push((self.now + minute, fingerprint)),
        }
        let foreseen = &mut self.foreseen;
        let waiting = self.items.iter_mut().filter(|(_, item)| !matches!(item.place, Place::Batch(_)));
        for (id, item) in waiting.filter(|(_, item)| item.asked.fingerprint == fingerprint) {
            let Some(record) = record else {
                foreseen.insert(*id, Outcome::Quarantined);
                continue;
            };
            item.record = item.record.with(record);
            if item.place == Place::Waiting && item.record.is_suspect() {
                (item.place, item.is_like) = (Place::Suspect, true);
            }
        }
    }

    fn record_of(&mut self, fingerprint: u64) -> Record {
        let now = self.now;
        self.watched.retain(|&(until, ..)| until > now);
        self.watched.iter().find(|(_, other, _)| *other == fingerprint).map(|&(.., record)| record).unwrap_or_default()
    }

    /// An item ran alone and was answered: its like is as good as any.
    fn acquit(&mut self, fingerprint: u64) {
        self.watched.retain(|&(_, other, _)| other != fingerprint);
        let like = self.items.values_mut().filter(|item| item.asked.fingerprint == fingerprint && item.is_like);
        for item in like.filter(|item| item.place == Place::Suspect) {
            (item.place, item.record, item.is_like) = (Place::Waiting, Record::default(), false);
        }
    }

    /// An item ends while a worker has it, and without an answer.
    fn leaves(&mut self, id: ItemId) {
        let Some(item) = self.items.get(&id) else { return };
        if let Place::Batch(batch) = item.place
            && let Some(batch) = self.batches.get_mut(&batch)
        {
            batch.left.insert(id, item.clone());
        }
    }

    pub(crate) fn set_door(&mut self, door: Door) {
        self.scheduler.set_door(door);
        self.door = door;
        if door == Door::Closed(Outcome::CrashLooping) {
            for (id, item) in &self.items {
                if !matches!(item.place, Place::Batch(_)) {
                    self.foreseen.insert(*id, Outcome::CrashLooping);
                }
            }
        }
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
            self.hold(Promise::Wakes, false, || format!("{action:?} was due, but nobody asked to be woken"));
            self.act(action);
            self.settle();
        }
    }

    // ------------------------------------------------------------------------------------------ actions

    fn settle(&mut self) {
        while let Some(action) = self.scheduler.poll(self.now) {
            self.act(action);
        }
        self.check_rest();
    }

    fn act(&mut self, action: Action<Input>) {
        self.log.push(format!("{} {action:?}", self.now.0));
        let forgotten = self.forgotten.take();
        match action {
            Action::Launch(launch) => self.launched(&launch),
            Action::Fail(ended, outcome) => self.failed(&ended, outcome, forgotten),
            Action::Forget(replica, id) => self.forgotten = Some((replica, id)),
            Action::Kill(replica) => self.killed(replica),
        }
    }

    fn killed(&mut self, id: ReplicaId) {
        let (now, limit) = (self.now, self.rules.batch_timeout);
        let holds = self.replicas.get_mut(&id).is_some_and(|replica| {
            replica.condemned = true;
            !replica.batches.is_empty() && replica.runs_since + limit == now
        });
        self.hold(Promise::Wakes, holds, || format!("{id:?} was killed although its batch was not at its limit"));
    }

    fn failed(&mut self, ended: &Ended<Input>, outcome: Outcome, forgotten: Option<(ReplicaId, ItemId)>) {
        let id = ended.id;
        let Some(item) = self.items.get(&id).cloned() else {
            return self.hold(Promise::EndsOnce, false, || format!("{id:?} failed, but it was not in"));
        };
        if let Some(expected) = self.foreseen.remove(&id) {
            self.hold(Promise::Suspects, outcome == expected, || format!("{id:?}: {outcome:?}, not {expected:?}"));
        } else {
            let is_due = outcome == Outcome::DeadlineExceeded && item.deadline == self.now;
            self.hold(Promise::NobodyWaits, is_due, || format!("{outcome:?} at the wrong time: {item:?}"));
            let held = match item.place {
                Place::Batch(batch) => self.batches.get(&batch).map(|batch| (batch.replica, id)),
                _ => None,
            };
            self.hold(Promise::NobodyWaits, held == forgotten, || format!("{held:?} was told {forgotten:?}"));
            self.leaves(id);
        }
        self.end(ended, End::Failed(outcome));
    }

    fn end(&mut self, ended: &Ended<Input>, how: End) {
        let id = ended.id;
        let before = self.ended.insert(id, how);
        self.hold(Promise::EndsOnce, before.is_none(), || format!("{id:?} ended twice: {before:?}, {how:?}"));
        let item = self.items.remove(&id);
        let is_own = ended.payload.id == id.0 && item.is_some_and(|item| item.arrival == ended.arrival);
        self.hold(Promise::EndsOnce, is_own, || format!("{id:?} came back with another payload or arrival"));
    }

    fn launched(&mut self, launch: &Launch) {
        let is_new = !self.batches.contains_key(&launch.batch);
        self.hold(Promise::EndsOnce, is_new, || format!("{:?} is not new", launch.batch));
        for id in &launch.items {
            let live = self.items.get(id).is_some_and(|item| item.deadline > self.now);
            self.hold(Promise::NobodyWaits, live, || format!("nobody waits for {id:?} of {launch:?}"));
        }
        let unique: std::collections::BTreeSet<_> = launch.items.iter().collect();
        self.hold(Promise::EndsOnce, unique.len() == launch.items.len(), || format!("twice in {launch:?}"));
        let alone = launch.reason == CloseReason::Suspect;
        let held = self.replicas.get(&launch.replica).filter(|replica| !replica.condemned).map(|r| r.batches.clone());
        let Some(held) = held else {
            return self.hold(Promise::Conserving, false, || format!("{launch:?}: the replica is not up"));
        };
        if alone {
            self.launched_suspect(launch, &held);
        } else {
            self.launched_lane(launch, &held);
        }
        for id in &launch.items {
            if let Some(item) = self.items.get_mut(id) {
                item.place = Place::Batch(launch.batch);
            }
        }
        let batch = Batch {
            replica: launch.replica,
            items: launch.items.clone(),
            started: false,
            alone,
            left: BTreeMap::new(),
        };
        self.batches.insert(launch.batch, batch);
        let now = self.now;
        let replica = self.replicas.get_mut(&launch.replica).expect("looked up above");
        if replica.batches.is_empty() {
            replica.runs_since = now;
        }
        replica.batches.push(launch.batch);
    }

    fn launched_suspect(&mut self, launch: &Launch, held: &[BatchId]) {
        let is_one = launch.items.len() == 1
            && self.items.get(&launch.items[0]).is_some_and(|item| item.place == Place::Suspect);
        self.hold(Promise::Suspects, is_one, || format!("{launch:?} is not one suspect"));
        self.hold(Promise::Suspects, held.is_empty(), || format!("{launch:?} is not alone"));
        let other = self.batches.values().any(|batch| batch.alone);
        self.hold(Promise::Suspects, !other, || format!("{launch:?} is the second suspect at a time"));
    }

    fn launched_lane(&mut self, launch: &Launch, held: &[BatchId]) {
        let limits = self.rules.batch;
        let taken: Vec<Item> = launch.items.iter().filter_map(|id| self.items.get(id).cloned()).collect();
        let Some(group) = taken.first().map(|item| item.asked.group) else {
            return self.hold(Promise::Batches, false, || format!("{launch:?} is empty"));
        };
        let is_one_group = taken.iter().all(|item| item.asked.group == group && item.place == Place::Waiting);
        self.hold(Promise::Batches, is_one_group, || format!("{launch:?} is not of one lane: {taken:?}"));
        let cost: u128 = taken.iter().map(|item| u128::from(item.asked.cost)).sum();
        let fits = taken.len() <= limits.max_items && (cost <= u128::from(limits.max_cost) || taken.len() == 1);
        self.hold(Promise::Batches, fits, || format!("{launch:?} is above {limits:?}: cost {cost}"));

        let lanes = self.lanes();
        let lane = lanes.get(&group).cloned().unwrap_or_default();
        let first: Vec<ItemId> = lane.iter().take(launch.items.len()).map(|&(_, _, id)| id).collect();
        let by_rank = |id: &ItemId| lane.iter().find(|(_, _, other)| other == id).map(|&(rank, _, _)| rank);
        let ranks = |ids: &[ItemId]| ids.iter().map(by_rank).collect::<Vec<_>>();
        // Items of like length may pass others, within the bounds that `riders` holds, but leave none of theirs behind.
        let is_chosen = self.learns() && launch.reason == CloseReason::Alike;
        let is_between = |cost| taken.iter().any(|i| i.asked.cost < cost) && taken.iter().any(|i| i.asked.cost > cost);
        let mut others = lane.iter().filter(|(_, _, id)| !launch.items.contains(id));
        let between = others.find(|(_, _, id)| is_between(self.items[id].asked.cost));
        self.hold(Promise::Batches, !is_chosen || between.is_none(), || format!("{launch:?} left {between:?} out"));
        self.hold(Promise::Order, is_chosen || ranks(&launch.items) == ranks(&first), || {
            format!("{launch:?}, but {lane:?}")
        });
        for priority in Priority::ALL {
            let of_class = |id: &&ItemId| self.items.get(id).is_some_and(|item| item.asked.priority == priority);
            let taken: Vec<_> = launch.items.iter().filter(of_class).collect();
            let all: Vec<_> = lane.iter().map(|(_, _, id)| id).filter(of_class).collect();
            let in_order = is_chosen || all.starts_with(&taken);
            self.hold(Promise::Order, in_order, || format!("{launch:?} breaks the order of {all:?}"));
        }

        let next = lane.get(launch.items.len()).map(|(_, _, id)| u128::from(self.items[id].asked.cost));
        let is_closed = launch.items.len() == limits.max_items
            || cost >= u128::from(limits.max_cost)
            || next.is_some_and(|next| cost + next > u128::from(limits.max_cost));
        let is_bulk = self.learns() && launch.reason == CloseReason::Bulk;
        let is_part = is_chosen
            || is_bulk
            || (self.learns() && matches!(launch.reason, CloseReason::Share | CloseReason::Deadline));
        let takes_all = is_closed || next.is_none() || is_part;
        self.hold(Promise::Batches, takes_all, || format!("{launch:?} left {next:?} behind"));
        let is_idle = held.is_empty();
        if !is_idle {
            let beside_suspect = held.iter().any(|batch| self.batches[batch].alone);
            self.hold(Promise::Suspects, !beside_suspect, || format!("{launch:?} joins a suspect"));
            let suspects = self.items.values().any(|item| item.place == Place::Suspect);
            let starves = suspects && !self.batches.values().any(|batch| batch.alone);
            self.hold(Promise::Suspects, !starves, || format!("{launch:?} goes ahead of a suspect that could run"));
            let may = (is_closed || is_bulk) && held.len() == 1 && !self.has_idle();
            self.hold(Promise::Conserving, may, || format!("{launch:?} is ahead at {held:?}"));
        }
        let is_due = self.is_ready(&lane);
        self.hold(Promise::Conserving, is_due, || format!("{launch:?} leaves before its time: {lane:?}"));

        let rank_of = |lane: &Vec<(Time, Time, ItemId)>| lane[0].0;
        let soonest = lanes.values().filter(|lane| self.is_ready(lane)).map(rank_of).min();
        self.passes = if soonest.is_none_or(|soonest| lane[0].0 <= soonest) { 0 } else { self.passes + 1 };
        let passes = self.passes;
        self.hold(Promise::Order, passes <= 4, || format!("{launch:?}: the oldest head was passed {passes} times"));
    }

    // ------------------------------------------------------------------------------------------ recounting

    /// Items and bytes that wait.
    fn waiting(&self) -> (usize, u64) {
        let waiting = || self.items.values().filter(|item| !matches!(item.place, Place::Batch(_)));
        (waiting().count(), waiting().map(|item| item.asked.bytes).sum())
    }

    /// What waits in each lane as (rank, arrival, id), sorted as it must leave.
    fn lanes(&self) -> BTreeMap<u8, Vec<(Time, Time, ItemId)>> {
        let mut lanes: BTreeMap<u8, Vec<_>> = BTreeMap::new();
        for (id, item) in self.items.iter().filter(|(_, item)| item.place == Place::Waiting) {
            let rank = rank(item.arrival, item.asked.priority, self.rules.boost);
            lanes.entry(item.asked.group).or_default().push((rank, item.arrival, *id));
        }
        for lane in lanes.values_mut() {
            lane.sort();
        }
        lanes
    }

    fn is_full(&self, lane: &[(Time, Time, ItemId)]) -> bool {
        let cost: u128 = lane.iter().map(|(_, _, id)| u128::from(self.items[id].asked.cost)).sum();
        lane.len() >= self.rules.batch.max_items || cost >= u128::from(self.rules.batch.max_cost)
    }

    /// Whether the policy decides by what it has learned, so that the reference cannot foretell it.
    fn learns(&self) -> bool {
        self.rules.launch == WhenToLaunch::Auto
    }

    /// Whether a lane may leave now: it is full, or the oldest item in it has been held for as long as it may.
    fn is_ready(&self, lane: &[(Time, Time, ItemId)]) -> bool {
        let delay = match self.rules.launch {
            WhenToLaunch::Fixed(delay) => delay,
            WhenToLaunch::Auto => Duration::ZERO,
        };
        let oldest = lane.iter().map(|&(_, arrival, _)| arrival).min();
        self.is_full(lane) || oldest.is_some_and(|oldest| self.now >= oldest + delay)
    }

    /// Whether a lane must leave now if a replica is free.
    fn must_leave(&self, lane: &[(Time, Time, ItemId)]) -> bool {
        if self.learns() { self.is_full(lane) } else { self.is_ready(lane) }
    }

    pub(crate) fn has_idle(&self) -> bool {
        self.replicas.values().any(|replica| !replica.condemned && replica.batches.is_empty())
    }

    /// What must be true whenever there is nothing left to do.
    fn check_rest(&mut self) {
        let (items, bytes) = self.waiting();
        let lanes = self.lanes();
        let up = self.replicas.values().filter(|replica| !replica.condemned).count();
        let s = &self.scheduler;
        let counted = (s.queued_items(), s.queued_bytes(), s.lanes(), s.len(), s.is_empty(), s.replicas());
        let recounted = (items, bytes, lanes.len(), self.items.len(), self.items.is_empty(), up);
        self.hold(Promise::Bounds, counted == recounted, || format!("counted {counted:?}, there are {recounted:?}"));

        let foreseen = std::mem::take(&mut self.foreseen);
        self.hold(Promise::EndsOnce, foreseen.is_empty(), || format!("never failed: {foreseen:?}"));
        let overdue: Vec<_> = self.items.iter().filter(|(_, item)| item.deadline <= self.now).collect();
        let overdue = (!overdue.is_empty()).then(|| format!("overdue: {overdue:?}"));
        self.hold(Promise::NobodyWaits, overdue.is_none(), || overdue.unwrap_or_default());

        let wake = self.scheduler.next_wake();
        self.hold(Promise::Wakes, wake.is_none_or(|at| at > self.now), || format!("wakes at {wake:?} for nothing"));

        if self.has_idle() {
            let ready: Vec<_> = lanes.values().filter(|lane| self.must_leave(lane)).collect();
            let ready = (!ready.is_empty()).then(|| format!("a replica is free and {ready:?} are ready"));
            self.hold(Promise::Conserving, ready.is_none(), || ready.unwrap_or_default());
            let suspects = self.items.values().filter(|item| item.place == Place::Suspect).count();
            let runs = self.batches.values().any(|batch| batch.alone);
            self.hold(Promise::Conserving, suspects == 0 || runs, || format!("{suspects} suspects wait for nothing"));
        }
    }

    /// The server drains: nothing new, and every replica works through what there is.
    pub(crate) fn drain(&mut self) {
        self.set_door(Door::Closed(Outcome::Draining));
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
}
