//! The state machine of one deployment: events in, actions out. It owns every item from its admission to its answer.
//!
//! The engine tells it what happened and then calls `poll` until there is nothing left to do. The payload is opaque:
//! whoever finishes an item gets it back exactly once.

use crate::admission::{self, QueueState};
use crate::group_key::GroupKey;
use crate::lane::Waiting;
use crate::lanes::{LaneId, Lanes};
use crate::outcome::Outcome;
use crate::pace::Pace;
use crate::policy::{BatchPolicy, CloseReason, Decision, Fixed, MOST_PASSES, View};
use crate::quarantine::Quarantine;
use crate::replica::Replicas;
use crate::request::{BatchId, ItemId, Priority, ReplicaId};
use crate::rules::Rules;
use crate::time::Time;
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Most lanes that hold something at once.
const MAX_LANES: usize = 1024;
/// An item that this many lost workers held is a suspect even if `predict` never began on it: decoding it may be what
/// kills them, and that may happen before its batch's turn.
const LOSSES_OF_A_SUSPECT: u8 = 3;

/// After a refusal for want of room a deployment counts as overloaded for this many full batches.
const OVERLOADED_FOR: u32 = 10;

/// What the scheduler must be able to ask of a payload.
pub trait Payload {
    /// Equal inputs have equal fingerprints.
    fn fingerprint(&self) -> u64;
}

/// An item that asks to enter.
#[derive(Debug)]
pub struct NewItem<P> {
    /// Unique.
    pub id: ItemId,
    /// What it must share with its batch.
    pub group: GroupKey,
    /// What it counts against a batch's cost limit.
    pub cost: u64,
    /// What it counts against the queue's byte limit.
    pub bytes: u64,
    /// Its class.
    pub priority: Priority,
    /// From now; `None` is the deployment's own.
    pub timeout: Option<Duration>,
    /// Whatever the engine needs to compute and to answer it.
    pub payload: P,
}

/// Whether new items are let in at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// They are, within the bounds.
    Open,
    /// They are not, for this reason: `Loading`, `CrashLooping` or `Draining`.
    Closed(Outcome),
}

/// How a replica was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// By its own doing: it crashed, ended or hung. Whoever was alone in it is to blame.
    Crashed,
    /// Somebody killed it, which may be the model, the kernel (out of memory) or an operator. That alone convicts nobody:
    /// an item must have been alone twice.
    Killed,
}

/// What the engine must do.
#[derive(Debug)]
pub enum Action<P> {
    /// Send these items to a replica.
    Launch(Launch),
    /// Answer this item, which has ended without a result.
    Fail(Ended<P>, Outcome),
    /// Tell a replica that nobody waits for this item any more.
    Forget(ReplicaId, ItemId),
    /// End a replica: its batch has run for longer than a batch may.
    Kill(ReplicaId),
}

/// A batch that leaves.
#[derive(Debug, PartialEq, Eq)]
pub struct Launch {
    /// Unique in this deployment.
    pub batch: BatchId,
    /// Where to.
    pub replica: ReplicaId,
    /// In order; their payloads are still with the scheduler.
    pub items: Vec<ItemId>,
    /// Why it was closed.
    pub reason: CloseReason,
}

/// An item that has left the scheduler, with what its answer says about its time.
#[derive(Debug)]
pub struct Ended<P> {
    /// Which item.
    pub id: ItemId,
    /// What the engine gave.
    pub payload: P,
    /// When it entered.
    pub arrival: Time,
    /// When its batch left or, if it was sent ahead, when it began to run; `None` if it never rode in one.
    pub launched: Option<Time>,
    /// Items in that batch at its launch.
    pub batch_size: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Lane(LaneId),
    Suspect,
    Batch(BatchId),
}

#[derive(Debug)]
struct Entry<P> {
    place: Place,
    group: GroupKey,
    waiting: Waiting,
    priority: Priority,
    bytes: u64,
    deadline: Time,
    launched: Option<Time>,
    batch_size: u32,
    losses: u8,
    losses_alone: u8,
    payload: P,
}

