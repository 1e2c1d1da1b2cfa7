//! Why one request took long or failed, in one sentence: the phase that took most beyond its usual time, and its cause.

use crate::values::answer::Failure;
use jitney_core::policy::batch_policy::CloseReason;
use std::fmt::Write;
use std::time::Duration;

/// A cost or a number of bytes that is so many times another one is a cause.
const NOTABLE: u64 = 2;
/// An item that is so many times as large as others makes those wait that are in other batches too.
const FAR_LARGER: u64 = 8;
const FAR_LARGER_BYTES: u64 = 1_000;
/// Fewer bytes than this take no time that could be noticed.
const NOTABLE_BYTES: u64 = 32 << 10;
/// A replica whose batches take so many times as long as those of the median one is slow.
pub(crate) const SLOW: f64 = 1.5;

/// How long the parts of a request took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Lengths {
    /// From arrival to the launch of its batch.
    pub(crate) queue: Duration,
    /// From launch to results, without the model.
    pub(crate) link: Duration,
    /// In `predict`.
    pub(crate) predict: Duration,
}

impl Lengths {
    /// All of it.
    pub(crate) fn total(&self) -> Duration {
        self.queue + self.link + self.predict
    }
}

/// What is usual for the requests of a deployment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Usual {
    /// The median duration of requests.
    pub(crate) total: Duration,
    /// The mean of each part.
    pub(crate) lengths: Lengths,
    /// The mean number of bytes of an item.
    pub(crate) bytes: u64,
}

/// The batch that a request was in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchFacts {
    pub(crate) items: usize,
    pub(crate) most_items: usize,
    pub(crate) reason: CloseReason,
    /// For how long a replica had been idle next to the waiting items.
    pub(crate) held: Duration,
    /// What the largest of its items costs; 1 without a cost.
    pub(crate) largest_cost: u64,
    /// Bytes of the largest of its items, and of all.
    pub(crate) largest_bytes: u64,
    pub(crate) bytes: u64,
    /// The number of the replica that computed it, and how many times as long as the median one it takes.
    pub(crate) replica: u32,
    pub(crate) factor: f64,
}

/// What is known about one request that took long or failed.
#[derive(Clone, Debug)]
pub(crate) struct RequestFacts {
    pub(crate) request_id: Box<str>,
    /// When it ended, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    pub(crate) lengths: Lengths,
    /// Items that waited when it arrived.
    pub(crate) ahead: usize,
    pub(crate) bytes: u64,
    pub(crate) cost: u64,
    /// How often it came back to the queue: its worker was lost, or had no room.
    pub(crate) returns: u32,
    /// Replicas that were ready when it ended.
    pub(crate) replicas: usize,
    /// `None` if it was in no batch.
    pub(crate) batch: Option<BatchFacts>,
    /// `None` if it was answered.
    pub(crate) failure: Option<Failure>,
    /// `None` while too few requests have ended.
    pub(crate) usual: Option<Usual>,
}

/// The part of a request that explains its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Queue,
    Link,
    Predict,
}

/// Why it took as long as it did, or why it failed.
pub(crate) fn why(facts: &RequestFacts) -> String {
    let total = facts.lengths.total();
    let mut text = ms(total);
    text.push_str(" ms");
    if let Some(Failure { outcome, detail, .. }) = &facts.failure {
        let _ = write!(text, ": {}: {detail}", outcome.reason());
        return text;
    }
    if let Some(usual) = facts.usual {
        let _ = write!(text, ", usual {}", ms(usual.total));
    }
    let usual = facts.usual.map(|usual| usual.lengths).unwrap_or_default();
    let (phase, took) = longest(&facts.lengths, &usual);
    let took = ms(took);
    let _ = match phase {
        Phase::Queue => write!(text, ": {took} in the queue{}", queue_cause(facts)),
        Phase::Link => write!(text, ": {took} on the way to the worker and back{}", link_cause(facts)),
        Phase::Predict => write!(text, ": predict took {took}{}", predict_cause(facts)),
    };
    text
}

/// The phase that exceeds its usual time by most, and how long it took.
fn longest(lengths: &Lengths, usual: &Lengths) -> (Phase, Duration) {
    let phases = [
        (Phase::Predict, lengths.predict, usual.predict),
        (Phase::Queue, lengths.queue, usual.queue),
        (Phase::Link, lengths.link, usual.link),
    ];
    let excess = |&(_, took, usual): &(Phase, Duration, Duration)| took.saturating_sub(usual);
    // Of equal ones the first counts.
    let found = phases.iter().rev().max_by_key(|phase| excess(phase)).copied();
    found.map_or((Phase::Predict, lengths.predict), |(phase, took, _)| (phase, took))
}

