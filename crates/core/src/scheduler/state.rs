//! The state of one deployment's scheduler, what it answers about itself, and the only way out for an item.

use crate::config::rules::Rules;
use crate::learn::class_models::ClassModels;
use crate::learn::cost_model::CostModel;
use crate::learn::group_models::GroupModels;
use crate::learn::memory_limits::MemoryLimits;
use crate::learn::traffic::Traffic;
use crate::learn::transfer_limit::TransferLimits;
use crate::policy::batch_policy::{BatchPolicy, View};
use crate::policy::choice::chosen;
use crate::policy::decisions::Decisions;
use crate::queue::lanes::Lanes;
use crate::replicas::batch::Batch;
use crate::replicas::open_sets::OpenSets;
use crate::replicas::paces::replica_pace::{Pace, ReplicaPaces};
use crate::replicas::pauses::Pauses;
use crate::replicas::quarantine::Quarantine;
use crate::replicas::replicas::Replicas;
use crate::request::{BatchId, ItemId, ReplicaId};
use crate::scheduler::action::Action;
use crate::scheduler::item::{EndedItem, Entry, Payload, Stage};
use crate::tables::outcome::Outcome;
use crate::time::Time;
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Most lanes that hold something at once.
const MAX_LANES: usize = 1024;

/// Whether there are replicas for admitted items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Availability {
    /// No replica was ready yet.
    Loading,
    /// A replica was ready.
    Ready,
    /// The workers keep dying.
    CrashLooping,
}

/// One deployment's lanes, replicas and batches.
#[derive(Debug)]
pub struct Scheduler<P: Payload> {
    pub(super) rules: Rules,
    pub(super) availability: Availability,
    /// The server ends: nothing new is admitted, for good.
    pub(super) is_draining: bool,
    pub(super) policy: Box<dyn BatchPolicy>,
    pub(super) lanes: Lanes,
    /// Launches in a row that passed the lane whose head has the smallest rank.
    pub(super) passes: u32,
    pub(super) entries: FxHashMap<ItemId, Entry<P>>,
    pub(super) queued_bytes: u64,
    pub(super) deadlines: BTreeSet<(Time, ItemId)>,
    pub(super) replicas: Replicas<P::Input>,
    /// How fast each replica is, and how far away.
    pub(super) paces: ReplicaPaces,
    /// What replicas hold whose items join and leave one by one; empty for all other deployments.
    pub(super) open_sets: OpenSets,
    /// Items whose clients do not read.
    pub(super) pauses: Pauses,
    pub(super) batches: FxHashMap<BatchId, Batch>,
    /// When each running batch is taken for a hang.
    pub(super) hangs: BTreeSet<(Time, BatchId)>,
    pub(super) next_batch: u64,
    pub(super) quarantine: Quarantine,
    /// Items of lost replicas that waited again.
    pub(super) put_back: u64,
    /// The last batch was a suspect: lanes have their turn before the next suspect.
    pub(super) is_lanes_turn: bool,
    pub(super) models: ClassModels,
    pub(super) memory_limits: MemoryLimits,
    pub(super) transfer_limits: TransferLimits,
    pub(super) traffic: Traffic,
    /// Until when each priority class counts as overloaded.
    pub(super) overloaded_until: [Time; 3],
    /// When the policy wants to be asked again; until then it is asked only if something has happened.
    pub(super) ask_again: Time,
    pub(super) has_news: bool,
    /// Since when the policy has kept a replica idle next to waiting items.
    pub(super) held_since: Option<Time>,
    pub(super) decisions: Decisions,
    /// Actions that are due already.
    pub(super) pending: VecDeque<Action<P>>,
}

impl<P: Payload> Scheduler<P> {
    /// A deployment without replicas; it admits nothing until it has one.
    pub fn new(rules: Rules) -> Scheduler<P> {
        Scheduler::with_policy(rules, chosen(rules.policy))
    }

