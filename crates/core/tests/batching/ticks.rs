//! Independent users behind a client whose timer ticks: requests come in pairs and threes that are not bursts, and no item
//! may be held because of them. The server's own timer ticks too.

use crate::arrivals::Open;
use crate::scenarios::{auto, eager};
use crate::simulator::{Figures, Scenario, Service, Simulation, geomean, mean, service};

const SEEDS: [u64; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
/// What a client on a busy machine needs from one request to the next, in seconds.
const APART: f64 = 0.000_1;
/// Resolution of the server's timer, in seconds.
const TIMER: f64 = 0.001;

/// The first model is that of a recorded story, in which one launch costs 2.3 ms.
const MODELS: [(&str, Service); 3] =
    [("a/b=1.2", service(0.0023, 0.001_97)), ("a/b=5", service(0.003, 0.000_6)), ("a/b=50", service(0.005, 0.000_1))];

pub(crate) fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for (name, model) in MODELS {
        for load in [0.2, 0.5, 0.8] {
            for tick in [0.001, 0.002, 0.005] {
                let rate = load * 32.0 / model.seconds(32);
                let name = format!("{name}, load {load} ({rate:.0}/s), ticks of {} ms", tick * 1e3);
                let open = Some(Open::Ticks { rate, tick, apart: APART });
                all.push(Scenario { open, timer: TIMER, ends: 10_000, warm: 0.1, ..Scenario::new(name, model) });
            }
        }
    }
    all
}

#[test]
fn strangers_whose_client_sends_at_ticks_are_not_held_for_nothing() {
    let (mut failed, mut means) = (Vec::new(), Vec::new());
    for scenario in scenarios() {
        let [auto, eager] =
            [auto as fn() -> _, eager].map(|policy| SEEDS.map(|seed| Simulation::run(&scenario, policy(), seed)));
        let ratio = |of: fn(&Figures) -> f64| mean(&auto.each_ref().map(of)) / mean(&eager.each_ref().map(of));
        let (latency, p50, p95) = (ratio(|f| f.mean), ratio(|f| f.p50), ratio(|f| f.p95));
        let held = mean(&auto.each_ref().map(|figures| figures.held));
        eprintln!("{}: mean {latency:.3}, p50 {p50:.3}, p95 {p95:.3} of eager's; {held:.3} held", scenario.name);
        means.push(latency);
        // Where a tick brings several requests a hold pays, and a gain of the mean may cost the slowest no more than it is.
        if latency > 1.01 || p95 > f64::max(1.01, 2.0 - latency) {
            failed.push(format!("{}: mean {latency:.3}, p95 {p95:.3} of eager's", scenario.name));
        }
    }
    eprintln!("geomean of means {:.4}", geomean(means));
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Five requests a second: hardly two of them ever meet.
#[test]
fn lone_strangers_whose_client_sends_at_ticks_are_not_held() {
    for (name, model) in MODELS {
        for tick in [0.001, 0.002, 0.005] {
            let open = Some(Open::Ticks { rate: 5.0, tick, apart: APART });
            let figures =
                Simulation::run(&Scenario { open, timer: TIMER, ..Scenario::new(name, model) }, auto(), SEEDS[0]);
            assert!(figures.lone_held <= 0.01, "{name}, {tick} s: {:.3} of lone requests held", figures.lone_held);
        }
    }
}
