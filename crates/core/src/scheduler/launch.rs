//! What leaves next: the policy is asked when, and who rides.

use super::{Action, Batch, Launch, Payload, Place, Scheduler};
use crate::explanation::Decided;
use crate::lanes::{Kin, LaneId};
use crate::load::Load;
use crate::policy::{BatchPolicy, CloseReason, Decision, MOST_PASSES, View};
use crate::request::{BatchId, ItemId, ReplicaId};
use crate::time::Time;
use rustc_hash::FxHashMap;
use std::time::Duration;

/// Names of groups that are remembered at once.
const MOST_NAMES: usize = 1024;

impl<P: Payload> Scheduler<P> {
    pub(super) fn launch(&mut self, now: Time) -> Option<Action<P>> {
        if !self.has_news && now < self.ask_again {
            return None; // A timer that was set for something else changes nothing.
        }
        self.ask_again = Time(u64::MAX);
        // Suspects and lanes take turns: there are suspects by the batch, and those who wait beside them have done nothing.
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

    pub(super) fn ask<R>(&mut self, now: Time, question: impl FnOnce(&mut dyn BatchPolicy, &View) -> R) -> R {
        let view = View {
            now,
            lanes: &self.lanes,
            idle: self.replicas.idle_count() as u32,
            replicas: self.replicas.len() as u32,
            passes: self.passes,
            pace: self.paces.all(),
            paces: &self.paces,
            traffic: &self.traffic,
            held: &self.replicas,
            ceilings: &self.ceilings,
            bulk: &self.bulk,
            has_target: self.rules.target.is_some(),
        };
        question(&mut *self.policy, &view)
    }

    fn launch_suspect(&mut self, now: Time, replica: ReplicaId) -> Option<Action<P>> {
        let id = self.quarantine.launch()?;
        self.is_lanes_turn = true;
        Some(self.dispatch(now, replica, None, vec![id], CloseReason::Suspect))
    }

    /// A full batch cannot get better by waiting, so it may wait at a busy worker, which can then decode it meanwhile.
    /// A partly filled one must not: who rides in it would be fixed too early, unless that makes no difference (`bulk`).
    /// Nor may anything go ahead while a suspect waits: under full load no replica would ever be free for it.
    fn launch_ahead(&mut self, now: Time) -> Option<Action<P>> {
        if self.quarantine.is_ready() {
            return None;
        }
        let replica = self.replicas.ready_for_ahead()?;
        let (lane, size) = self.ask(now, |policy, view| policy.ahead(view))?;
        // Not past older heads: a lane that is ahead of its turn here would starve them.
        if self.lanes.by_rank().next() != Some(lane) && self.passes >= MOST_PASSES {
            return None;
        }
        // With a target it must still be in time when its turn comes.
        let in_time =
            |view: &View| view.slack_s(lane) >= view.frees_in_s().unwrap_or(0.0) + view.pace_of(lane).upper(size);
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
        let kin = self.lanes.kin(lane);
        self.remember_name(kin, lane);
        // Whatever the policy asked for: more would not fit into the memory of the device.
        let size = size.min(self.ceilings.most(kin, self.rules.batch.max_items, now));
        let riders = self.ask(now, |policy, view| policy.riders(view, lane, size));
        let is_part = riders.as_ref().is_some_and(|riders| riders.len() < size.min(self.lanes.lane(lane).len()));
        let is_first =
            |riders: &[ItemId]| self.lanes.in_order(lane).take(riders.len()).all(|(_, item)| riders.contains(&item.id));
        let is_chosen = is_part || riders.as_deref().is_some_and(|riders| !is_first(riders));
        let reason = if is_chosen { CloseReason::Alike } else { reason };
        self.passes = if self.lanes.by_rank().next() == Some(lane) { 0 } else { self.passes + 1 };
        let items = match riders {
            Some(riders) => self.lanes.take_these(lane, &riders),
            None => self.lanes.take(lane, size),
        };
        self.policy.on_end();
        self.is_lanes_turn = false;
        self.dispatch(now, replica, Some(kin), items, reason)
    }

    fn remember_name(&mut self, kin: Kin, lane: LaneId) {
        if self.names.contains_key(&kin) {
            return;
        }
        if self.names.len() == MOST_NAMES {
            self.names.clear(); // Whoever still comes tells it again.
        }
        self.names.insert(kin, self.lanes.key(lane).to_string());
    }

    fn dispatch(
        &mut self,
        now: Time,
        replica: ReplicaId,
        kin: Option<Kin>,
        items: Vec<ItemId>,
        reason: CloseReason,
    ) -> Action<P> {
        let id = BatchId(self.next_batch);
        self.next_batch += 1;
        self.has_news = true;
        let (mut load, mut bytes) = (Load::default(), 0_u64);
        for item in &items {
            let entry = self.entries.get_mut(item).expect("what waits is known");
            entry.place = Place::Batch(id);
            entry.launched = Some(now);
            entry.batch_size = items.len() as u32;
            self.queued_bytes -= entry.bytes;
            bytes += entry.bytes;
            load = load.with(entry.waiting.cost);
        }
        let suspect = items.first().copied().filter(|_| reason == CloseReason::Suspect);
        let batch = Batch {
            replica,
            kin,
            items: items.clone(),
            left: FxHashMap::default(),
            size: items.len(),
            computed: load,
            bytes,
            started: false,
            hangs_at: None,
            runs_since: None,
            suspect,
        };
        self.batches.insert(id, batch);
        let curve = kin.map_or(self.paces.curve(), |kin| self.paces.curve_of(kin));
        let takes = Duration::from_secs_f64(curve.seconds(load));
        if self.replicas.launch(replica, id, takes, suspect.is_some(), now) {
            self.runs_from(id, now);
        }
        let held = self.held_since.take().map_or(Duration::ZERO, |since| now - since);
        self.decisions.add(Decided { at: now, items: items.len(), left: self.lanes.items(), held, reason });
        Action::Launch(Launch { batch: id, replica, items, load, reason, held })
    }
}
