//! Why one request took long or failed, in one sentence: the phase that took most beyond its usual time, and its cause.

use crate::base::traces::why::facts::{BatchFacts, FailureFacts, Lengths, Story};
use crate::base::traces::why::numbers::{bytes, count, ms};
use jitney_core::policy::batch_policy::CloseReason;
use std::fmt::Write;
use std::time::Duration;

/// A cost or a number of bytes that is so many times the usual one is a cause.
const NOTABLE: u64 = 4;
/// An item that is so many times as large as others makes those wait that are in other batches too.
const FAR_LARGER: u64 = 8;
const FAR_LARGER_BYTES: u64 = 1_000;
/// Fewer bytes than this take no time that could be noticed, between processes and in the model.
const NOTABLE_BYTES: u64 = 32 << 10;
const NOTABLE_ITEM_BYTES: u64 = 256;
/// A replica whose batches take so many times as long as those of the median one is slow.
const SLOW: f64 = 3.0;

/// The part of a request that explains its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Receive,
    Queue,
    Link,
    Predict,
    Render,
}

/// Why it took as long as it did, or why it failed.
pub(crate) fn sentence(story: &Story<'_>) -> String {
    let total = story.receive + story.lengths.total() + story.render;
    let mut text = ms(total) + " ms";
    match &story.failure {
        Some(FailureFacts { reason, detail: Some(detail) }) => {
            let _ = write!(text, ": {reason}: {detail}");
            return text;
        }
        Some(FailureFacts { reason, detail: None }) => {
            let _ = write!(text, " until {reason}");
        }
        None => {}
    }
    if let Some(usual) = &story.usual {
        let _ = write!(text, ", usual {}", ms(usual.total));
    }
    let (phase, took) = longest(story);
    let took = ms(took);
    let _ = match phase {
        Phase::Receive => write!(text, ": {took} until its body had arrived and was read"),
        Phase::Queue => write!(text, ": {took} in the queue{}", queue_cause(story)),
        Phase::Link => write!(text, ": {took} on the way to the worker and back{}", link_cause(story)),
        Phase::Predict => write!(text, ": predict took {took}{}", predict_cause(story)),
        Phase::Render => write!(text, ": {took} until its answer was written and taken by the client"),
    };
    text
}

/// The phase that exceeds its usual time by most, and how long it took.
fn longest(story: &Story<'_>) -> (Phase, Duration) {
    let (lengths, usual) = (story.lengths, usual_lengths(story));
    let phases = [
        (Phase::Predict, lengths.predict, usual.predict),
        (Phase::Queue, lengths.queue, usual.queue),
        (Phase::Link, lengths.link, usual.link),
        (Phase::Receive, story.receive, Duration::ZERO),
        (Phase::Render, story.render, Duration::ZERO),
    ];
    let excess = |&(_, took, usual): &(Phase, Duration, Duration)| took.saturating_sub(usual);
    // Of equal ones the first counts.
    let found = phases.iter().rev().max_by_key(|phase| excess(phase)).copied();
    found.map_or((Phase::Predict, lengths.predict), |(phase, took, _)| (phase, took))
}

fn usual_lengths(story: &Story<'_>) -> Lengths {
    story.usual.map(|usual| usual.lengths).unwrap_or_default()
}

fn queue_cause(story: &Story<'_>) -> String {
    if let Some(lost) = story.lost {
        let attempt = story.returns + 1;
        return format!(": its worker was lost ({lost}), and attempt {attempt} followed");
    }
    if story.returns > 0 {
        return "; it came back to the queue because its worker was lost or had no room".into();
    }
    let ahead = match story.ahead {
        0 => String::new(),
        1 => " behind 1 item".into(),
        ahead => format!(" behind {} items", count(ahead)),
    };
    let replicas = replicas(story.replicas);
    let Some(batch) = &story.batch else { return format!("{ahead}, and it was in no batch") };
    if batch.held * 2 > story.lengths.queue {
        return match batch.reason {
            CloseReason::Returns => ", held for clients who were just answered and come back".into(),
            CloseReason::Burst => ", held for the rest of a burst".into(),
            CloseReason::Delay => ", held for max_batch_delay_ms".into(),
            _ if story.replicas > 1 => ", left to a faster replica while a slower one was idle".into(),
            _ => ", although a replica was idle".into(),
        };
    }
    let batches = if batch.items >= batch.most_items {
        "full batches".into()
    } else if batch.items == 1 {
        "batches of one item".into()
    } else {
        format!("batches of about {} items", batch.items)
    };
    match batch.reason {
        CloseReason::Suspect => format!("{ahead}: it waited to run alone, because its worker died"),
        _ if story.replicas == 0 => format!("{ahead} while no replica was ready"),
        _ => format!("{ahead} while {replicas} ran {batches}{}", large_item(story, batch)),
    }
}

/// Whether an item of so many bytes makes others wait that have so many.
pub(crate) fn is_far_larger(size: u64, others: u64) -> bool {
    size >= FAR_LARGER_BYTES && size / FAR_LARGER >= others.max(1)
}

