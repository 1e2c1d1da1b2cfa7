//! The way in: which items are admitted, and where an item goes first.

use crate::queue::group_key::GroupKey;
use crate::queue::groups::WITHOUT_KEY;
use crate::queue::lanes::Ahead;
use crate::queue::waiting::{Waiting, rank};
use crate::replicas::quarantine::Verdict;
use crate::replicas::scaling::capacity::Capacity;
use crate::request::{ItemId, Priority};
use crate::scheduler::admission::bounds::{self, Allowed, QueueState};
use crate::scheduler::admission::forecast::Forecast;
use crate::scheduler::admission::places::Places;
use crate::scheduler::admission::refusal::Refusal;
use crate::scheduler::item::{Entry, NewItem, Payload, RequestTerms, Stage};
use crate::scheduler::state::{Availability, Scheduler};
use crate::tables::outcome::Outcome;
use crate::time::Time;
use std::time::Duration;

/// After a refusal because of the predicted wait, a deployment counts as overloaded for the time of this many full batches.
const OVERLOADED_FOR_BATCHES: u32 = 10;

impl<P: Payload> Scheduler<P> {
    /// The server ends: no new request is admitted any more, whatever the replicas do. Items that are in go on.
    pub fn drain(&mut self) {
        self.is_draining = true;
    }

    /// The workers keep dying: items that wait end, because no replica will come for them soon, and no item is admitted until a
    /// replica is up.
    pub fn crash_looping(&mut self) {
        self.availability = Availability::CrashLooping;
        let waits = |entry: &Entry<P>| !matches!(entry.stage, Stage::Batch(_));
        let waiting: Vec<ItemId> = self.entries.iter().filter(|(_, entry)| waits(entry)).map(|(id, _)| *id).collect();
        for id in waiting {
            self.fail(id, Outcome::CrashLooping);
        }
    }

    /// Admits a request of one item, or gives it back with the reason.
    pub fn submit(&mut self, now: Time, item: NewItem<P>) -> Result<(), (P, Refusal)> {
        let &NewItem { ref group, priority, cost, bytes, timeout, .. } = &item;
        let asked = item.payload.asked().is_some();
        match self.admit(now, &RequestTerms { group, priority, cost, bytes, timeout, continues: false, asked }) {
            Ok(()) => self.enter(now, item),
            Err(refusal) => Err((item.payload, refusal)),
        }
    }

    /// Whether a request may enter. It is asked once for all items of the request, so that no request is refused for its size
    /// alone.
    pub fn admit(&mut self, now: Time, terms: &RequestTerms) -> Result<(), Refusal> {
        let &RequestTerms { group, priority, cost, bytes, timeout, continues, asked } = terms;
        if asked {
            return self.admit_asked(bytes);
        }
        if let Some(outcome) = self.closed(continues) {
            return Err(Refusal::soon(outcome));
        }
        let timeout = timeout.unwrap_or(self.rules.request_timeout);
        let longest = timeout.max(self.rules.request_timeout);
        let admitted = if self.rules.joins {
            let has_own = terms.timeout.is_some();
            self.places(now, group, priority, cost).admit(self.rules.queue, bytes, longest, timeout, has_own)
        } else {
            bounds::admit(&self.queue_state(now, group, priority, cost), self.rules.queue, bytes, longest, timeout)
        };
        let admitted = admitted.and_then(|()| self.in_time(now, group, priority, cost));
        // Bytes or items may fill the queue while its wait is short: only a long wait is a sign of overload.
        if !continues && admitted.is_err_and(|refusal| refusal.outcome == Outcome::WaitTooLong) {
            let full = self.full(now, group, priority, cost);
            self.overloaded(now, priority, full);
        }
        admitted
    }

    /// Whether items may enter for which a model of this server asks. The requests behind them were admitted, so they are not refused
    /// half-way: they wait for a first replica too, and enter while the server drains.
    fn admit_asked(&self, bytes: u64) -> Result<(), Refusal> {
        if self.availability == Availability::CrashLooping {
            return Err(Refusal::soon(Outcome::CrashLooping));
        }
        let is_full = self.queued_bytes > 0 && self.queued_bytes.saturating_add(bytes) > self.rules.queue.max_bytes;
        if is_full { Err(Refusal::soon(Outcome::QueueBytesFull)) } else { Ok(()) }
    }

    /// What a full batch takes, as a request of these terms has it.
    fn full(&self, now: Time, group: &GroupKey, priority: Priority, cost: u64) -> Duration {
        if self.rules.joins {
            self.places(now, group, priority, cost).full()
        } else {
            self.queue_state(now, group, priority, cost).full()
        }
    }

    /// A request of normal class was refused because of its wait before it was submitted.
    pub fn refused_before(&mut self, now: Time) {
        let (group, cost) = (GroupKey::default(), self.usual_cost());
        let full = self.full(now, &group, Priority::Normal, cost);
        self.overloaded(now, Priority::Normal, full);
    }

