//! What is held of each action of the scheduler: launches and their order, failures and kills; and of the state in which
//! it rests, which is recounted.

use super::{Batch, End, Input, Item, Place, Promise, World, key};
use jitney_core::config::rules::PolicyChoice;
use jitney_core::policy::batch_policy::CloseReason;
use jitney_core::queue::waiting::rank;
use jitney_core::request::{BatchId, ItemId, Priority, ReplicaId};
use jitney_core::scheduler::action::{Action, Launch};
use jitney_core::scheduler::item::EndedItem;
use jitney_core::tables::outcome::Outcome;
use jitney_core::time::Time;
use std::collections::BTreeMap;
use std::time::Duration;

impl World {
    pub(super) fn act(&mut self, action: Action<Input>) {
        self.log.push(format!("{} {action:?}", self.now.0));
        if let Action::Forget(replica, id) = action {
            return self.forgotten.push((replica, id));
        }
        let mut forgotten = std::mem::take(&mut self.forgotten);
        forgotten.sort_unstable();
        match action {
            Action::Launch(launch) => self.launched(&launch),
            Action::Fail(ended, outcome) => self.failed(&ended, outcome, &forgotten),
            Action::Forget(..) | Action::Slow(..) => {}
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
        self.foresee_hung(id);
    }

    /// The last item of a batch that hangs runs nowhere again.
    fn foresee_hung(&mut self, id: ReplicaId) {
        let Some(&running) = self.replicas.get(&id).and_then(|replica| replica.batches.first()) else { return };
        let batch = &self.batches[&running];
        let is_live = |item: &ItemId| self.items.get(item).is_some_and(|item| item.holders().contains(&running));
        let live: Vec<ItemId> = batch.items.iter().copied().filter(is_live).collect();
        if let [hung] = live[..]
            && batch.left.is_empty()
            && self.items[&hung].copies.is_empty()
        {
            self.foreseen.insert(hung, Outcome::WorkerLost);
            self.leaves(hung);
        }
    }

    fn failed(&mut self, ended: &EndedItem<Input>, outcome: Outcome, forgotten: &[(ReplicaId, ItemId)]) {
        let id = ended.id;
        let Some(item) = self.items.get(&id).cloned() else {
            return self.hold(Promise::EndsOnce, false, || format!("{id:?} failed, but it was not in"));
        };
        if let Some(expected) = self.foreseen.remove(&id) {
            self.hold(Promise::Suspects, outcome == expected, || format!("{id:?}: {outcome:?}, not {expected:?}"));
        } else {
            let is_due = outcome == Outcome::DeadlineExceeded && item.deadline == self.now;
            self.hold(Promise::NobodyWaits, is_due, || format!("{outcome:?} at the wrong time: {item:?}"));
            let mut held: Vec<_> = item.holders().iter().map(|batch| (self.batches[batch].replica, id)).collect();
            held.sort_unstable();
            // Others may have dropped an item that was answered just before.
            let mine: Vec<_> = forgotten.iter().copied().filter(|&(_, other)| other == id).collect();
            self.hold(Promise::NobodyWaits, held == mine, || format!("{held:?} was reported {forgotten:?}"));
        }
        self.leaves(id);
        self.end(ended, End::Failed(outcome));
    }

    pub(super) fn end(&mut self, ended: &EndedItem<Input>, how: End) {
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
            self.hold(Promise::NobodyWaits, live, || format!("no request waits for {id:?} of {launch:?}"));
        }
        let unique: std::collections::BTreeSet<_> = launch.items.iter().collect();
        self.hold(Promise::EndsOnce, unique.len() == launch.items.len(), || format!("twice in {launch:?}"));
        let alone = launch.reason == CloseReason::Suspect;
        let held = self
            .replicas
            .get(&launch.replica)
            .filter(|replica| !replica.condemned && !replica.doubtful)
            .map(|r| r.batches.clone());
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
        // Items of like length may pass others, within the bounds that `similar_length` keeps, but leave none of theirs behind.
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
            || Some(launch.items.len()) == self.enough(group)
            || cost >= u128::from(limits.max_cost)
            || next.is_some_and(|next| cost + next > u128::from(limits.max_cost));
        let is_part =
            is_chosen || (self.learns() && matches!(launch.reason, CloseReason::Share | CloseReason::Deadline));
        let takes_all = is_closed || next.is_none() || is_part;
        self.hold(Promise::Batches, takes_all, || format!("{launch:?} left {next:?} behind"));
        let is_idle = held.is_empty();
        if !is_idle {
            let beside_suspect = held.iter().any(|batch| self.batches[batch].alone);
            self.hold(Promise::Suspects, !beside_suspect, || format!("{launch:?} joins a suspect"));
            let suspects = self.items.values().any(|item| item.place == Place::Suspect);
            let starves = suspects && !self.batches.values().any(|batch| batch.alone);
            self.hold(Promise::Suspects, !starves, || format!("{launch:?} goes ahead of a suspect that could run"));
            let may = is_closed && held.len() == 1 && !self.has_idle();
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

    /// How many items of a group are a full batch because of their bytes. That they are is for `bulk` to say; here it is held
    /// that no other part makes anything else of it.
    fn enough(&mut self, group: u8) -> Option<usize> {
        let name = key(group).to_string();
        self.scheduler.explain(self.now).groups.into_iter().find(|seen| seen.group == name)?.enough_items
    }

    // ------------------------------------------------------------------------------------------ recounting

    /// Items and bytes that wait.
    pub(super) fn waiting(&self) -> (usize, u64) {
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
        self.rules.policy == PolicyChoice::Auto
    }

    /// Whether a lane may leave now: it is full, or the oldest item in it has been held for as long as it may.
    fn is_ready(&self, lane: &[(Time, Time, ItemId)]) -> bool {
        let delay = match self.rules.policy {
            PolicyChoice::Fixed(delay) => delay,
            PolicyChoice::Auto | PolicyChoice::Eager => Duration::ZERO,
        };
        let oldest = lane.iter().map(|&(_, arrival, _)| arrival).min();
        self.is_full(lane) || oldest.is_some_and(|oldest| self.now >= oldest + delay)
    }

    /// Whether a lane must leave now if a replica is free.
    fn must_leave(&self, lane: &[(Time, Time, ItemId)]) -> bool {
        if self.learns() { self.is_full(lane) } else { self.is_ready(lane) }
    }

    fn has_idle(&self) -> bool {
        self.replicas.values().any(|replica| !replica.condemned && !replica.doubtful && replica.batches.is_empty())
    }

    /// Whether all that waits is left to a busy replica that is faster than the idle ones. It is decided again in time.
    fn is_left_to_busy(&mut self) -> bool {
        let Some(until) = self.scheduler.left_to_busy_until(self.now) else { return false };
        let is_one_busy = self.replicas.values().any(|one| !one.condemned && !one.doubtful && !one.batches.is_empty());
        let wakes = self.scheduler.next_wake().is_some_and(|at| at <= until);
        self.hold(Promise::Conserving, is_one_busy && until > self.now && wakes, || {
            format!("left to none until {until:?}")
        });
        true
    }

    /// What must be true whenever there is nothing left to do.
    pub(super) fn check_rest(&mut self) {
        let (items, bytes) = self.waiting();
        let lanes = self.lanes();
        let up = self.replicas.values().filter(|replica| !replica.condemned && !replica.doubtful).count();
        let s = &self.scheduler;
        let counted = (s.queued_items(), s.queued_bytes(), s.lanes(), s.len(), s.is_empty(), s.replicas());
        let recounted = (items, bytes, lanes.len(), self.items.len(), self.items.is_empty(), up);
        self.hold(Promise::Bounds, counted == recounted, || format!("counted {counted:?}, there are {recounted:?}"));

        let foreseen = std::mem::take(&mut self.foreseen);
        self.hold(Promise::EndsOnce, foreseen.is_empty(), || format!("never failed: {foreseen:?}"));
        self.check_copies();
        let overdue: Vec<_> = self.items.iter().filter(|(_, item)| item.deadline <= self.now).collect();
        let overdue = (!overdue.is_empty()).then(|| format!("overdue: {overdue:?}"));
        self.hold(Promise::NobodyWaits, overdue.is_none(), || overdue.unwrap_or_default());

        let wake = self.scheduler.next_wake();
        self.hold(Promise::Wakes, wake.is_none_or(|at| at > self.now), || format!("wakes at {wake:?} for nothing"));

        if self.has_idle() && !self.is_left_to_busy() {
            let ready: Vec<_> = lanes.values().filter(|lane| self.must_leave(lane)).collect();
            let ready = (!ready.is_empty()).then(|| format!("a replica is free and {ready:?} are ready"));
            self.hold(Promise::Conserving, ready.is_none(), || ready.unwrap_or_default());
        }
        if self.has_idle() {
            let suspects = self.items.values().filter(|item| item.place == Place::Suspect).count();
            let runs = self.batches.values().any(|batch| batch.alone);
            self.hold(Promise::Conserving, suspects == 0 || runs, || format!("{suspects} suspects wait for nothing"));
        }
    }
}