#[derive(Debug)]
struct Batch {
    replica: ReplicaId,
    items: Vec<ItemId>,
    size: usize,
    started: bool,
    /// When it is taken for a hang; set while it is the running one.
    hangs_at: Option<Time>,
    /// Since when it is the running one.
    runs_since: Option<Time>,
    suspect: Option<ItemId>,
}

/// One deployment's lanes, replicas and batches.
#[derive(Debug)]
pub struct Scheduler<P> {
    rules: Rules,
    door: Door,
    policy: Box<dyn BatchPolicy>,
    lanes: Lanes,
    passes: u32,
    entries: FxHashMap<ItemId, Entry<P>>,
    queued_bytes: u64,
    deadlines: BTreeSet<(Time, ItemId)>,
    replicas: Replicas,
    batches: FxHashMap<BatchId, Batch>,
    hangs: BTreeSet<(Time, BatchId)>,
    next_batch: u64,
    quarantine: Quarantine,
    pace: Pace,
    overloaded_until: Time,
    ask_again: Time,
    pending: VecDeque<Action<P>>,
}

impl<P: Payload> Scheduler<P> {
    /// A deployment without replicas; its door is closed until it has one.
    pub fn new(rules: Rules) -> Scheduler<P> {
        Scheduler {
            rules,
            door: Door::Closed(Outcome::Loading),
            policy: Box::new(Fixed { delay: rules.delay }),
            lanes: Lanes::new(rules.batch, rules.boost, MAX_LANES),
            passes: 0,
            entries: FxHashMap::default(),
            queued_bytes: 0,
            deadlines: BTreeSet::new(),
            replicas: Replicas::default(),
            batches: FxHashMap::default(),
            hangs: BTreeSet::new(),
            next_batch: 1,
            quarantine: Quarantine::default(),
            pace: Pace::default(),
            overloaded_until: Time(0),
            ask_again: Time(u64::MAX),
            pending: VecDeque::new(),
        }
    }

    // ------------------------------------------------------------------------------------------ events

    /// Opens or closes the door. Closing it for a crash loop also ends what waits: nobody will come for it.
    pub fn set_door(&mut self, door: Door) {
        self.door = door;
        if door == Door::Closed(Outcome::CrashLooping) {
            let waiting: Vec<ItemId> =
                self.entries.iter().filter(|(_, e)| !matches!(e.place, Place::Batch(_))).map(|(id, _)| *id).collect();
            for id in waiting {
                self.fail(id, Outcome::CrashLooping);
            }
        }
    }

    /// Lets a request of one item in, or gives it back with the reason.
    pub fn submit(&mut self, now: Time, item: NewItem<P>) -> Result<(), (P, admission::Refusal)> {
        match self.admit(now, &item.group, item.bytes, item.timeout) {
            Ok(()) => self.enter(now, item),
            Err(refusal) => Err((item.payload, refusal)),
        }
    }

    /// Whether a request may enter: asked once for all its items, so that none is refused for its size alone.
    pub fn admit(
        &mut self,
        now: Time,
        group: &GroupKey,
        bytes: u64,
        timeout: Option<Duration>,
    ) -> Result<(), admission::Refusal> {
        if let Door::Closed(outcome) = self.door {
            return Err(admission::Refusal::soon(outcome));
        }
        let timeout = timeout.unwrap_or(self.rules.request_timeout);
        let longest = timeout.max(self.rules.request_timeout);
        let queue = QueueState { is_overloaded: now < self.overloaded_until, ..self.queue_state(group) };
        let admitted = admission::admit(&queue, self.rules.queue, bytes, longest, timeout);
        if admitted.is_err_and(|refusal| refusal.retry_after.is_some()) {
            self.overloaded_until = now + self.pace.batch(self.rules.batch.max_items) * OVERLOADED_FOR;
        }
        admitted
    }