    /// A deployment without replicas whose policy no option names.
    pub fn with_policy(rules: Rules, policy: Box<dyn BatchPolicy>) -> Scheduler<P> {
        Scheduler {
            rules,
            availability: Availability::Loading,
            is_draining: false,
            policy,
            lanes: Lanes::new(rules.batch, MAX_LANES),
            passes: 0,
            entries: FxHashMap::default(),
            queued_bytes: 0,
            deadlines: BTreeSet::new(),
            replicas: Replicas::default(),
            paces: ReplicaPaces::default(),
            open_sets: OpenSets::default(),
            pauses: Pauses::default(),
            batches: FxHashMap::default(),
            hangs: BTreeSet::new(),
            next_batch: 1,
            quarantine: Quarantine::default(),
            put_back: 0,
            is_lanes_turn: false,
            models: ClassModels::default(),
            memory_limits: MemoryLimits::default(),
            transfer_limits: TransferLimits::default(),
            traffic: Traffic::default(),
            overloaded_until: [Time(0); 3],
            ask_again: Time(u64::MAX),
            has_news: true,
            held_since: None,
            decisions: Decisions::default(),
            pending: VecDeque::new(),
        }
    }

    // ------------------------------------------------------------------------------------------ questions

    /// What batches take on the replicas that get the next batch.
    pub fn cost_model(&self) -> &CostModel {
        self.group_models().cost_model()
    }

    /// How requests arrive.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// The payload of an item that has not ended, and the time until its deadline.
    pub fn payload(&self, id: ItemId, now: Time) -> Option<(&P, Duration)> {
        self.entries.get(&id).map(|entry| (&entry.payload, entry.deadline - now))
    }

    /// The replica that has an item.
    pub fn replica_of(&self, id: ItemId) -> Option<ReplicaId> {
        match self.entries.get(&id)?.stage {
            Stage::Batch(batch) => self.batches.get(&batch).map(|batch| batch.replica),
            Stage::Lane(_) | Stage::Suspect => None,
        }
    }

    /// For how long an item that a replica has waited before, and how many items were in its batch at its launch.
    pub fn launch_of(&self, id: ItemId) -> Option<(Duration, u32)> {
        let entry = self.entries.get(&id)?;
        let Stage::Batch(batch) = entry.stage else { return None };
        let launched = self.batches.get(&batch).and_then(|batch| batch.runs_since).or(entry.launched)?;
        Some((launched - entry.waiting.arrival, entry.batch_size))
    }

    /// Items that wait, suspects included.
    pub fn queued_items(&self) -> usize {
        self.lanes.items() + self.quarantine.len()
    }

    /// Bytes of the items that wait.
    pub fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// How many items of lost replicas have waited again so far.
    pub fn items_put_back(&self) -> u64 {
        self.put_back
    }

    /// When the oldest item that waits in a lane arrived.
    pub fn oldest_waiting(&self) -> Option<Time> {
        self.lanes.oldest()
    }

    /// Lanes that hold something.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Items that have not ended.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Items that have joined a replica and not ended there; 0 where items run in batches.
    pub fn active_items(&self) -> usize {
        self.open_sets.load().0
    }

    /// Whether every item has ended.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Replicas that work now: they are up and may get batches.
    pub fn replicas(&self) -> usize {
        self.replicas.len()
    }

    // ------------------------------------------------------------------------------------------ for the other files

    pub(super) fn group_models(&self) -> &GroupModels {
        self.models.of(self.replicas.next_class())
    }

    /// The mean cost of the items that wait, in cost units; 1 while none waits.
    pub(super) fn usual_cost(&self) -> u64 {
        self.lanes.cost().checked_div(self.lanes.items() as u128).map_or(1, |cost| cost.min(u64::MAX.into()) as u64)
    }

    /// Asks the policy about what there is now.
    pub(super) fn ask<R>(&mut self, now: Time, question: impl FnOnce(&mut dyn BatchPolicy, &View) -> R) -> R {
        self.ask_with(now, self.replicas.next(), self.replicas.idle_count() as u32, question)
    }

    /// Asks the policy about a batch for this replica, which is idle or will be when the batch is there.
    pub(super) fn ask_for<R>(
        &mut self,
        now: Time,
        replica: ReplicaId,
        question: impl FnOnce(&mut dyn BatchPolicy, &View) -> R,
    ) -> R {
        self.ask_with(now, Some(replica), (self.replicas.idle_count() as u32).max(1), question)
    }

