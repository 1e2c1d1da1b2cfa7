//! The metrics of one engine.

use crate::base::telemetry::Telemetry;
use crate::link::batch_end::Durations;
use crate::values::answer::{Timing, Usage};
use jitney_core::policy::batch_policy::CloseReason;
use jitney_core::replicas::paces::link_way::LinkWay;
use jitney_core::request::ReplicaId;
use jitney_core::scheduler::explanation::ReplicaSeen;
use jitney_core::scheduler::results::steps::Step;
use jitney_core::tables::metrics;
use prometheus::{Counter, CounterVec, Gauge, GaugeVec, Histogram, IntCounter, IntCounterVec, IntGauge};
use rustc_hash::FxHashMap;
use std::time::Duration;

/// The metrics that one engine writes.
#[derive(Debug)]
pub(super) struct Meters {
    pub(super) queue_seconds: Histogram,
    pub(super) model_seconds: Histogram,
    pub(super) batch_items: Histogram,
    /// `None` if items do not come in batches.
    coding: Option<CodingMeters>,
    phases: Phases,
    pub(super) batches: [IntCounter; CloseReason::ALL.len()],
    pub(super) hedged_items: IntCounter,
    reruns: [IntCounter; 3],
    pub(super) batch_cost: IntCounter,
    pub(super) padded_cost: IntCounter,
    pub(super) queued_items: IntGauge,
    pub(super) queued_bytes: IntGauge,
    pub(super) lanes: IntGauge,
    pub(super) oldest_item: Gauge,
    pub(super) predicted_wait: Gauge,
    pub(super) running_items: IntGauge,
    pub(super) ready_replicas: IntGauge,
    pub(super) hold_seconds: Histogram,
    pub(super) launch_cost: Gauge,
    pub(super) item_cost: Gauge,
    pub(super) arrival_rate: Gauge,
    pub(super) returns: Gauge,
    replica_speed: GaugeVec,
    link_round_trip: GaugeVec,
    link_bandwidth: GaugeVec,
    worker_busy: CounterVec,
    worker_batches: IntCounterVec,
    worker_items: IntCounterVec,
    /// The replicas that are up.
    replicas: FxHashMap<ReplicaId, ReplicaMeters>,
    deployment: String,
    pub(super) parts: IntCounter,
    pub(super) paused_items: IntGauge,
    /// Tokens of inputs and of answers.
    tokens: [IntCounter; 2],
    /// `None` if items do not join and leave replicas one by one.
    pub(super) steps: Option<StepMeters>,
}

/// The metrics of one replica.
#[derive(Debug)]
struct ReplicaMeters {
    /// Its number among those of its deployment.
    number: u32,
    busy: Counter,
    batches: IntCounter,
    items: IntCounter,
}

/// How long workers take to decode and to encode batches.
#[derive(Debug)]
struct CodingMeters {
    decode_seconds: Histogram,
    encode_seconds: Histogram,
}

/// Seconds of items in the phases that the engine knows.
#[derive(Debug)]
struct Phases {
    queue: f64,
    predict: f64,
    decode: f64,
    encode: f64,
    /// From launch to results without `predict`: what of it is neither decoding nor encoding is the link.
    beside: f64,
    /// `queue`, `link`, `decode`, `predict`, `encode`.
    shown: [Counter; 5],
}

impl Phases {
    fn show(&self) {
        let link = self.beside - self.decode - self.encode;
        let sums = [self.queue, link, self.decode, self.predict, self.encode];
        // A batch whose end has not been reported yet has its items in `beside` only, so the link may seem to shrink.
        self.shown.iter().zip(sums).for_each(|(shown, sum)| shown.inc_by((sum - shown.get()).max(0.0)));
    }
}

