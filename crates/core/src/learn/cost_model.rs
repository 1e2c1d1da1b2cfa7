//! What batches of one kind take. If their items differ in cost, the time may follow their number, their cost, or what
//! padding to the longest makes of it: all three are learned, and whichever explains what was measured is believed.

use crate::learn::batch_cost::{BatchCost, Measure};
use crate::learn::size_model::SizeModel;
use std::time::Duration;

/// Batches over which two measures are compared …
const JUDGED_OVER: f64 = 32.0;
/// … and that both must have predicted before they are.
const JUDGED_AFTER: u32 = 8;
/// A batch for which both predict as good as the same says nothing about them: |ln(one / other)| must be above this. When
/// like lengths are batched together cost and padded cost agree, and what is left of them is noise.
const DIFFERENT: f64 = 0.05;
/// Another measure must be wrong by less than this share of what the present one is wrong by.
const BETTER: f64 = 0.8;
/// No prediction is wrong by more: one stall of the machine does not describe the model.
const WORST_MISFIT: f64 = 1.0;
/// Weight of the newest batch in what items cost and how much padding batches have, on average.
const WEIGHT_OF_NEWEST: f64 = 0.05;
/// What waits counts as at most so many times, and at least as such a part of, what was measured.
const MOST_WEIGHT: f64 = 100.0;
/// An item counts as at most so many usual ones: what a client says of one item must not turn all that was learned …
const LARGEST: f64 = 32.0;
/// … nor the predicted waits of requests: waiting items cost at most so many times the usual, on average.
const MOST_EACH: f64 = 8.0;

/// How wrong the present measure and another are, over the same batches: the means of |ln(measured / predicted)|.
#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    present: f64,
    other: f64,
    count: u32,
}

/// The models by each measure.
#[derive(Clone, Debug, Default)]
pub struct CostModel {
    by_items: SizeModel,
    /// By cost and padded; absent while every item costs 1.
    by_units: Option<Box<[SizeModel; 2]>>,
    measure: Measure,
    /// Of each measure next to the present one.
    trials: [Trial; 3],
    /// Padded cost over cost, minus 1, on average.
    padding: f64,
    /// What an item costs, on average over the batches; 0 before the first.
    usual: f64,
}

impl CostModel {
    /// Learns that a batch occupied a replica for `length`.
    pub fn learn(&mut self, load: BatchCost, length: Duration) {
        if load.items == 0 {
            return;
        }
        let load = self.tamed(load);
        let each = load.cost as f64 / load.items as f64;
        self.usual = if self.usual > 0.0 { self.usual + WEIGHT_OF_NEWEST * (each - self.usual) } else { each };
        if load.cost != load.items as u64 || self.by_units.is_some() {
            self.by_units.get_or_insert_default();
            self.judge(load, length);
            let padding = load.padded() as f64 / load.cost.max(1) as f64 - 1.0;
            self.padding += WEIGHT_OF_NEWEST * (padding.clamp(0.0, MOST_WEIGHT) - self.padding);
        }
        self.by_items.learn(load.items, length);
        if let Some(size_models) = &mut self.by_units {
            size_models[0].learn(load.units(Measure::Cost), length);
            size_models[1].learn(load.units(Measure::Padded), length);
        }
    }

    /// What this model has learned as a first guess for a similar model: measurements replace it.
    #[must_use]
    pub fn as_a_guess(&self) -> CostModel {
        let by_units = self
            .by_units
            .as_ref()
            .map(|size_models| Box::new([size_models[0].as_a_guess(), size_models[1].as_a_guess()]));
        CostModel { by_items: self.by_items.as_a_guess(), by_units, ..*self }
    }

    /// Whether items differ in cost: durations then scatter by the number of items although nothing else changes.
    pub fn has_costs(&self) -> bool {
        self.by_units.is_some()
    }

    /// By the number of items.
    pub fn by_items(&self) -> &SizeModel {
        &self.by_items
    }

    /// What the time follows, as far as is known.
    pub fn measure(&self) -> Measure {
        self.measure
    }

