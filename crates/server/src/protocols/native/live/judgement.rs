//! What state a deployment is in, and why, by the rules by which `jitney bench` says what limits a server.

use crate::engine::deployment::live::why::{count, number};
use crate::protocols::native::live::advice::{remedy, unusual};
use crate::protocols::native::live::condition::Condition;
use crate::protocols::native::live::limit::{limit, no_core, percent, small_queue};
use serde::Serialize;
use std::fmt::Write;

/// A smaller share of requests that fail or are refused does not change the judgement.
const NOTABLE: f64 = 0.01;
/// So many workers of one deployment lost within five minutes are a fault, although others answer.
const LOSSES: u64 = 3;

/// One word, and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Judgement {
    pub(crate) word: Word,
    pub(crate) why: String,
    /// What is wrong, if a line of the log is due for it: the outcome of requests, or what is unlike before.
    #[serde(skip)]
    pub(crate) fault: Option<&'static str>,
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

/// The judgement. What is worst comes first.
pub(crate) fn judge(condition: &Condition) -> Judgement {
    let unusual = unusual(&condition.unusual);
    let (word, mut why, fault) = none_ready(condition)
        .or_else(|| hanging(condition))
        .or_else(|| failing(condition))
        .or_else(|| refusing(condition))
        .or_else(|| unusual.clone().map(|(fault, why)| (Word::AtItsLimit, why, Some(fault))))
        .or_else(|| limit(condition).map(|why| (Word::AtItsLimit, why, None)))
        .or_else(|| idle(condition))
        .unwrap_or_else(|| fine(condition));
    if let (Word::Failing | Word::Refusing, Some((_, also))) = (word, unusual.filter(|(kind, _)| fault != Some(*kind)))
    {
        let _ = write!(why, "; {also}");
    }
    if let (Word::Fine | Word::AtItsLimit, Some((replica, factor))) = (word, condition.slow) {
        let _ =
            write!(why, "; replica {replica} takes {} times as long as the others: look at its device", number(factor));
    }
    if let (Word::Fine | Word::AtItsLimit | Word::Idle, Some(lost)) = (word, losses(condition)) {
        let _ = write!(why, "; {lost}");
    }
    Judgement { word, why, fault }
}