fn queue_cause(facts: &RequestFacts) -> String {
    if facts.returns > 0 {
        return "; it came back to the queue because its worker was lost or had no room".into();
    }
    let ahead = match facts.ahead {
        0 => String::new(),
        1 => " behind 1 item".into(),
        ahead => format!(" behind {ahead} items"),
    };
    let replicas = replicas(facts.replicas);
    let Some(batch) = &facts.batch else { return format!("{ahead}, and it was in no batch") };
    if batch.held * 2 > facts.lengths.queue {
        return match batch.reason {
            CloseReason::Returns => ", held for clients who were just answered and come back".into(),
            CloseReason::Burst => ", held for the rest of a burst".into(),
            CloseReason::Delay => ", held for max_batch_delay_ms".into(),
            _ if facts.replicas > 1 => ", left to a faster replica while a slower one was idle".into(),
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
        _ if facts.replicas == 0 => format!("{ahead} while no replica was ready"),
        _ => format!("{ahead} while {replicas} ran {batches}{}", large_item(facts, batch)),
    }
}

/// Whether an item of so many bytes makes others wait that have so many.
pub(crate) fn is_far_larger(size: u64, others: u64) -> bool {
    size >= FAR_LARGER_BYTES && size / FAR_LARGER >= others.max(1)
}

/// An item that is so large that others wait for it: in the batch of a request that waited for like ones, or its own.
fn large_item(facts: &RequestFacts, batch: &BatchFacts) -> String {
    let usual = facts.usual.map_or(u64::MAX, |usual| usual.bytes);
    if batch.items > 1 && is_far_larger(batch.largest_bytes, facts.bytes) {
        format!(" with items of up to {} (its own: {})", bytes(batch.largest_bytes), bytes(facts.bytes))
    } else if is_far_larger(facts.bytes, usual) {
        format!("; its own item has {}, usual {}", bytes(facts.bytes), bytes(usual))
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

fn predict_cause(facts: &RequestFacts) -> String {
    let Some(batch) = &facts.batch else { return String::new() };
    let usual_bytes = facts.usual.map_or(u64::MAX, |usual| usual.bytes);
    if batch.factor >= SLOW {
        let (replica, factor) = (batch.replica, batch.factor);
        return format!(" on replica {replica}, whose batches take {factor:.1} times as long as those of the others");
    }
    let of = of_items(batch.items);
    if batch.items > 1 && batch.largest_cost >= facts.cost.saturating_mul(NOTABLE) {
        let (largest, own) = (batch.largest_cost, facts.cost);
        return format!(" because one item of its {of} costs {largest} (its own: {own})");
    }
    if batch.items > 1 && is_notable(batch.largest_bytes, facts.bytes) {
        let (largest, own) = (bytes(batch.largest_bytes), bytes(facts.bytes));
        return format!(" because one item of its {of} has {largest} (its own: {own})");
    }
    if is_notable(facts.bytes, usual_bytes) {
        return format!(" for an item of {}, usual {}", bytes(facts.bytes), bytes(usual_bytes));
    }
    format!(" for its {of}")
}

fn link_cause(facts: &RequestFacts) -> String {
    let Some(batch) = &facts.batch else { return String::new() };
    let of = of_items(batch.items);
    if batch.bytes >= NOTABLE_BYTES {
        return format!(": its {of} has {} (its own: {})", bytes(batch.bytes), bytes(facts.bytes));
    }
    format!(": its {of} waited for the worker, or for cores of a busy machine")
}

fn of_items(items: usize) -> String {
    if items == 1 { "batch of one".into() } else { format!("batch of {items}") }
}

/// Whether so many bytes are many, compared with those of others.
fn is_notable(bytes: u64, others: u64) -> bool {
    bytes >= 256 && bytes / NOTABLE >= others
}

/// Milliseconds as people say them, without the unit.
pub(crate) fn ms(length: Duration) -> String {
    number(length.as_secs_f64() * 1e3)
}

/// A number with as many digits as matter.
pub(crate) fn number(value: f64) -> String {
    if value >= 9.95 || value == 0.0 {
        count(value.round() as u64)
    } else if value >= 0.095 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// A whole number, in groups of three digits.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let grouped = digits.char_indices().flat_map(|(place, digit)| {
        let comma = (place > 0 && (digits.len() - place).is_multiple_of(3)).then_some(',');
        comma.into_iter().chain([digit])
    });
    grouped.collect()
}

/// A number of bytes as people say it.
pub(crate) fn bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} bytes"),
        1_000..1_000_000 => format!("{} kB", number(count as f64 / 1e3)),
        1_000_000..1_000_000_000 => format!("{} MB", number(count as f64 / 1e6)),
        _ => format!("{} GB", number(count as f64 / 1e9)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jitney_core::tables::outcome::Outcome;

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

    fn facts(lengths: Lengths, batch: Option<BatchFacts>) -> RequestFacts {
        let usual = Usual { total: length(40), lengths: self::lengths(10, 2, 28), bytes: 60 };
        RequestFacts {
            request_id: "r".into(),
            at_ms: 0,
            lengths,
            ahead: 0,
            bytes: 60,
            cost: 1,
            returns: 0,
            replicas: 2,
            batch,
            failure: None,
            usual: Some(usual),
        }
    }

    #[test]
    fn a_wait_says_behind_how_many_items_and_what_the_replicas_did() {
        let waited = RequestFacts {
            ahead: 61,
            ..facts(lengths(270, 2, 40), Some(BatchFacts { reason: CloseReason::Full, ..batch(32) }))
        };
        let says = "312 ms, usual 40: 270 in the queue behind 61 items while both replicas ran full batches";
        assert_eq!(why(&waited), says);
        let large = BatchFacts { reason: CloseReason::Full, largest_bytes: 1_048_578, ..batch(32) };
        let among = RequestFacts { ahead: 61, ..facts(lengths(270, 2, 40), Some(large)) };
        let says = "while both replicas ran full batches with items of up to 1.0 MB (its own: 60 bytes)";
        assert!(why(&among).ends_with(says), "{}", why(&among));
        let itself = RequestFacts { bytes: 1_048_578, ..among };
        assert!(why(&itself).ends_with("full batches; its own item has 1.0 MB, usual 60 bytes"), "{}", why(&itself));
        let none_ready = RequestFacts { replicas: 0, ..facts(lengths(900, 1, 20), Some(batch(4))) };
        assert_eq!(why(&none_ready), "921 ms, usual 40: 900 in the queue while no replica was ready");
        let again = RequestFacts { returns: 1, ..facts(lengths(900, 1, 20), Some(batch(1))) };
        assert!(why(&again).ends_with("its worker was lost or had no room"), "{}", why(&again));
        let unlaunched = RequestFacts { ahead: 1, ..facts(lengths(900, 0, 0), None) };
        assert_eq!(why(&unlaunched), "900 ms, usual 40: 900 in the queue behind 1 item, and it was in no batch");
    }

    #[test]
    fn a_batch_that_was_held_says_for_what() {
        let held = BatchFacts { held: length(80), reason: CloseReason::Returns, ..batch(3) };
        let says = "112 ms, usual 40: 90 in the queue, held for clients who were just answered and come back";
        assert_eq!(why(&facts(lengths(90, 2, 20), Some(held))), says);
    }

    #[test]
    fn a_long_predict_names_the_item_that_made_its_batch_long() {
        let by_cost = BatchFacts { largest_cost: 512, ..batch(8) };
        let padded = RequestFacts { cost: 12, ..facts(lengths(2, 1, 200), Some(by_cost)) };
        let says = "203 ms, usual 40: predict took 200 because one item of its batch of 8 costs 512 (its own: 12)";
        assert_eq!(why(&padded), says);
        let by_bytes = BatchFacts { largest_bytes: 40_000, ..batch(8) };
        let says =
            "203 ms, usual 40: predict took 200 because one item of its batch of 8 has 40 kB (its own: 60 bytes)";
        assert_eq!(why(&facts(lengths(2, 1, 200), Some(by_bytes))), says);
        let itself = RequestFacts { bytes: 40_000, ..facts(lengths(2, 1, 200), Some(by_bytes)) };
        assert_eq!(why(&itself), "203 ms, usual 40: predict took 200 for an item of 40 kB, usual 60 bytes");
        assert_eq!(
            why(&facts(lengths(2, 1, 200), Some(batch(8)))),
            "203 ms, usual 40: predict took 200 for its batch of 8"
        );
    }

    #[test]
    fn a_slow_replica_is_named() {
        let slow = BatchFacts { replica: 1, factor: 3.12, ..batch(8) };
        let says = "203 ms, usual 40: predict took 200 on replica 1, whose batches take 3.1 times as long as those of the others";
        assert_eq!(why(&facts(lengths(2, 1, 200), Some(slow))), says);
    }

    #[test]
    fn a_long_way_names_what_was_carried() {
        let large = BatchFacts { bytes: 8_000_000, ..batch(8) };
        let says =
            "240 ms, usual 40: 210 on the way to the worker and back: its batch of 8 has 8.0 MB (its own: 60 bytes)";
        assert_eq!(why(&facts(lengths(2, 210, 28), Some(large))), says);
    }

    #[test]
    fn a_failure_says_its_reason_and_detail() {
        let failed = RequestFacts {
            failure: Some(Failure::new(Outcome::WorkerLost, "the worker died")),
            ..facts(lengths(2, 1, 200), Some(batch(1)))
        };
        assert_eq!(why(&failed), "203 ms: worker_lost: the worker died");
    }

    #[test]
    fn numbers_have_the_digits_that_matter() {
        let said = [0.0, 0.012, 0.14, 3.12, 9.96, 312.4, 4812.0, 1_234_567.0].map(number);
        assert_eq!(said, ["0", "0.01", "0.1", "3.1", "10", "312", "4,812", "1,234,567"]);
        assert_eq!([60, 1_000, 40_000, 1_500_000].map(bytes), ["60 bytes", "1.0 kB", "40 kB", "1.5 MB"]);
    }
}