    /// A request was refused because of its wait, while a full batch takes this long. Higher classes leave before this one, so
    /// the refusal says nothing about them.
    fn overloaded(&mut self, now: Time, priority: Priority, full: Duration) {
        self.overloaded_until[priority as usize..].fill(now + full * OVERLOADED_FOR_BATCHES);
    }

    fn closed(&self, continues: bool) -> Option<Outcome> {
        if self.is_draining && !continues {
            return Some(Outcome::Draining);
        }
        match self.availability {
            Availability::Ready => None,
            Availability::Loading => Some(Outcome::Loading),
            Availability::CrashLooping => Some(Outcome::CrashLooping),
        }
    }

    /// With a latency target: whether the answer would be in time. An item is admitted if it is the only one: if every item were
    /// refused, a wrong estimate of the model could never be corrected.
    fn in_time(&mut self, now: Time, group: &GroupKey, priority: Priority, cost: u64) -> Result<(), Refusal> {
        let Some(target) = self.rules.target.filter(|_| !self.is_empty()) else { return Ok(()) };
        let Some(forecast) = self.forecast(now, group, priority, cost) else { return Ok(()) };
        if forecast.too_late_by(target).is_zero() { Ok(()) } else { Err(forecast.refusal(target)) }
    }

    /// The refusal of an item that was admitted and whose answer would be late after all.
    pub fn refusal_of_late(&mut self, now: Time) -> Refusal {
        let cost = self.usual_cost();
        let forecast = self.forecast(now, &GroupKey::default(), Priority::Normal, cost);
        let refusal = self.rules.target.zip(forecast).map(|(target, forecast)| forecast.refusal(target));
        refusal.unwrap_or(Refusal::soon(Outcome::WouldBeLate))
    }

    /// What an item that arrives now has before it; `None` while too little has been measured.
    pub fn forecast(&mut self, now: Time, group: &GroupKey, priority: Priority, cost: u64) -> Option<Forecast> {
        if self.rules.joins {
            return self.places(now, group, priority, cost).forecast();
        }
        let (target, before) = (self.rules.target, self.lanes.ahead(group, rank(now, priority, self.rules.boost)));
        let enough = self.enough_of(group);
        self.ask(now, |policy, view| Forecast::new(view, policy, target, before, cost, enough))
    }

    /// Puts an item of an admitted request into its lane, or gives it back with the reason.
    pub fn enter(&mut self, now: Time, item: NewItem<P>) -> Result<(), (P, Refusal)> {
        if self.rules.joins && item.cost > self.rules.batch.max_cost {
            return Err((item.payload, Refusal::never(Outcome::TooLarge))); // It could never join.
        }
        if !self.lanes.has_room(&item.group) {
            return Err((item.payload, Refusal::soon(Outcome::TooManyLanes)));
        }
        // This comes last because the input may be read as a whole: a refusal by the cheap bounds costs nothing.
        let (sample, whole) = (|| P::sample(item.payload.input()), || P::fingerprint(item.payload.input()));
        let history = match self.quarantine.verdict(sample, whole, now) {
            Verdict::Blocked => return Err((item.payload, Refusal::never(Outcome::Quarantined))),
            Verdict::Allowed(history) => history,
        };
        let deadline = now + item.timeout.unwrap_or(self.rules.request_timeout);
        let due = self.rules.target.map_or(deadline, |target| deadline.min(now + target));
        let asked = item.payload.asked();
        let since = asked.map_or(now, |asked| asked.since.min(now));
        let waiting = Waiting {
            // What is done for a request that came earlier is not passed by what came later.
            rank: rank(since, item.priority, self.rules.boost),
            arrival: now,
            id: item.id,
            priority: item.priority,
            cost: item.cost,
            due,
            passed: 0,
        };
        let stage = if history.is_suspect() {
            self.quarantine.add_suspect(item.id);
            Stage::Suspect
        } else {
            Stage::Lane(self.lanes.push(&item.group, waiting))
        };
        self.queued_bytes += item.bytes;
        self.deadlines.insert((deadline, item.id));
        let entry = Entry {
            stage,
            copies: Vec::new(),
            group: item.group,
            waiting,
            bytes: item.bytes,
            deadline,
            since,
            may_stream: item.timeout.is_none() || asked.is_some_and(|asked| asked.may_stream),
            launched: None,
            batch_size: 0,
            history,
            is_suspected_by_fingerprint: history.is_suspect(),
            whole: None,
            payload: item.payload,
        };
        self.entries.insert(item.id, entry);
        self.has_news = true;
        if let Stage::Lane(lane) = stage {
            let is_alone = self.entries.len() == 1;
            let size_model = self.models.of(self.replicas.next_class()).all();
            self.traffic.arrived(now, self.lanes.group(lane), is_alone, size_model);
        }
        Ok(())
    }

    /// How many items of a key's group are as good as more; `None` if their bytes do not matter.
    fn enough_of(&self, key: &GroupKey) -> Option<usize> {
        self.lanes.group_of(key).and_then(|group| self.transfer_limits.enough(group))
    }

