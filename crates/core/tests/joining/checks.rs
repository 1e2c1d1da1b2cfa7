//! What the scheduler does, checked against the naive reference.

use crate::world::{Batch, Held, Input, Item, Place, Replica, World};
use jitney_core::policy::batch_policy::CloseReason;
use jitney_core::request::{ItemId, ReplicaId};
use jitney_core::scheduler::action::{Action, Launch};
use jitney_core::tables::outcome::Outcome;
use jitney_core::time::Time;
use std::collections::BTreeSet;

impl World {
    /// Does what is due, and checks that nothing is left to do.
    pub(crate) fn settle(&mut self) {
        let now = self.now;
        for replica in self.replicas.values_mut() {
            replica.pauses_until = replica.pauses_until.filter(|&until| until > now);
        }
        let mut joined = Vec::new();
        for _ in 0..10_000 {
            let Some(action) = self.scheduler.poll(self.now) else { break };
            joined.extend(self.act(action));
        }
        self.check_order(&joined);
        self.check_rest();
    }

    /// Carries out an action. Returns the ranks of the items that join.
    pub(crate) fn act(&mut self, action: Action<Input>) -> Vec<Time> {
        self.log.push(format!("{action:?}"));
        match action {
            Action::Launch(launch) => return self.launched(&launch),
            Action::Fail(ended, outcome) => {
                let item = self.items.get(&ended.id).cloned();
                let is_due = item.as_ref().is_some_and(|item| item.deadline <= self.now);
                let foreseen = self.foreseen.remove(&ended.id);
                let was_patient = self.paused.get(&ended.id).is_some_and(|end| end.is_some_and(|end| end <= self.now));
                let is_right = foreseen == Some(outcome)
                    || outcome == Outcome::DeadlineExceeded && is_due
                    || outcome == Outcome::TooSlow && was_patient;
                self.hold(is_right, || format!("{item:?} failed with {outcome:?}, not {foreseen:?}"));
                self.end(&ended, Some(outcome));
            }
            Action::Forget(..) | Action::Slow(..) => {}
            Action::Kill(id) => {
                let sign = self.oldest_sign(id);
                let is_hang = sign.is_some_and(|sign| sign + self.rules.batch_timeout <= self.now);
                self.hold(is_hang, || format!("{id:?} was killed after its last sign at {sign:?}"));
                let replica = self.replicas.get_mut(&id).expect("it is up");
                let is_first = !replica.is_killed;
                (replica.is_killed, replica.is_condemned) = (true, true);
                if let [hung] = &replica.held[..]
                    && self.items.contains_key(&hung.id)
                {
                    // It runs nowhere again.
                    self.foreseen.insert(hung.id, Outcome::WorkerLost);
                }
                self.hold(is_first, || format!("{id:?} was killed twice"));
            }
        }
        Vec::new()
    }

    /// The oldest last sign of life of the batches of a replica.
    fn oldest_sign(&self, id: ReplicaId) -> Option<Time> {
        let reported = self.replicas.get(&id)?.reported;
        let signs = self.batches.values().filter(|batch| batch.replica == id).map(|batch| batch.sign.max(reported));
        signs.min()
    }

    fn launched(&mut self, launch: &Launch) -> Vec<Time> {
        let is_trial = launch.reason == CloseReason::Suspect;
        let place = if is_trial { Place::Suspect } else { Place::Waiting };
        let items: Vec<Item> = launch.items.iter().filter_map(|id| self.items.get(id).cloned()).collect();
        let are_known = items.len() == launch.items.len() && items.iter().all(|item| item.place == place);
        self.hold(are_known, || format!("{launch:?} took {items:?}"));
        let groups: BTreeSet<u8> = items.iter().map(|item| item.asked.group).collect();
        self.hold(groups.len() == 1, || format!("{launch:?} mixes {groups:?}"));
        self.hold(is_trial || launch.reason == CloseReason::Joined, || format!("{launch:?}"));
        let others_trial = self.batches.values().any(|batch| batch.is_trial);
        self.hold(!(is_trial && (others_trial || launch.items.len() > 1)), || format!("{launch:?} is not alone"));

        let replica = self.replicas.get(&launch.replica).cloned().unwrap_or_default();
        let is_open = self.takes(launch.replica, &replica) && (!is_trial || replica.held.is_empty());
        self.hold(is_open, || format!("{launch:?} went to {replica:?}"));
        let cost = replica.cost() + items.iter().map(|item| u128::from(item.asked.cost)).sum::<u128>();
        let count = replica.held.len() + items.len();
        let limits = self.rules.batch;
        let fits = count <= limits.max_items && (cost <= limits.max_cost.into());
        self.hold(fits, || format!("{launch:?} makes {count} items of {cost}"));

        let batch = Batch { replica: launch.replica, is_started: false, is_trial, sign: self.now };
        let is_new = self.batches.insert(launch.batch, batch).is_none();
        self.hold(is_new, || format!("{launch:?} is there already"));
        for id in &launch.items {
            if let Some(item) = self.items.get_mut(id) {
                item.place = Place::Batch(launch.batch);
                let held = Held { id: *id, batch: launch.batch, cost: item.asked.cost };
                self.replicas.entry(launch.replica).or_default().held.push(held);
            }
        }
        if is_trial { Vec::new() } else { items.iter().map(|item| item.rank).collect() }
    }