    /// Puts an item of an admitted request into its lane, or gives it back with the reason.
    pub fn enter(&mut self, now: Time, item: NewItem<P>) -> Result<(), (P, admission::Refusal)> {
        if !self.lanes.has_room(&item.group) {
            return Err((item.payload, admission::Refusal::soon(Outcome::TooManyLanes)));
        }
        // Last, because it reads the whole item: what the cheap bounds refuse costs nothing.
        if self.quarantine.refuses(|| item.payload.fingerprint(), now) {
            return Err((item.payload, admission::Refusal::never(Outcome::Quarantined)));
        }
        let waiting = Waiting { arrival: now, id: item.id, cost: item.cost };
        let lane = self.lanes.push(&item.group, item.priority, waiting);
        self.queued_bytes += item.bytes;
        let deadline = now + item.timeout.unwrap_or(self.rules.request_timeout);
        self.deadlines.insert((deadline, item.id));
        let entry = Entry {
            place: Place::Lane(lane),
            group: item.group,
            waiting,
            priority: item.priority,
            bytes: item.bytes,
            deadline,
            launched: None,
            batch_size: 0,
            losses: 0,
            losses_alone: 0,
            payload: item.payload,
        };
        self.entries.insert(item.id, entry);
        self.policy.on_arrival(now, lane);
        Ok(())
    }

    /// The caller of an item went away; gives the payload back if the item was still here.
    pub fn cancel(&mut self, id: ItemId) -> Option<Ended<P>> {
        self.end(id)
    }

    /// A replica is loaded and free.
    pub fn replica_up(&mut self, now: Time, id: ReplicaId) {
        self.replicas.add(id, now);
        if self.door == Door::Closed(Outcome::Loading) || self.door == Door::Closed(Outcome::CrashLooping) {
            self.door = Door::Open;
        }
    }

    /// A replica died. What had not started goes back to its lane; what had started runs again alone, if it may.
    pub fn replica_lost(&mut self, now: Time, id: ReplicaId, loss: Loss) {
        for (place, batch) in self.replicas.remove(id).into_iter().enumerate() {
            if place == 0 && self.rules.retry {
                // Workers say that a batch has started only where it matters, which saves a message per batch: where
                // items may run again, the one that was running is taken to have started.
                self.batch_started(batch);
            }
            self.batch_lost(now, batch, loss);
        }
    }

    fn batch_lost(&mut self, now: Time, id: BatchId, loss: Loss) {
        let Some(batch) = self.remove_batch(id) else { return };
        for item in batch.items {
            let Some(entry) = self.entries.get_mut(&item) else {
                continue;
            };
            entry.losses = entry.losses.saturating_add(1);
            let is_suspect = batch.started || entry.losses >= LOSSES_OF_A_SUSPECT;
            let was_alone = batch.suspect == Some(item) && is_suspect;
            entry.losses_alone += u8::from(was_alone);
            if was_alone && (loss == Loss::Crashed || entry.losses_alone > 1) {
                let fingerprint = entry.payload.fingerprint();
                self.quarantine.convict(fingerprint, now);
                self.fail(item, Outcome::WorkerLost);
            } else if batch.started && !self.rules.retry {
                self.fail(item, Outcome::WorkerLost);
            } else if is_suspect || batch.suspect == Some(item) {
                entry.place = Place::Suspect;
                self.queued_bytes += entry.bytes;
                self.quarantine.suspect(item);
            } else {
                let (group, priority, waiting, bytes) =
                    (entry.group.clone(), entry.priority, entry.waiting, entry.bytes);
                entry.place = Place::Lane(self.lanes.push(&group, priority, waiting));
                self.queued_bytes += bytes;
            }
        }
    }

    /// `predict` begins on a batch.
    pub fn batch_started(&mut self, id: BatchId) {
        if let Some(batch) = self.batches.get_mut(&id) {
            batch.started = true;
        }
    }

    /// An item of a batch has its result; gives the item to whoever answers it, exactly once. `None` if nobody waits for
    /// it any more, or if it is not (or no longer) in this batch.
    pub fn item_done(&mut self, batch: BatchId, id: ItemId) -> Option<Ended<P>> {
        match self.entries.get(&id) {
            Some(entry) if entry.place == Place::Batch(batch) => self.end(id),
            _ => None,
        }
    }

