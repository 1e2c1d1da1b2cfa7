//! The last five minutes of one deployment, a point for each second.

use crate::engine::deployment::live::histogram::{Counts, Quantiles, quantiles};
use crate::engine::deployment::live::record::SIZES;
use jitney_core::policy::batch_policy::CloseReason;
use serde::Serialize;
use std::collections::VecDeque;

/// Seconds that are kept.
pub(crate) const KEPT: usize = 300;
/// Seconds that are judged.
pub(crate) const JUDGED: usize = 10;
/// Reasons for which batches are closed.
pub(crate) const REASONS: usize = CloseReason::ALL.len();
/// Phases of requests, in the order in which a request passes them.
pub(crate) const PHASES: [&str; 7] = ["receive", "queue", "link", "decode", "predict", "encode", "render"];

/// Everything that only grows, at one instant.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Totals {
    pub(crate) answered: u64,
    /// Refused or given up because too much was asked for.
    pub(crate) refused: u64,
    /// Requests that failed through the model or the server.
    pub(crate) failed: u64,
    /// Requests that were wrong.
    pub(crate) mistaken: u64,
    /// Batches by size.
    pub(crate) sizes: [u64; SIZES],
    pub(crate) items: u64,
    pub(crate) bytes: u64,
    /// Batches by the reason for which they were closed.
    pub(crate) reasons: [u64; REASONS],
    /// Seconds of requests in each phase.
    pub(crate) phases: [f64; PHASES.len()],
    /// Seconds of all replicas in `predict`, and with at least one batch.
    pub(crate) predict_s: f64,
    pub(crate) occupied_s: f64,
}

impl Totals {
    /// What has come since an earlier instant.
    pub(crate) fn since(&self, before: &Totals) -> Totals {
        let count = |now: u64, before: u64| now.saturating_sub(before);
        let time = |now: f64, before: f64| (now - before).max(0.0);
        Totals {
            answered: count(self.answered, before.answered),
            refused: count(self.refused, before.refused),
            failed: count(self.failed, before.failed),
            mistaken: count(self.mistaken, before.mistaken),
            sizes: std::array::from_fn(|place| count(self.sizes[place], before.sizes[place])),
            items: count(self.items, before.items),
            bytes: count(self.bytes, before.bytes),
            reasons: std::array::from_fn(|place| count(self.reasons[place], before.reasons[place])),
            phases: std::array::from_fn(|place| time(self.phases[place], before.phases[place])),
            predict_s: time(self.predict_s, before.predict_s),
            occupied_s: time(self.occupied_s, before.occupied_s),
        }
    }

    fn add(&mut self, other: &Totals) {
        self.answered += other.answered;
        self.refused += other.refused;
        self.failed += other.failed;
        self.mistaken += other.mistaken;
        self.items += other.items;
        self.bytes += other.bytes;
        self.predict_s += other.predict_s;
        self.occupied_s += other.occupied_s;
        let counts = self.sizes.iter_mut().zip(&other.sizes).chain(self.reasons.iter_mut().zip(&other.reasons));
        counts.for_each(|(sum, count)| *sum += count);
        self.phases.iter_mut().zip(&other.phases).for_each(|(sum, time)| *sum += time);
    }

    /// Batches that were launched.
    pub(crate) fn batches(&self) -> u64 {
        self.sizes.iter().sum()
    }

    /// Items in a batch, on average; `None` if none was launched.
    pub(crate) fn mean_batch(&self) -> Option<f64> {
        let batches = self.batches();
        (batches > 0).then(|| self.items as f64 / batches as f64)
    }
}

/// One second.
#[derive(Clone, Debug, Default)]
pub(crate) struct Point {
    /// How long it was, in seconds.
    pub(crate) length_s: f64,
    pub(crate) new: Totals,
    /// Durations of the requests that were answered.
    pub(crate) durations: Counts,
    /// At its end: items that wait, the age of the oldest one, and replicas that are ready.
    pub(crate) queued: u64,
    pub(crate) oldest_s: f64,
    pub(crate) ready: u64,
}

impl Point {
    /// The share of its time for which the model computed, over all replicas; `None` without a replica.
    fn busy(&self) -> Option<f64> {
        (self.ready > 0).then(|| (self.new.predict_s / (self.length_s * self.ready as f64)).clamp(0.0, 1.0))
    }
}

/// Points as the page draws them: one array for each line, and the oldest second first.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Columns {
    answered: Vec<f64>,
    refused: Vec<f64>,
    failed: Vec<f64>,
    mistaken: Vec<f64>,
    p50_ms: Vec<Option<f64>>,
    p95_ms: Vec<Option<f64>>,
    p99_ms: Vec<Option<f64>>,
    queued: Vec<u64>,
    oldest_ms: Vec<f64>,
    mean_batch: Vec<Option<f64>>,
    busy: Vec<Option<f64>>,
}

impl Columns {
    fn push(&mut self, point: &Point, found: Option<Quantiles>) {
        let per_s = |count: u64| rounded(count as f64 / point.length_s.max(1e-3));
        let of = |value: fn(Quantiles) -> f64| found.map(|found| rounded(value(found)));
        self.answered.push(per_s(point.new.answered));
        self.refused.push(per_s(point.new.refused));
        self.failed.push(per_s(point.new.failed));
        self.mistaken.push(per_s(point.new.mistaken));
        self.p50_ms.push(of(|found| found.p50_ms));
        self.p95_ms.push(of(|found| found.p95_ms));
        self.p99_ms.push(of(|found| found.p99_ms));
        self.queued.push(point.queued);
        self.oldest_ms.push(rounded(point.oldest_s * 1e3));
        self.mean_batch.push(point.new.mean_batch().map(rounded));
        self.busy.push(point.busy().map(rounded));
    }
}

