//! The state machine of one deployment: events in, actions out. It owns every item from its admission to its answer.
//!
//! The engine tells it what happened and then calls `poll` until there is nothing left to do. The payload is opaque:
//! whoever finishes an item gets it back exactly once.

mod door;
mod launch;
mod losses;
mod shed;

use crate::auto::Auto;
use crate::bulk::Bulk;
use crate::ceilings::Ceilings;
use crate::curve::Curve;
use crate::explanation::{Decisions, Explanation, GroupSeen};
use crate::group_key::GroupKey;
use crate::lane::Waiting;
use crate::lanes::{Kin, LaneId, Lanes};
use crate::load::Load;
use crate::outcome::Outcome;
use crate::paces::Paces;
use crate::policy::{BatchPolicy, CloseReason, Fixed};
use crate::quarantine::{Quarantine, Record, Trace};
use crate::replica::Replicas;
use crate::request::{BatchId, ItemId, Priority, ReplicaId};
use crate::rules::{Rules, WhenToLaunch};
use crate::time::Time;
use crate::traffic::Traffic;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Most lanes that hold something at once.
const MAX_LANES: usize = 1024;
/// Groups that are shown at most.
const GROUPS_SHOWN: usize = 32;
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

/// A request that asks to enter, with all its items.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// The group of its first item.
    pub group: &'a GroupKey,
    /// Its class.
    pub priority: Priority,
    /// What its first item costs.
    pub cost: u64,
    /// The bytes of all.
    pub bytes: u64,
    /// From now; `None` is the deployment's own.
    pub timeout: Option<Duration>,
    /// These are the next items of a request that was let in: they enter while the server drains, and if there is no room,
    /// nobody was refused.
    pub continues: bool,
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
    /// How many they are and what they cost.
    pub load: Load,
    /// Why it was closed.
    pub reason: CloseReason,
    /// For how long a replica had been free beside it.
    pub held: Duration,
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
    record: Record,
    /// It waits as a suspect for what its like did, not for what it did itself.
    is_like: bool,
    payload: P,
}

impl<P: Payload> Entry<P> {
    fn trace(&self) -> Trace {
        Trace { fingerprint: self.payload.fingerprint(), bytes: self.bytes, record: self.record }
    }
}

#[derive(Debug)]
struct Batch {
    replica: ReplicaId,
    kin: Option<Kin>,
    items: Vec<ItemId>,
    /// Those of them that nobody waits for any more: if the worker is lost, they may be why.
    left: FxHashMap<ItemId, Trace>,
    size: usize,
    /// Those of them that `predict` was called with, as far as is known.
    computed: Load,
    /// Of all its inputs.
    bytes: u64,
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
    /// A suspect was the last to leave: lanes have their turn before the next one.
    is_lanes_turn: bool,
    paces: Paces,
    ceilings: Ceilings,
    bulk: Bulk,
    traffic: Traffic,
    /// Of each class.
    overloaded_until: [Time; 3],
    /// When the policy wants to be asked again; until then only if something has happened.
    ask_again: Time,
    has_news: bool,
    /// Since when the policy has kept a replica free beside what waits.
    held_since: Option<Time>,
    decisions: Decisions,
    /// Of groups, for people: what counts elsewhere is which are the same.
    names: FxHashMap<Kin, String>,
    pending: VecDeque<Action<P>>,
}

impl<P: Payload> Scheduler<P> {
    /// A deployment without replicas; its door is closed until it has one.
    pub fn new(rules: Rules) -> Scheduler<P> {
        Scheduler::with_policy(
            rules,
            match rules.launch {
                WhenToLaunch::Auto => Box::new(Auto::default()),
                WhenToLaunch::Fixed(delay) => Box::new(Fixed { delay }),
            },
        )
    }

    /// The same with a policy that no option names.
    pub fn with_policy(rules: Rules, policy: Box<dyn BatchPolicy>) -> Scheduler<P> {
        Scheduler {
            rules,
            door: Door::Closed(Outcome::Loading),
            policy,
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
            is_lanes_turn: false,
            paces: Paces::default(),
            ceilings: Ceilings::default(),
            bulk: Bulk::default(),
            traffic: Traffic::default(),
            overloaded_until: [Time(0); 3],
            ask_again: Time(u64::MAX),
            has_news: true,
            held_since: None,
            decisions: Decisions::default(),
            names: FxHashMap::default(),
            pending: VecDeque::new(),
        }
    }

    // ------------------------------------------------------------------------------------------ events

    /// The caller of an item went away; gives the payload back if the item was still here.
    pub fn cancel(&mut self, id: ItemId) -> Option<Ended<P>> {
        self.leaves(id);
        self.end(id)
    }

    /// A replica is loaded and free.
    pub fn replica_up(&mut self, now: Time, id: ReplicaId) {
        self.replicas.add(id, now);
        self.has_news = true;
        if self.door == Door::Closed(Outcome::Loading) || self.door == Door::Closed(Outcome::CrashLooping) {
            self.door = Door::Open;
        }
    }