    /// By the measure that is believed.
    pub fn size_model(&self) -> &SizeModel {
        self.by(self.measure)
    }

    /// What an item of the usual cost adds to a batch, in seconds.
    pub fn item_s(&self) -> f64 {
        let units = match self.measure {
            Measure::Items => 1.0,
            Measure::Cost => self.usual,
            Measure::Padded => self.usual * (1.0 + self.padding),
        };
        units * self.size_model().item_s()
    }

    /// The share of a batch that is padding, on average, if it is padded to its longest item: 0 to 1.
    pub fn padding(&self) -> f64 {
        self.padding / (1.0 + self.padding)
    }

    /// What this batch takes, in seconds.
    pub fn seconds(&self, load: BatchCost) -> f64 {
        self.size_model().seconds(self.tamed(load).units(self.measure))
    }

    /// What it takes if it takes long, in seconds.
    pub fn upper(&self, load: BatchCost) -> f64 {
        self.size_model().upper(self.tamed(load).units(self.measure))
    }

    /// How many times as long as measured batches of as many items those take that cost `each` on average.
    pub fn weight(&self, items: usize, each: f64) -> f64 {
        let each = if self.usual > 0.0 { each.min(MOST_EACH * self.usual) } else { each };
        let units = match self.measure {
            Measure::Items => return 1.0,
            Measure::Cost => each * items as f64,
            Measure::Padded => each * items as f64 * (1.0 + self.padding),
        };
        let seconds = self.size_model().seconds(units.clamp(1.0, 1e15) as usize);
        (seconds / self.by_items.seconds(items.max(1))).clamp(1.0 / MOST_WEIGHT, MOST_WEIGHT)
    }

    /// An item counts as costing no more than this. Where most cost nothing the usual cost fades to nothing, and later
    /// items must still count.
    pub fn largest(&self) -> f64 {
        if self.usual > 0.0 { LARGEST * self.usual.max(1.0) } else { f64::INFINITY }
    }

    /// The same load, with what is far beyond the usual cut off.
    fn tamed(&self, load: BatchCost) -> BatchCost {
        let most = self.largest();
        if load.largest as f64 <= most {
            return load;
        }
        let (largest, items) = (most as u64, load.items as u64);
        BatchCost { cost: load.cost.min(largest.saturating_mul(items)), largest, ..load }
    }

    fn by(&self, measure: Measure) -> &SizeModel {
        match (&self.by_units, measure) {
            (Some(size_models), Measure::Cost) => &size_models[0],
            (Some(size_models), Measure::Padded) => &size_models[1],
            _ => &self.by_items,
        }
    }

