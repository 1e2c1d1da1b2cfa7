//! Which items are batched together, if a batch is padded to its longest item: items of like length, as far as that pays.
//!
//! Those that wait are cut, in order of their length, into the batches that make all of them wait least; the first of these
//! leaves. No item is passed without end: one that was passed often enough leaves next, with those of like length.

use crate::learn::cost_model::CostModel;
use crate::policy::batch_policy::MOST_PASSES;
use crate::queue::waiting::Waiting;
use crate::request::ItemId;
use crate::time::Time;

/// Full batches that are looked at …
const WINDOW_BATCHES: usize = 4;
/// … and items, at most: what is not looked at is not passed by later ones either.
pub const WINDOW: usize = 256;

/// Of what the shortest item takes alone, so much at least is taken for the launch.
const LEAST_LAUNCH: f64 = 0.5;

/// Items of a lane that are looked at, if `most` may leave together.
pub fn window(most: usize) -> usize {
    (WINDOW_BATCHES * most).clamp(most.min(WINDOW), WINDOW)
}

/// What bounds the batch, and what it delays.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most items.
    pub items: usize,
    /// Most cost, padding included; an item above it is computed alone.
    pub cost: u64,
    /// How many are delayed in addition to those that are looked at.
    pub behind: f64,
}

/// What a batch takes that is padded to its longest item.
#[derive(Clone, Copy, Debug)]
struct Times {
    launch_s: f64,
    unit_s: f64,
    largest: f64,
}

impl Times {
    fn of(&self, longest: u64, items: usize) -> f64 {
        self.launch_s + self.unit_s * (longest as f64).min(self.largest) * items as f64
    }
}

/// The next batch of what waits, given in order of rank. `None` where it must be the first ones: somebody would not be in
/// time if others went first.
pub fn next_batch(waiting: &[Waiting], cost_model: &CostModel, bounds: Bounds, now: Time) -> Option<Vec<ItemId>> {
    let mut by_length: Vec<(u64, usize)> = waiting.iter().enumerate().map(|(at, item)| (item.cost, at)).collect();
    by_length.sort_unstable();
    let costs: Vec<u64> = by_length.iter().map(|&(cost, _)| cost).collect();
    let size_model = cost_model.size_model();
    let shortest_s = size_model.seconds(usize::try_from(*costs.first()?).unwrap_or(usize::MAX));
    // Were launches believed to be free, all would be computed alone, and the belief could never be seen to be wrong.
    let launch_s = size_model.launch_s().max(LEAST_LAUNCH * shortest_s);
    let times = Times { launch_s, unit_s: size_model.item_s(), largest: cost_model.largest() };
    let ends = plan(&costs, times, bounds);
    let all_s: f64 = batches(&ends).map(|(from, until)| times.of(costs[until - 1], until - from)).sum();
    let late_s = all_s * (1.0 + size_model.scatter() / 2.0);
    if waiting.iter().any(|item| (item.due - now).as_secs_f64() < late_s) {
        return None;
    }
    // A head start is worth nothing if one is passed; and no item is passed without end.
    let lowest = waiting.iter().map(|item| item.priority).max()?;
    let is_owed = |item: &Waiting| item.passed >= MOST_PASSES || item.priority < lowest;
    let owed = waiting.iter().position(is_owed);
    let is_meant =
        |batch: &(usize, usize)| owed.is_none_or(|at| by_length[batch.0..batch.1].iter().any(|&(_, i)| i == at));
    let (from, until) = batches(&ends).find(is_meant)?;
    Some(by_length[from..until].iter().map(|&(_, at)| waiting[at].id).collect())
}

/// Cuts sorted lengths into batches, to be launched in this order, such that the waits of all add up to least: each batch
/// delays those within it, after it and behind. Returns for each place where the batch that begins there ends.
fn plan(costs: &[u64], times: Times, bounds: Bounds) -> Vec<usize> {
    let count = costs.len();
    let (mut waits, mut ends) = (vec![0.0; count + 1], vec![count; count]);
    for from in (0..count).rev() {
        let delayed = (count - from) as f64 + bounds.behind;
        let mut least = f64::INFINITY;
        for until in from + 1..=count.min(from + bounds.items.max(1)) {
            let padded = costs[until - 1].saturating_mul((until - from) as u64);
            if padded > bounds.cost && until > from + 1 {
                break;
            }
            let wait = times.of(costs[until - 1], until - from) * delayed + waits[until];
            if wait < least {
                (least, ends[from]) = (wait, until);
            }
        }
        waits[from] = least;
    }
    ends
}

fn batches(ends: &[usize]) -> impl Iterator<Item = (usize, usize)> + '_ {
    let next = |&(_, from): &(usize, usize)| ends.get(from).map(|&until| (from, until));
    std::iter::successors(next(&(0, 0)), next)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: Times = Times { launch_s: 0.01, unit_s: 0.001, largest: f64::INFINITY };
    const BOUNDS: Bounds = Bounds { items: 8, cost: u64::MAX, behind: 0.0 };

    fn cut(costs: &[u64], launch_s: f64, unit_s: f64, bounds: Bounds) -> Vec<(usize, usize)> {
        batches(&plan(costs, Times { launch_s, unit_s, largest: f64::INFINITY }, bounds)).collect()
    }

    #[test]
    fn a_long_item_rides_apart_if_that_takes_less_than_the_padding() {
        let costs = [5, 6, 6, 7, 500];
        assert_eq!(cut(&costs, 0.005, 0.000_1, BOUNDS), [(0, 4), (4, 5)]);
        assert_eq!(cut(&costs, 5.0, 0.000_1, BOUNDS), [(0, 5)], "a launch costs more than the padding");
    }

    #[test]
    fn no_batch_is_above_its_bounds_and_an_item_above_the_cost_rides_alone() {
        let costs = [1, 1, 2, 2, 9, 9, 40];
        let bounds = Bounds { items: 3, cost: 18, ..BOUNDS };
        for (from, until) in cut(&costs, 1.0, 0.0, bounds) {
            assert!(until - from <= 3, "{from}..{until}");
            assert!(until - from == 1 || costs[until - 1] * (until - from) as u64 <= 18, "{from}..{until}");
        }
    }

    /// Every way to cut.
    fn least(costs: &[u64], from: usize, bounds: Bounds) -> f64 {
        let ends = from + 1..=costs.len().min(from + bounds.items);
        let waits = ends.map(|until| {
            let delayed = (costs.len() - from) as f64 + bounds.behind;
            TIMES.of(costs[until - 1], until - from) * delayed + least(costs, until, bounds)
        });
        waits.reduce(f64::min).unwrap_or(0.0)
    }

    #[test]
    fn no_other_cut_makes_all_wait_less() {
        let costs = [3, 4, 10, 11, 12, 40, 45, 46, 120];
        for behind in [0.0, 3.0, 50.0] {
            let bounds = Bounds { items: 4, behind, ..BOUNDS };
            let planned: f64 = cut(&costs, 0.01, 0.001, bounds)
                .into_iter()
                .map(|batch| {
                    TIMES.of(costs[batch.1 - 1], batch.1 - batch.0) * ((costs.len() - batch.0) as f64 + behind)
                })
                .sum();
            assert!((planned - least(&costs, 0, bounds)).abs() < 1e-9, "{behind} behind: {planned}");
        }
    }
}
