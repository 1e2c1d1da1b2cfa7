//! The outcomes of the requests that were due in the window.

use super::answer::{Answer, Loss};
use super::histogram::Durations;
use serde::Serialize;
use std::collections::BTreeMap;

/// A request that found a free connection and is sent later than this was kept waiting by the generator itself.
pub const LATE_NS: u64 = 1_000_000;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// With a result.
    Answered,
    /// The server has too much to do.
    Refused,
    /// Any other way.
    Failed,
}

/// The kind of an end.
pub fn kind(end: &Result<Answer, Loss>) -> Kind {
    match end {
        Ok(answer) if answer.streamed.as_ref().is_some_and(|streamed| streamed.is_broken) => Kind::Failed,
        Ok(answer) if (200..300).contains(&answer.status) => Kind::Answered,
        Ok(answer) if matches!(answer.status, 429 | 503) => Kind::Refused,
        Ok(_) | Err(_) => Kind::Failed,
    }
}

/// Parts of answers, counted in the window in which they came.
#[derive(Clone, Debug, Default)]
pub struct PartCounts {
    /// How many came.
    pub count: u64,
    /// Between a part and the part of the same answer before it. Parts that came together have gaps of 0.
    pub gap: Durations,
}

impl PartCounts {
    /// Counts parts that came together, `gap_ns` after the part before them; `None`: they are the first.
    pub fn record(&mut self, gap_ns: Option<u64>, count: u64) {
        self.count += count;
        if let Some(gap_ns) = gap_ns {
            self.gap.record_ns(gap_ns);
        }
        if count > 1 {
            self.gap.record_zeros(count - 1);
        }
    }

    /// Adds another thread's.
    pub fn merge(&mut self, other: &PartCounts) {
        self.count += other.count;
        self.gap.merge(&other.gap);
    }
}

/// Counts of one thread, or of all.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Items of answered requests, without those that failed.
    pub items_answered: u64,
    /// Items that failed in requests that were answered, as a list of outcomes is.
    pub items_failed: u64,
    /// Latencies of answered requests.
    pub latency: Durations,
    /// Latencies of refused ones.
    pub refused_latency: Durations,
    /// How late requests of an open loop were sent although a connection was free.
    pub late: Durations,
    /// Of those, how many were more than `LATE_NS` late.
    pub late_count: u64,
    /// Requests of an open loop that were due while all connections were busy.
    pub held_count: u64,
    /// Connections opened, at any time.
    pub connections_opened: u64,
    /// From the instant at which a request was due to the first part of its answer.
    pub first_part: Durations,
    /// Parts that came in the window.
    pub parts: PartCounts,
    /// Tokens and parts of the answers that count their tokens.
    pub tokens: (u64, u64),
    pub(super) queue: Durations,
    pub(super) batch: Durations,
    pub(super) model: Durations,
    pub(super) first_part_in_server: Durations,
    pub(super) batch_sizes: BTreeMap<u32, u64>,
    pub(super) ends: BTreeMap<(Kind, u16, String), u64>,
}

impl Totals {
    /// Counts one request; its latency is from the instant at which it was due.
    pub fn record(&mut self, latency_ns: u64, items: u32, end: &Result<Answer, Loss>) {
        let kind = kind(end);
        let (status, reason) = match end {
            Ok(answer) => (answer.status, answer.reason.as_deref().unwrap_or("")),
            Err(loss) => (0, loss.reason()),
        };
        match kind {
            Kind::Answered => self.latency.record_ns(latency_ns),
            Kind::Refused => self.refused_latency.record_ns(latency_ns),
            Kind::Failed => {}
        }
        if kind == Kind::Answered {
            self.record_answered(items, end);
        }
        // Nearly all requests end like the one before: no text is made for them.
        if let Some(count) = self.ends.iter_mut().find(|((k, s, r), _)| (*k, *s, r.as_str()) == (kind, status, reason))
        {
            *count.1 += 1;
        } else {
            self.ends.insert((kind, status, reason.to_owned()), 1);
        }
    }

    fn record_answered(&mut self, items: u32, end: &Result<Answer, Loss>) {
        let Ok(answer) = end else { return };
        let failed = answer.failed_items.min(items);
        self.items_answered += u64::from(items - failed);
        self.items_failed += u64::from(failed);
        if let Some(timing) = answer.timing {
            self.queue.record_us(timing.queue_us);
            for (durations, length_us) in [
                (&mut self.batch, timing.batch_us),
                (&mut self.model, timing.model_us),
                (&mut self.first_part_in_server, timing.first_part_us),
            ] {
                length_us.into_iter().for_each(|length_us| durations.record_us(length_us));
            }
        }
        if let Some(streamed) = &answer.streamed {
            streamed.first_part_ns.into_iter().for_each(|first_ns| self.first_part.record_ns(first_ns));
            if let Some(tokens) = streamed.tokens {
                self.tokens.0 += tokens;
                self.tokens.1 += streamed.parts;
            }
        }
        if let Some(size) = answer.batch_size {
            *self.batch_sizes.entry(size).or_default() += 1;
        }
    }

