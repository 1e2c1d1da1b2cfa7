//! A run as the document has it. The fields are described in docs/design/0011.

use super::answer::SOCKETS;
use super::histogram::Quantiles;
use super::intervals::{Interval, Window};
use super::totals::{Kind, Totals};
use serde::Serialize;
use std::collections::BTreeMap;

const SECOND_NS: f64 = 1e9;
/// Above this share of a core the generator had nothing in reserve.
const BUSY: f64 = 0.9;
/// Above this share of late requests the schedule was not kept …
const LATE: f64 = 0.01;
/// … if the latest hundredth was late by more than this share of the median latency: less changes no figure.
const LATE_OF_LATENCY: f64 = 0.05;

/// One run.
#[derive(Debug, Serialize)]
pub struct Summary {
    window_s: f64,
    requests: Requests,
    items_answered: u64,
    items_failed: u64,
    outcomes: Vec<Outcome>,
    rate_per_s: f64,
    items_per_s: f64,
    latency_ms: Option<Quantiles>,
    refused_latency_ms: Option<Quantiles>,
    latency_curve: Vec<(f64, f64)>,
    latency_histogram_us: String,
    server_ms: Option<Split>,
    batch_sizes: Option<BTreeMap<u32, u64>>,
    parts: Option<Parts>,
    series: Vec<Point>,
    client: Client,
}

#[derive(Debug, Serialize)]
struct Requests {
    due: u64,
    answered: u64,
    refused: u64,
    failed: u64,
}

#[derive(Debug, Serialize)]
struct Outcome {
    status: u16,
    reason: String,
    kind: Kind,
    requests: u64,
}

#[derive(Debug, Serialize)]
struct Split {
    queue: Option<Quantiles>,
    batch: Option<Quantiles>,
    model: Option<Quantiles>,
    first_part: Option<Quantiles>,
}

/// Answers that came in parts.
#[derive(Debug, Serialize)]
struct Parts {
    count: u64,
    rate_per_s: f64,
    tokens_per_s: Option<f64>,
    first_ms: Option<Quantiles>,
    gap_ms: Option<Quantiles>,
    first_curve: Vec<(f64, f64)>,
    gap_curve: Vec<(f64, f64)>,
    first_histogram_us: String,
    gap_histogram_us: String,
}

/// One interval.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    from_s: f64,
    to_s: f64,
    due: u64,
    answered: u64,
    refused: u64,
    failed: u64,
    rate_per_s: f64,
    p50_ms: Option<f64>,
    p95_ms: Option<f64>,
    p99_ms: Option<f64>,
    max_ms: Option<f64>,
    queue_mean_ms: Option<f64>,
    model_mean_ms: Option<f64>,
    batch_mean_items: Option<f64>,
    parts_per_s: f64,
    first_p50_ms: Option<f64>,
    first_p95_ms: Option<f64>,
    first_p99_ms: Option<f64>,
    gap_p50_ms: Option<f64>,
    gap_p95_ms: Option<f64>,
    gap_p99_ms: Option<f64>,
    client_cpu: f64,
    client_waited: f64,
}

#[derive(Debug, Serialize)]
struct Client {
    cpu: f64,
    waited: f64,
    connections_opened: u64,
    late_ms: Option<Quantiles>,
    late_share: f64,
    held_share: f64,
    is_limit: bool,
    why: Option<String>,
}

impl Point {
    /// The point of this interval.
    pub fn new(window: &Window, number: usize, interval: &Interval) -> Point {
        let (from_ns, to_ns) = window.interval(number);
        let seconds = (to_ns - from_ns) as f64 / SECOND_NS;
        let latency = interval.latency.quantiles();
        let (first, gap) = (interval.first_part.quantiles(), interval.parts.gap.quantiles());
        Point {
            from_s: (from_ns - window.from_ns) as f64 / SECOND_NS,
            to_s: (to_ns - window.from_ns) as f64 / SECOND_NS,
            due: interval.due,
            answered: interval.answered,
            refused: interval.refused,
            failed: interval.failed,
            rate_per_s: interval.answered as f64 / seconds,
            p50_ms: latency.map(|of| of.p50),
            p95_ms: latency.map(|of| of.p95),
            p99_ms: latency.map(|of| of.p99),
            max_ms: latency.map(|of| of.max),
            queue_mean_ms: mean(interval.queue_us, interval.timed).map(|us| us / 1e3),
            model_mean_ms: mean(interval.model_us, interval.timed).map(|us| us / 1e3),
            batch_mean_items: mean(interval.batch_items, interval.batched),
            parts_per_s: interval.parts.count as f64 / seconds,
            first_p50_ms: first.map(|of| of.p50),
            first_p95_ms: first.map(|of| of.p95),
            first_p99_ms: first.map(|of| of.p99),
            gap_p50_ms: gap.map(|of| of.p50),
            gap_p95_ms: gap.map(|of| of.p95),
            gap_p99_ms: gap.map(|of| of.p99),
            client_cpu: interval.cpu_ns as f64 / SECOND_NS / seconds,
            client_waited: interval.waited_ns as f64 / SECOND_NS / seconds,
        }
    }
}