/// To a thousandth: more digits would be noise.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// The last points, the newest last.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    points: VecDeque<Point>,
    /// Of each point alone.
    quantiles: VecDeque<Option<Quantiles>>,
}

impl Ring {
    /// Adds a point. The oldest one is forgotten.
    pub(crate) fn push(&mut self, point: Point) {
        if self.points.len() == KEPT {
            self.points.pop_front();
            self.quantiles.pop_front();
        }
        self.quantiles.push_back(quantiles(std::iter::once(&point.durations)));
        self.points.push_back(point);
    }

    /// The newest points as arrays, at most so many.
    pub(crate) fn columns(&self, most: usize) -> Columns {
        let mut columns = Columns::default();
        let found = self.quantiles.range(self.points.len().saturating_sub(most)..);
        self.last(most).zip(found).for_each(|(point, found)| columns.push(point, *found));
        columns
    }

    /// The newest points together: how long they were, in seconds, and what came.
    pub(crate) fn sum(&self, most: usize) -> (f64, Totals) {
        let mut sum = Totals::default();
        let mut length_s = 0.0;
        for point in self.last(most) {
            sum.add(&point.new);
            length_s += point.length_s;
        }
        (length_s, sum)
    }

    /// The quantiles of the newest points.
    pub(crate) fn quantiles(&self, most: usize) -> Option<Quantiles> {
        quantiles(self.last(most).map(|point| &point.durations))
    }

    /// In how many of the newest points items waited, and the greatest age of one in seconds.
    pub(crate) fn waiting(&self, most: usize) -> (usize, f64) {
        let waiting = || self.last(most).filter(|point| point.queued > 0);
        (waiting().count(), waiting().map(|point| point.oldest_s).fold(0.0, f64::max))
    }

    /// The newest point.
    pub(crate) fn newest(&self) -> Option<&Point> {
        self.points.back()
    }

    /// Seconds since the last request ended; `None` if that is longer than the ring.
    pub(crate) fn quiet_s(&self) -> Option<usize> {
        let has_any = |point: &Point| {
            point.new.answered + point.new.refused + point.new.failed + point.new.mistaken > 0 || point.queued > 0
        };
        self.points.iter().rev().position(has_any)
    }

    /// Whether it has five minutes.
    pub(crate) fn is_full(&self) -> bool {
        self.points.len() == KEPT
    }

    fn last(&self, most: usize) -> impl Iterator<Item = &Point> {
        self.points.range(self.points.len().saturating_sub(most)..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::deployment::live::histogram::DurationCounts;
    use std::time::Duration;

    #[test]
    fn five_minutes_without_requests_take_an_eighth_of_a_megabyte() {
        assert!(KEPT * size_of::<Point>() <= 128 << 10, "{} bytes", KEPT * size_of::<Point>());
    }

    fn point(answered: u64, ms: u64) -> Point {
        let durations = DurationCounts::default();
        (0..answered).for_each(|_| durations.add(Duration::from_millis(ms)));
        let mut new = Totals { answered, items: 6, predict_s: 0.5, ..Totals::default() };
        new.sizes[1] = 3;
        Point { length_s: 1.0, new, durations: durations.take(), ready: 2, ..Point::default() }
    }

    #[test]
    fn five_minutes_are_kept_and_no_more() {
        let mut ring = Ring::default();
        (0..1000).for_each(|_| ring.push(point(1, 1)));
        assert_eq!(ring.columns(usize::MAX).answered.len(), KEPT);
        assert_eq!(ring.sum(usize::MAX).1.answered, KEPT as u64);
        assert_eq!(ring.sum(JUDGED).1.answered, JUDGED as u64);
    }

    #[test]
    fn quantiles_of_a_window_are_those_of_all_its_requests_and_not_means() {
        let mut ring = Ring::default();
        ring.push(point(90, 10));
        ring.push(point(10, 100));
        let found = ring.quantiles(KEPT).unwrap();
        assert!(found.p50_ms < 11.0 && found.p95_ms > 95.0, "{found:?}");
        assert!(ring.quantiles(1).unwrap().p50_ms > 95.0);
    }

    #[test]
    fn a_point_has_rates_and_shares() {
        let mut ring = Ring::default();
        ring.push(Point { length_s: 2.0, ..point(10, 1) });
        let columns = ring.columns(1);
        assert_eq!((columns.answered[0], columns.mean_batch[0], columns.busy[0]), (5.0, Some(2.0), Some(0.125)));
        ring.push(Point { ready: 0, ..Point::default() });
        assert_eq!(ring.columns(1).busy, [None]);
        assert_eq!(ring.quiet_s(), Some(1));
    }

    #[test]
    fn what_is_new_is_what_has_come_since() {
        let before = Totals { answered: 5, predict_s: 1.0, ..Totals::default() };
        let now = Totals { answered: 7, predict_s: 0.5, refused: 1, ..Totals::default() };
        let new = now.since(&before);
        assert_eq!((new.answered, new.refused, new.predict_s), (2, 1, 0.0), "a sum that began anew adds nothing");
    }
}
