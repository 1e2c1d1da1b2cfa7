//! Models that change at once: a new version is ten times as fast, a neighbour takes the device away. What was learned before
//! must not be believed for long.

use crate::arrivals::{Users, poisson, users};
use crate::scenarios::{LAUNCH, MIXED, SEEDS, auto, eager};
use crate::simulator::{Scenario, Service, Simulation, geomean, mean, service};
use jitney_core::policy::batch_policy::BatchPolicy;

/// Batches after the change that are not counted: so many may be decided by what was learned before.
const FORGIVEN: usize = 10;
/// Batches that are counted.
const COUNTED: usize = 150;

type Policy = fn() -> Box<dyn BatchPolicy>;

/// Answers per second after the change, and their mean latency.
pub(crate) fn after(scenario: &Scenario, policy: Policy) -> (f64, f64) {
    let at = scenario.service.drift.0;
    let runs = SEEDS.map(|seed| {
        let figures = Simulation::run(scenario, policy(), seed);
        let late: Vec<_> = figures.batches.iter().filter(|ran| ran.at >= at).skip(FORGIVEN).take(COUNTED).collect();
        let span = late[late.len() - 1].at - late[0].at;
        let items: usize = late[..late.len() - 1].iter().map(|ran| ran.items).sum();
        (items as f64 / span, figures.mean)
    });
    (mean(&runs.map(|run| run.0)), mean(&runs.map(|run| run.1)))
}

/// Models whose time depends on the size of the batch, hardly at all, and much.
const MODELS: [(&str, Service); 3] = [("any size 3 ms", service(0.003, 0.0)), ("a/b=50", LAUNCH), ("a/b=5", MIXED)];

/// Before the change batches are of all sizes, so that all were seen.
pub(crate) fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for (name, model) in MODELS {
        for (factor, replicas, is_closed) in changes() {
            let full = model.seconds(32);
            let at = 300.0 * full;
            let service = Service { drift: (at, factor), cv: 0.05, ..model };
            let rate = 0.6 * 32.0 * f64::from(replicas) / (full * f64::max(factor, 1.0));
            let (traffic, before, open, users) = if is_closed {
                let count = 80 * replicas as usize;
                let rtt = 8.0 * full;
                let before = count as f64 * at / (rtt + 1.5 * full);
                ("users", before, None, Some(Users { rtt, ..users(count) }))
            } else {
                ("load 0.6", rate * at, Some(poisson(rate)), None)
            };
            let name = format!("{name}, times {factor}, R={replicas}, {traffic}");
            let ends = before as usize + 32 * (FORGIVEN + COUNTED + 40) * replicas as usize;
            all.push(Scenario { replicas, open, users, ends, ..Scenario::new(name, service) });
        }
    }
    all
}

fn changes() -> impl Iterator<Item = (f64, u32, bool)> {
    let factors = [50.0, 10.0, 4.0, 0.25, 0.1, 0.02];
    factors.into_iter().flat_map(|f| [1, 2].into_iter().flat_map(move |r| [true, false].map(|c| (f, r, c))))
}

#[test]
fn a_model_that_changed_is_served_as_well_as_without_having_learned_anything() {
    let (mut failed, mut ratios) = (Vec::new(), Vec::new());
    for scenario in scenarios() {
        let (auto, eager) = (after(&scenario, auto), after(&scenario, eager));
        let (rate, mean) = (eager.0 / auto.0, auto.1 / eager.1);
        eprintln!("{}: answers/s {:.3} of eager's, mean latency {mean:.3}", scenario.name, 1.0 / rate);
        ratios.push(rate.max(if scenario.users.is_some() { 0.0 } else { mean }));
        // The mean is that of the whole run, so it includes requests that waited while nothing was known.
        if rate > 1.05 || scenario.users.is_none() && mean > 1.06 {
            failed.push(format!("{}: {:.3} of the answers, latency {mean:.3}", scenario.name, 1.0 / rate));
        }
    }
    eprintln!("geomean {:.4}", geomean(ratios));
    assert!(failed.is_empty(), "{failed:#?}");
}
