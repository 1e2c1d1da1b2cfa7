//! The metrics of one engine.

use crate::base::telemetry::Telemetry;
use crate::values::answer::Usage;
use jitney_core::policy::batch_policy::CloseReason;
use jitney_core::request::ReplicaId;
use jitney_core::scheduler::explanation::ReplicaSeen;
use jitney_core::scheduler::results::steps::Step;
use jitney_core::tables::metrics;
use prometheus::{Gauge, GaugeVec, Histogram, IntCounter, IntGauge};
use rustc_hash::FxHashMap;

/// The metrics that one engine writes.
#[derive(Debug)]
pub(super) struct Meters {
    pub(super) queue_seconds: Histogram,
    pub(super) model_seconds: Histogram,
    pub(super) batch_items: Histogram,
    pub(super) batches: [IntCounter; CloseReason::ALL.len()],
    pub(super) hedged_items: IntCounter,
    pub(super) batch_cost: IntCounter,
    pub(super) padded_cost: IntCounter,
    pub(super) queued_items: IntGauge,
    pub(super) queued_bytes: IntGauge,
    pub(super) lanes: IntGauge,
    pub(super) running_items: IntGauge,
    pub(super) ready_replicas: IntGauge,
    pub(super) hold_seconds: Histogram,
    pub(super) launch_cost: Gauge,
    pub(super) item_cost: Gauge,
    pub(super) arrival_rate: Gauge,
    pub(super) returns: Gauge,
    replica_speed: GaugeVec,
    /// The number of each replica that is up among those of its deployment.
    replicas: FxHashMap<ReplicaId, u32>,
    deployment: String,
    pub(super) parts: IntCounter,
    pub(super) paused_items: IntGauge,
    /// Tokens of inputs and of answers.
    tokens: [IntCounter; 2],
    /// `None` if items do not join and leave replicas one by one.
    pub(super) steps: Option<StepMeters>,
}

/// The metrics of a model whose items join and leave replicas one by one. Where they run side by side, no steps are counted.
#[derive(Debug)]
pub(super) struct StepMeters {
    count: IntCounter,
    seconds: Histogram,
    items: Histogram,
    joins: IntCounter,
    pub(super) active_items: IntGauge,
}

impl StepMeters {
    /// A step was made.
    pub(super) fn stepped(&self, step: &Step) {
        self.joins.inc_by(step.joined as u64);
        if step.active > 0 {
            self.count.inc();
            self.seconds.observe(step.took.as_secs_f64());
            self.items.observe(step.active as f64);
        }
    }
}

impl Meters {
    /// Those of a deployment. `joins` says that items join and leave its replicas one by one.
    pub(super) fn new(telemetry: &Telemetry, deployment: &str, joins: bool) -> Meters {
        let gauge = |metric| telemetry.gauge(metric, &[deployment]);
        let level = |metric| telemetry.level(metric, &[deployment]);
        let histogram = |metric| telemetry.histogram(metric, &[deployment]);
        let counter = |metric| telemetry.counter(metric, &[deployment]);
        Meters {
            queue_seconds: histogram(metrics::QUEUE_SECONDS),
            model_seconds: histogram(metrics::MODEL_SECONDS),
            batch_items: histogram(metrics::BATCH_ITEMS),
            batches: CloseReason::ALL.map(|reason| telemetry.counter(metrics::BATCHES, &[deployment, reason.label()])),
            hedged_items: counter(metrics::HEDGED_ITEMS),
            batch_cost: counter(metrics::BATCH_COST),
            padded_cost: counter(metrics::PADDED_COST),
            queued_items: gauge(metrics::QUEUED_ITEMS),
            queued_bytes: gauge(metrics::QUEUED_BYTES),
            lanes: gauge(metrics::LANES),
            running_items: gauge(metrics::RUNNING_ITEMS),
            ready_replicas: gauge(metrics::READY_REPLICAS),
            hold_seconds: histogram(metrics::HOLD_SECONDS),
            launch_cost: level(metrics::LAUNCH_COST),
            item_cost: level(metrics::ITEM_COST),
            arrival_rate: level(metrics::ARRIVAL_RATE),
            returns: level(metrics::RETURNS),
            replica_speed: telemetry.levels(metrics::REPLICA_SPEED),
            replicas: FxHashMap::default(),
            deployment: deployment.to_owned(),
            parts: counter(metrics::PARTS),
            paused_items: gauge(metrics::PAUSED_ITEMS),
            tokens: ["input", "output"].map(|kind| telemetry.counter(metrics::TOKENS, &[deployment, kind])),
            steps: joins.then(|| StepMeters {
                count: counter(metrics::STEPS),
                seconds: histogram(metrics::STEP_SECONDS),
                items: histogram(metrics::STEP_ITEMS),
                joins: counter(metrics::JOINS),
                active_items: gauge(metrics::ACTIVE_ITEMS),
            }),
        }
    }

    /// A replica is up which has this number among those of its deployment.
    pub(super) fn replica_up(&mut self, replica: ReplicaId, number: u32) {
        self.replicas.insert(replica, number);
    }

    /// The number of a replica among those of its deployment; 0 if it is not known.
    pub(super) fn number(&self, replica: ReplicaId) -> u64 {
        self.replicas.get(&replica).map_or(0, |replica| (*replica).into())
    }

    /// A replica is lost.
    pub(super) fn replica_lost(&mut self, replica: ReplicaId) {
        if let Some(number) = self.replicas.remove(&replica) {
            // It is not there if no speed was learned.
            let _ = self.replica_speed.remove_label_values(&[&self.deployment, &number.to_string()]);
        }
    }

    /// A replica takes this many times as long as the median one.
    pub(super) fn show_factor(&self, replica: ReplicaId, factor: f64) {
        if let Some(number) = self.replicas.get(&replica) {
            let labels = [&self.deployment, &number.to_string()];
            self.replica_speed.with_label_values(&labels).set(rounded(1.0 / factor));
        }
    }

    /// The same, as `/config` shows it.
    pub(super) fn replica_seen(&self, replica: ReplicaId, factor: f64) -> Option<ReplicaSeen> {
        let number = *self.replicas.get(&replica)?;
        Some(ReplicaSeen { replica: number, speed: (1e3 / factor).round() / 1e3 })
    }

    /// An item has ended whose model counted so many tokens.
    pub(super) fn count_tokens(&self, usage: Usage) {
        for (counter, tokens) in self.tokens.iter().zip([usage.input, usage.output]) {
            counter.inc_by(tokens);
        }
    }
}

/// A level to nine decimals: a rate that decays for minutes would be written with hundreds of digits.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1e9).round() / 1e9
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn a_level_has_nine_decimals_at_most() {
        let shown = |value: f64| rounded(value).to_string();
        assert_eq!(shown(1.234e-180), "0");
        assert_eq!(shown(2.5e-6), "0.0000025");
        assert_eq!(shown(1.0 / 3.0), "0.333333333");
        assert_eq!(shown(91_100.123_456_789), "91100.123456789");
    }
}
