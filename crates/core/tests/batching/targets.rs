//! Goodput with a latency target, also at more than the capacity.

use crate::arrivals::{Open, poisson};
use crate::cells::{Cell, Clock};
use crate::scenarios::{LAUNCH, LINEAR, MIXED, auto, eager};
use crate::simulator::{Drop, Scenario, Service, Simulation, geomean};

pub(crate) fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for (name, service, replicas, target) in [
        ("a/b=50", LAUNCH, 1, 0.15),
        ("a/b=50", LAUNCH, 4, 0.15),
        ("a/b=5", MIXED, 1, 0.3),
        ("a/b=1", LINEAR, 1, 0.1),
        ("a/b=50, noise 0.3", Service { cv: 0.3, ..LAUNCH }, 1, 0.2),
    ] {
        for load in [0.5, 0.8, 1.0, 1.5] {
            let capacity = 32.0 * f64::from(replicas) / service.seconds(32);
            let name = format!("{name}, R={replicas}, {:.0} ms, load {load}", target * 1e3);
            let (open, target) = (Some(poisson(load * capacity)), Some(target));
            all.push(Scenario { replicas, open, target, ..Scenario::new(name, service) });
        }
    }
    all
}

/// The best goodput of any cell, when somebody else refuses late heads.
fn best_cell(scenario: &Scenario, drop: impl Fn(usize) -> Drop) -> f64 {
    let delays = [0.0, 0.25].map(|share| share * scenario.service.seconds(1));
    let sizes = [1, 4, 8, 16, 24, 32];
    let cells = delays.into_iter().flat_map(|delay| sizes.map(|size| (delay, size)));
    let goodput = |(delay, size)| {
        let mut cell = Cell::new(delay, size, Clock::Head);
        cell.goes_ahead = false;
        Simulation::run(&Scenario { drop: drop(size), ..scenario.clone() }, Box::new(cell), 1).goodput
    };
    cells.map(goodput).fold(0.0, f64::max)
}

#[test]
fn goodput_is_that_of_the_best_cell_that_knows_what_batches_take() {
    let (mut failed, mut ratios) = (Vec::new(), Vec::new());
    eprintln!(
        "| service, target, load | best cell, time-out | best cell, window | eager | auto | refused | after | late |"
    );
    for scenario in scenarios() {
        let plain = best_cell(&scenario, |_| Drop::Expired);
        let best = best_cell(&scenario, Drop::Window).max(plain);
        let [eager, auto] = [eager(), auto()].map(|policy| Simulation::run(&scenario, policy, 1));
        let target = scenario.target.unwrap_or_default();
        eprintln!(
            "| {} | {plain:.0} | {best:.0} | {:.0} | {:.0} | {:.2} | {:.2} | {:.3} |",
            scenario.name,
            eager.goodput,
            auto.goodput,
            auto.refused,
            auto.refused_after / target,
            auto.late
        );
        let ratio = auto.goodput / best;
        ratios.push(ratio);
        if ratio < 0.95 {
            failed.push(format!("{}: goodput {ratio:.3} of the best cell's", scenario.name));
        }
        if auto.late > if scenario.service.cv > 0.0 { 0.10 } else { 0.02 } {
            failed.push(format!("{}: {:.3} of the answers late", scenario.name, auto.late));
        }
    }
    eprintln!("goodput of auto / best cell: geomean {:.3}", geomean(ratios));
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Two kinds of requests: a batch of one takes six times as long as a batch of the other.
#[test]
fn groups_of_different_cost_are_answered_in_time() {
    for load in [0.5, 0.8, 1.5] {
        let rate = load * 32.0 / (LAUNCH.seconds(32) * (1.0 + 6.0) / 2.0);
        let open = Some(Open::Poisson { rate, lanes: 2, skew: 0.0, high: 0.0 });
        let scenario = Scenario { open, target: Some(1.2), odd_lanes: 6.0, ..Scenario::new("groups", LAUNCH) };
        let figures = Simulation::run(&scenario, auto(), 1);
        let share = figures.goodput / rate.min(32.0 / (LAUNCH.seconds(32) * 3.5));
        eprintln!("two costs, load {load}: goodput {share:.2} of what could be, {:.3} late", figures.late);
        assert!(figures.late <= 0.02, "load {load}: {:.3} late", figures.late);
        assert!(share >= 0.9, "load {load}: goodput {share:.2} of what could be");
    }
}
