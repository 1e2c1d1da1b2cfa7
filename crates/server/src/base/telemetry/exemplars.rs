//! Requests that stand for others: the last traced one in each bucket of the durations of requests. Scrapers that ask for
//! `OpenMetrics` get their trace ids next to the buckets.

use jitney_core::tables::metrics;
use jitney_core::tables::metrics::Kind;
use jitney_core::tables::outcome::Ending;
use rustc_hash::FxHashMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// One request whose trace is kept.
#[derive(Clone, Copy, Debug)]
struct Exemplar {
    trace: u128,
    length: Duration,
    /// When it ended.
    at: SystemTime,
}

/// The buckets of one deployment, for each way in which requests end.
type Rows = [Vec<Option<Exemplar>>; Ending::ALL.len()];

/// The exemplars of `jitney_request_duration_seconds`, by deployment.
#[derive(Debug, Default)]
pub(crate) struct Exemplars(Mutex<FxHashMap<Box<str>, Rows>>);

/// The upper bounds of the buckets but for the last, which has none.
fn bounds() -> &'static [f64] {
    match metrics::REQUEST_SECONDS.0.kind {
        Kind::Histogram(bounds) => bounds,
        _ => unreachable!("the type of the row says that it is a histogram"),
    }
}

impl Exemplars {
    /// A request of this deployment has ended so, after the duration that its histogram counts, and its trace is kept.
    pub(crate) fn add(&self, deployment: &str, ending: Ending, trace: u128, length: Duration) {
        let bucket = bounds().partition_point(|&bound| bound < length.as_secs_f64());
        let exemplar = Exemplar { trace, length, at: SystemTime::now() };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains_key(deployment) {
            all.insert(deployment.into(), Rows::default().map(|_| vec![None; bounds().len() + 1]));
        }
        all.get_mut(deployment).into_iter().for_each(|rows| rows[ending as usize][bucket] = Some(exemplar));
    }

    /// What stands behind the sample of each bucket that has one, by the sample's name and labels in the Prometheus text format.
    pub(crate) fn by_sample(&self) -> FxHashMap<String, String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut samples = FxHashMap::default();
        let rows = all.iter().flat_map(|(deployment, rows)| {
            Ending::ALL.iter().zip(rows).map(move |(e, row)| (deployment, e.label(), row))
        });
        for (deployment, result, row) in rows {
            let bounds = bounds().iter().map(f64::to_string).chain(["+Inf".to_owned()]);
            for (bound, exemplar) in bounds.zip(row).filter_map(|(bound, one)| Some((bound, (*one)?))) {
                let name = metrics::REQUEST_SECONDS.0.name;
                let sample = format!("{name}_bucket{{deployment=\"{deployment}\",result=\"{result}\",le=\"{bound}\"}}");
                samples.insert(sample, exemplar.text());
            }
        }
        samples
    }
}

impl Exemplar {
    fn text(&self) -> String {
        let (seconds, at) = (self.length.as_secs_f64(), self.at.duration_since(UNIX_EPOCH).unwrap_or_default());
        let mut text = String::new();
        let _ = write!(text, " # {{trace_id=\"{:032x}\"}} {seconds} {:.3}", self.trace, at.as_secs_f64());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::telemetry::{Telemetry, openmetrics};

    #[test]
    fn the_last_trace_of_a_bucket_stands_behind_its_sample() {
        let (telemetry, exemplars) = (Telemetry::new(), Exemplars::default());
        let [seconds, ..] = telemetry.endings(metrics::REQUEST_SECONDS, "m");
        for (length, trace) in [(1.2, 1), (1.0, 2), (1.3, 3), (100.0, 4)] {
            seconds.observe(length);
            exemplars.add("m", Ending::Ok, trace, Duration::from_secs_f64(length));
        }
        exemplars.add("another", Ending::Failed, 5, Duration::from_secs(1));
        let text = openmetrics::from_prometheus(&telemetry.text(), &exemplars.by_sample());
        let shown: Vec<_> = text.lines().filter_map(|line| line.split_once(" # ")).collect();
        let part = |bound| format!("_bucket{{deployment=\"m\",result=\"ok\",le=\"{bound}\"}} ");
        for ((sample, exemplar), (bound, count, trace, value)) in
            shown.iter().zip([("1.0", 1, 2, "1"), ("1.5", 3, 3, "1.3"), ("+Inf", 4, 4, "100")])
        {
            assert!(sample.ends_with(&format!("{}{count}", part(bound))), "{sample}");
            assert!(exemplar.starts_with(&format!("{{trace_id=\"{trace:032}\"}} {value} ")), "{exemplar}");
        }
        assert_eq!(shown.len(), 3, "{text}");
    }
}
