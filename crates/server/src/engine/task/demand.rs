//! What the engine shows of what it learned, what it counts for the number of replicas, and requests that come while there is none.

use crate::engine::task::meters::rounded;
use crate::engine::task::{BEAT, Engine};
use jitney_core::scheduler::admission::refusal::Refusal;
use jitney_core::scheduler::explanation::Explanation;
use jitney_core::scheduler::item::RequestTerms;
use jitney_core::tables::outcome::Outcome;
use jitney_core::time::Time;
use std::time::Duration;

/// Most unequal replicas that are shown.
const MOST_REPLICAS_SHOWN: usize = 64;

impl Engine {
    /// Publishes its state, after messages were taken.
    pub(super) fn show(&mut self, now: Time) {
        let most_waiting = self.scheduler.most_waiting(now).map_or(u64::MAX, |items| items as u64);
        self.published.set_most_waiting(most_waiting);
        let scheduler = &self.scheduler;
        let queued = scheduler.queued_items();
        self.meters.queued_items.set(queued as i64);
        self.meters.queued_bytes.set(scheduler.queued_bytes() as i64);
        self.meters.lanes.set(scheduler.lanes() as i64);
        self.meters.running_items.set(scheduler.len() as i64 - queued as i64);
        self.meters.paused_items.set(scheduler.paused_items() as i64);
        if let Some(steps) = &self.meters.steps {
            steps.active_items.set(scheduler.active_items() as i64);
        }
        self.meters.ready_replicas.set(scheduler.replicas() as i64);
        self.published.set_replicas(scheduler.replicas());
        self.publish_demand(now, queued);
    }

    /// Why a request cannot wait until the deployment, which has no replica because it was not used, has one. What a model asks
    /// was admitted before: it waits for as long as the requests behind it.
    pub(super) fn asleep(&self, timeout: Option<Duration>, is_asked: bool) -> Option<Refusal> {
        let ready_in = self.published.demand().ready_in().filter(|_| self.scheduler.replicas() == 0)?;
        let most = if is_asked { Duration::MAX } else { self.patience };
        let patience = timeout.map_or(most, |timeout| timeout.min(most));
        (ready_in > patience).then(|| Refusal::after(Outcome::ScaledToZero, Some(ready_in), ready_in))
    }

    /// Whether this many items of one request may enter.
    pub(super) fn admit(&mut self, now: Time, terms: &RequestTerms, items: usize) -> Result<(), Refusal> {
        if !terms.continues {
            self.published.demand().arrived(items);
            if let Some(refusal) = self.asleep(terms.timeout, terms.asked) {
                return Err(refusal);
            }
        }
        self.scheduler.admit(now, terms)
    }

    /// What was learned and decided.
    pub(super) fn explain(&mut self, now: Time) -> Explanation {
        let scaling = self.published.demand().reasons();
        let factors = self.scheduler.factors().filter(|(_, factor)| (factor - 1.0).abs() > f64::EPSILON);
        let mut unequal_replicas: Vec<_> =
            factors.filter_map(|(replica, factor)| self.meters.replica_seen(replica, factor)).collect();
        unequal_replicas.sort_by_key(|seen| seen.replica);
        unequal_replicas.truncate(MOST_REPLICAS_SHOWN);
        Explanation { scaling, unequal_replicas, ..self.scheduler.explain(now) }
    }

    /// Sets the metrics of what was learned.
    pub(super) fn show_learned(&self, now: Time) {
        self.meters.show_phases();
        self.meters.show_items_put_back(self.scheduler.items_put_back());
        let oldest = self.scheduler.oldest_waiting().map_or(Duration::ZERO, |arrival| now - arrival);
        self.meters.oldest_item.set(rounded(oldest.as_secs_f64()));
        self.meters.predicted_wait.set(rounded(self.scheduler.predicted_wait(now).unwrap_or_default().as_secs_f64()));
        let (cost_model, traffic) = (self.scheduler.cost_model(), self.scheduler.traffic());
        self.meters.launch_cost.set(rounded(cost_model.size_model().launch_s()));
        self.meters.item_cost.set(rounded(cost_model.item_s()));
        self.meters.arrival_rate.set(rounded(traffic.rate(now, cost_model.by_items())));
        self.meters.returns.set(rounded(traffic.lags().median().map_or(0.0, |(share, _)| share)));
        self.scheduler.factors().for_each(|(replica, factor)| self.meters.show_factor(replica, factor));
        self.scheduler.link_ways().for_each(|(replica, way)| self.meters.show_way(replica, way));
    }

    /// Counts an item that ends so, if a further replica would have computed it.
    pub(super) fn count_refused(&self, outcome: Outcome) {
        use Outcome::{DeadlineUnreachable, QueueBytesFull, QueueFull, ScaledToZero, WaitTooLong, WouldBeLate};
        if matches!(
            outcome,
            QueueFull | QueueBytesFull | WaitTooLong | WouldBeLate | DeadlineUnreachable | ScaledToZero
        ) {
            self.published.demand().refused();
        }
    }

    /// Publishes how many items wait, and once a second what a replica can do.
    pub(super) fn publish_demand(&mut self, now: Time, queued: usize) {
        let demand = self.published.demand();
        demand.set_waiting(queued, !self.scheduler.is_empty());
        if now - self.measured >= BEAT {
            self.measured = now;
            demand.set_capacity(self.scheduler.capacity(now));
        }
    }
}
