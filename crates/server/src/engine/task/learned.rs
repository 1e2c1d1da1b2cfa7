//! What the end of a batch teaches, and what was learned, as metrics show it.

use crate::engine::task::meters::rounded;
use crate::engine::task::{Engine, report};
use crate::link::batch_end::{BatchEnd, Durations};
use crate::link::front::worker_event::WorkerEvent;
use jitney_core::request::ReplicaId;
use jitney_core::time::Time;

impl Engine {
    pub(super) fn batch_ended(&mut self, now: Time, replica: ReplicaId, end: BatchEnd) {
        let answered = self.answered.remove(&end.batch);
        if let Some(answered) = answered.filter(|_| end.is_clean) {
            self.scheduler.computed(end.batch, answered.items);
            let Durations { decode, predict, encode } = end.durations;
            // Work that a device was given may be waited for while its outputs are encoded.
            let computing = predict + encode;
            self.scheduler.moved(end.batch, answered.bytes, computing, decode + computing);
            self.meters.model_seconds.observe(predict.as_secs_f64());
        }
        if end.is_out_of_memory
            && let Some(most) = self.scheduler.too_large(now, end.batch)
        {
            self.warn_of_memory("a batch was", most);
        }
        self.scheduler.batch_ended(now, replica, end.batch, end.is_clean);
        if self.trials.remove(&replica) {
            report(&self.reports, WorkerEvent::Trial(replica, false));
        }
    }

    pub(super) fn warn_of_memory(&self, what: &str, most: usize) {
        let name = &self.deployment;
        tracing::warn!("{name}: {what} too large for the memory of its device; for a while at most {most} items");
    }

    pub(super) fn show_learned(&self, now: Time) {
        let (cost_model, traffic) = (self.scheduler.cost_model(), self.scheduler.traffic());
        self.meters.launch_cost.set(rounded(cost_model.size_model().launch_s()));
        self.meters.item_cost.set(rounded(cost_model.item_s()));
        self.meters.arrival_rate.set(rounded(traffic.rate(now, cost_model.by_items())));
        self.meters.returns.set(rounded(traffic.lags().median().map_or(0.0, |(share, _)| share)));
        self.scheduler.factors().for_each(|(replica, factor)| self.meters.show_factor(replica, factor));
    }
}