    /// A replica ends when it has finished what it holds: it gets nothing more.
    pub fn retire(&mut self, id: ReplicaId) {
        self.replicas.condemn(id);
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
            Some(entry) if entry.place == Place::Batch(batch) => {
                self.acquit(id);
                self.end(id)
            }
            _ => None,
        }
    }

    /// A worker is done with a batch. Items that it left without a result are failed.
    /// `is_clean` says that its duration teaches something: it neither raised nor was split.
    pub fn batch_done(&mut self, now: Time, replica: ReplicaId, id: BatchId, is_clean: bool) {
        let Some((since, next)) = self.replicas.finish(replica, id, now) else {
            return;
        };
        self.has_news = true;
        if let Some(batch) = self.remove_batch(id) {
            for item in batch.items {
                self.fail(item, Outcome::Internal);
            }
            if let Some(kin) = batch.kin {
                if let Some(since) = since.filter(|_| is_clean) {
                    self.paces.learn(kin, batch.computed, now - since);
                }
                if is_clean {
                    self.ceilings.fitted(kin, batch.computed.items, self.rules.batch.max_items);
                }
                self.traffic.answered(now, kin, batch.size, self.paces.all());
            }
        }
        if let Some(next) = next {
            self.runs_from(next, now);
        }
    }

    /// So many items of a batch that ends were computed: the others were refused by the worker, or nobody waited for them any
    /// more. Only they say what a batch of their number takes.
    pub fn computed(&mut self, id: BatchId, items: usize) {
        if let Some(batch) = self.batches.get_mut(&id).filter(|batch| items < batch.size) {
            // Which ones is not known: as if each had cost the same.
            let cost = batch.computed.cost / batch.size.max(1) as u64 * items as u64;
            batch.computed = Load { items, cost, largest: batch.computed.largest };
        }
    }

    /// The answers of a batch that ends have so many bytes, and took so long to compute once its inputs were there.
    pub fn moved(&mut self, id: BatchId, answers: u64, computing: Duration) {
        // Who says when batches leave is not overruled.
        if let Some(batch) = self.batches.get(&id).filter(|_| self.rules.launch == WhenToLaunch::Auto)
            && let Some(kin) = batch.kin
        {
            self.bulk.learn(kin, batch.size, batch.bytes.saturating_add(answers), computing);
        }
    }

    /// A batch that runs was too large for the memory of its device. Returns how many items of its group are taken to fit.
    pub fn too_large(&mut self, now: Time, id: BatchId) -> Option<usize> {
        let batch = self.batches.get(&id)?;
        Some(self.ceilings.too_large(batch.kin?, batch.size, now))
    }

    /// Batches took so long when they were tried before serving. What was measured while serving says more: then, and when
    /// another replica has told already, this is passed over.
    pub fn profiled(&mut self, batches: impl IntoIterator<Item = (Load, Duration)>) {
        if self.paces.all().count() == 0 {
            batches.into_iter().for_each(|(load, length)| self.paces.profiled(load, length));
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
        self.leaves(id);
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

    /// Whether a batch runs that could be a hang.
    pub fn is_watching(&self) -> bool {
        !self.hangs.is_empty()
    }

    /// This process did not run for so long, and perhaps the workers neither: no batch is taken for a hang because of it.
    pub fn excuse(&mut self, away: Duration) {
        for (at, id) in std::mem::take(&mut self.hangs) {
            let at = at + away;
            self.hangs.insert((at, id));
            if let Some(batch) = self.batches.get_mut(&id) {
                batch.hangs_at = Some(at);
            }
        }
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
        self.has_news = true;
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

    /// What it has learned, and what it did lately and why.
    pub fn explain(&mut self, now: Time) -> Explanation {
        let cost = self.usual_cost();
        let latency = self.forecast(now, &GroupKey::default(), Priority::Normal, cost).map(|forecast| forecast.latency);
        Explanation::new(now, self.paces.curve(), &self.traffic, &self.decisions, latency, self.groups_seen(now))
    }

    fn groups_seen(&self, now: Time) -> Vec<GroupSeen> {
        let limits = self.ceilings.groups().chain(self.bulk.groups());
        let known: BTreeSet<Kin> = self.paces.groups().chain(limits).collect();
        let mut known: Vec<Kin> = known.into_iter().filter(|kin| self.names.contains_key(kin)).collect();
        known.sort_by_key(|&kin| Reverse(self.paces.own(kin).map_or(0, |(_, batches)| batches)));
        let enough = |kin| self.bulk.enough(kin).filter(|&enough| enough < self.rules.batch.max_items);
        let seen = |kin| {
            let (name, own) = (self.names[&kin].clone(), self.paces.own(kin));
            GroupSeen::new(now, name, own, self.ceilings.of(kin), enough(kin))
        };
        known.into_iter().take(GROUPS_SHOWN).map(seen).collect()
    }

    /// What batches take.
    pub fn curve(&self) -> &Curve {
        self.paces.curve()
    }

    /// How requests arrive.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
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
}