/// An item that is so large that others wait for it: in the batch of a request that waited for like ones, or its own.
fn large_item(story: &Story<'_>, batch: &BatchFacts) -> String {
    let usual = story.usual.map_or(u64::MAX, |usual| usual.bytes);
    if batch.items > 1 && is_far_larger(batch.largest_bytes, story.bytes) {
        format!(" with items of up to {} (its own: {})", bytes(batch.largest_bytes), bytes(story.bytes))
    } else if is_far_larger(story.bytes, usual) {
        format!("; its own item has {}, usual {}", bytes(story.bytes), bytes(usual))
    } else {
        String::new()
    }
}

fn replicas(count: usize) -> String {
    match count {
        1 => "the replica".into(),
        2 => "both replicas".into(),
        _ => format!("all {count} replicas"),
    }
}

/// A cause is named only if it is unusual: each batch has a largest item, and each request is in some batch.
fn predict_cause(story: &Story<'_>) -> String {
    let Some(batch) = &story.batch else { return String::new() };
    if batch.factor >= SLOW {
        let (replica, factor) = (batch.replica, batch.factor);
        return format!(" on replica {replica}, whose batches take {factor:.1} times as long as those of the others");
    }
    let of = of_items(batch.items);
    let plain = match usual_lengths(story).predict {
        Duration::ZERO => format!(" for its {of}"),
        usual => format!(" for its {of}; usual {}", ms(usual)),
    };
    let Some(usual) = story.usual else { return plain };
    let is_unusual = |largest: u64, usual: f64| largest as f64 >= NOTABLE as f64 * usual.max(1.0);
    if is_unusual(batch.largest_cost, usual.largest.cost) {
        let (largest, own) = (count(batch.largest_cost), count(story.cost));
        return if story.cost >= batch.largest_cost {
            format!(" because its own item costs {own}; usual at most {}", count(usual.largest.cost as u64))
        } else {
            format!(" because one item of its {of} costs {largest} (its own: {own})")
        };
    }
    if batch.largest_bytes >= NOTABLE_ITEM_BYTES && is_unusual(batch.largest_bytes, usual.largest.bytes) {
        let (largest, own) = (bytes(batch.largest_bytes), bytes(story.bytes));
        return if story.bytes >= batch.largest_bytes {
            format!(" for an item of {own}, usual {}", bytes(usual.bytes))
        } else {
            format!(" because one item of its {of} has {largest} (its own: {own})")
        };
    }
    plain
}

fn link_cause(story: &Story<'_>) -> String {
    let Some(batch) = &story.batch else { return String::new() };
    let of = of_items(batch.items);
    if batch.bytes >= NOTABLE_BYTES {
        return format!(": its {of} has {} (its own: {})", bytes(batch.bytes), bytes(story.bytes));
    }
    format!(": its {of} waited for the worker, or for cores of a busy machine")
}

