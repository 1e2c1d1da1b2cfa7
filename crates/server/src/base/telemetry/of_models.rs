//! Metrics that models count themselves: `jitney.counter` and `jitney.histogram`. Workers send what was added since the last
//! time; here it is summed up for each deployment.

use prometheus::proto;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Most metrics of one deployment.
const MOST_METRICS: usize = 50;
/// Most series of one metric of one deployment; `jitney.counter` allows no more.
const MOST_SERIES: usize = 100;
/// Names that models cannot have.
const RESERVED: [&str; 2] = ["jitney_", "process_"];

/// What one worker has added to one metric.
#[derive(Debug, Deserialize)]
struct Added {
    name: String,
    kind: Kind,
    help: String,
    labels: Vec<String>,
    #[serde(default)]
    buckets: Vec<f64>,
    series: Vec<AddedSeries>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Counter,
    Histogram,
}

#[derive(Debug, Deserialize)]
struct AddedSeries {
    labels: Vec<String>,
    value: f64,
    counts: Vec<u64>,
}

/// One metric, of all deployments that have it.
#[derive(Clone, Debug)]
struct Measure {
    kind: Kind,
    help: String,
    labels: Vec<String>,
    buckets: Vec<f64>,
    /// By deployment and label values: the sum, and the counts of the buckets.
    series: BTreeMap<(String, Vec<String>), (f64, Vec<u64>)>,
}

/// The metrics of all models.
#[derive(Debug, Default)]
pub(crate) struct OfModels {
    measures: BTreeMap<String, Measure>,
    /// Deployments of which something was refused, so that it is said once.
    refused: Vec<String>,
}

impl OfModels {
    /// Adds what a worker of this deployment sent. What cannot be kept is left out; the first time an error says why.
    pub(crate) fn add(&mut self, deployment: &str, body: &[u8]) -> Result<(), String> {
        let mut problem = None;
        match serde_json::from_slice::<Vec<Added>>(body) {
            Err(error) => problem = Some(format!("what the worker sent cannot be read: {error}")),
            Ok(added) => {
                for one in added {
                    if let Err(why) = self.add_one(deployment, one) {
                        problem.get_or_insert(why);
                    }
                }
            }
        }
        match problem {
            Some(why) if !self.refused.iter().any(|known| known == deployment) => {
                self.refused.push(deployment.to_owned());
                Err(why)
            }
            _ => Ok(()),
        }
    }

    fn add_one(&mut self, deployment: &str, added: Added) -> Result<(), String> {
        let Added { name, kind, help, labels, buckets, series } = added;
        let is_name = |name: &str| {
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
                && !name.starts_with(|first: char| first.is_ascii_digit())
                && !name.is_empty()
        };
        if RESERVED.iter().any(|prefix| name.starts_with(prefix))
            || !fits(kind, &name)
            || !std::iter::once(&name).chain(&labels).all(|name| is_name(name))
        {
            return Err(format!("metric {name:?}: a model cannot have a metric of this name or with these labels"));
        }
        let of_deployment = |measure: &&Measure| measure.series.keys().any(|(of, _)| of == deployment);
        if !self.measures.contains_key(&name) && self.measures.values().filter(of_deployment).count() >= MOST_METRICS {
            return Err(format!("metric {name:?}: a deployment can have {MOST_METRICS} metrics of its model at most"));
        }
        let family = |name: &str| name.strip_suffix("_total").unwrap_or(name).to_owned();
        let is_twin = |other: &&String| **other != name && family(other) == family(&name);
        if let Some(other) = self.measures.keys().find(is_twin) {
            return Err(format!(
                "metric {name:?}: {other:?} has the same name without _total; OpenMetrics allows one of them"
            ));
        }
        let declared =
            Measure { kind, help, labels: labels.clone(), buckets: buckets.clone(), series: BTreeMap::new() };
        let known = self.measures.entry(name.clone()).or_insert_with(|| declared.clone());
        if !known.is_like(&declared) {
            if let Some((other, _)) = known.series.keys().find(|(of, _)| of != deployment) {
                return Err(format!(
                    "metric {name:?}: deployment {other} has one of this name with other labels or buckets"
                ));
            }
            // Its own code has changed: the counts so far do not fit any more.
            *known = declared;
        }
        let counts_each = if kind == Kind::Histogram { buckets.len() + 1 } else { 0 };
        for AddedSeries { labels: values, value, counts } in series {
            if values.len() != labels.len() || counts.len() != counts_each || !value.is_finite() {
                return Err(format!("metric {name:?}: what the worker sent does not fit its labels or buckets"));
            }
            let key = (deployment.to_owned(), values);
            if !known.series.contains_key(&key) && known.series.len() >= MOST_SERIES * MOST_METRICS {
                return Err(format!("metric {name:?}: it has too many combinations of label values"));
            }
            let (sum, known_counts) = known.series.entry(key).or_insert_with(|| (0.0, vec![0; counts_each]));
            *sum += value;
            known_counts.iter_mut().zip(counts).for_each(|(known, count)| *known += count);
        }
        Ok(())
    }

    /// All of them, as the registry gives its own.
    pub(crate) fn gather(&self) -> Vec<proto::MetricFamily> {
        let shown = self.measures.iter().filter(|(_, measure)| !measure.series.is_empty());
        shown.map(|(name, measure)| measure.family(name)).collect()
    }
}

/// Whether a metric of this kind may have this name: a counter's ends in `_total`, and the samples of a histogram get endings.
fn fits(kind: Kind, name: &str) -> bool {
    match kind {
        Kind::Counter => name.strip_suffix("_total").is_some_and(|name| !name.is_empty()),
        Kind::Histogram => !["_total", "_bucket", "_sum", "_count"].iter().any(|ending| name.ends_with(ending)),
    }
}

