//! Several group keys, and priorities.

use crate::arrivals::{Goes, Open, Users, users};
use crate::scenarios::{LAUNCH, LLM, MIXED, SEEDS, auto, best_cell, eager, measure};
use crate::simulator::{Figures, Scenario, Service, Simulation, mean, quantile, service};

fn strangers(service: &Service, load: f64, lanes: usize, skew: f64, high: f64) -> Open {
    Open::Poisson { rate: load * 32.0 / service.seconds(32), lanes, skew, high }
}

#[test]
fn full_lanes_first_is_good_for_all_and_bad_for_none() {
    for (lanes, skew, load) in [(4, 0.0, 0.6), (4, 0.0, 0.9), (16, 1.0, 0.3), (16, 1.0, 0.9), (64, 1.0, 0.9)] {
        let open = Some(strangers(&LAUNCH, load, lanes, skew, 0.0));
        let scenario = Scenario { open, ends: 6000, ..Scenario::new("lanes", LAUNCH) };
        let worst = |figures: &Figures| {
            let lanes = figures.lanes.values().filter(|lane| lane.len() > 30);
            lanes.map(|lane| quantile(lane, 0.95)).fold(0.0, f64::max)
        };
        let [auto, eager] = [auto(), eager()].map(|policy| Simulation::run(&scenario, policy, 1));
        let (all, lane) = (auto.mean / eager.mean, worst(&auto) / worst(&eager));
        eprintln!("{lanes} lanes, skew {skew}, load {load}: mean {all:.2} of eager's, worst lane's p95 {lane:.2}");
        assert!(all <= 1.02 && lane <= 1.5, "{lanes} lanes, load {load}: mean {all:.3}, worst lane's p95 {lane:.3}");
    }
}

#[test]
fn a_priority_is_a_head_start_and_no_more() {
    let of = |boost| {
        let open = Some(strangers(&MIXED, 1.1, 1, 0.0, 0.1));
        let scenario = Scenario { open, boost, ends: 3200, warm: 0.0, ..Scenario::new("priority", MIXED) };
        let [high, normal] = Simulation::run(&scenario, auto(), 1).classes;
        eprintln!("head start {boost} s: high {:.0} ms, normal {:.0} ms", mean(&high) * 1e3, mean(&normal) * 1e3);
        (mean(&high), mean(&normal))
    };
    let (none, some, much) = (of(0.0), of(0.5), of(5.0));
    assert!(much.0 < some.0 && some.0 < none.0, "{none:?}, {some:?}, {much:?}");
    assert!(much.0 <= 0.5 * none.0 && much.1 <= 1.2 * none.1, "{none:?}, {much:?}");
}

/// Users in lockstep, whom it pays to hold for, and independent clients of which some are urgent.
#[test]
fn a_hold_costs_an_urgent_request_no_more_than_a_launch() {
    let users = Some(Users { rtt: 0.005, ..users(12) });
    let open = Some(Open::Poisson { rate: 20.0, lanes: 1, skew: 0.0, high: 0.3 });
    let scenario = Scenario { open, users, boost: 1.0, ends: 6000, ..Scenario::new("urgent", LAUNCH) };
    let [auto, eager] = [auto(), eager()].map(|policy| Simulation::run(&scenario, policy, 1));
    let [urgent, urgent_eager] = [&auto, &eager].map(|figures| mean(&figures.classes[0]));
    let held = auto.batches.iter().filter(|ran| ran.held_s > 0.0).count();
    eprintln!(
        "urgent {:.1} ms, with eager {:.1}; all {:.2} of eager's; {held} of {} batches held",
        urgent * 1e3,
        urgent_eager * 1e3,
        auto.mean / eager.mean,
        auto.batches.len()
    );
    assert!(held > 100, "no batch was held: this proves nothing");
    assert!(auto.mean <= 1.02 * eager.mean && urgent <= urgent_eager + LAUNCH.a, "{urgent}, {urgent_eager}");
}

/// Users who ask for any lane after each answer, or for the next one in turn, or for the same again; with each at most how
/// much slower `auto` may be on average than the best cell, chosen with hindsight.
pub(crate) fn moving_users() -> Vec<(Scenario, f64)> {
    use Goes::{Anywhere, Around, Nowhere};
    const PICTURES: Service = service(2.95, 0.36);
    const SLEEPY: Service = service(0.005, 0.000_1);
    let soon = |count, lanes, goes| Users { lanes, goes, ..users(count) };
    let at_once = |count, goes| Users { rtt: 0.000_5, jitter: 0.3, each: 0.000_03, ..soon(count, 2, goes) };
    let slowly = Users { rtt: 0.1, ..soon(8, 4, Anywhere) };
    let rows = [
        ("pictures of 4 sizes, 8 users", PICTURES, slowly, 8, 1, 1.03),
        ("2 keys, 64 users", SLEEPY, at_once(64, Anywhere), 64, 1, 1.0),
        ("2 keys in turn, 64 users", SLEEPY, at_once(64, Around), 64, 1, 1.25),
        ("2 keys, 256 users", SLEEPY, at_once(256, Anywhere), 64, 1, 1.03),
        ("2 keys, 8 users", LAUNCH, soon(8, 2, Anywhere), 32, 1, 1.0),
        ("4 keys, 40 users", LLM, soon(40, 4, Anywhere), 50, 1, 1.03),
        ("4 keys in turn, 40 users", LLM, soon(40, 4, Around), 50, 1, 1.0),
        ("4 keys, 40 users who stay", LLM, soon(40, 4, Nowhere), 50, 1, 1.03),
        ("16 keys, 40 users", LLM, soon(40, 16, Anywhere), 50, 1, 1.03),
        ("64 keys, 100 users", LLM, soon(100, 64, Anywhere), 50, 1, 1.12),
        ("2 keys, 40 users, R=2", LAUNCH, soon(40, 2, Anywhere), 32, 2, 1.12),
        ("2 keys, 40 users who stay, R=2", LAUNCH, soon(40, 2, Nowhere), 32, 2, 1.20),
        ("4 keys, 40 users, R=4", LAUNCH, soon(40, 4, Anywhere), 32, 4, 1.22),
    ];
    let scenario = |(name, service, users, max_batch, replicas, most)| {
        (Scenario { users: Some(users), max_batch, replicas, ..Scenario::new(name, service) }, most)
    };
    rows.map(scenario).into()
}

/// Where `auto` is much slower, a user was left behind once, runs alone, and never falls into step again.
#[test]
fn users_who_change_lanes_are_waited_for_where_they_come_back() {
    let mut failed = Vec::new();
    for (scenario, most) in moving_users() {
        let name = &scenario.name;
        let (cell, best) = best_cell(&scenario, &SEEDS);
        let [auto, eager] = [&auto as &dyn Fn() -> _, &eager].map(|policy| measure(&scenario, policy, &SEEDS));
        let (of_best, of_eager) = (auto.mean / best.mean, auto.mean / eager.mean);
        eprintln!(
            "{name}: mean {of_best:.2} of {}'s and {of_eager:.2} of eager's, batches of {:.1}, {:.1} and {:.1}",
            cell.name(),
            auto.batch,
            best.batch,
            eager.batch
        );
        if of_best > most || of_eager > 1.02 {
            failed.push(format!("{name}: mean latency {of_best:.3} of the best cell's, {of_eager:.3} of eager's"));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