/// Why items are computed again; a metric label.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rerun {
    WorkerLost,
    Split,
    OutOfMemory,
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
            coding: (!joins).then(|| CodingMeters {
                decode_seconds: histogram(metrics::DECODE_SECONDS),
                encode_seconds: histogram(metrics::ENCODE_SECONDS),
            }),
            phases: Phases {
                queue: 0.0,
                predict: 0.0,
                decode: 0.0,
                encode: 0.0,
                beside: 0.0,
                shown: ["queue", "link", "decode", "predict", "encode"]
                    .map(|phase| telemetry.total(metrics::PHASE_SECONDS, &[deployment, phase])),
            },
            batches: CloseReason::ALL.map(|reason| telemetry.counter(metrics::BATCHES, &[deployment, reason.label()])),
            hedged_items: counter(metrics::HEDGED_ITEMS),
            reruns: ["worker_lost", "split", "out_of_memory"]
                .map(|why| telemetry.counter(metrics::RERUNS, &[deployment, why])),
            batch_cost: counter(metrics::BATCH_COST),
            padded_cost: counter(metrics::PADDED_COST),
            queued_items: gauge(metrics::QUEUED_ITEMS),
            queued_bytes: gauge(metrics::QUEUED_BYTES),
            lanes: gauge(metrics::LANES),
            oldest_item: level(metrics::OLDEST_ITEM),
            predicted_wait: level(metrics::PREDICTED_WAIT),
            running_items: gauge(metrics::RUNNING_ITEMS),
            ready_replicas: gauge(metrics::READY_REPLICAS),
            hold_seconds: histogram(metrics::HOLD_SECONDS),
            launch_cost: level(metrics::LAUNCH_COST),
            item_cost: level(metrics::ITEM_COST),
            arrival_rate: level(metrics::ARRIVAL_RATE),
            returns: level(metrics::RETURNS),
            replica_speed: telemetry.levels(metrics::REPLICA_SPEED),
            link_round_trip: telemetry.levels(metrics::LINK_ROUND_TRIP),
            link_bandwidth: telemetry.levels(metrics::LINK_BANDWIDTH),
            worker_busy: telemetry.totals(metrics::WORKER_BUSY),
            worker_batches: telemetry.counters(metrics::WORKER_BATCHES),
            worker_items: telemetry.counters(metrics::WORKER_ITEMS),
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
        let labels = [self.deployment.as_str(), &number.to_string()];
        let meters = ReplicaMeters {
            number,
            busy: self.worker_busy.with_label_values(&labels),
            batches: self.worker_batches.with_label_values(&labels),
            items: self.worker_items.with_label_values(&labels),
        };
        self.replicas.insert(replica, meters);
    }

    /// The number of a replica among those of its deployment; 0 if it is not known.
    pub(super) fn number(&self, replica: ReplicaId) -> u64 {
        self.replicas.get(&replica).map_or(0, |replica| replica.number.into())
    }

    /// A replica is lost.
    pub(super) fn replica_lost(&mut self, replica: ReplicaId) {
        if let Some(meters) = self.replicas.remove(&replica) {
            // What was not learned is not there.
            for learned in [&self.replica_speed, &self.link_round_trip, &self.link_bandwidth] {
                let _ = learned.remove_label_values(&[&self.deployment, &meters.number.to_string()]);
            }
        }
    }

    /// A replica takes this many times as long as the median one.
    pub(super) fn show_factor(&self, replica: ReplicaId, factor: f64) {
        if let Some(meters) = self.replicas.get(&replica) {
            let labels = [&self.deployment, &meters.number.to_string()];
            self.replica_speed.with_label_values(&labels).set(rounded(1.0 / factor));
        }
    }

    /// The way to a replica on another machine.
    pub(super) fn show_way(&self, replica: ReplicaId, way: &LinkWay) {
        if let Some(meters) = self.replicas.get(&replica) {
            let labels = [&self.deployment, &meters.number.to_string()];
            let bandwidth = if way.s_per_byte() > 0.0 { 1.0 / way.s_per_byte() } else { 0.0 };
            self.link_round_trip.with_label_values(&labels).set(rounded(way.round_trip_s()));
            self.link_bandwidth.with_label_values(&labels).set(rounded(bandwidth));
        }
    }

    /// The speed of a replica, as `/config` shows it.
    pub(super) fn replica_seen(&self, replica: ReplicaId, factor: f64) -> Option<ReplicaSeen> {
        let number = self.replicas.get(&replica)?.number;
        Some(ReplicaSeen { replica: number, speed: (1e3 / factor).round() / 1e3 })
    }

    /// An item was computed. In an open set all of its time with the replica is that of the model.
    pub(super) fn item_computed(&mut self, timing: &Timing, joins: bool) {
        let (predict, beside) =
            if joins { (timing.model + timing.batch, Duration::ZERO) } else { (timing.model, timing.batch) };
        self.phases.queue += timing.queue.as_secs_f64();
        self.phases.predict += predict.as_secs_f64();
        self.phases.beside += beside.as_secs_f64();
    }

    /// A replica has computed a batch, of which so many items were answered.
    pub(super) fn batch_computed(&mut self, replica: ReplicaId, items: usize, durations: &Durations) {
        let Durations { decode, predict, encode } = durations;
        self.model_seconds.observe(predict.as_secs_f64());
        if let Some(coding) = &self.coding {
            coding.decode_seconds.observe(decode.as_secs_f64());
            coding.encode_seconds.observe(encode.as_secs_f64());
        }
        self.phases.decode += decode.as_secs_f64() * items as f64;
        self.phases.encode += encode.as_secs_f64() * items as f64;
        self.worked(replica, *predict, items);
    }

    /// A replica was in `predict` for so long, for a batch or a step, and so many items have ended with it.
    pub(super) fn worked(&self, replica: ReplicaId, predict: Duration, items: usize) {
        if let Some(meters) = self.replicas.get(&replica) {
            meters.busy.inc_by(predict.as_secs_f64());
            meters.batches.inc();
            meters.items.inc_by(items as u64);
        }
    }

    /// A batch took more than one call of `predict`.
    pub(super) fn batch_rerun(&self, why: Rerun) {
        self.reruns[why as usize].inc();
    }

    /// So many items of lost workers have waited again so far.
    pub(super) fn show_items_put_back(&self, items: u64) {
        let counter = &self.reruns[Rerun::WorkerLost as usize];
        counter.inc_by(items.saturating_sub(counter.get()));
    }

    /// Brings the sums of the phases up to date.
    pub(super) fn show_phases(&self) {
        self.phases.show();
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