impl Summary {
    /// What all threads have counted, as one run.
    pub fn new(window: &Window, totals: &Totals, series: Vec<Point>) -> Summary {
        let seconds = (window.to_ns - window.from_ns) as f64 / SECOND_NS;
        let [answered, refused, failed] = [Kind::Answered, Kind::Refused, Kind::Failed].map(|kind| totals.count(kind));
        let rate_per_s = series.iter().map(|point| point.answered).sum::<u64>() as f64 / seconds;
        let outcomes = totals.ends.iter().map(|((kind, status, reason), &requests)| {
            let reason = if *kind == Kind::Answered && reason.is_empty() { "ok".to_owned() } else { reason.clone() };
            Outcome { status: *status, reason, kind: *kind, requests }
        });
        let split = Split {
            queue: totals.queue.quantiles(),
            batch: totals.batch.quantiles(),
            model: totals.model.quantiles(),
            first_part: totals.first_part_in_server.quantiles(),
        };
        Summary {
            window_s: seconds,
            requests: Requests { due: answered + refused + failed, answered, refused, failed },
            items_answered: totals.items_answered,
            items_failed: totals.items_failed,
            outcomes: outcomes.collect(),
            rate_per_s,
            // Each answered request has as many items as the average one.
            items_per_s: rate_per_s * mean(totals.items_answered, answered).unwrap_or(0.0),
            latency_ms: totals.latency.quantiles(),
            refused_latency_ms: totals.refused_latency.quantiles(),
            latency_curve: totals.latency.curve(),
            latency_histogram_us: totals.latency.encode(),
            server_ms: split.queue.is_some().then_some(split),
            batch_sizes: (!totals.batch_sizes.is_empty()).then(|| totals.batch_sizes.clone()),
            parts: (totals.parts.count > 0).then(|| Parts::new(totals, seconds)),
            client: client(totals, &series, seconds),
            series,
        }
    }
}

impl Parts {
    fn new(totals: &Totals, seconds: f64) -> Parts {
        let rate_per_s = totals.parts.count as f64 / seconds;
        Parts {
            count: totals.parts.count,
            rate_per_s,
            // Tokens are known when an answer has ended; each part has as many as the average one.
            tokens_per_s: mean(totals.tokens.0, totals.tokens.1).map(|tokens| tokens * rate_per_s),
            first_ms: totals.first_part.quantiles(),
            gap_ms: totals.parts.gap.quantiles(),
            first_curve: totals.first_part.curve(),
            gap_curve: totals.parts.gap.curve(),
            first_histogram_us: totals.first_part.encode(),
            gap_histogram_us: totals.parts.gap.encode(),
        }
    }
}

fn client(totals: &Totals, series: &[Point], seconds: f64) -> Client {
    let share = |of: fn(&Point) -> f64| {
        series.iter().map(|point| of(point) * (point.to_s - point.from_s)).sum::<f64>() / seconds
    };
    let (cpu, waited) = (share(|point| point.client_cpu), share(|point| point.client_waited));
    let late_share = mean(totals.late_count, totals.late.count()).unwrap_or(0.0);
    let requests: u64 = totals.ends.values().sum();
    let without_socket: u64 =
        totals.ends.iter().filter(|((_, _, reason), _)| reason == SOCKETS).map(|(_, count)| count).sum();
    let why = if without_socket > 0 {
        Some(format!(
            "the client had no socket for {without_socket} of {requests} requests; raise its limit of open files (ulimit -n), \
             or let the server keep connections open"
        ))
    } else if cpu > BUSY {
        Some(format!("the client computed for {:.0} % of its core; give it more --threads", cpu * 100.0))
    } else if cpu + waited > BUSY {
        Some(format!(
            "the client computed for {:.0} % of the time and waited for a core for another {:.0} %; give it a core or a \
             machine of its own",
            cpu * 100.0,
            waited * 100.0
        ))
    } else if late_share > LATE && totals.late.quantile_ms(0.99) > LATE_OF_LATENCY * totals.latency.quantile_ms(0.5) {
        Some(format!(
            "{:.1} % of the requests were sent more than 1 ms late; lower the rate, or give the client more --threads or \
             a machine of its own",
            late_share * 100.0
        ))
    } else {
        None
    };
    Client {
        cpu,
        waited,
        connections_opened: totals.connections_opened,
        late_ms: totals.late.quantiles(),
        late_share,
        held_share: mean(totals.held_count, requests).unwrap_or(0.0),
        is_limit: why.is_some(),
        why,
    }
}

