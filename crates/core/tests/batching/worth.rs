//! One figure for each scenario of each gate, for `scripts/ablation.py`, which divides the figures of a scheduler without one
//! of its parts by those of the scheduler with all parts. Larger is worse everywhere.

use crate::batches::{cold_scenarios, many_replicas};
use crate::drawn::draw;
use crate::overload::{deadlines, texts, waves};
use crate::scenarios::{SEEDS, auto, batch_scenarios, measure};
use crate::simulator::{Figures, Scenario, Simulation, mean};
use crate::{changes, drawn, histories, lanes, padding, targets, ticks};

/// More than the gate has: these runs are short.
const DRAWN: u64 = 96;
const HISTORIES: u64 = 32;

fn print(gate: &str, scenario: &str, figure: f64) {
    eprintln!("worth\t{gate}\t{scenario}\t{figure:.6e}");
}

fn print_mean(gate: &str, scenario: &Scenario, seeds: &[u64]) {
    print(gate, &scenario.name, measure(scenario, &auto, seeds).mean);
}

fn over_seeds(scenario: &Scenario, of: fn(&Figures) -> f64) -> f64 {
    mean(&SEEDS.map(|seed| of(&Simulation::run(scenario, auto(), seed))))
}

#[test]
#[ignore = "prints figures for a script"]
fn figures_of_all_gates() {
    batch_scenarios().iter().for_each(|scenario| print_mean("scenarios", scenario, &SEEDS));
    many_replicas().iter().for_each(|(scenario, _)| print_mean("scenarios", scenario, &SEEDS));
    let cold_seeds: Vec<u64> = (1..=25).collect();
    cold_scenarios().iter().for_each(|scenario| print_mean("cold", scenario, &cold_seeds));
    (0..DRAWN).for_each(|number| print_mean("drawn", &draw(number), &drawn::SEEDS));
    lanes::moving_users().iter().for_each(|(scenario, _)| print_mean("groups", scenario, &SEEDS));
    padding::scenarios().iter().for_each(|scenario| print_mean("padding", scenario, &SEEDS));
    for scenario in ticks::scenarios() {
        let scenario = Scenario { ends: 4000, ..scenario };
        let figures = measure(&scenario, &auto, &SEEDS);
        print("ticks", &scenario.name, figures.mean);
        print("ticks p95", &scenario.name, figures.p95);
    }
    for scenario in changes::scenarios().into_iter().step_by(3) {
        let (rate, latency) = changes::after(&scenario, auto);
        print("changes", &scenario.name, if scenario.users.is_some() { 1.0 / rate } else { latency });
    }
    for scenario in targets::scenarios() {
        print("targets", &scenario.name, 1.0 / over_seeds(&scenario, |figures| figures.goodput));
    }
    for load in [0.8, 1.5] {
        let scenario = Scenario { target: Some(0.6), ..texts(load) };
        print("targets", &format!("texts, load {load}"), 1.0 / over_seeds(&scenario, |figures| figures.goodput));
    }
    print("overload", "waves", 1.0 / (1.0 - over_seeds(&waves(), |figures| figures.refused)));
    for load in [0.5, 0.8] {
        let scenario = deadlines(load);
        print(
            "overload",
            &format!("deadlines, load {load}"),
            1.0 / (1.0 - over_seeds(&scenario, |figures| figures.refused)),
        );
    }
    for number in 0..HISTORIES {
        print("histories", &number.to_string(), 1.0 / histories::answered(number, auto()) as f64);
    }
}
