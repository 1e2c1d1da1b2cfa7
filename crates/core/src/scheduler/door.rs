//! The way in: who is let in, and where an item goes first.

use super::{Asking, Door, Entry, NewItem, Payload, Place, Scheduler};
use crate::admission::{self, Allowed, QueueState, Refusal};
use crate::forecast::Forecast;
use crate::group_key::GroupKey;
use crate::lane::Waiting;
use crate::lanes::Ahead;
use crate::outcome::Outcome;
use crate::quarantine::Known;
use crate::request::{ItemId, Priority};
use crate::time::Time;
use std::time::Duration;

/// After a refusal for the length of the wait a deployment counts as overloaded for this many full batches.
const OVERLOADED_FOR: u32 = 10;

impl<P: Payload> Scheduler<P> {
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
    pub fn submit(&mut self, now: Time, item: NewItem<P>) -> Result<(), (P, Refusal)> {
        let &NewItem { ref group, priority, cost, bytes, timeout, .. } = &item;
        match self.admit(now, &Asking { group, priority, cost, bytes, timeout, continues: false }) {
            Ok(()) => self.enter(now, item),
            Err(refusal) => Err((item.payload, refusal)),
        }
    }

    /// Whether a request may enter: asked once for all its items, so that none is refused for its size alone.
    pub fn admit(&mut self, now: Time, asking: &Asking) -> Result<(), Refusal> {
        let &Asking { group, priority, cost, bytes, timeout, continues } = asking;
        match self.door {
            Door::Open => {}
            Door::Closed(Outcome::Draining) if continues => {}
            Door::Closed(outcome) => return Err(Refusal::soon(outcome)),
        }
        let timeout = timeout.unwrap_or(self.rules.request_timeout);
        let longest = timeout.max(self.rules.request_timeout);
        let mut queue = self.queue_state(now, group, priority, cost);
        if now < self.overloaded_until[priority as usize] && queue.allowed == Allowed::Batches {
            queue.allowed = Allowed::FewBatches;
        }
        let full = queue.full();
        let admitted = admission::admit(&queue, self.rules.queue, bytes, longest, timeout);
        let admitted = admitted.and_then(|()| self.in_time(now, group, priority, cost));
        // Bytes or items may fill the queue while its wait is short: only a long wait says that too much comes in.
        if !continues && admitted.is_err_and(|refusal| refusal.outcome == Outcome::WaitTooLong) {
            // Nor does it for those who go before whoever is refused.
            self.overloaded_until[priority as usize..].fill(now + full * OVERLOADED_FOR);
        }
        admitted
    }

    /// With a latency target: whether the answer would be in time. With nobody ahead the model decides: were all refused,
    /// nothing would run, and what was once believed of its pace could never be seen to be wrong.
    fn in_time(&mut self, now: Time, group: &GroupKey, priority: Priority, cost: u64) -> Result<(), Refusal> {
        let Some(target) = self.rules.target.filter(|_| !self.is_empty()) else { return Ok(()) };
        let Some(forecast) = self.forecast(now, group, priority, cost) else { return Ok(()) };
        if forecast.too_late_by(target).is_zero() { Ok(()) } else { Err(forecast.refusal(target)) }
    }

    /// What somebody is told who was let in and is refused after all, because the answer would be late.
    pub fn late(&mut self, now: Time) -> Refusal {
        let cost = self.usual_cost();
        let forecast = self.forecast(now, &GroupKey::default(), Priority::Normal, cost);
        let told = self.rules.target.zip(forecast).map(|(target, forecast)| forecast.refusal(target));
        told.unwrap_or(Refusal::soon(Outcome::WouldBeLate))
    }

    /// What such an item that arrives now has before it; `None` while too little has been measured.
    pub fn forecast(&mut self, now: Time, group: &GroupKey, priority: Priority, cost: u64) -> Option<Forecast> {
        let (target, before) = (self.rules.target, self.lanes.ahead(now, group, priority));
        let enough = self.bulk.enough_of(group);
        self.ask(now, |policy, view| Forecast::new(view, policy, target, before, cost, enough))
    }

    /// Puts an item of an admitted request into its lane, or gives it back with the reason.
    pub fn enter(&mut self, now: Time, item: NewItem<P>) -> Result<(), (P, Refusal)> {
        if !self.lanes.has_room(&item.group) {
            return Err((item.payload, Refusal::soon(Outcome::TooManyLanes)));
        }
        // Last, because it reads the whole item: what the cheap bounds refuse costs nothing.
        let record = match self.quarantine.known(|| item.payload.fingerprint(), now) {
            Known::Convicted => return Err((item.payload, Refusal::never(Outcome::Quarantined))),
            Known::Record(record) => record,
        };
        let deadline = now + item.timeout.unwrap_or(self.rules.request_timeout);
        let due = self.rules.target.map_or(deadline, |target| deadline.min(now + target));
        let waiting = Waiting { arrival: now, id: item.id, cost: item.cost, due, passed: 0 };
        let place = if record.is_suspect() {
            self.quarantine.suspect(item.id);
            Place::Suspect
        } else {
            Place::Lane(self.lanes.push(&item.group, item.priority, waiting))
        };
        self.queued_bytes += item.bytes;
        self.deadlines.insert((deadline, item.id));
        let entry = Entry {
            place,
            group: item.group,
            waiting,
            priority: item.priority,
            bytes: item.bytes,
            deadline,
            launched: None,
            batch_size: 0,
            record,
            is_like: record.is_suspect(),
            payload: item.payload,
        };
        self.entries.insert(item.id, entry);
        self.has_news = true;
        if let Place::Lane(lane) = place {
            let is_alone = self.entries.len() == 1;
            self.traffic.arrived(now, self.lanes.kin(lane), is_alone, self.paces.all());
        }
        Ok(())
    }

    /// What an item costs that could be any of those that wait.
    pub(super) fn usual_cost(&self) -> u64 {
        self.lanes.cost().checked_div(self.lanes.items() as u128).map_or(1, |cost| cost.min(u64::MAX.into()) as u64)
    }

    fn queue_state(&self, now: Time, group: &GroupKey, priority: Priority, cost: u64) -> QueueState<'_> {
        let mean_cost = self.lanes.mean_cost_with(cost);
        let max_batch_size = self.rules.batch.items(mean_cost);
        let enough = self.bulk.enough_of(group).map_or(max_batch_size, |enough| enough.min(max_batch_size));
        // Of its own lane so many batches, where fewer items are a full one.
        let Ahead { batches, own, .. } = self.lanes.ahead(now, group, priority);
        let ahead = batches + own / enough - own / max_batch_size;
        QueueState {
            items: self.queued_items(),
            bytes: self.queued_bytes,
            ahead: ahead + self.replicas.sent_ahead(),
            alone: self.quarantine.len(),
            is_empty: self.lanes.is_empty(),
            max_batch_size: enough,
            replicas: (self.replicas.len() as u32).max(1),
            idle: self.replicas.idle().is_some(),
            allowed: match (self.rules.target, self.rules.max_wait) {
                (Some(_), _) => Allowed::Target,
                (None, Some(wait)) => Allowed::For(wait),
                (None, None) => Allowed::Batches,
            },
            pace: self.paces.all(),
            weight: self.paces.curve().weight(enough, mean_cost),
        }
    }

    /// How long a new item without a group key would wait, if that can be said.
    pub fn predicted_wait(&self, now: Time) -> Option<Duration> {
        let queue = self.queue_state(now, &GroupKey::default(), Priority::Normal, self.usual_cost());
        admission::predicted_wait(&queue)
    }
}