impl Measure {
    /// Whether another one has the same kind, labels and buckets.
    fn is_like(&self, other: &Measure) -> bool {
        self.kind == other.kind && self.labels == other.labels && self.buckets == other.buckets
    }

    fn family(&self, name: &str) -> proto::MetricFamily {
        let mut family = proto::MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(self.help.clone());
        family.set_field_type(match self.kind {
            Kind::Counter => proto::MetricType::COUNTER,
            Kind::Histogram => proto::MetricType::HISTOGRAM,
        });
        let names = || std::iter::once("deployment").chain(self.labels.iter().map(String::as_str));
        let metrics = self.series.iter().map(|((deployment, values), (sum, counts))| {
            let pairs = names().zip(std::iter::once(deployment).chain(values)).map(|(name, value)| {
                let mut pair = proto::LabelPair::default();
                pair.set_name(name.to_owned());
                pair.set_value(value.clone());
                pair
            });
            let mut metric = proto::Metric::from_label(pairs.collect());
            match self.kind {
                Kind::Counter => {
                    let mut counter = proto::Counter::default();
                    counter.set_value(*sum);
                    metric.set_counter(counter);
                }
                Kind::Histogram => metric.set_histogram(histogram(*sum, counts, &self.buckets)),
            }
            metric
        });
        family.set_metric(metrics.collect());
        family
    }
}

fn histogram(sum: f64, counts: &[u64], bounds: &[f64]) -> proto::Histogram {
    let mut histogram = proto::Histogram::default();
    histogram.set_sample_count(counts.iter().sum());
    histogram.set_sample_sum(sum);
    let mut below = 0;
    let buckets = bounds.iter().zip(counts).map(|(&bound, count)| {
        below += count;
        let mut bucket = proto::Bucket::default();
        bucket.set_upper_bound(bound);
        bucket.set_cumulative_count(below);
        bucket
    });
    histogram.set_bucket(buckets.collect());
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::TextEncoder;

    fn text(of_models: &OfModels) -> String {
        TextEncoder::new().encode_to_string(&of_models.gather()).unwrap()
    }

    #[test]
    fn what_workers_add_is_summed_up_for_each_deployment() {
        let mut of_models = OfModels::default();
        let words = br#"[{"name": "words_total", "kind": "counter", "help": "Words.", "labels": ["language"],
            "series": [{"labels": ["en"], "value": 2.5, "counts": []}]}]"#;
        let scores =
            br#"[{"name": "score", "kind": "histogram", "help": "Scores.", "labels": [], "buckets": [0.5, 1.0],
            "series": [{"labels": [], "value": 3.0, "counts": [1, 2, 4]}]}]"#;
        for (deployment, body) in [("a", &words[..]), ("a", words), ("b", words), ("a", scores)] {
            of_models.add(deployment, body).unwrap();
        }
        let text = text(&of_models);
        for line in [
            "# TYPE words_total counter",
            r#"words_total{deployment="a",language="en"} 5"#,
            r#"words_total{deployment="b",language="en"} 2.5"#,
            r#"score_bucket{deployment="a",le="0.5"} 1"#,
            r#"score_bucket{deployment="a",le="1"} 3"#,
            r#"score_bucket{deployment="a",le="+Inf"} 7"#,
            r#"score_sum{deployment="a"} 3"#,
            r#"score_count{deployment="a"} 7"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn what_cannot_be_is_left_out_and_said_once() {
        let mut of_models = OfModels::default();
        let one = |name: &str, label: &str, counts: &str| {
            format!(
                r#"[{{"name": "{name}", "kind": "counter", "help": "", "labels": ["{label}"],
                "series": [{{"labels": ["x"], "value": 1, "counts": {counts}}}]}}]"#
            )
        };
        assert!(of_models.add("a", one("jitney_requests_total", "k", "[]").as_bytes()).is_err());
        assert!(of_models.add("a", one("jitney_requests_total", "k", "[]").as_bytes()).is_ok(), "it was said before");
        assert!(of_models.add("b", one("a\\nb", "k", "[]").as_bytes()).is_err());
        assert!(of_models.add("c", one("x_total", "k", "[1]").as_bytes()).is_err());
        assert!(of_models.add("d", one("y_total", "k", "[]").as_bytes()).is_ok());
        let other = of_models.add("e", one("y_total", "other", "[]").as_bytes()).unwrap_err();
        assert!(other.contains("deployment d has one"), "{other}");
        assert!(of_models.add("h", one("_total", "k", "[]").as_bytes()).is_err());
        let twin = br#"[{"name": "y", "kind": "histogram", "help": "", "labels": [], "buckets": [1.0],
            "series": [{"labels": [], "value": 1, "counts": [1, 0]}]}]"#;
        assert!(of_models.add("i", twin).unwrap_err().contains("\"y_total\" has the same name"));
        assert!(of_models.add("d", one("y_total", "changed", "[]").as_bytes()).is_ok(), "its code was reloaded");
        assert!(text(&of_models).contains(r#"y_total{deployment="d",changed="x"} 1"#), "{}", text(&of_models));
        assert!(of_models.add("f", b"{").is_err());
        assert!(!text(&of_models).contains("jitney_"), "{}", text(&of_models));
        for number in 0..2 * MOST_METRICS {
            let _ = of_models.add("g", one(&format!("z{number}_total"), "k", "[]").as_bytes());
        }
        assert_eq!(text(&of_models).matches(r#"deployment="g""#).count(), MOST_METRICS);
    }
}