    fn ask_with<R>(
        &mut self,
        now: Time,
        replica: Option<ReplicaId>,
        idle: u32,
        question: impl FnOnce(&mut dyn BatchPolicy, &View) -> R,
    ) -> R {
        let (class, pace) = replica.map_or((None, Pace::USUAL), |id| self.replicas.kind(id));
        let group_models = self.models.of(class);
        let view = View {
            now,
            lanes: &self.lanes,
            idle,
            idle_worth: self.idle_worth(pace, group_models.all()),
            factor: pace.factor,
            replicas: self.replicas.len() as u32,
            power: self.replicas.power(),
            passes: self.passes,
            size_model: group_models.all(),
            group_models,
            traffic: &self.traffic,
            frees_at: self.replicas.next_free(),
            memory_limits: &self.memory_limits,
            transfer_limits: &self.transfer_limits,
            has_target: self.rules.target.is_some(),
        };
        question(&mut *self.policy, &view)
    }

    /// A batch runs from now on.
    pub(super) fn run_batch(&mut self, id: BatchId, now: Time) {
        let hangs_at = now + self.rules.batch_timeout;
        if let Some(batch) = self.batches.get_mut(&id) {
            batch.hangs_at = Some(hangs_at);
            batch.runs_since = Some(now);
            self.hangs.insert((hangs_at, id));
        }
    }

    pub(super) fn remove_batch(&mut self, id: BatchId) -> Option<Batch> {
        let batch = self.batches.remove(&id)?;
        if let Some(at) = batch.hangs_at {
            self.hangs.remove(&(at, id));
        }
        if let Some(item) = batch.suspect {
            self.quarantine.trial_ended(item);
        }
        Some(batch)
    }

    // ------------------------------------------------------------------------------------------ the way out

    /// Ends an item without a result.
    pub(super) fn fail(&mut self, id: ItemId, outcome: Outcome) {
        let replica = self.replica_of(id);
        if let Some(ended) = self.end(id) {
            if let Some(replica) = replica {
                self.pending.push_back(Action::Forget(replica, id));
            }
            self.pending.push_back(Action::Fail(ended, outcome));
        }
    }

    /// The only way out: the item is removed from wherever it waits. A replica that has it goes on holding it.
    pub(super) fn end(&mut self, id: ItemId) -> Option<EndedItem<P>> {
        self.drop_copies(id);
        self.stop_waiting(id);
        let entry = self.entries.remove(&id)?;
        self.has_news = true;
        self.deadlines.remove(&(entry.deadline, id));
        self.pauses.remove(id);
        let runs_since = match entry.stage {
            Stage::Batch(batch) => self.batches.get(&batch).and_then(|batch| batch.runs_since),
            Stage::Lane(_) | Stage::Suspect => None,
        };
        let launched = runs_since.or(entry.launched);
        let Entry { batch_size, payload, waiting, .. } = entry;
        Some(EndedItem { id, payload, arrival: waiting.arrival, launched, batch_size, hung_alone: false })
    }

    /// Takes an item out of its lane, or from the suspects. The caller puts it elsewhere.
    pub(super) fn stop_waiting(&mut self, id: ItemId) {
        let Some(entry) = self.entries.get(&id) else { return };
        match entry.stage {
            Stage::Lane(lane) => self.lanes.remove(lane, entry.waiting),
            Stage::Suspect => self.quarantine.remove(id),
            Stage::Batch(_) => return,
        }
        self.queued_bytes -= entry.bytes;
    }

    /// No client waits for an item any more. A worker that has it keeps its input in mind: if the worker is lost, the item may be
    /// why. The input is shared and not read, since most workers live on.
    pub(super) fn depart(&mut self, id: ItemId) {
        let Some(entry) = self.entries.get(&id) else { return };
        let Stage::Batch(batch) = entry.stage else { return };
        if let Some(batch) = self.batches.get(&batch)
            && let Some(items) = self.replicas.items(batch.replica)
        {
            items.depart(id, entry.departed());
        }
    }
}
