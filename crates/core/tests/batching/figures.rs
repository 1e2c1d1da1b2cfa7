//! A simulated run in numbers.

use crate::simulator::{Answered, Outcome, Ran, Scenario};
use std::collections::BTreeMap;

/// A run in numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) throughput: f64,
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    /// Padded cost over cost.
    pub(crate) padding: f64,
    /// How often answered clients had asked, on average.
    pub(crate) tries: f64,
    /// Mean latency of the twentieth with the longest requests.
    pub(crate) long: f64,
    pub(crate) batch: f64,
    /// Share of batches that were held while a replica was free.
    pub(crate) held: f64,
    /// The same of batches of one.
    pub(crate) lone_held: f64,
    /// Answers within the target per second, and the share of answers that were not.
    pub(crate) goodput: f64,
    pub(crate) late: f64,
    /// Share of requests, and how long they had waited on average.
    pub(crate) refused: f64,
    pub(crate) refused_after: f64,
    /// Median of predicted over actual latency.
    pub(crate) prediction: f64,
    pub(crate) batches: Vec<Ran>,
    /// Sorted latencies by lane, and of the high and the normal priority.
    pub(crate) lanes: BTreeMap<usize, Vec<f64>>,
    pub(crate) classes: [Vec<f64>; 2],
}

impl Figures {
    pub(crate) fn of(outcome: &Outcome, scenario: &Scenario) -> Figures {
        let start = outcome.ended_at * scenario.warm;
        let span = (outcome.ended_at - start).max(1e-12);
        let late: Vec<&Answered> = outcome.answered.iter().filter(|answered| answered.at >= start).collect();
        let mut all: Vec<f64> = late.iter().map(|answered| answered.latency).collect();
        all.sort_by(f64::total_cmp);
        let (mut lanes, mut classes) = (BTreeMap::<usize, Vec<f64>>::new(), [Vec::new(), Vec::new()]);
        for answered in &late {
            lanes.entry(answered.lane).or_default().push(answered.latency);
            classes[usize::from(!answered.is_high)].push(answered.latency);
        }
        lanes.values_mut().chain(&mut classes).for_each(|of| of.sort_by(f64::total_cmp));
        let batches = &outcome.batches;
        let ones: Vec<&Ran> = batches.iter().filter(|ran| ran.items == 1).collect();
        let share = |held: usize, of: usize| held as f64 / of.max(1) as f64;
        let target = scenario.target.unwrap_or(f64::INFINITY);
        let in_time = all.iter().filter(|&&latency| latency <= target + 1e-9).count();
        let lost: Vec<f64> = outcome.refused.iter().filter(|one| one.at >= start).map(|one| one.after).collect();
        let ratios = late.iter().filter_map(|one| one.predicted.filter(|&p| p > 0.0).map(|p| p / one.latency));
        let mut ratios: Vec<f64> = ratios.collect();
        ratios.sort_by(f64::total_cmp);
        let (cost, padded) = batches
            .iter()
            .filter(|ran| ran.at >= start)
            .fold((0, 0), |sums, ran| (sums.0 + ran.load.cost, sums.1 + ran.load.padded()));
        let mut costs: Vec<u64> = late.iter().map(|answered| answered.cost).collect();
        costs.sort_unstable();
        let longest = costs.get(costs.len() * 19 / 20).copied().unwrap_or(0);
        let long = late.iter().filter(|answered| answered.cost >= longest).map(|answered| answered.latency);
        let long: Vec<f64> = long.collect();
        Figures {
            goodput: in_time as f64 / span,
            late: 1.0 - in_time as f64 / all.len().max(1) as f64,
            refused: share(lost.len(), lost.len() + all.len()),
            refused_after: mean(&lost),
            prediction: quantile(&ratios, 0.5),
            throughput: all.len() as f64 / span,
            mean: all.iter().sum::<f64>() / all.len().max(1) as f64,
            p50: quantile(&all, 0.5),
            p95: quantile(&all, 0.95),
            p99: quantile(&all, 0.99),
            padding: padded as f64 / cost as f64,
            tries: late.iter().map(|answered| f64::from(answered.tries)).sum::<f64>() / late.len().max(1) as f64,
            long: mean(&long),
            batch: batches.iter().map(|ran| ran.items).sum::<usize>() as f64 / batches.len().max(1) as f64,
            held: share(batches.iter().filter(|ran| ran.held_s > 0.0).count(), batches.len()),
            lone_held: share(ones.iter().filter(|ran| ran.held_s > 0.0).count(), ones.len()),
            batches: batches.clone(),
            lanes,
            classes,
        }
    }
}

/// Of sorted values.
pub(crate) fn quantile(sorted: &[f64], q: f64) -> f64 {
    sorted.get(((q * sorted.len() as f64) as usize).min(sorted.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

pub(crate) fn geomean(values: impl IntoIterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = values.into_iter().map(f64::ln).collect();
    mean(&logs).exp()
}
