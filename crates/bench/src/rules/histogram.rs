//! Durations counted in microseconds with three digits: merged without loss, written as every `HdrHistogram` tool reads them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::Serialize;

/// Points of the curve each time that the share of slower ones is halved.
const TICKS_PER_HALF: u32 = 10;
const DIGITS: u8 = 3;
/// A day; what takes longer is counted as this.
const LONGEST_US: u64 = 86_400_000_000;

/// Counts durations.
#[derive(Clone, Debug)]
pub struct Durations(Histogram<u64>);

/// The reported quantiles of a distribution, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantiles {
    /// The mean.
    pub mean: f64,
    /// Half are at most this long.
    pub p50: f64,
    /// 90 of 100 are.
    pub p90: f64,
    /// 95 of 100 are.
    pub p95: f64,
    /// 99 of 100 are.
    pub p99: f64,
    /// 999 of 1,000 are.
    pub p99_9: f64,
    /// The longest.
    pub max: f64,
}

impl Default for Durations {
    fn default() -> Durations {
        Durations(Histogram::new(DIGITS).expect("three digits are allowed"))
    }
}

impl Durations {
    /// Counts one, in nanoseconds.
    pub fn record_ns(&mut self, length_ns: u64) {
        self.record_us(length_ns.saturating_add(500) / 1000);
    }

    /// Counts one, in microseconds.
    pub fn record_us(&mut self, length_us: u64) {
        self.0.record(length_us.min(LONGEST_US)).expect("it grows up to the longest");
    }

    /// Counts several of 0.
    pub fn record_zeros(&mut self, count: u64) {
        self.0.record_n(0, count).expect("0 fits into every histogram");
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Adds what another has counted.
    pub fn merge(&mut self, other: &Durations) {
        self.0.add(&other.0).expect("it grows to hold what another holds");
    }

    /// The value that this share is not above, in milliseconds.
    pub fn quantile_ms(&self, share: f64) -> f64 {
        ms(self.0.value_at_quantile(share))
    }

    /// The usual ones; `None` if nothing was counted.
    pub fn quantiles(&self) -> Option<Quantiles> {
        (self.count() > 0).then(|| Quantiles {
            mean: self.0.mean() / 1e3,
            p50: self.quantile_ms(0.5),
            p90: self.quantile_ms(0.9),
            p95: self.quantile_ms(0.95),
            p99: self.quantile_ms(0.99),
            p99_9: self.quantile_ms(0.999),
            max: ms(self.0.max()),
        })
    }

    /// The whole distribution as (share, milliseconds), closer together towards 1.
    pub fn curve(&self) -> Vec<(f64, f64)> {
        let points = self.0.iter_quantiles(TICKS_PER_HALF);
        points.map(|point| (point.quantile_iterated_to(), ms(point.value_iterated_to().min(self.0.max())))).collect()
    }

    /// As text: V2, deflated, base64.
    pub fn encode(&self) -> String {
        let mut bytes = Vec::new();
        let written = V2DeflateSerializer::new().serialize(&self.0, &mut bytes);
        written.expect("a histogram fits into memory");
        STANDARD.encode(bytes)
    }

    /// What `encode` wrote; `None` if it is something else.
    pub fn decode(text: &str) -> Option<Durations> {
        let bytes = STANDARD.decode(text).ok()?;
        Deserializer::new().deserialize(&mut bytes.as_slice()).ok().map(Durations)
    }
}

fn ms(microseconds: u64) -> f64 {
    microseconds as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(lengths_us: &[u64]) -> Durations {
        let mut durations = Durations::default();
        lengths_us.iter().for_each(|&length| durations.record_us(length));
        durations
    }

    #[test]
    fn nothing_counted_has_no_quantiles() {
        assert_eq!(Durations::default().quantiles(), None);
    }

    #[test]
    fn the_curve_ends_at_the_longest() {
        let durations = of(&[10, 20, 5_000]);
        assert_eq!(durations.curve().last(), Some(&(1.0, durations.quantiles().unwrap().max)));
    }

    #[test]
    fn what_is_no_histogram_is_not_decoded() {
        assert!(["", "not base64!", "aGVsbG8="].iter().all(|text| Durations::decode(text).is_none()));
    }

    proptest! {
        #[test]
        fn merging_is_counting_together_and_text_loses_nothing(
            left in prop::collection::vec(0u64..100_000_000, 0..200), right in prop::collection::vec(0u64..100_000_000, 1..200)
        ) {
            let mut merged = of(&left);
            merged.merge(&Durations::decode(&of(&right).encode()).unwrap());
            let together = of(&[left, right].concat());
            prop_assert_eq!(merged.quantiles(), together.quantiles());
            prop_assert_eq!(merged.count(), together.count());
        }

        #[test]
        fn a_quantile_is_within_a_thousandth_of_the_true_one(
            mut lengths in prop::collection::vec(1u64..60_000_000, 1..300), share in 0.01f64..1.0
        ) {
            let told = of(&lengths).quantile_ms(share) * 1e3;
            lengths.sort_unstable();
            let place = ((share * lengths.len() as f64).ceil() as usize).clamp(1, lengths.len());
            let real = lengths[place - 1] as f64;
            prop_assert!((told - real).abs() <= real / 1000.0 + 1.0, "{told} {real}");
        }
    }
}
