//! What state a deployment is in, and why, by the rules by which `jitney bench` says what limits a server.

use crate::engine::deployment::live::why::{count, number};
use serde::Serialize;
use std::fmt::Write;

/// From this share of its time on something has no reserve. `jitney bench` uses the same figure.
pub(crate) const FULL: f64 = 0.85;
/// A smaller share of requests that fail or are refused does not change the judgement.
const NOTABLE: f64 = 0.01;
/// So many workers of one deployment lost within five minutes are a fault, although others answer.
const LOSSES: u64 = 3;

/// One word, and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Judgement {
    pub(crate) word: Word,
    pub(crate) why: String,
}

/// The state of a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Word {
    #[serde(rename = "idle")]
    Idle,
    #[serde(rename = "fine")]
    Fine,
    #[serde(rename = "at its limit")]
    AtItsLimit,
    #[serde(rename = "refusing")]
    Refusing,
    #[serde(rename = "failing")]
    Failing,
    #[serde(rename = "loading")]
    Loading,
}

/// The last seconds of a deployment.
#[allow(clippy::struct_excessive_bools, reason = "independent facts about one deployment")]
#[derive(Clone, Debug, Default)]
pub(crate) struct Condition {
    /// How long they were, in seconds.
    pub(crate) length_s: f64,
    pub(crate) answered: u64,
    pub(crate) refused: u64,
    pub(crate) failed: u64,
    pub(crate) mistaken: u64,
    /// How most of the requests ended that were refused, and that failed.
    pub(crate) refused_as: Option<&'static str>,
    pub(crate) failed_as: Option<&'static str>,
    /// Replicas that are ready, and that there should be.
    pub(crate) ready: u64,
    pub(crate) wanted: u64,
    /// It has no replica because it was not used.
    pub(crate) sleeps: bool,
    /// It has no replicas: the front calls other deployments.
    pub(crate) is_composed: bool,
    /// The server ends.
    pub(crate) is_draining: bool,
    /// Workers lost within five minutes, and why the last one was.
    pub(crate) lost: u64,
    pub(crate) failure: Option<String>,
    /// What a replica that is not ready does, and for how many seconds.
    pub(crate) missing: Option<(&'static str, u64)>,
    /// The share of time for which the model computed, and for which replicas had a batch.
    pub(crate) busy: f64,
    pub(crate) occupied: f64,
    /// The slowest replica, and how many times as long as the median one it takes, if that is notable.
    pub(crate) slow: Option<(u32, f64)>,
    pub(crate) queued: u64,
    pub(crate) oldest_s: f64,
    /// Items in a batch on average, and at most.
    pub(crate) mean_batch: f64,
    pub(crate) most_batch: u64,
    /// Cores that the front used, and that all processes of the server used, of so many.
    pub(crate) front_cores: Option<f64>,
    pub(crate) used_cores: Option<f64>,
    pub(crate) cores: f64,
    /// Seconds without any request; `None` if no request has come within five minutes.
    pub(crate) quiet_s: Option<usize>,
    /// It has not been sampled for five minutes yet.
    pub(crate) is_new: bool,
}

/// The judgement. What is worst comes first.
pub(crate) fn judge(condition: &Condition) -> Judgement {
    let (word, mut why) = none_ready(condition)
        .or_else(|| failing(condition))
        .or_else(|| refusing(condition))
        .or_else(|| limit(condition).map(|why| (Word::AtItsLimit, why)))
        .or_else(|| idle(condition))
        .unwrap_or_else(|| fine(condition));
    if let (Word::Fine | Word::AtItsLimit, Some((replica, factor))) = (word, condition.slow) {
        let _ = write!(why, "; replica {replica} takes {} times as long as the others", number(factor));
    }
    Judgement { word, why }
}

fn none_ready(condition: &Condition) -> Option<(Word, String)> {
    let Condition { ready, wanted, missing, failure, .. } = condition;
    if condition.is_draining {
        return Some((Word::Refusing, "the server is shutting down".into()));
    }
    if *ready > 0 || condition.is_composed {
        return None;
    }
    if condition.sleeps {
        return Some((Word::Idle, "it has no replica because it was not used; the next request starts one".into()));
    }
    let state = missing.map(|(state, since_s)| format!(", {} for {since_s} s", state.replace('_', " ")));
    let none = format!("0 of {wanted} replicas are ready{}", state.unwrap_or_default());
    Some(match failure {
        Some(failure) if condition.lost > 0 => (Word::Failing, format!("{none}; the last one was lost: {failure}")),
        _ => (Word::Loading, none),
    })
}

fn failing(condition: &Condition) -> Option<(Word, String)> {
    let tried = condition.tried();
    if is_notable(condition.failed, tried) {
        let (how, seconds) = (condition.failed_as.unwrap_or("internal"), number(condition.length_s));
        return Some((
            Word::Failing,
            format!("{} of {} requests in {seconds} s failed: {how}", count(condition.failed), count(tried)),
        ));
    }
    if condition.ready < condition.wanted && condition.lost >= LOSSES {
        let Condition { ready, wanted, lost, .. } = condition;
        let failure = condition.failure.as_deref().unwrap_or("see the log");
        let why =
            format!("{lost} workers were lost in 5 minutes and {ready} of {wanted} replicas are ready: {failure}");
        return Some((Word::Failing, why));
    }
    None
}

fn refusing(condition: &Condition) -> Option<(Word, String)> {
    let tried = condition.tried();
    is_notable(condition.refused, tried).then(|| {
        let (how, seconds) = (condition.refused_as.unwrap_or("queue_full"), number(condition.length_s));
        let limit = limit(condition).map_or(String::new(), |limit| format!("; {limit}"));
        (
            Word::Refusing,
            format!(
                "{} of {} requests in {seconds} s were refused: {how}{limit}",
                count(condition.refused),
                count(tried)
            ),
        )
    })
}

/// What is at its limit. In the order of `jitney bench`: the model, the cores, and the front if neither is.
fn limit(condition: &Condition) -> Option<String> {
    let Condition { busy, occupied, queued, .. } = *condition;
    if busy >= FULL {
        let batches = if condition.mean_batch >= 0.9 * condition.most_batch as f64 {
            "its batches are full: add a replica, or make the model faster"
        } else {
            "add a replica, make the model faster, or let batches grow"
        };
        return Some(format!("the model computed {} of the time; {batches}", percent(busy)));
    }
    let used = condition.used_cores.filter(|&used| used >= FULL * condition.cores);
    if let (Some(used), Some(front)) = (used, condition.front_cores) {
        let (model, cores) = (used - front, condition.cores);
        return Some(format!(
            "all {cores:.0} cores are busy: the front uses {front:.1}, the workers {model:.1}; use a larger machine"
        ));
    }
    let is_waiting = queued > 0 && condition.oldest_s > 0.0;
    if let Some(front) = condition.front_cores.filter(|&front| is_waiting && front >= FULL) {
        return Some(format!(
            "the front uses {front:.1} cores and items wait; the model computed only {}",
            percent(busy)
        ));
    }
    (is_waiting && occupied >= FULL).then(|| {
        format!(
            "replicas had a batch {} of the time and computed only {} of it: the way to the worker, decoding or encoding \
             is the limit",
            percent(occupied),
            percent(busy)
        )
    })
}

fn idle(condition: &Condition) -> Option<(Word, String)> {
    if condition.tried() > 0 || condition.mistaken > 0 || condition.queued > 0 || condition.busy > 0.0 {
        return None;
    }
    let why = match condition.quiet_s {
        Some(seconds) => format!("no request for {seconds} s"),
        None if condition.is_new => "no request since the start".into(),
        None => "no request in 5 minutes".into(),
    };
    Some((Word::Idle, why))
}

fn fine(condition: &Condition) -> (Word, String) {
    let Condition { ready, wanted, mistaken, .. } = condition;
    let mut why = if condition.is_composed {
        "it calls other deployments".into()
    } else {
        format!("the model computed {} of the time", percent(condition.busy))
    };
    if ready < wanted {
        let _ = write!(why, "; {ready} of {wanted} replicas are ready");
    }
    if *mistaken > 0 && is_notable(*mistaken, condition.tried() + mistaken) {
        let _ = write!(why, "; {} requests were wrong", count(*mistaken));
    }
    (Word::Fine, why)
}

impl Condition {
    /// Requests that ended, except for those that were wrong.
    fn tried(&self) -> u64 {
        self.answered + self.refused + self.failed
    }
}

fn is_notable(count: u64, of: u64) -> bool {
    count > 0 && count as f64 >= NOTABLE * of as f64
}

/// A share as people say it.
pub(crate) fn percent(share: f64) -> String {
    format!("{} %", number((share * 100.0).round()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition() -> Condition {
        Condition {
            length_s: 10.0,
            answered: 1000,
            ready: 2,
            wanted: 2,
            busy: 0.3,
            occupied: 0.4,
            mean_batch: 3.0,
            most_batch: 32,
            cores: 8.0,
            quiet_s: Some(0),
            ..Condition::default()
        }
    }

    fn judged(condition: &Condition) -> (Word, String) {
        let Judgement { word, why } = judge(condition);
        (word, why)
    }

    #[test]
    fn a_deployment_with_reserve_is_fine() {
        assert_eq!(judged(&condition()), (Word::Fine, "the model computed 30 % of the time".into()));
        let one_missing = Condition { ready: 1, ..condition() };
        assert_eq!(judged(&one_missing).1, "the model computed 30 % of the time; 1 of 2 replicas are ready");
        let wrong = Condition { mistaken: 500, ..condition() };
        assert_eq!(judged(&wrong), (Word::Fine, "the model computed 30 % of the time; 500 requests were wrong".into()));
    }

    #[test]
    fn the_model_is_the_limit_if_it_computes_nearly_all_the_time() {
        let full = Condition { busy: 0.97, mean_batch: 31.0, ..condition() };
        let why = "the model computed 97 % of the time; its batches are full: add a replica, or make the model faster";
        assert_eq!(judged(&full), (Word::AtItsLimit, why.into()));
        let uneven = Condition { slow: Some((1, 3.12)), ..condition() };
        assert!(judged(&uneven).1.ends_with("; replica 1 takes 3.1 times as long as the others"));
        let small = Condition { busy: 0.97, ..condition() };
        assert!(judged(&small).1.ends_with("let batches grow"));
    }

    #[test]
    fn cores_the_front_and_the_link_are_limits_too() {
        let cores = Condition { used_cores: Some(7.6), front_cores: Some(1.5), ..condition() };
        let why = "all 8 cores are busy: the front uses 1.5, the workers 6.1; use a larger machine";
        assert_eq!(judged(&cores), (Word::AtItsLimit, why.into()));
        let waiting = Condition { queued: 9, oldest_s: 0.2, ..condition() };
        let front = Condition { front_cores: Some(1.0), ..waiting.clone() };
        assert_eq!(judged(&front).0, Word::AtItsLimit);
        let link = Condition { occupied: 0.95, ..waiting.clone() };
        let (word, why) = judged(&link);
        assert!(word == Word::AtItsLimit && why.contains("the way to the worker"), "{why}");
        assert_eq!(judged(&waiting).0, Word::Fine, "items wait for a moment all the time");
    }

    #[test]
    fn refusals_say_how_and_what_is_at_its_limit() {
        let refusing = Condition { refused: 250, refused_as: Some("queue_full"), busy: 0.97, ..condition() };
        let (word, why) = judged(&refusing);
        assert_eq!(word, Word::Refusing);
        assert!(
            why.starts_with("250 of 1,250 requests in 10 s were refused: queue_full; the model computed 97 %"),
            "{why}"
        );
        assert_eq!(judged(&Condition { refused: 5, ..condition() }).0, Word::Fine, "half a percent");
    }

    #[test]
    fn failures_come_before_refusals() {
        let failing = Condition { failed: 20, failed_as: Some("model_failed"), refused: 500, ..condition() };
        assert_eq!(judged(&failing), (Word::Failing, "20 of 1,520 requests in 10 s failed: model_failed".into()));
        let losing = Condition { ready: 1, lost: 3, failure: Some("the worker ended: signal 9".into()), ..condition() };
        assert!(judged(&losing).1.ends_with("1 of 2 replicas are ready: the worker ended: signal 9"));
    }

    #[test]
    fn without_a_replica_it_loads_sleeps_or_fails() {
        let none = Condition { ready: 0, answered: 0, ..condition() };
        let loading = Condition { missing: Some(("loading", 12)), ..none.clone() };
        assert_eq!(judged(&loading), (Word::Loading, "0 of 2 replicas are ready, loading for 12 s".into()));
        let lost = Condition { lost: 1, failure: Some("load failed".into()), ..none.clone() };
        assert_eq!(judged(&lost).0, Word::Failing);
        assert_eq!(judged(&Condition { sleeps: true, ..none.clone() }).0, Word::Idle);
        let composed = Condition { is_composed: true, busy: 0.0, ..none };
        assert_eq!(judged(&composed).0, Word::Idle);
    }

    #[test]
    fn a_deployment_without_requests_is_idle() {
        let idle = Condition { answered: 0, busy: 0.0, quiet_s: Some(12), ..condition() };
        assert_eq!(judged(&idle), (Word::Idle, "no request for 12 s".into()));
        assert_eq!(judged(&Condition { quiet_s: None, ..idle.clone() }).1, "no request in 5 minutes");
        assert_eq!(judged(&Condition { busy: 0.2, ..idle }).0, Word::Fine, "a long batch runs");
        assert_eq!(judged(&Condition { is_draining: true, ..condition() }).0, Word::Refusing);
    }
}