    /// A worker is done with a batch. Items that it left without a result are failed.
    /// `is_clean` says that its duration teaches something: it neither raised nor was split.
    pub fn batch_done(&mut self, now: Time, replica: ReplicaId, id: BatchId, is_clean: bool) {
        let Some((since, next)) = self.replicas.finish(replica, id, now) else {
            return;
        };
        if let Some(batch) = self.remove_batch(id) {
            for item in batch.items {
                self.fail(item, Outcome::Internal);
            }
            if let Some(since) = since.filter(|_| is_clean) {
                self.pace.learn(batch.size, now - since);
                self.policy.on_complete(now, batch.size, now - since);
            }
        }
        if let Some(next) = next {
            self.runs_from(next, now);
        }
    }

    // ------------------------------------------------------------------------------------------ decisions

    /// The next thing to do, until there is nothing left.
    pub fn poll(&mut self, now: Time) -> Option<Action<P>> {
        self.pending.pop_front().or_else(|| self.expire(now)).or_else(|| self.hang(now)).or_else(|| self.launch(now))
    }

    /// When to call `poll` again although nothing has happened.
    pub fn next_wake(&self) -> Option<Time> {
        let deadline = self.deadlines.first().map(|&(at, _)| at);
        let hang = self.hangs.first().map(|&(at, _)| at);
        let policy = Some(self.ask_again).filter(|at| at.0 != u64::MAX);
        [deadline, hang, policy].into_iter().flatten().min()
    }

    fn expire(&mut self, now: Time) -> Option<Action<P>> {
        let &(at, id) = self.deadlines.first()?;
        if at > now {
            return None;
        }
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
        batch.hangs_at = None;
        self.replicas.condemn(batch.replica);
        Some(Action::Kill(batch.replica))
    }

    fn launch(&mut self, now: Time) -> Option<Action<P>> {
        self.ask_again = Time(u64::MAX);
        if self.quarantine.is_ready()
            && let Some(replica) = self.replicas.idle()
        {
            let id = self.quarantine.launch()?;
            return Some(self.dispatch(now, replica, vec![id], CloseReason::Suspect));
        }
        if self.lanes.is_empty() {
            return None;
        }
        let Some(replica) = self.replicas.idle() else {
            return self.launch_ahead(now);
        };
        let view = View {
            now,
            lanes: &self.lanes,
            idle: self.replicas.idle_count() as u32,
            replicas: self.replicas.len() as u32,
            passes: self.passes,
        };
        match self.policy.decide(&view) {
            Decision::Launch { lane, size, reason } => Some(self.launch_lane(now, replica, lane, size, reason)),
            Decision::AskAgain(at) => {
                self.ask_again = at;
                None
            }
        }
    }

    /// A full batch cannot get better by waiting, so it may wait at a busy worker, which can then decode it meanwhile.
    /// A partly filled one must not: who rides in it would be fixed too early.
    /// Nor may anything go ahead while a suspect waits: under full load no replica would ever be free for it.
    fn launch_ahead(&mut self, now: Time) -> Option<Action<P>> {
        if self.quarantine.is_ready() {
            return None;
        }
        let lane = self.lanes.first_full()?;
        let replica = self.replicas.ready_for_ahead()?;
        let size = self.rules.batch.max_items;
        // Not past older heads: a lane that is ahead of its turn here would starve them.
        if self.lanes.by_rank().next() != Some(lane) && self.passes >= MOST_PASSES {
            return None;
        }
        Some(self.launch_lane(now, replica, lane, size, CloseReason::Full))
    }

    fn launch_lane(
        &mut self,
        now: Time,
        replica: ReplicaId,
        lane: LaneId,
        size: usize,
        reason: CloseReason,
    ) -> Action<P> {
        self.passes = if self.lanes.by_rank().next() == Some(lane) { 0 } else { self.passes + 1 };
        let items = self.lanes.take(lane, size);
        self.policy.on_launch(now, lane, items.len());
        self.dispatch(now, replica, items, reason)
    }

    fn dispatch(&mut self, now: Time, replica: ReplicaId, items: Vec<ItemId>, reason: CloseReason) -> Action<P> {
        let id = BatchId(self.next_batch);
        self.next_batch += 1;
        for item in &items {
            let entry = self.entries.get_mut(item).expect("what waits is known");
            entry.place = Place::Batch(id);
            entry.launched = Some(now);
            entry.batch_size = items.len() as u32;
            self.queued_bytes -= entry.bytes;
        }
        let suspect = items.first().copied().filter(|_| reason == CloseReason::Suspect);
        let batch = Batch {
            replica,
            items: items.clone(),
            size: items.len(),
            started: false,
            hangs_at: None,
            runs_since: None,
            suspect,
        };
        self.batches.insert(id, batch);
        if self.replicas.launch(replica, id, suspect.is_some(), now) {
            self.runs_from(id, now);
        }
        Action::Launch(Launch { batch: id, replica, items, reason })
    }