    fn queue_state(&self, now: Time, group: &GroupKey, priority: Priority, cost: u64) -> QueueState<'_> {
        let mean_cost = self.lanes.mean_cost_with(cost);
        let max_batch_size = self.rules.batch.items(mean_cost);
        let enough = self.enough_of(group).map_or(max_batch_size, |enough| enough.min(max_batch_size));
        // Where fewer items are a full batch, the own lane holds more batches.
        let Ahead { batches, own, .. } = self.lanes.ahead(group, rank(now, priority, self.rules.boost));
        let ahead = batches + own / enough - own / max_batch_size;
        let group_models = self.group_models();
        QueueState {
            items: self.queued_items(),
            bytes: self.queued_bytes,
            ahead: ahead + self.replicas.sent_ahead(),
            suspects: self.quarantine.len(),
            is_empty: self.lanes.is_empty(),
            max_batch_size: enough,
            replicas: (self.replicas.power().round() as u32).max(1),
            idle: self.replicas.idle().is_some(),
            allowed: self.allowed(now, priority),
            size_model: group_models.all(),
            weight: group_models.cost_model().weight(enough, mean_cost),
        }
    }

    fn allowed(&self, now: Time, priority: Priority) -> Allowed {
        match (self.rules.target, self.rules.max_wait) {
            (Some(_), _) => Allowed::Target,
            (None, Some(wait)) => Allowed::For(wait),
            (None, None) if now < self.overloaded_until[priority as usize] => Allowed::DuringOverload,
            (None, None) => Allowed::Batches,
        }
    }

    /// What an item that arrives now finds, where items join and leave replicas one by one.
    fn places(&self, now: Time, group: &GroupKey, priority: Priority, cost: u64) -> Places<'_> {
        let limits = self.rules.batch;
        let (replicas, mean_cost) = (self.replicas.len().max(1), self.lanes.mean_cost_with(cost).max(1.0));
        let (active, active_cost) = self.open_sets.load();
        let most = self.memory_limits.most(WITHOUT_KEY, limits.max_items, now);
        let by_cost = (limits.max_cost as f64 * replicas as f64 - active_cost as f64) / mean_cost;
        Places {
            items: self.queued_items(),
            bytes: self.queued_bytes,
            ahead: self.lanes.ahead(group, rank(now, priority, self.rules.boost)).items,
            suspects: self.quarantine.len(),
            stepping: active.saturating_sub(self.pauses.count()),
            free: most.saturating_mul(replicas).saturating_sub(active).min(by_cost.max(0.0) as usize),
            all: limits.items(mean_cost).min(most).saturating_mul(replicas),
            replicas: replicas as u32,
            allowed: self.allowed(now, priority),
            side_by_side: self.rules.side_by_side,
            models: self.group_models(),
        }
    }

    /// What one replica can do under full load; `None` while too little was measured.
    pub fn capacity(&self, now: Time) -> Option<Capacity> {
        if !self.rules.joins {
            let most = self.rules.batch.items(self.lanes.mean_cost_with(self.usual_cost()).max(1.0));
            return Capacity::of_batches(self.group_models().all(), most, self.rules.target);
        }
        let places = self.places(now, &GroupKey::default(), Priority::Normal, self.usual_cost());
        let seconds = places.full().as_secs_f64();
        let items = places.all as f64 / f64::from(places.replicas);
        (seconds > 0.0 && items > 0.0).then_some(Capacity { items, seconds })
    }

    /// How long a new item without a group key would wait, if that can be said.
    pub fn predicted_wait(&self, now: Time) -> Option<Duration> {
        let (group, cost) = (GroupKey::default(), self.usual_cost());
        if self.rules.joins {
            return self.places(now, &group, Priority::Normal, cost).predicted_wait();
        }
        bounds::predicted_wait(&self.queue_state(now, &group, Priority::Normal, cost))
    }

    /// How many items may wait until a new item of normal class is refused because of its wait, or because its answer would be
    /// late. `None` while that cannot be said, and with a latency target while no item waits.
    pub fn most_waiting(&mut self, now: Time) -> Option<usize> {
        let (group, cost) = (GroupKey::default(), self.usual_cost());
        if self.rules.target.is_some() && self.lanes.is_empty() {
            return None;
        }
        if self.rules.joins {
            let places = self.places(now, &group, Priority::Normal, cost);
            return places.most_waiting(self.rules.request_timeout, self.rules.target);
        }
        if let Some(target) = self.rules.target {
            return self.ask(now, |policy, view| {
                let ahead = |items| Ahead { batches: 0, items, own: items };
                let forecast = |items| Forecast::new(view, policy, Some(target), ahead(items), cost, None);
                Forecast::most_waiting(target, forecast)
            });
        }
        let queue = self.queue_state(now, &group, Priority::Normal, cost);
        let most = bounds::most_waiting(&queue, self.rules.request_timeout)?;
        // A batch for each idle replica does not wait, whatever is allowed.
        Some(most.max(queue.max_batch_size.saturating_mul(self.replicas.idle_count().max(1))))
    }
}