fn of_items(items: usize) -> String {
    if items == 1 { "batch of one".into() } else { format!("batch of {items}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::traces::why::facts::{Largest, Usual};

    fn length(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn lengths(queue: u64, link: u64, predict: u64) -> Lengths {
        Lengths { queue: length(queue), link: length(link), predict: length(predict) }
    }

    fn batch(items: usize) -> BatchFacts {
        BatchFacts {
            items,
            most_items: 32,
            reason: CloseReason::Eager,
            held: Duration::ZERO,
            largest_cost: 1,
            largest_bytes: 60,
            bytes: 60 * items as u64,
            replica: 0,
            factor: 1.0,
        }
    }

    fn story(lengths: Lengths, batch: Option<BatchFacts>) -> Story<'static> {
        let largest = Largest { cost: 50.0, bytes: 80.0 };
        let usual = Usual { total: length(40), lengths: self::lengths(10, 2, 28), bytes: 60, largest };
        Story { lengths, bytes: 60, cost: 1, replicas: 2, batch, usual: Some(usual), ..Story::default() }
    }

    #[test]
    fn a_wait_says_behind_how_many_items_and_what_the_replicas_did() {
        let waited = Story {
            ahead: 61,
            ..story(lengths(270, 2, 40), Some(BatchFacts { reason: CloseReason::Full, ..batch(32) }))
        };
        let says = "312 ms, usual 40: 270 in the queue behind 61 items while both replicas ran full batches";
        assert_eq!(sentence(&waited), says);
        let large = BatchFacts { reason: CloseReason::Full, largest_bytes: 1_048_578, ..batch(32) };
        let among = Story { ahead: 61, ..story(lengths(270, 2, 40), Some(large)) };
        let says = "while both replicas ran full batches with items of up to 1.0 MB (its own: 60 bytes)";
        assert!(sentence(&among).ends_with(says), "{}", sentence(&among));
        let itself = Story { bytes: 1_048_578, ..among };
        let says = "full batches; its own item has 1.0 MB, usual 60 bytes";
        assert!(sentence(&itself).ends_with(says), "{}", sentence(&itself));
        let none_ready = Story { replicas: 0, ..story(lengths(900, 1, 20), Some(batch(4))) };
        assert_eq!(sentence(&none_ready), "921 ms, usual 40: 900 in the queue while no replica was ready");
        let unlaunched = Story { ahead: 1, ..story(lengths(900, 0, 0), None) };
        assert_eq!(sentence(&unlaunched), "900 ms, usual 40: 900 in the queue behind 1 item, and it was in no batch");
    }

    #[test]
    fn a_second_attempt_says_why_there_was_one() {
        let again = Story { returns: 1, ..story(lengths(900, 1, 20), Some(batch(1))) };
        assert!(sentence(&again).ends_with("its worker was lost or had no room"), "{}", sentence(&again));
        let says = "921 ms, usual 40: 900 in the queue: its worker was lost (it was killed), and attempt 2 followed";
        assert_eq!(sentence(&Story { lost: Some("it was killed"), ..again }), says);
    }

    #[test]
    fn a_batch_that_was_held_says_for_what() {
        let held = BatchFacts { held: length(80), reason: CloseReason::Returns, ..batch(3) };
        let says = "112 ms, usual 40: 90 in the queue, held for clients who were just answered and come back";
        assert_eq!(sentence(&story(lengths(90, 2, 20), Some(held))), says);
    }

    #[test]
    fn a_long_predict_names_the_item_that_made_its_batch_long() {
        let by_cost = BatchFacts { largest_cost: 5_120, ..batch(8) };
        let padded = Story { cost: 12, ..story(lengths(2, 1, 200), Some(by_cost)) };
        let says = "203 ms, usual 40: predict took 200 because one item of its batch of 8 costs 5,120 (its own: 12)";
        assert_eq!(sentence(&padded), says);
        let itself = Story { cost: 5_120, ..padded };
        let says = "203 ms, usual 40: predict took 200 because its own item costs 5,120; usual at most 50";
        assert_eq!(sentence(&itself), says);
        let by_bytes = BatchFacts { largest_bytes: 40_000, ..batch(8) };
        let says =
            "203 ms, usual 40: predict took 200 because one item of its batch of 8 has 40 kB (its own: 60 bytes)";
        assert_eq!(sentence(&story(lengths(2, 1, 200), Some(by_bytes))), says);
        let itself = Story { bytes: 40_000, ..story(lengths(2, 1, 200), Some(by_bytes)) };
        assert_eq!(sentence(&itself), "203 ms, usual 40: predict took 200 for an item of 40 kB, usual 60 bytes");
    }

    #[test]
    fn a_long_predict_has_no_cause_if_its_batch_is_like_the_others() {
        let says = "203 ms, usual 40: predict took 200 for its batch of 8; usual 28";
        assert_eq!(sentence(&story(lengths(2, 1, 200), Some(batch(8)))), says);
        // Three times its own, and less than twice what the largest of a batch usually is.
        let mixed = BatchFacts { largest_cost: 60, largest_bytes: 300, ..batch(8) };
        assert_eq!(sentence(&Story { cost: 21, ..story(lengths(2, 1, 200), Some(mixed)) }), says);
        let unknown = BatchFacts { largest_cost: 5_120, ..batch(8) };
        let early = Story { usual: None, ..story(lengths(2, 1, 200), Some(unknown)) };
        assert_eq!(sentence(&early), "203 ms: predict took 200 for its batch of 8");
    }

    #[test]
    fn a_slow_replica_is_named() {
        let slow = BatchFacts { replica: 1, factor: 3.12, ..batch(8) };
        let says = "predict took 200 on replica 1, whose batches take 3.1 times as long as those of the others";
        assert!(sentence(&story(lengths(2, 1, 200), Some(slow))).ends_with(says));
    }

    #[test]
    fn a_long_way_names_what_was_carried() {
        let large = BatchFacts { bytes: 8_000_000, ..batch(8) };
        let says =
            "240 ms, usual 40: 210 on the way to the worker and back: its batch of 8 has 8.0 MB (its own: 60 bytes)";
        assert_eq!(sentence(&story(lengths(2, 210, 28), Some(large))), says);
    }

    #[test]
    fn a_body_or_an_answer_may_take_longest() {
        let slow_body = Story { receive: length(270), ..story(lengths(2, 1, 20), Some(batch(8))) };
        assert_eq!(sentence(&slow_body), "293 ms, usual 40: 270 until its body had arrived and was read");
        let slow_client = Story { render: length(270), ..story(lengths(2, 1, 20), Some(batch(8))) };
        let says = "293 ms, usual 40: 270 until its answer was written and taken by the client";
        assert_eq!(sentence(&slow_client), says);
    }

    #[test]
    fn a_failure_says_its_reason_and_detail_or_where_its_time_went() {
        let failure = Some(FailureFacts { reason: "worker_lost", detail: Some("the worker died") });
        let failed = Story { failure, ..story(lengths(2, 1, 200), Some(batch(1))) };
        assert_eq!(sentence(&failed), "203 ms: worker_lost: the worker died");
        let failure = Some(FailureFacts { reason: "worker_lost", detail: None });
        let says = "203 ms until worker_lost, usual 40: predict took 200 for its batch of one; usual 28";
        assert_eq!(sentence(&Story { failure, ..failed }), says);
    }
}