fn mean(sum: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum as f64 / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::answer::Answer;
    use crate::rules::intervals::Recorder;
    use crate::rules::parts::Streamed;

    const SECOND_NS: u64 = 1_000_000_000;

    fn summary(cpu_ns: u64, waited_ns: u64, late_ns: u64) -> serde_json::Value {
        let window = Window { from_ns: 0, to_ns: SECOND_NS, interval_ns: SECOND_NS };
        let mut recorder = Recorder::new(window, true, 4);
        recorder.due(5);
        recorder.sent(5, 5 + late_ns);
        recorder.ended(5, 2_000_005, &Ok(Answer { status: 200, batch_size: Some(3), ..Answer::default() }));
        let interval = Interval { cpu_ns, waited_ns, ..recorder.close() };
        let points = vec![Point::new(&window, 0, &interval)];
        serde_json::to_value(Summary::new(&window, &recorder.finish(), points)).unwrap()
    }

    #[test]
    fn what_was_counted_is_told() {
        let document = summary(0, 0, 0);
        assert_eq!(document["requests"]["answered"], 1);
        assert_eq!(document["items_per_s"], 4.0);
        assert_eq!(document["batch_sizes"]["3"], 1);
        assert_eq!(document["latency_ms"]["p50"], 2.0);
        assert_eq!(document["server_ms"], serde_json::Value::Null);
        assert_eq!(document["outcomes"][0]["reason"], "ok");
        assert_eq!(document["parts"], serde_json::Value::Null);
    }

    #[test]
    fn answers_in_parts_have_figures_of_their_parts() {
        let window = Window { from_ns: 0, to_ns: 2 * SECOND_NS, interval_ns: 2 * SECOND_NS };
        let mut recorder = Recorder::new(window, true, 1);
        recorder.parts(None, 1_000_000, 1);
        recorder.parts(Some(1_000_000), 3_000_000, 3);
        let streamed = Streamed { parts: 4, tokens: Some(8), first_part_ns: Some(1_000_000), ..Streamed::default() };
        recorder.ended(0, 6_000_000, &Ok(Answer { status: 200, streamed: Some(streamed), ..Answer::default() }));
        let points = vec![Point::new(&window, 0, &recorder.close())];
        let document = serde_json::to_value(Summary::new(&window, &recorder.finish(), points)).unwrap();
        let parts = &document["parts"];
        assert_eq!(
            (&parts["count"], &parts["rate_per_s"], &parts["tokens_per_s"]),
            (&4.into(), &2.0.into(), &4.0.into())
        );
        assert_eq!((&parts["first_ms"]["p50"], &parts["gap_ms"]["max"]), (&1.0.into(), &2.0.into()));
        assert_eq!(
            (&document["series"][0]["parts_per_s"], &document["series"][0]["gap_p50_ms"]),
            (&2.0.into(), &0.0.into())
        );
    }

    #[test]
    fn a_client_that_was_the_limit_says_so_and_what_to_do() {
        assert_eq!(summary(SECOND_NS / 2, 0, 1000)["client"]["is_limit"], false);
        for (cpu_ns, waited_ns, late_ns, remedy) in [
            (SECOND_NS, 0, 0, "--threads"),
            (SECOND_NS / 2, SECOND_NS / 2, 0, "a core"),
            (0, 0, 5_000_000, "lower the rate"),
        ] {
            let client = &summary(cpu_ns, waited_ns, late_ns)["client"];
            assert_eq!(client["is_limit"], true);
            assert!(client["why"].as_str().unwrap().contains(remedy), "{client}");
        }
    }
}