    fn runs_from(&mut self, id: BatchId, now: Time) {
        let hangs_at = now + self.rules.batch_timeout;
        if let Some(batch) = self.batches.get_mut(&id) {
            batch.hangs_at = Some(hangs_at);
            batch.runs_since = Some(now);
            self.hangs.insert((hangs_at, id));
        }
    }

    fn remove_batch(&mut self, id: BatchId) -> Option<Batch> {
        let batch = self.batches.remove(&id)?;
        batch.hangs_at.map(|at| self.hangs.remove(&(at, id)));
        batch.suspect.iter().for_each(|&item| self.quarantine.ended(item));
        Some(batch)
    }

    // ------------------------------------------------------------------------------------------ endings

    fn fail(&mut self, id: ItemId, outcome: Outcome) {
        let replica = self.replica_of(id);
        if let Some(ended) = self.end(id) {
            if let Some(replica) = replica {
                self.pending.push_back(Action::Forget(replica, id));
            }
            self.pending.push_back(Action::Fail(ended, outcome));
        }
    }

    /// The replica that holds an item's batch, to be told when nobody waits for the item any more.
    pub fn replica_of(&self, id: ItemId) -> Option<ReplicaId> {
        let Place::Batch(batch) = self.entries.get(&id)?.place else {
            return None;
        };
        self.batches.get(&batch).map(|batch| batch.replica)
    }

    /// The only way out: the item is removed from wherever it is.
    fn end(&mut self, id: ItemId) -> Option<Ended<P>> {
        let entry = self.entries.remove(&id)?;
        self.deadlines.remove(&(entry.deadline, id));
        match entry.place {
            Place::Lane(lane) => {
                self.lanes.remove(lane, entry.priority, entry.waiting);
                self.queued_bytes -= entry.bytes;
            }
            Place::Suspect => {
                self.quarantine.remove(id);
                self.queued_bytes -= entry.bytes;
            }
            // Its batch still lists it; whoever walks that list skips what is no longer known.
            Place::Batch(_) => {}
        }
        let batch = if let Place::Batch(id) = entry.place { self.batches.get(&id) } else { None };
        let launched = batch.and_then(|batch| batch.runs_since).or(entry.launched);
        let Entry { batch_size, payload, waiting, .. } = entry;
        Some(Ended { id, payload, arrival: waiting.arrival, launched, batch_size })
    }

    // ------------------------------------------------------------------------------------------ looking

    fn queue_state(&self, group: &GroupKey) -> QueueState<'_> {
        QueueState {
            items: self.queued_items(),
            bytes: self.queued_bytes,
            ahead: self.lanes.batches_ahead(group),
            is_empty: self.lanes.is_empty(),
            max_batch_size: self.rules.batch.max_items,
            replicas: (self.replicas.len() as u32).max(1),
            idle: self.replicas.idle().is_some(),
            is_overloaded: false,
            pace: &self.pace,
        }
    }

    /// An item that has not ended: its payload, and what is left of its time.
    pub fn look(&self, id: ItemId, now: Time) -> Option<(&P, Duration)> {
        self.entries.get(&id).map(|entry| (&entry.payload, entry.deadline - now))
    }

    /// Items that wait, suspects included.
    pub fn queued_items(&self) -> usize {
        self.lanes.items() + self.quarantine.len()
    }

    /// Bytes that wait.
    pub fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// Lanes that hold something.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Items that have not ended.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is in.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Replicas that are up.
    pub fn replicas(&self) -> usize {
        self.replicas.len()
    }

    /// How long a new item without a group key would wait, if that can be said.
    pub fn predicted_wait(&self) -> Option<Duration> {
        admission::predicted_wait(&self.queue_state(&GroupKey::default()))
    }
}
