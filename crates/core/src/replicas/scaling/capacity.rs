//! What one replica can do under full load.

use crate::learn::size_model::SizeModel;
use std::time::Duration;

/// Where a latency target is short, a batch may take this share of it: the rest is for the wait before the batch.
const SHARE_OF_TARGET: f64 = 0.6;

/// A replica that is never without work answers so many items in so many seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// Items that it computes together.
    pub items: f64,
    /// For how long, in seconds.
    pub seconds: f64,
}

impl Capacity {
    /// Of a model that computes batches of at most `most` items; `None` while too few batches were measured. With a latency
    /// target, batches that would take most of it do not count.
    pub fn of_batches(size_model: &SizeModel, most: usize, target: Option<Duration>) -> Option<Capacity> {
        if !size_model.is_known() {
            return None;
        }
        let longest = target.map_or(f64::INFINITY, |target| SHARE_OF_TARGET * target.as_secs_f64());
        let most = (1..=most.max(1)).rev().find(|&items| size_model.seconds(items) <= longest).unwrap_or(1);
        let items = size_model.best_size(most, 0.0, |items, seconds| seconds / items as f64);
        Some(Capacity { items: items as f64, seconds: size_model.seconds(items) })
    }

    /// Items per second.
    pub fn rate(&self) -> f64 {
        self.items / self.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned() -> SizeModel {
        let mut size_model = SizeModel::default();
        for items in [1, 2, 4, 8, 16, 32].repeat(4) {
            size_model.learn(items, Duration::from_micros(40_000 + 2_500 * items as u64));
        }
        size_model
    }

    #[test]
    fn a_full_batch_counts_unless_it_takes_most_of_the_target() {
        let of = |target: Option<u64>| {
            let capacity = Capacity::of_batches(&learned(), 32, target.map(Duration::from_millis));
            capacity.expect("batches were measured")
        };
        assert!((of(None).rate() - 32.0 / 0.12).abs() < 1.0, "{:?}", of(None));
        assert!(of(Some(500)).items > 31.5);
        assert!(of(Some(120)).seconds <= 0.072 + 1e-9, "{:?}", of(Some(120)));
        assert!(of(Some(1)).items < 1.5, "a target that no batch meets");
    }

    #[test]
    fn nothing_is_said_of_a_model_that_was_not_measured() {
        assert_eq!(Capacity::of_batches(&SizeModel::default(), 32, None), None);
    }
}