    /// Counts a request that was sent at once, or should have been.
    pub fn record_sent(&mut self, late_ns: u64) {
        self.late.record_ns(late_ns);
        self.late_count += u64::from(late_ns > LATE_NS);
    }

    /// Adds another thread's.
    pub fn merge(&mut self, other: &Totals) {
        self.items_answered += other.items_answered;
        self.items_failed += other.items_failed;
        self.late_count += other.late_count;
        self.held_count += other.held_count;
        self.connections_opened += other.connections_opened;
        for (ours, theirs) in [
            (&mut self.latency, &other.latency),
            (&mut self.refused_latency, &other.refused_latency),
            (&mut self.late, &other.late),
            (&mut self.queue, &other.queue),
            (&mut self.batch, &other.batch),
            (&mut self.model, &other.model),
            (&mut self.first_part, &other.first_part),
            (&mut self.first_part_in_server, &other.first_part_in_server),
        ] {
            ours.merge(theirs);
        }
        self.parts.merge(&other.parts);
        self.tokens = (self.tokens.0 + other.tokens.0, self.tokens.1 + other.tokens.1);
        other.batch_sizes.iter().for_each(|(&size, count)| *self.batch_sizes.entry(size).or_default() += count);
        other.ends.iter().for_each(|(end, count)| *self.ends.entry(end.clone()).or_default() += count);
    }

    /// Requests that ended in this way.
    pub fn count(&self, kind: Kind) -> u64 {
        self.ends.iter().filter(|((one, _, _), _)| *one == kind).map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::parts::Streamed;

    fn answer(status: u16) -> Answer {
        Answer { status, ..Answer::default() }
    }

    fn streamed(is_broken: bool) -> Answer {
        let streamed = Streamed { parts: 3, tokens: Some(6), is_broken, first_part_ns: Some(2_000_000) };
        Answer { streamed: Some(streamed), ..answer(200) }
    }

    #[test]
    fn first_parts_are_of_answers_and_parts_of_all() {
        let mut totals = Totals::default();
        totals.record(5_000_000, 1, &Ok(streamed(false)));
        totals.record(5_000_000, 1, &Ok(streamed(true)));
        assert_eq!((totals.first_part.count(), totals.tokens), (1, (6, 3)));
        totals.parts.record(None, 3);
        totals.parts.record(Some(2_000_000), 1);
        let mut both = totals.clone();
        both.merge(&totals);
        assert_eq!((both.parts.count, both.parts.gap.count(), both.tokens), (8, 6, (12, 6)));
        assert_eq!(both.parts.gap.quantiles().map(|gap| (gap.p50, gap.max)), Some((0.0, 2.0)));
    }

    #[test]
    fn every_end_has_one_kind() {
        for (end, expected) in [
            (Ok(answer(200)), Kind::Answered),
            (Ok(answer(204)), Kind::Answered),
            (Ok(answer(429)), Kind::Refused),
            (Ok(answer(503)), Kind::Refused),
            (Ok(answer(500)), Kind::Failed),
            (Ok(answer(302)), Kind::Failed),
            (Err(Loss::Timeout), Kind::Failed),
            (Ok(streamed(false)), Kind::Answered),
            (Ok(streamed(true)), Kind::Failed),
        ] {
            assert_eq!(kind(&end), expected, "{end:?}");
        }
    }

    #[test]
    fn ends_are_told_apart_by_status_and_reason() {
        let mut totals = Totals::default();
        for reason in ["queue_full", "queue_full", "wait_too_long"] {
            totals.record(5, 1, &Ok(Answer { status: 429, reason: Some(reason.into()), ..Answer::default() }));
        }
        totals.record(5, 1, &Err(Loss::Closed));
        assert_eq!(totals.ends[&(Kind::Refused, 429, "queue_full".into())], 2);
        assert_eq!((totals.count(Kind::Refused), totals.count(Kind::Failed), totals.count(Kind::Answered)), (3, 1, 0));
    }

    #[test]
    fn items_that_failed_in_a_good_answer_are_not_answered() {
        let mut totals = Totals::default();
        totals.record(5, 64, &Ok(Answer { status: 200, failed_items: 3, ..Answer::default() }));
        assert_eq!((totals.items_answered, totals.items_failed), (61, 3));
    }

    #[test]
    fn merging_adds_up() {
        let mut one = Totals::default();
        one.record(5_000, 1, &Ok(answer(200)));
        one.record_sent(2 * LATE_NS);
        let mut two = one.clone();
        two.record(9_000, 1, &Ok(answer(500)));
        two.merge(&one);
        assert_eq!((two.count(Kind::Answered), two.count(Kind::Failed), two.late_count), (2, 1, 2));
        assert_eq!(two.latency.count(), 2);
    }
}
