//! The metrics of answers that are taken part by part, measured where a part is handed to the connection.

use crate::base::telemetry::Telemetry;
use jitney_core::config::manifest::DeploymentManifest;
use jitney_core::tables::metrics;
use jitney_core::tables::outcome::Outcome;
use prometheus::{Histogram, IntCounter};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The metrics of the streams of one deployment.
#[derive(Debug)]
pub(crate) struct StreamMeters {
    first_part_seconds: Histogram,
    part_gap_seconds: Histogram,
    outcomes: Vec<IntCounter>,
}

impl StreamMeters {
    /// Counts a stream that has ended.
    pub(super) fn count(&self, outcome: Outcome) {
        self.outcomes[outcome as usize].inc();
    }

    /// The metrics of a deployment; `None` if its answers have no parts.
    pub(super) fn of(manifest: &DeploymentManifest, telemetry: &Telemetry) -> Option<Arc<StreamMeters>> {
        manifest.output.part.as_ref()?;
        let name = &manifest.name;
        Some(Arc::new(StreamMeters {
            first_part_seconds: telemetry.histogram(metrics::FIRST_PART_SECONDS, &[name]),
            part_gap_seconds: telemetry.histogram(metrics::PART_GAP_SECONDS, &[name]),
            outcomes: telemetry.outcomes(metrics::STREAMS, name),
        }))
    }
}

/// Measures one stream. It is counted as cancelled if this is dropped before its end. The ticket of the request counts its end.
#[derive(Debug)]
pub(crate) struct StreamTimer {
    /// `None` after the end.
    meters: Option<Arc<StreamMeters>>,
    started: Instant,
    /// When the last part was handed over.
    last_part: Option<Instant>,
    /// How long it took until the first part was handed over.
    first_part: Option<Duration>,
}

impl StreamTimer {
    /// Of a stream whose request arrived now.
    pub(crate) fn new(meters: Option<Arc<StreamMeters>>) -> StreamTimer {
        StreamTimer { meters, started: Instant::now(), last_part: None, first_part: None }
    }

    /// When its request arrived.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// How long it took until the first part was handed over.
    pub(crate) fn first_part(&self) -> Option<Duration> {
        self.first_part
    }

    /// A part is handed to the connection.
    pub(crate) fn part(&mut self) {
        let now = Instant::now();
        let last = self.last_part.replace(now);
        let length = now - last.unwrap_or(self.started);
        if last.is_none() {
            self.first_part = Some(length);
        }
        if let Some(meters) = &self.meters {
            let histogram = if last.is_none() { &meters.first_part_seconds } else { &meters.part_gap_seconds };
            histogram.observe(length.as_secs_f64());
        }
    }

    /// The stream has ended. The ticket of its request counts it here when its end has been written.
    pub(crate) fn end(&mut self) -> Option<Arc<StreamMeters>> {
        self.meters.take()
    }
}

impl Drop for StreamTimer {
    fn drop(&mut self) {
        if let Some(meters) = self.end() {
            meters.count(Outcome::Cancelled);
        }
    }
}
