//! The metrics of one engine.

use crate::base::telemetry::Telemetry;
use jitney_core::policy::batch_policy::CloseReason;
use jitney_core::tables::metrics;
use prometheus::{Gauge, Histogram, IntCounter, IntGauge};

/// The metrics that one engine writes.
#[derive(Debug)]
pub(super) struct Meters {
    pub(super) queue_seconds: Histogram,
    pub(super) model_seconds: Histogram,
    pub(super) batch_items: Histogram,
    pub(super) batches: [IntCounter; CloseReason::ALL.len()],
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
}

impl Meters {
    pub(super) fn new(telemetry: &Telemetry, deployment: &str) -> Meters {
        let gauge = |metric| telemetry.gauge(metric, &[deployment]);
        let level = |metric| telemetry.level(metric, &[deployment]);
        let histogram = |metric| telemetry.histogram(metric, &[deployment]);
        Meters {
            queue_seconds: histogram(metrics::QUEUE_SECONDS),
            model_seconds: histogram(metrics::MODEL_SECONDS),
            batch_items: histogram(metrics::BATCH_ITEMS),
            batches: CloseReason::ALL.map(|reason| telemetry.counter(metrics::BATCHES, &[deployment, reason.label()])),
            batch_cost: telemetry.counter(metrics::BATCH_COST, &[deployment]),
            padded_cost: telemetry.counter(metrics::PADDED_COST, &[deployment]),
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