    /// Compares what each measure would have predicted with what came.
    fn judge(&mut self, load: BatchCost, length: Duration) {
        let size_model = self.size_model();
        if !size_model.is_known() {
            return;
        }
        let seconds = length.as_secs_f64().max(1e-9);
        let present = size_model.seconds(load.units(self.measure));
        let wrong = |predicted: f64| (seconds / predicted).ln().abs().min(WORST_MISFIT);
        for measure in Measure::ALL.into_iter().filter(|&measure| measure != self.measure) {
            let size_model = self.by(measure);
            let other = size_model.seconds(load.units(measure));
            if !size_model.is_known() || !size_model.has_line() || (other / present).ln().abs() < DIFFERENT {
                continue;
            }
            let trial = &mut self.trials[measure as usize];
            trial.count = trial.count.saturating_add(1);
            let weight = 1.0 / f64::from(trial.count).min(JUDGED_OVER);
            trial.present += weight * (wrong(present) - trial.present);
            trial.other += weight * (wrong(other) - trial.other);
        }
        let wrong = |(measure, trial): (Measure, Trial)| {
            (trial.count >= JUDGED_AFTER).then(|| (trial.other / trial.present, measure))
        };
        let best = Measure::ALL.into_iter().zip(self.trials).filter_map(wrong).min_by(|a, b| a.0.total_cmp(&b.0));
        if let Some((_, best)) = best.filter(|(wrong, _)| *wrong < BETTER) {
            (self.measure, self.trials) = (best, [Trial::default(); 3]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths that differ as those of sentences do.
    fn batches() -> impl Iterator<Item = BatchCost> {
        (0..200u64).map(|n| {
            let items = 1 + n * 7 % 16;
            (0..items).map(|i| 4 + (n * 31 + i * i * 17) % 120).collect()
        })
    }

    fn learned(seconds: impl Fn(BatchCost) -> f64) -> CostModel {
        let mut cost_model = CostModel::default();
        batches().for_each(|load| cost_model.learn(load, Duration::from_secs_f64(seconds(load))));
        cost_model
    }

    #[test]
    fn it_finds_out_what_the_time_follows() {
        type Seconds = fn(BatchCost) -> f64;
        let models: [(Seconds, Measure); 3] = [
            (|load| 0.005 + 0.001 * load.items as f64, Measure::Items),
            (|load| 0.005 + 0.000_1 * load.cost as f64, Measure::Cost),
            (|load| 0.005 + 0.000_1 * load.padded() as f64, Measure::Padded),
        ];
        for (seconds, measure) in models {
            let cost_model = learned(seconds);
            assert_eq!(cost_model.measure(), measure);
            let long = BatchCost::alike(4, 200);
            let ratio = cost_model.seconds(long) / seconds(long);
            assert!((0.9..1.1).contains(&ratio), "{measure:?}: predicted / actual {ratio}");
        }
    }

    #[test]
    fn one_item_of_absurd_cost_turns_nothing() {
        let seconds = |load: BatchCost| 0.005 + 0.000_1 * load.padded() as f64;
        let mut cost_model = learned(seconds);
        let load = BatchCost::alike(8, 60);
        let (before, weight) = (cost_model.seconds(load), cost_model.weight(8, 60.0));
        // It is cut off by the model: its batch takes no longer than another of long ones.
        cost_model.learn(load.with(1 << 40), Duration::from_secs_f64(0.1));
        let after = cost_model.seconds(load);
        assert!((0.7..1.4).contains(&(after / before)), "{before} {after}");
        assert!(cost_model.weight(8, 1e12) <= 2.0 * MOST_EACH * weight, "{}", cost_model.weight(8, 1e12));
        assert_eq!(cost_model.measure(), Measure::Padded);
    }

    #[test]
    fn many_items_that_cost_nothing_do_not_end_the_learning() {
        let mut cost_model = CostModel::default();
        let millisecond = Duration::from_millis(1);
        cost_model.learn(BatchCost::alike(4, 100), millisecond);
        (0..200).for_each(|_| cost_model.learn(BatchCost::alike(4, 0), millisecond));
        let seconds = |load: BatchCost| 0.005 + 0.000_1 * load.padded() as f64;
        batches().for_each(|load| cost_model.learn(load, Duration::from_secs_f64(seconds(load))));
        assert_eq!(cost_model.measure(), Measure::Padded);
    }

    #[test]
    fn items_that_all_cost_one_are_learned_once() {
        let mut cost_model = CostModel::default();
        (1..40).for_each(|items| cost_model.learn(BatchCost::alike(items, 1), Duration::from_millis(5 + items as u64)));
        assert_eq!((cost_model.measure(), cost_model.by_units.is_none()), (Measure::Items, true));
        assert!((cost_model.weight(8, 1.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_waits_weighs_as_much_as_it_costs_beside_what_was_measured() {
        let cost_model = learned(|load| 0.001 + 0.000_1 * load.cost as f64);
        let mean = batches().map(|load| load.cost).sum::<u64>() as f64
            / batches().map(|load| load.items).sum::<usize>() as f64;
        let (same, heavy) = (cost_model.weight(8, mean), cost_model.weight(8, 4.0 * mean));
        assert!((0.8..1.25).contains(&same), "{same}");
        assert!((3.0..4.5).contains(&heavy), "{heavy}");
    }
}
