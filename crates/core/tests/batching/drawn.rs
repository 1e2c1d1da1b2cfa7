//! Scenarios that are drawn at random, so that they cannot be tuned for: no constant may be fitted to those above.

use crate::arrivals::{Goes, Open, Users, poisson};
use crate::random::Random;
use crate::scenarios::{auto, best_cell, eager, measure};
use crate::simulator::{Scenario, Service, geomean, service};

/// Enough for the geometric mean to be known to a few thousandths.
pub(crate) const DRAWN: u64 = 24;
pub(crate) const SEEDS: [u64; 2] = [11, 12];

pub(crate) fn draw(number: u64) -> Scenario {
    let random = &mut Random(0x6a69_746e_6579 + number);
    let a = random.magnitude(0.002, 2.0);
    let b = a / random.magnitude(0.5, 100.0);
    let noise = random.among(&[0.0, 0.0, 0.05, 0.2]);
    let is_padded = random.unit() < 0.15;
    let service = Service { cv: noise, is_padded, ..service(a, b) };
    let max_batch = random.among(&[8, 16, 32, 64]);
    let replicas = random.among(&[1, 1, 1, 2, 4]);
    let capacity = max_batch as f64 * f64::from(replicas) / service.seconds(max_batch);
    let load = random.between(0.2, 0.9);
    let rate = load * capacity;
    let users = |random: &mut Random, most: f64| Users {
        count: random.magnitude(1.0, most).round() as usize,
        rtt: a * random.magnitude(0.005, 0.15),
        jitter: random.among(&[0.2, 1.0]),
        think: random.among(&[0.0, 0.0, 0.0, 5.0 * a]),
        each: 0.0,
        lanes: 1,
        goes: Goes::Nowhere,
    };
    let most = 1.5 * max_batch as f64 * f64::from(replicas);
    let (kind, open, users) = match (random.unit() * 6.0) as u32 {
        0 | 1 => ("strangers", Some(poisson(rate)), None),
        2 | 3 => ("users", None, Some(users(random, most))),
        4 => {
            let size = random.magnitude(2.0, max_batch as f64).round() as usize;
            let spread = a * random.magnitude(0.01, 0.2);
            ("fan-out", Some(Open::Fanout { rate: rate.min(0.6 * capacity) / size as f64, size, spread }), None)
        }
        _ => ("mixed", Some(poisson(0.4 * rate)), Some(users(random, 0.5 * most))),
    };
    let name = format!(
        "{number}: {kind}, a={:.1} ms, a/b={:.1}, B={max_batch}, R={replicas}, load {load:.2}, users {}, noise {noise}{}",
        a * 1e3,
        a / b,
        users.map_or(0, |users| users.count),
        if is_padded { ", padded" } else { "" },
    );
    Scenario { max_batch, replicas, open, users, ..Scenario::new(name, service) }
}

#[test]
fn on_scenarios_drawn_at_random_the_mean_latency_is_that_of_the_best_cells() {
    let (mut autos, mut eagers) = (Vec::new(), Vec::new());
    for number in 0..DRAWN {
        let scenario = draw(number);
        let (cell, best) = best_cell(&scenario, &SEEDS);
        let [auto, eager] =
            [&auto as &dyn Fn() -> _, &eager].map(|policy| measure(&scenario, policy, &SEEDS).mean / best.mean);
        eprintln!("{}: best {}, eager {eager:.3}, auto {auto:.3}", scenario.name, cell.name());
        autos.push(auto);
        eagers.push(eager);
    }
    let worst = autos.iter().copied().fold(0.0, f64::max);
    let (all, eager) = (geomean(autos), geomean(eagers));
    eprintln!("drawn scenarios: auto {all:.4} (worst {worst:.2}), eager {eager:.3}");
    assert!(all <= 1.01, "mean latency {all:.4} of the best cells', worst {worst:.2}");
}