    /// Whether a replica may be joined, if it has room.
    fn takes(&self, id: ReplicaId, replica: &Replica) -> bool {
        let has_trial = self.batches.values().any(|batch| batch.is_trial && batch.replica == id);
        self.replicas.contains_key(&id)
            && !(has_trial || replica.is_condemned || replica.waits_for_end || replica.pauses_until.is_some())
    }

    /// No item that joined passed one that still waits.
    fn check_order(&mut self, joined: &[Time]) {
        let waiting = self.items.values().filter(|item| item.place == Place::Waiting).map(|item| item.rank).min();
        let last = joined.iter().max();
        let is_kept = last.zip(waiting).is_none_or(|(&last, waiting)| last <= waiting);
        self.hold(is_kept, || format!("an item of rank {last:?} joined and one of {waiting:?} waits"));
    }

    pub(crate) fn waiting(&self) -> (usize, u64) {
        let waiting = || self.items.values().filter(|item| !matches!(item.place, Place::Batch(_)));
        (waiting().count(), waiting().map(|item| item.asked.bytes).sum())
    }

    /// What must be true whenever there is nothing left to do.
    fn check_rest(&mut self) {
        let (items, bytes) = self.waiting();
        let up = self.replicas.values().filter(|replica| !replica.is_condemned).count();
        let s = &self.scheduler;
        let counted = (s.queued_items(), s.queued_bytes(), s.len(), s.replicas(), s.paused_items());
        let recounted = (items, bytes, self.items.len(), up, self.paused.len());
        self.hold(counted == recounted, || format!("counted {counted:?}, there are {recounted:?}"));
        let foreseen = std::mem::take(&mut self.foreseen);
        self.hold(foreseen.is_empty(), || format!("never failed: {foreseen:?}"));
        let overdue = self.items.iter().find(|(_, item)| item.deadline <= self.now).map(|(id, _)| *id);
        self.hold(overdue.is_none(), || format!("{overdue:?} should have expired"));
        let unread = self.paused.iter().find(|(_, end)| end.is_some_and(|end| end <= self.now)).map(|(id, _)| *id);
        self.hold(unread.is_none(), || format!("{unread:?} was paused for too long"));
        let wake = self.scheduler.next_wake();
        self.hold(wake.is_none_or(|at| at > self.now), || format!("wakes at {wake:?} for nothing"));
        let hangs = |id| self.oldest_sign(id).is_some_and(|sign| sign + self.rules.batch_timeout <= self.now);
        let hanging = self.replicas.iter().find(|(id, replica)| !replica.is_killed && hangs(**id)).map(|(id, _)| *id);
        self.hold(hanging.is_none(), || format!("{hanging:?} hangs and was not killed"));
        self.check_room();
    }

    /// Nothing waits while a replica has room for it, unless that replica is kept for a suspect.
    fn check_room(&mut self) {
        let suspects = self.items.values().filter(|item| item.place == Place::Suspect).count();
        let has_trial = self.batches.values().any(|batch| batch.is_trial);
        let open: Vec<&Replica> = self.replicas.iter().filter(|(id, r)| self.takes(**id, r)).map(|(_, r)| r).collect();
        let has_empty = open.iter().any(|replica| replica.held.is_empty());
        let most = self.fits.min(self.rules.batch.max_items);
        let room = |cost: u64| {
            let has_room = |replica: &&&Replica| {
                replica.held.len() < most && replica.cost() + u128::from(cost) <= self.rules.batch.max_cost.into()
            };
            open.iter().filter(has_room).count()
        };
        let waiting = self.items.iter().filter(|(_, item)| item.place == Place::Waiting);
        let first = waiting.clone().map(|(_, item)| item.rank).min();
        // Of several that are first, one may be too large.
        let heads: Vec<(ItemId, usize)> = waiting
            .filter(|(_, item)| Some(item.rank) == first)
            .map(|(id, item)| (*id, room(item.asked.cost)))
            .collect();
        let kept = usize::from(suspects > 0 && !has_trial);
        let is_full = !self.joins_at_once || heads.is_empty() || heads.iter().any(|&(_, room)| room <= kept);
        let replicas = self.replicas.clone();
        self.hold(is_full, || format!("{heads:?} wait although there is room in {replicas:?}"));
        self.hold(suspects == 0 || has_trial || !has_empty, || format!("{suspects} suspects wait for nothing"));
    }
}