/// A word, the reason for it, and what is wrong.
type Found = (Word, String, Option<&'static str>);

fn none_ready(condition: &Condition) -> Option<Found> {
    let Condition { ready, wanted, missing, failure, .. } = condition;
    if condition.is_draining {
        return Some((Word::Refusing, "the server is shutting down".into(), None));
    }
    if *ready > 0 || condition.is_composed {
        return None;
    }
    if condition.sleeps {
        let why = "it has no replica because it was not used; the next request starts one";
        return Some((Word::Idle, why.into(), None));
    }
    let state = missing.map(|(state, since_s)| format!(", {} for {since_s} s", state.replace('_', " ")));
    let none = format!("0 of {wanted} replicas are ready{}", state.unwrap_or_default());
    Some(match failure {
        Some(failure) if condition.lost > 0 => {
            let why = format!("{none}; the last worker was lost: {failure}; {}", remedy("crash_looping"));
            (Word::Failing, why, Some("no_replica"))
        }
        _ => (Word::Loading, none, None),
    })
}

/// A batch that does not end. Its clients wait, and others may be answered by other replicas.
fn hanging(condition: &Condition) -> Option<Found> {
    let (replica, silent_s) = condition.unusual.hanging?;
    let why = format!(
        "replica {replica} has been in one call of predict for {silent_s:.0} s: it hangs; its worker is replaced {} s after \
         its last sign (batch_timeout_s), and the log then shows where its threads were",
        number(condition.unusual.batch_timeout_s)
    );
    Some((Word::Failing, why, Some("hanging")))
}

fn failing(condition: &Condition) -> Option<Found> {
    let tried = condition.tried();
    if is_notable(condition.failed, tried) {
        let (how, seconds) = (condition.failed_as.unwrap_or("internal"), number(condition.length_s));
        let failed = format!("{} of {} requests in {seconds} s failed", count(condition.failed), count(tried));
        return Some((Word::Failing, format!("{failed}: {how}; {}", remedy(how)), Some(how)));
    }
    if condition.ready < condition.wanted && condition.lost >= LOSSES {
        let Condition { ready, wanted, lost, .. } = condition;
        let failure = condition.failure.as_deref().unwrap_or("see the log");
        let why = format!(
            "{lost} workers were lost in 5 minutes and {ready} of {wanted} replicas are ready: {failure}; {}",
            remedy("crash_looping")
        );
        return Some((Word::Failing, why, Some("crash_looping")));
    }
    None
}

fn refusing(condition: &Condition) -> Option<Found> {
    let tried = condition.tried();
    is_notable(condition.refused, tried).then(|| {
        let (how, seconds) = (condition.refused_as.unwrap_or("queue_full"), number(condition.length_s));
        let queue = small_queue(condition).filter(|_| how == "queue_full");
        let causes: Vec<String> = queue.into_iter().chain(limit(condition).or_else(|| no_core(condition))).collect();
        let cause = if causes.is_empty() { remedy(how).to_owned() } else { causes.join("; ") };
        let refused = format!("{} of {} requests in {seconds} s were refused", count(condition.refused), count(tried));
        (Word::Refusing, format!("{refused}: {how}; {cause}"), Some(how))
    })
}

/// Workers that were lost and replaced.
fn losses(condition: &Condition) -> Option<String> {
    let failure = condition.failure.as_deref().filter(|_| condition.lost > 0)?;
    let workers = if condition.lost == 1 { "a worker was".into() } else { format!("{} workers were", condition.lost) };
    Some(format!("{workers} lost in the last 5 minutes: {failure}"))
}

fn idle(condition: &Condition) -> Option<Found> {
    if condition.tried() > 0 || condition.mistaken > 0 || condition.queued > 0 || condition.busy > 0.0 {
        return None;
    }
    let why = match condition.quiet_s {
        Some(seconds) => format!("no request for {seconds} s"),
        None if condition.is_new => "no request since the start".into(),
        None => "no request in 5 minutes".into(),
    };
    Some((Word::Idle, why, None))
}

fn fine(condition: &Condition) -> Found {
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
        let _ = write!(why, "; {} requests had errors of their clients", count(*mistaken));
    }
    if let Some(crowded) = no_core(condition).filter(|_| condition.tried() > 0) {
        let _ = write!(why, "; {crowded}");
    }
    (Word::Fine, why, None)
}

