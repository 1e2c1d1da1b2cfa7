//! What a batch contains: how many items, and what they cost. Costs are in the deployment's own units: tokens, pixels, rows.

/// Beyond it floats skip integers, and no cost is meant.
const MOST_UNITS: u64 = 1 << 53;

/// What the time of a batch follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    /// How many items it holds, whatever they cost.
    #[default]
    Items,
    /// What they cost together.
    Cost,
    /// As many times the largest cost as there are items: the model pads all to the longest.
    Padded,
}

impl Measure {
    /// Every measure.
    pub const ALL: [Measure; 3] = [Measure::Items, Measure::Cost, Measure::Padded];

    /// As `/config` shows it.
    pub fn label(self) -> &'static str {
        match self {
            Measure::Items => "items",
            Measure::Cost => "cost",
            Measure::Padded => "padded",
        }
    }
}

/// The items of one batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchCost {
    /// How many.
    pub items: usize,
    /// What they cost together.
    pub cost: u64,
    /// What the largest of them costs.
    pub largest: u64,
}

impl BatchCost {
    /// Of one item.
    pub fn one(cost: u64) -> BatchCost {
        BatchCost::alike(1, cost)
    }

    /// Of items that all cost the same.
    pub fn alike(items: usize, each: u64) -> BatchCost {
        BatchCost { items, cost: each.saturating_mul(items as u64), largest: each }
    }

    /// With one more.
    #[must_use]
    pub fn with(self, cost: u64) -> BatchCost {
        BatchCost { items: self.items + 1, cost: self.cost.saturating_add(cost), largest: self.largest.max(cost) }
    }

    /// What it costs if all are padded to the largest.
    pub fn padded(self) -> u64 {
        self.largest.saturating_mul(self.items as u64)
    }

    /// How large it is by a measure; at least 1.
    pub fn units(self, measure: Measure) -> usize {
        let units = match measure {
            Measure::Items => self.items as u64,
            Measure::Cost => self.cost,
            Measure::Padded => self.padded(),
        };
        units.clamp(1, MOST_UNITS) as usize
    }
}

impl FromIterator<u64> for BatchCost {
    fn from_iter<I: IntoIterator<Item = u64>>(costs: I) -> BatchCost {
        costs.into_iter().fold(BatchCost::default(), BatchCost::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_counted_by_items_by_cost_and_by_what_padding_makes_of_it() {
        let load: BatchCost = [5, 40, 10].into_iter().collect();
        assert_eq!(Measure::ALL.map(|measure| load.units(measure)), [3, 55, 120]);
        assert_eq!(BatchCost::alike(3, 7), [7, 7, 7].into_iter().collect());
    }

    #[test]
    fn costs_that_clients_make_up_neither_overflow_nor_count_as_nothing() {
        let load: BatchCost = [u64::MAX, u64::MAX].into_iter().collect();
        assert_eq!(Measure::ALL.map(|measure| load.units(measure)), [2, 1 << 53, 1 << 53]);
        assert_eq!(BatchCost::one(0).units(Measure::Padded), 1);
    }
}
