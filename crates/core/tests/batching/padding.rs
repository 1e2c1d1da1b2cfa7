//! Items of like length leave together: what that gains on a model that pads its batches to the longest, and that it costs
//! nothing on models that do not.

use crate::arrivals::{poisson, users};
use crate::scenarios::{SEEDS, auto, eager, measure};
use crate::simulator::{Figures, Lengths, Scenario, Service, Simulation, geomean, service};
use jitney_core::learn::batch_cost::Measure;
use jitney_core::policy::auto::Auto;
use jitney_core::policy::batch_policy::{BatchPolicy, Decision, Fixed, View};
use jitney_core::queue::lanes::LaneId;
use jitney_core::queue::waiting::Waiting;
use jitney_core::request::ItemId;

/// Tokens of sentences and of paragraphs, cut off where small text models do.
const TEXTS: Lengths = Lengths { mean: 40.0, cv: 1.0, least: 4, most: 256 };
/// A small text model on a processor: a launch costs what 20 tokens cost.
const PROCESSOR: Service = Service { follows: Measure::Padded, ..service(0.001, 0.000_05) };
/// The same on an accelerator: what 1,000 tokens cost.
const ACCELERATOR: Service = Service { follows: Measure::Padded, ..service(0.004, 0.000_004) };

/// `auto` that takes items in the order of their arrival.
#[derive(Debug, Default)]
struct FirstCome(Auto);

impl BatchPolicy for FirstCome {
    fn decide(&mut self, view: &View) -> Decision {
        self.0.decide(view)
    }
    fn ahead(&self, view: &View) -> Option<(LaneId, usize)> {
        self.0.ahead(view)
    }
    fn take(&self, view: &View, waiting: usize) -> usize {
        self.0.take(view, waiting)
    }
    fn on_end(&mut self) {
        self.0.on_end();
    }
}

/// What people build themselves: of the first so many that wait, sorted by length, a batch of so many; that with the oldest, or
/// the shortest, which may starve the others.
#[derive(Clone, Copy, Debug)]
struct SortWindow {
    window: usize,
    size: usize,
    is_fair: bool,
}

impl BatchPolicy for SortWindow {
    fn decide(&mut self, view: &View) -> Decision {
        let mut eager = Fixed::EAGER;
        match eager.decide(view) {
            Decision::Launch { lane, reason, .. } => Decision::Launch { lane, size: self.size, reason },
            ask_again @ Decision::AskAgain(_) => ask_again,
        }
    }
    fn ahead(&self, _: &View) -> Option<(LaneId, usize)> {
        None
    }
    fn choose_items(&self, view: &View, lane: LaneId, size: usize) -> Option<Vec<ItemId>> {
        let first = view.lanes.in_order(lane).take(self.window);
        let mut sorted: Vec<Waiting> = first.collect();
        let oldest = sorted[0];
        sorted.sort_by_key(|item| (item.cost, item.id));
        let place = sorted.iter().position(|item| *item == oldest).filter(|_| self.is_fair).unwrap_or(0);
        let from = (place / size) * size;
        Some(sorted[from..sorted.len().min(from + size)].iter().map(|item| item.id).collect())
    }
}

fn best_window(scenario: &Scenario) -> (SortWindow, Figures) {
    let cells = [8, 32, 64, 128].into_iter().flat_map(|window| {
        [4, 8, 16, 32].map(|size| [true, false].map(|is_fair| SortWindow { window, size, is_fair }))
    });
    let tried = cells.flatten().map(|cell| (cell, measure(scenario, &|| Box::new(cell), &SEEDS)));
    tried.min_by(|a, b| a.1.mean.total_cmp(&b.1.mean)).expect("there are cells")
}

pub(crate) fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for (name, service) in [("processor", PROCESSOR), ("accelerator", ACCELERATOR)] {
        let capacity = 32.0 / service.seconds((32.0 * TEXTS.mean) as usize);
        let mut add = |what: &str, change: &dyn Fn(&mut Scenario)| {
            let scenario = Scenario::new(format!("{name}, {what}"), service);
            let mut scenario = Scenario { lengths: Some(TEXTS), ends: 4000, ..scenario };
            change(&mut scenario);
            all.push(scenario);
        };
        for load in [0.2, 0.4, 0.6, 0.8] {
            add(&format!("Poisson arrivals, load {load}"), &|s| s.open = Some(poisson(load * capacity)));
        }
        for count in [8, 64, 200] {
            add(&format!("{count} users"), &|s| s.users = Some(users(count)));
        }
        add("Poisson arrivals, load 0.6, R=2", &|s| {
            (s.open, s.replicas) = (Some(poisson(1.2 * capacity)), 2);
        });
        add("Poisson arrivals, load 0.6, noise 0.3", &|s| {
            (s.open, s.service.cv) = (Some(poisson(0.6 * capacity)), 0.3);
        });
    }
    all
}

