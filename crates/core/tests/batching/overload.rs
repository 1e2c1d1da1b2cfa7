//! More than can be served, and clients that obey: their own deadlines, costs that differ, `Retry-After`.

use crate::arrivals::{Open, poisson};
use crate::scenarios::{LAUNCH, SEEDS, auto, eager};
use crate::simulator::{Figures, Lengths, Scenario, Service, Simulation, mean, service};
use jitney_core::learn::batch_cost::Measure;
use jitney_core::policy::batch_policy::BatchPolicy;

type Policy = fn() -> Box<dyn BatchPolicy>;

fn over_seeds(scenario: &Scenario, policy: Policy, of: fn(&Figures) -> f64) -> f64 {
    mean(&SEEDS.map(|seed| of(&Simulation::run(scenario, policy(), seed))))
}

/// Overload that comes and goes, and clients that ask up to six times.
pub(crate) fn waves() -> Scenario {
    let capacity = 32.0 / LAUNCH.seconds(32);
    let open = Some(Open::OnOff { rates: (2.0 * capacity, 0.1 * capacity), means: (4.0, 6.0) });
    Scenario { open, target: Some(0.3), retries: 5, ends: 20_000, ..Scenario::new("waves", LAUNCH) }
}

/// A third of the requests has hardly time for the batch that runs and its own.
pub(crate) fn deadlines(load: f64) -> Scenario {
    let open = Some(poisson(load * 32.0 / LAUNCH.seconds(32)));
    Scenario { open, hurried: (0.33, 0.12), ends: 6000, ..Scenario::new("deadlines", LAUNCH) }
}

/// Overload that comes and goes: for four seconds twice what fits, then for six hardly anything. `Retry-After` cannot know how
/// long a wave lasts, so some ask more than twice.
#[test]
fn clients_who_come_back_when_they_are_told_are_answered_and_do_no_harm() {
    let patient = waves();
    let hasty = Scenario { retries: 0, ..patient.clone() };
    let answered = |scenario, policy| 1.0 - over_seeds(scenario, policy, |figures| figures.refused);
    let (told, gone) = (answered(&patient, auto), answered(&hasty, auto));
    let tries = over_seeds(&patient, auto, |figures| figures.tries);
    let late = over_seeds(&patient, auto, |figures| figures.late);
    eprintln!(
        "answered {told:.3} of clients that come back, {gone:.3} of clients that do not; {tries:.2} tries, {late:.3} late"
    );
    assert!(told >= gone + 0.4 * (1.0 - gone), "answered {told:.3}, without coming back {gone:.3}");
    assert!(tries <= 3.0 && late <= 0.02, "{tries:.2} tries, {late:.3} late");
}

#[test]
fn deadlines_that_differ_are_met_as_often_as_when_nobody_is_held() {
    for load in [0.5, 0.8] {
        let scenario = deadlines(load);
        let [auto, eager] =
            [auto as Policy, eager].map(|policy| 1.0 - over_seeds(&scenario, policy, |figures| figures.refused));
        eprintln!("load {load}: in time {auto:.4}, with eager {eager:.4}");
        assert!(auto >= eager - 0.01, "load {load}: in time {auto:.4}, with eager {eager:.4}");
    }
}

/// Texts of which some are twenty times as long as most, and a model whose time follows what they cost together.
pub(crate) fn texts(load: f64) -> Scenario {
    let lengths = Lengths { mean: 60.0, cv: 1.5, least: 4, most: 1000 };
    let service = Service { follows: Measure::Cost, ..service(0.02, 0.000_1) };
    let open = Some(poisson(load * 32.0 / service.seconds(32 * 60)));
    Scenario { lengths: Some(lengths), open, ends: 6000, ..Scenario::new("texts", service) }
}

#[test]
fn predicted_latency_counts_what_waits_by_its_cost() {
    for load in [0.3, 0.6, 0.9] {
        let told = over_seeds(&texts(load), auto, |figures| figures.prediction);
        eprintln!("load {load}: predicted / actual latency {told:.2}");
        assert!((0.7..=1.3).contains(&told), "load {load}: predicted / actual latency {told:.2}");
    }
}

#[test]
fn with_a_target_costs_tell_who_will_be_late() {
    for load in [0.8, 1.5] {
        let told = Scenario { target: Some(0.6), ..texts(load) };
        let hidden = Scenario { hides_costs: true, ..told.clone() };
        let figures = |scenario| {
            [(|f: &Figures| f.goodput) as fn(&Figures) -> f64, |f| f.late].map(|of| over_seeds(scenario, auto, of))
        };
        let ([goodput, late], [blind_goodput, blind_late]) = (figures(&told), figures(&hidden));
        eprintln!(
            "load {load}: goodput {goodput:.1}, late {late:.3}; without costs {blind_goodput:.1}, {blind_late:.3}"
        );
        assert!(goodput >= 0.98 * blind_goodput, "load {load}: goodput {goodput:.1}, without costs {blind_goodput:.1}");
        assert!(late <= 0.02, "load {load}: {late:.3} late");
    }
}
