//! The phases of a request that only a protocol knows: until its items are decoded, and the writing of its answer.

use crate::base::telemetry::Telemetry;
use jitney_core::tables::metrics;
use prometheus::Counter;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Sums of one deployment. Adding is one atomic operation; the metric is brought up to date when somebody looks.
#[derive(Debug)]
pub(crate) struct ExchangePhases {
    receive: Sum,
    render: Sum,
}

/// Nanoseconds that the metric does not have yet.
#[derive(Debug)]
struct Sum(AtomicU64, Counter);

impl Sum {
    fn add(&self, length: Duration) {
        self.0.fetch_add(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn show(&self) {
        self.1.inc_by(self.0.swap(0, Ordering::Relaxed) as f64 / 1e9);
    }
}

impl ExchangePhases {
    /// Those of a deployment.
    pub(super) fn new(telemetry: &Telemetry, deployment: &str) -> ExchangePhases {
        let sum = |phase| Sum(AtomicU64::new(0), telemetry.total(metrics::PHASE_SECONDS, &[deployment, phase]));
        ExchangePhases { receive: sum("receive"), render: sum("render") }
    }

    /// The items of a request were decoded so long after its head arrived.
    pub(crate) fn received(&self, length: Duration) {
        self.receive.add(length);
    }

    /// An answer was written in this time.
    pub(crate) fn rendered(&self, length: Duration) {
        self.render.add(length);
    }

    /// Brings the metric up to date.
    pub(super) fn show(&self) {
        self.receive.show();
        self.render.show();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_shown_is_not_shown_again() {
        let telemetry = Telemetry::new();
        let phases = ExchangePhases::new(&telemetry, "a");
        phases.received(Duration::from_millis(500));
        phases.show();
        phases.received(Duration::from_millis(250));
        phases.rendered(Duration::from_secs(1));
        phases.show();
        phases.show();
        let text = telemetry.text();
        assert!(text.contains(r#"{deployment="a",phase="receive"} 0.75"#), "{text}");
        assert!(text.contains(r#"{deployment="a",phase="render"} 1"#), "{text}");
    }
}