fn is_notable(count: u64, of: u64) -> bool {
    count > 0 && count as f64 >= NOTABLE * of as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::server_state::live::sampled::Slower;
    use crate::protocols::native::live::condition::Unusual;

    const SLOWER: Slower = Slower { now_ms: 210.0, usual_ms: 20.0, bytes: 60, usual_bytes: 60 };

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
            most_queued: 4096,
            cores: 8.0,
            quiet_s: Some(0),
            ..Condition::default()
        }
    }

    fn judged(condition: &Condition) -> (Word, String) {
        let Judgement { word, why, .. } = judge(condition);
        (word, why)
    }

    #[test]
    fn a_deployment_with_reserve_is_fine() {
        assert_eq!(judged(&condition()), (Word::Fine, "the model computed 30 % of the time".into()));
        let one_missing = Condition { ready: 1, ..condition() };
        assert_eq!(judged(&one_missing).1, "the model computed 30 % of the time; 1 of 2 replicas are ready");
        let wrong = Condition { mistaken: 500, ..condition() };
        let says = "the model computed 30 % of the time; 500 requests had errors of their clients";
        assert_eq!(judged(&wrong), (Word::Fine, says.into()));
        let crowded = Condition { machine_busy: Some(0.98), ..condition() };
        let (word, why) = judged(&crowded);
        assert!(word == Word::Fine && why.contains("30 % of the time; the machine has no free core"), "{why}");
    }

    #[test]
    fn the_model_is_the_limit_if_it_computes_nearly_all_the_time() {
        let full = Condition { busy: 0.97, mean_batch: 31.0, ..condition() };
        let why = "the model computed 97 % of the time; its batches are full: add a replica, or make the model faster";
        assert_eq!(judged(&full), (Word::AtItsLimit, why.into()));
        let large = Condition { uneven: Some((6, 1_048_578)), ..full.clone() };
        let says = "; some items have 1.0 MB, others 6 bytes: the small ones wait for the large ones";
        assert!(judged(&large).1.ends_with(says), "{}", judged(&large).1);
        let unequal = Condition { slow: Some((1, 3.12)), ..condition() };
        assert!(judged(&unequal).1.ends_with("; replica 1 takes 3.1 times as long as the others: look at its device"));
        let small = Condition { busy: 0.97, ..condition() };
        assert!(judged(&small).1.ends_with("let batches grow"));
    }

    #[test]
    fn cores_the_front_and_the_link_are_limits_too() {
        let cores = Condition { used_cores: Some(7.6), front_cores: Some(1.5), ..condition() };
        let why = "all 8 cores are busy: the front uses 1.5, the workers 6.1; use a larger machine";
        assert_eq!(judged(&cores), (Word::AtItsLimit, why.into()));
        let waiting = Condition { queued: 9, is_waiting: true, ..condition() };
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
        let small = Condition { most_queued: 16, occupied: 0.88, queued: 16, is_waiting: true, busy: 0.68, ..refusing };
        let (word, why) = judged(&small);
        let says = "queue_full; the queue holds at most 16 items (max_queued_items), fewer than two batches of 32 for each \
                    replica: raise it to 128 or more";
        assert!(word == Word::Refusing && why.ends_with(says), "{why}");
        let crowded = judged(&Condition { machine_busy: Some(0.99), ..small.clone() }).1;
        assert!(crowded.contains("128 or more; the machine has no free core"), "{crowded}");
        let other = judged(&Condition { refused_as: Some("queue_bytes_full"), ..small }).1;
        assert!(!other.contains("max_queued_items"), "{other}");
    }

    #[test]
    fn failures_come_before_refusals() {
        let failing = Condition { failed: 20, failed_as: Some("model_failed"), refused: 500, ..condition() };
        let (word, why) = judged(&failing);
        let says =
            "20 of 1,520 requests in 10 s failed: model_failed; predict raises an exception: the log has its traceback";
        assert!(word == Word::Failing && why.starts_with(says), "{why}");
        let losing = Condition { ready: 1, lost: 3, failure: Some("the worker ended: signal 9".into()), ..condition() };
        assert!(judged(&losing).1.contains("1 of 2 replicas are ready: the worker ended: signal 9; `jitney check`"));
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
    fn a_worker_that_was_lost_is_told_of_for_a_while() {
        let lost = Condition { lost: 1, failure: Some("the worker ended: signal: 9".into()), ..condition() };
        let says =
            "the model computed 30 % of the time; a worker was lost in the last 5 minutes: the worker ended: signal: 9";
        assert_eq!(judged(&lost), (Word::Fine, says.into()));
        assert_eq!(judge(&lost).fault, None, "its own line is in the log");
    }

    #[test]
    fn what_is_unlike_before_is_said_although_requests_are_answered() {
        let unusual = |unusual: Unusual| judge(&Condition { unusual, ..condition() });
        let hanging = Unusual { hanging: Some((1, 23.4)), batch_timeout_s: 60.0, ..Unusual::default() };
        let says = "replica 1 has been in one call of predict for 23 s: it hangs; its worker is replaced 60 s after";
        let found = unusual(hanging);
        assert!(found.word == Word::Failing && found.why.starts_with(says), "{found:?}");
        let slower = Unusual { slower: Some(SLOWER), ..Unusual::default() };
        let found = unusual(slower);
        assert!(found.why.starts_with("predict takes 210 ms for a batch, usual 20: 11 times as long"), "{found:?}");
        assert_eq!((found.word, found.fault), (Word::AtItsLimit, Some("slower")));
        let both = Condition { unusual: slower, refused: 500, refused_as: Some("queue_full"), ..condition() };
        let (word, why) = judged(&both);
        assert!(word == Word::Refusing && why.contains("queue_full; ") && why.contains("usual 20"), "{why}");
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
