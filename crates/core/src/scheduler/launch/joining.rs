//! Open sets: which items join which replica, between two steps of its model or, where items run side by side, at any time. What
//! waits joins as soon as a replica has room: it is never delayed, and what has joined is not interrupted for others. A batch
//! is only the group of items that joined together; each of its items ends by itself.

use crate::learn::group_models::GroupModels;
use crate::policy::batch_policy::CloseReason;
use crate::queue::groups::WITHOUT_KEY;
use crate::request::{GroupId, ItemId, ReplicaId};
use crate::scheduler::action::Action;
use crate::scheduler::item::Payload;
use crate::scheduler::state::Scheduler;
use crate::tables::outcome::Outcome;
use crate::time::Time;

/// The items of one lane that join a replica together.
type Newcomers = (ReplicaId, GroupId, Vec<ItemId>);

impl<P: Payload> Scheduler<P> {
    /// The next items that join.
    pub(super) fn join(&mut self, now: Time) -> Option<Action<P>> {
        self.open_sets.resume(now);
        if let Some(suspect) = self.join_alone(now) {
            return Some(suspect);
        }
        for (replica, group, items) in self.find_places(now) {
            self.is_lanes_turn = false;
            let launch = self.dispatch(now, replica, Some(group), items, CloseReason::Joined);
            self.pending.push_back(launch);
        }
        self.pending.pop_front()
    }

    /// A suspect needs an empty replica that no other item joins. Suspects and lanes take turns, as for batches.
    fn join_alone(&mut self, now: Time) -> Option<Action<P>> {
        if self.quarantine.is_running() {
            return None;
        }
        if self.quarantine.is_empty() || self.is_lanes_turn && !self.lanes.is_empty() {
            self.open_sets.release();
            return None;
        }
        let replica = self.open_sets.reserve()?;
        let id = self.quarantine.launch()?;
        self.is_lanes_turn = true;
        self.open_sets.join(replica, self.entries[&id].waiting.cost, usize::MAX);
        Some(self.dispatch(now, replica, None, vec![id], CloseReason::Suspect))
    }

    /// The oldest item of all lanes joins the replica with the most room, then the next one, until one does not fit. An item never
    /// passes an older one: a small one that did would take the room for which a large one waits.
    fn find_places(&mut self, now: Time) -> Vec<Newcomers> {
        let mut found: Vec<Newcomers> = Vec::new();
        let limits = self.rules.batch;
        let most = self.memory_limits.most(WITHOUT_KEY, limits.max_items, now);
        loop {
            let Some(lane) = self.lanes.by_rank().next() else { break };
            let first = self.lanes.head(lane);
            let Some(replica) = self.open_sets.roomiest(first.cost, most, limits.max_cost) else { break };
            let models = self.models.of(self.replicas.class(replica));
            let stepping = self.open_sets.items(replica).saturating_sub(self.pauses.of(replica));
            let is_late = || match models.stays.first_part_s() {
                takes if self.rules.side_by_side => {
                    takes.is_some_and(|seconds| (first.due - now).as_secs_f64() < seconds)
                }
                _ => is_late(models, stepping, self.open_sets.reported(replica), first.due, now),
            };
            if self.rules.target.is_some() && self.len() > 1 && is_late() {
                let is_own_deadline = self.entries[&first.id].deadline <= first.due;
                self.fail(first.id, if is_own_deadline { Outcome::DeadlineUnreachable } else { Outcome::WouldBeLate });
                continue;
            }
            let most_joins = models.steps.most_joins(models.all(), stepping);
            self.open_sets.join(replica, first.cost, most_joins);
            let group = self.lanes.group(lane);
            self.lanes.remove(lane, first);
            match found.iter_mut().find(|(to, of, _)| (*to, *of) == (replica, group)) {
                Some((.., items)) => items.push(first.id),
                None => found.push((replica, group, vec![first.id])),
            }
        }
        found
    }
}

/// Whether the first part of an item that joins so many others would come after `due`. The step that runs ends first.
fn is_late(models: &GroupModels, held: usize, reported: Option<Time>, due: Time, now: Time) -> bool {
    let step = |items| models.steps.step_s(models.all(), items as f64);
    let runs = reported.filter(|_| held > 0).map_or(0.0, |at| step(held) - (now - at).as_secs_f64());
    let until_first_part = runs.max(0.0) + models.steps.join_s() + step(held + 1);
    models.all().is_known() && (due - now).as_secs_f64() < until_first_part
}
