//! Which batch leaves next. The policy says when a batch leaves and which items it takes.

mod joining;

use crate::learn::batch_cost::BatchCost;
use crate::policy::batch_policy::{CloseReason, Decision, MOST_PASSES, View};
use crate::policy::decisions::LaunchDecision;
use crate::queue::lanes::LaneId;
use crate::replicas::batch::Batch;
use crate::request::{BatchId, GroupId, ItemId, ReplicaId};
use crate::scheduler::action::{Action, Launch};
use crate::scheduler::admission::hopeless::hopeless_head;
use crate::scheduler::item::{Payload, Stage};
use crate::scheduler::state::Scheduler;
use crate::tables::outcome::Outcome;
use crate::time::Time;
use std::time::Duration;

impl<P: Payload> Scheduler<P> {
    pub(super) fn launch(&mut self, now: Time) -> Option<Action<P>> {
        if self.rules.joins {
            return self.join(now);
        }
        if !self.has_news && now < self.ask_again {
            return None; // A timer that was set for something else rang.
        }
        self.ask_again = Time(u64::MAX);
        // Suspects and lanes take turns: a lost batch leaves many suspects, and other items must not wait for all of them.
        if (!self.is_lanes_turn || self.lanes.is_empty())
            && self.quarantine.is_ready()
            && let Some(replica) = self.replicas.idle()
        {
            return self.launch_suspect(now, replica);
        }
        if self.lanes.is_empty() {
            if self.held_since.take().is_some() {
                self.policy.on_end();
            }
            return None;
        }
        let Some(replica) = self.replicas.idle() else {
            return self.launch_ahead(now);
        };
        self.shed(now);
        if let Some(refused) = self.pending.pop_front() {
            return Some(refused);
        }
        match self.ask(now, |policy, view| policy.decide(view)) {
            Decision::Launch { lane, size, reason } => Some(self.launch_lane(now, replica, lane, size, reason)),
            Decision::AskAgain(_) if self.quarantine.is_ready() => self.launch_suspect(now, replica),
            Decision::AskAgain(at) => {
                (self.ask_again, self.has_news) = (at, false);
                self.held_since.get_or_insert(now);
                None
            }
        }
    }

    fn launch_suspect(&mut self, now: Time, replica: ReplicaId) -> Option<Action<P>> {
        let id = self.quarantine.launch()?;
        self.is_lanes_turn = true;
        Some(self.dispatch(now, replica, None, vec![id], CloseReason::Suspect))
    }

    /// Sends a full batch to a busy replica, which decodes it meanwhile. A full batch gets no better by waiting. One that is not
    /// full stays here, because more items may join it, except where the transfer of its bytes is what limits the replica.
    /// While a suspect waits no batch goes ahead: under full load no replica would ever be idle for the suspect.
    fn launch_ahead(&mut self, now: Time) -> Option<Action<P>> {
        if self.quarantine.is_ready() {
            return None;
        }
        let replica = self.replicas.ready_for_ahead()?;
        let (lane, size) = self.ask(now, |policy, view| policy.ahead(view))?;
        // A lane that goes ahead of its turn again and again would starve the lanes with older heads.
        if self.lanes.by_rank().next() != Some(lane) && self.passes >= MOST_PASSES {
            return None;
        }
        // With a latency target the batch must still be in time when its turn comes.
        let in_time =
            |view: &View| view.slack_s(lane) >= view.frees_in_s().unwrap_or(0.0) + view.size_model_of(lane).upper(size);
        if self.rules.target.is_some() && !self.ask(now, |_, view| in_time(view)) {
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
        let group = self.lanes.group(lane);
        // More would not fit into the memory of the device, whatever the policy asked for.
        let size = size.min(self.memory_limits.most(group, self.rules.batch.max_items, now));
        let choice = self.ask(now, |policy, view| policy.choose_items(view, lane, size));
        let is_part = choice.as_ref().is_some_and(|choice| choice.len() < size.min(self.lanes.lane(lane).len()));
        let is_first =
            |choice: &[ItemId]| self.lanes.in_order(lane).take(choice.len()).all(|item| choice.contains(&item.id));
        let is_chosen = is_part || choice.as_deref().is_some_and(|choice| !is_first(choice));
        let reason = if is_chosen { CloseReason::Alike } else { reason };
        self.passes = if self.lanes.by_rank().next() == Some(lane) { 0 } else { self.passes + 1 };
        let items = match choice {
            Some(choice) => self.lanes.take_these(lane, &choice),
            None => self.lanes.take(lane, size),
        };
        self.policy.on_end();
        self.is_lanes_turn = false;
        self.dispatch(now, replica, Some(group), items, reason)
    }

    fn dispatch(
        &mut self,
        now: Time,
        replica: ReplicaId,
        group: Option<GroupId>,
        items: Vec<ItemId>,
        reason: CloseReason,
    ) -> Action<P> {
        let id = BatchId(self.next_batch);
        self.next_batch += 1;
        self.has_news = true;
        let (mut load, mut bytes, mut copies) = (BatchCost::default(), 0_u64, 0);
        // In an open set an item is computed with all that are there.
        let size = if self.rules.joins { self.open_sets.items(replica) } else { items.len() };
        let mut costs = Vec::with_capacity(items.len());
        for item in &items {
            let entry = self.entries.get_mut(item).expect("what waits is known");
            entry.stage = Stage::Batch(id);
            entry.launched = Some(now);
            entry.batch_size = size as u32;
            self.queued_bytes -= entry.bytes;
            bytes += entry.bytes;
            load = load.with(entry.waiting.cost);
            copies += usize::from(!entry.copies.is_empty());
            costs.push((*item, entry.waiting.cost));
        }
        let class = self.replicas.class(replica).unwrap_or_default();
        let group_models = self.models.of(Some(class));
        let cost_model = group.map_or(group_models.cost_model(), |group| group_models.cost_model_of(group));
        let takes = Duration::from_secs_f64(cost_model.seconds(load));
        let suspect = items.first().copied().filter(|_| reason == CloseReason::Suspect);
        let batch = Batch {
            id,
            replica,
            class,
            group,
            size: items.len(),
            left: items.len(),
            computed: load,
            bytes,
            hangs_at: None,
            progressed: None,
            runs_since: None,
            was_doubtful: false,
            suspect,
        };
        self.batches.insert(id, batch);
        let runs = if self.rules.joins {
            self.replicas.join(replica, id, costs);
            true
        } else {
            self.replicas.launch(replica, id, costs, takes, suspect.is_some(), now)
        };
        if runs {
            self.run_batch(id, now);
        }
        let held = self.held_since.take().map_or(Duration::ZERO, |since| now - since);
        self.decisions.add(LaunchDecision { at: now, items: items.len(), left: self.lanes.items(), held, reason });
        Action::Launch(Launch { batch: id, replica, items, load, reason, copies, held })
    }

    /// Refuses waiting items that cannot be answered in time, in the lanes that may be launched next.
    fn shed(&mut self, now: Time) {
        if self.rules.target.is_none() || !self.group_models().all().is_known() {
            return;
        }
        // A single item is computed in any case: nothing waits behind it, and what it takes is worth knowing.
        while self.len() > 1
            && let Some(lane) = self.ask(now, |_, view| hopeless_head(view))
        {
            let head = self.lanes.head(lane);
            let is_own_deadline = self.entries[&head.id].deadline <= head.due;
            self.fail(head.id, if is_own_deadline { Outcome::DeadlineUnreachable } else { Outcome::WouldBeLate });
        }
    }
}