#[test]
fn items_of_like_length_ride_together_when_it_pays() {
    let (mut failed, mut firsts, mut bests) = (Vec::new(), Vec::new(), Vec::new());
    eprintln!(
        "| scenario | best window | mean ms | auto: mean, p95, p99, longest, req/s, padding | first come | eager |"
    );
    for scenario in scenarios() {
        let (cell, best) = best_window(&scenario);
        let auto = measure(&scenario, &auto, &SEEDS);
        let first = measure(&scenario, &|| Box::new(FirstCome::default()), &SEEDS);
        let eager = measure(&scenario, &eager, &SEEDS);
        let row = |f: &Figures| {
            let ratios = [f.mean / best.mean, f.p95 / best.p95, f.p99 / best.p99, f.long / best.long];
            let [mean, p95, p99, long] = ratios;
            let rate = f.throughput / best.throughput;
            format!("{mean:.2} {p95:.2} {p99:.2} {long:.2} {rate:.2} {:.2}", f.padding)
        };
        eprintln!(
            "| {} | {}/{}{} | {:.1} ({:.2}) | {} | {} | {} |",
            scenario.name,
            cell.window,
            cell.size,
            if cell.is_fair { "" } else { " shortest" },
            best.mean * 1e3,
            best.padding,
            row(&auto),
            row(&first),
            row(&eager),
        );
        if auto.mean > 1.15 * best.mean {
            failed.push(format!("{}: mean latency {:.2} of the best window's", scenario.name, auto.mean / best.mean));
        }
        if auto.mean > 1.02 * first.mean {
            failed.push(format!("{}: mean latency {:.2} of first come's", scenario.name, auto.mean / first.mean));
        }
        firsts.push(auto.mean / first.mean);
        bests.push(auto.mean / best.mean);
    }
    let (first, best) = (geomean(firsts), geomean(bests));
    eprintln!("mean latency of auto: {first:.3} of first come's, {best:.3} of the best windows'");
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(first <= 0.5 && best <= 0.85, "{first:.3} of first come's, {best:.3} of the best windows'");
}

/// Once like lengths leave together, cost and padded cost agree up to the noise: that must not make it forget why they do.
#[test]
fn what_the_time_follows_is_not_forgotten_in_noise() {
    let service = Service { follows: Measure::Padded, ..service(0.002, 0.000_025) };
    for seed in 1..=8 {
        let throughput = |cv| {
            let scenario = Scenario {
                lengths: Some(TEXTS),
                users: Some(users(16)),
                ends: 12_000,
                ..Scenario::new("texts", service)
            };
            Simulation::run(&Scenario { service: Service { cv, ..service }, ..scenario }, auto(), seed)
        };
        let (still, noisy) = (throughput(0.0), throughput(0.35));
        let ratio = noisy.throughput / still.throughput;
        eprintln!("seed {seed}: {ratio:.2} of the answers per second without noise; padding {:.2}", noisy.padding);
        assert!(ratio >= 0.85, "seed {seed}: {ratio:.2} of the answers per second without noise");
    }
}

/// A model that packs its items, and one that reads a fixed number of tokens: nothing is to be gained, nor lost.
#[test]
fn models_that_do_not_pad_lose_nothing() {
    for follows in [Measure::Items, Measure::Cost] {
        let service = match follows {
            Measure::Items => Service { follows, ..service(0.01, 0.001) },
            _ => Service { follows, ..service(0.01, 0.000_02) },
        };
        let units = if follows == Measure::Items { 32 } else { (32.0 * TEXTS.mean) as usize };
        let rate = 0.7 * 32.0 / service.seconds(units);
        let scenario = Scenario { lengths: Some(TEXTS), open: Some(poisson(rate)), ..Scenario::new("plain", service) };
        let ratio = measure(&scenario, &auto, &SEEDS).mean
            / measure(&scenario, &|| Box::new(FirstCome::default()), &SEEDS).mean;
        eprintln!("{follows:?}: mean latency {ratio:.3} of first come's");
        assert!((0.98..=1.02).contains(&ratio), "{follows:?}: mean latency {ratio:.3} of first come's");
    }
}
