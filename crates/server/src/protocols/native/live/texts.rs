//! Words of the live page: the line of a deployment, and why batches are closed.

use crate::engine::deployment::live::histogram::Quantiles;
use crate::engine::deployment::live::why::{count, number};
use jitney_core::policy::batch_policy::CloseReason;

/// What the line of a deployment says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Line {
    pub(crate) ready: u64,
    pub(crate) wanted: u64,
    /// The front carries it out with other deployments.
    pub(crate) is_composed: bool,
    /// Per second: requests that were answered, refused, and that failed through the model or the server.
    pub(crate) answered_per_s: f64,
    pub(crate) refused_per_s: f64,
    pub(crate) failed_per_s: f64,
    /// Of five minutes.
    pub(crate) quantiles: Option<Quantiles>,
    pub(crate) queued: u64,
    pub(crate) oldest_s: f64,
    /// Items in a batch on average, if any was launched, and at most.
    pub(crate) mean_batch: Option<f64>,
    pub(crate) most_batch: u64,
    /// Items that are computed now, where items join and leave replicas one by one.
    pub(crate) active: Option<u64>,
}

/// The line of a deployment as a sentence.
pub(crate) fn line(line: &Line) -> String {
    let replicas = if line.is_composed { None } else { Some(format!("ready {}/{}", line.ready, line.wanted)) };
    let quantiles = line.quantiles.map(|found| {
        let [p50, p95, p99] = [found.p50_ms, found.p95_ms, found.p99_ms].map(number);
        format!("p50 {p50} p95 {p95} p99 {p99} ms")
    });
    let waiting = match line.queued {
        _ if line.is_composed => None,
        0 => Some("nothing waiting".into()),
        queued => Some(format!("{} waiting, oldest {} ms", count(queued), number(line.oldest_s * 1e3))),
    };
    let batches = match (line.active, line.mean_batch) {
        (Some(active), _) => Some(format!("{} of {} at work", count(active), count(line.most_batch * line.ready))),
        (None, mean) => mean.map(|mean| format!("batches of {} of {}", size(mean), line.most_batch)),
    };
    let share = |rate: f64, what: &str| (rate > 0.0).then(|| format!("{}/s {what}", number(rate)));
    let (refused, failed) = (share(line.refused_per_s, "refused"), share(line.failed_per_s, "failed"));
    let fine = (refused.is_none() && failed.is_none()).then(|| "nothing refused".into());
    let parts = [replicas, Some(format!("{}/s", number(line.answered_per_s))), quantiles, waiting, batches, refused];
    parts.into_iter().chain([failed, fine]).flatten().collect::<Vec<_>>().join(" · ")
}

/// A mean number of items: a tenth matters only for small batches.
fn size(mean: f64) -> String {
    let text = number(mean);
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// Why batches were closed, as people say it.
pub(crate) fn closed(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::Full => "full",
        CloseReason::Eager => "a replica was free",
        CloseReason::Delay => "held for max_batch_delay_ms",
        CloseReason::Suspect => "a suspect of a lost worker ran alone",
        CloseReason::Returns => "held for clients who come back",
        CloseReason::Burst => "held for the rest of a burst",
        CloseReason::Pacing => "left to the next free replica",
        CloseReason::Deadline => "its oldest item could wait no longer",
        CloseReason::Share => "shared with other free replicas",
        CloseReason::Alike => "items of like length",
        CloseReason::Joined => "joined a running replica",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_reads_as_a_sentence() {
        let busy = Line {
            ready: 2,
            wanted: 2,
            answered_per_s: 4812.0,
            quantiles: Some(Quantiles { p50_ms: 3.1, p95_ms: 8.04, p99_ms: 12.2 }),
            queued: 1,
            oldest_s: 0.002,
            mean_batch: Some(27.0),
            most_batch: 64,
            ..Line::default()
        };
        let says = "ready 2/2 · 4,812/s · p50 3.1 p95 8.0 p99 12 ms · 1 waiting, oldest 2.0 ms · batches of 27 of 64 · \
                    nothing refused";
        assert_eq!(line(&busy), says);
        let refusing = Line { refused_per_s: 300.0, failed_per_s: 0.5, mean_batch: Some(1.0), ..busy };
        assert!(line(&refusing).ends_with("batches of 1 of 64 · 300/s refused · 0.5/s failed"), "{}", line(&refusing));
    }

    #[test]
    fn a_deployment_without_requests_or_replicas_says_no_more_than_it_knows() {
        let idle = Line { ready: 1, wanted: 1, ..Line::default() };
        assert_eq!(line(&idle), "ready 1/1 · 0/s · nothing waiting · nothing refused");
        assert_eq!(line(&Line { is_composed: true, ..idle }), "0/s · nothing refused");
        let steps = Line { active: Some(3), most_batch: 8, mean_batch: Some(1.0), ready: 2, wanted: 2, ..idle };
        assert_eq!(line(&steps), "ready 2/2 · 0/s · nothing waiting · 3 of 16 at work · nothing refused");
    }
}
