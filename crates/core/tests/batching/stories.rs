//! The stories of `benchmarks/policies.py`, with the same policies, to be shown next to the measurements.

use crate::arrivals::{Open, Users, poisson, users};
use crate::scenarios::{SEEDS, auto, eager};
use crate::simulator::{Figures, Scenario, Simulation, service};
use jitney_core::policy::batch_policy::{BatchPolicy, Fixed};
use std::time::Duration;

/// Items of a full batch.
const SIZE: usize = 32;

/// As `policies.py` names them: `auto`, `eager` or `fixed/MS/SIZE`; with the size of its batches.
fn policy(name: &str) -> (Box<dyn BatchPolicy>, usize) {
    match name.split('/').collect::<Vec<_>>()[..] {
        ["auto"] => (auto(), SIZE),
        ["eager"] => (eager(), SIZE),
        ["fixed", delay_ms, size] => {
            let delay = Duration::from_millis(delay_ms.parse().expect("a number"));
            (Box::new(Fixed { delay }), size.parse().expect("a number"))
        }
        _ => panic!("no policy is called {name}"),
    }
}

/// A line per story and policy, separated by tabs: mean latency in ms, answers and answers in time per second.
#[test]
#[ignore = "prints figures for people"]
fn stories_of_the_benchmark() {
    let service = service(0.021, 0.001);
    let capacity = SIZE as f64 / service.seconds(SIZE);
    let soon = |count| Some(Users { rtt: 0.0007, each: 0.000_05, ..users(count) });
    let strangers = |load: f64| Some(poisson(load * capacity));
    let bursts = Some(Open::Fanout { rate: 5.0, size: 12, spread: 0.001 });
    let plain = |name: &str| Scenario::new(name, service);
    let stories = [
        Scenario { users: soon(1), ..plain("1 user") },
        Scenario { users: soon(8), ..plain("8 users") },
        Scenario { users: soon(24), ..plain("24 users") },
        Scenario { open: strangers(0.3), ..plain("strangers, load 0.3") },
        Scenario { open: strangers(0.6), ..plain("strangers, load 0.6") },
        Scenario { open: bursts, ..plain("bursts of 12, 5 a second") },
        Scenario { open: strangers(0.8), replicas: 2, ..plain("strangers, load 0.4, 2 replicas") },
        Scenario { open: strangers(1.2), replicas: 4, ..plain("strangers, load 0.3, 4 replicas") },
        Scenario { users: soon(24), replicas: 2, ..plain("24 users, 2 replicas") },
        Scenario { users: soon(16).map(|users| Users { lanes: 4, ..users }), ..plain("4 groups, 16 users") },
        Scenario { open: strangers(1.5), target: Some(0.15), ..plain("target 150 ms, load 1.5") },
    ];
    for story in stories {
        for name in ["auto", "eager", "fixed/2/8", "fixed/2/32", "fixed/5/8", "fixed/5/32", "fixed/10/8", "fixed/10/32"]
        {
            let runs = SEEDS.map(|seed| {
                let (policy, max_batch) = policy(name);
                Simulation::run(&Scenario { max_batch, ..story.clone() }, policy, seed)
            });
            let mean = |of: fn(&Figures) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
            let (mean_ms, rps, in_time) = (mean(|f| f.mean) * 1e3, mean(|f| f.throughput), mean(|f| f.goodput));
            eprintln!("story\t{}\t{name}\t{mean_ms:.2}\t{rps:.1}\t{in_time:.1}", story.name);
        }
    }
}
