//! Requests over HTTP, whatever they ask for: also those that reach no deployment.

use crate::base::telemetry::Telemetry;
use hyper::StatusCode;
use jitney_core::tables::metrics;
use prometheus::IntCounter;

const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// A counter for each protocol and each class of status.
#[derive(Debug)]
pub(crate) struct HttpRequests(Vec<(&'static str, [IntCounter; 4])>);

impl HttpRequests {
    /// Those of the protocols with these names.
    pub(crate) fn new(telemetry: &Telemetry, protocols: &[&'static str]) -> HttpRequests {
        let of =
            |&protocol| (protocol, CLASSES.map(|class| telemetry.counter(metrics::HTTP_REQUESTS, &[protocol, class])));
        HttpRequests(protocols.iter().map(of).collect())
    }

    /// A request of this protocol was answered with this status.
    pub(crate) fn count(&self, protocol: &str, status: StatusCode) {
        let counters = self.0.iter().find(|(name, _)| *name == protocol);
        let class = usize::from(status.as_u16() / 100).wrapping_sub(2);
        if let Some(counter) = counters.and_then(|(_, counters)| counters.get(class)) {
            counter.inc();
        }
    }
}
