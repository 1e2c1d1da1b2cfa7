//! What the rule must do and must not do, whatever it costs.

use crate::rules::Ours;
use crate::scenarios::{SLOW, SMALL, Shape, scenario};
use crate::world::{Retry, Run, Scenario, Service, run};

fn ours(scenario: &Scenario) -> Run {
    run(scenario, &mut Ours::new(scenario))
}

/// What is wanted once the traffic has been there for five minutes.
fn later(run: &Run) -> &[u32] {
    &run.wanted[300..]
}

fn most(run: &Run) -> u32 {
    later(run).iter().copied().fold(0, u32::max)
}

fn last(run: &Run) -> u32 {
    run.wanted.last().copied().expect("a second has passed")
}

#[test]
fn steady_traffic_makes_no_replica_come_or_go() {
    let mut all = 0;
    for (load, service) in [(0.1, SLOW), (0.9, SLOW), (3.7, SLOW), (20.0, SLOW), (40.0, SMALL)] {
        for seed in 31..34 {
            let run = ours(&scenario("steady", service, Shape::Steady(load), 1200.0, 2.0, seed));
            let changes = later(&run).windows(2).filter(|pair| pair[0] != pair[1]).count();
            // One may come and go where the load is on the edge of a whole number.
            assert!(changes <= 2, "load {load}, seed {seed}: {changes} changes");
            all += changes;
            assert!(run.late_share() < 0.01, "load {load}, seed {seed}: {:.3} late", run.late_share());
        }
    }
    assert!(all <= 3, "{all} changes in four hours");
}

#[test]
fn a_step_to_twice_the_load_is_decided_within_three_seconds() {
    for load in [3.7, 8.2, 20.0] {
        // The spike begins after a third of the time.
        let run = ours(&scenario("step", SLOW, Shape::Spike(load, 2.0, 300.0), 900.0, 30.0, 41));
        let before = run.wanted[299];
        let after = run.wanted[303];
        assert!(f64::from(after) >= 1.5 * f64::from(before), "load {load}: {before} before, {after} after 3 s");
    }
}

#[test]
fn no_number_leaves_its_bounds_and_the_same_inputs_make_the_same_decisions() {
    let wild = scenario("bursts", SLOW, Shape::Bursts(0.5, 12.0, 20.0), 1200.0, 8.0, 43);
    let bounded = Scenario { min: 2, max: 5, ..wild };
    let run = ours(&bounded);
    assert!(run.wanted.iter().all(|wanted| (2..=5).contains(wanted)));
    assert!(run.wanted.contains(&2) && run.wanted.contains(&5));
    assert_eq!(run.wanted, ours(&bounded).wanted);
}

#[test]
fn a_deployment_that_sleeps_starts_with_its_first_request_and_not_before() {
    let day = scenario("on and off", SLOW, Shape::OnOff(0.5, 600.0), 3600.0, 20.0, 47);
    let asleep = Scenario { min: 0, begins_with: 0, ..day };
    let run = ours(&asleep);
    assert_eq!(run.wanted[..1], [0]);
    let first = asleep.arrivals[0];
    let answered = run.first_answer.expect("something is answered");
    assert!(answered <= first + 20.0 + SLOW.seconds(32) + 1.0, "{first} {answered}");
    // It sleeps in each pause of ten minutes, for all but the time that replicas stay.
    let sleeps = run.wanted.iter().filter(|&&wanted| wanted == 0).count();
    assert!(sleeps > 1300, "{sleeps} of 1800 s");
    let silent = Scenario { arrivals: [].into(), ..asleep };
    assert_eq!(ours(&silent).starts, 0);
}

#[test]
fn places_that_never_come_do_not_make_it_want_more() {
    let enough = scenario("steady", SLOW, Shape::Steady(6.3), 900.0, 10.0, 53);
    let wanted = last(&ours(&enough));
    let few = ours(&Scenario { places: 3, ..enough });
    let most = most(&few);
    assert!(most <= wanted + 1, "{most} wanted with 3 places, {wanted} with enough");
}

#[test]
fn replicas_that_die_do_not_make_it_want_more() {
    let calm = scenario("steady", SLOW, Shape::Steady(4.4), 1800.0, 10.0, 59);
    let wanted = last(&ours(&calm));
    let dying = ours(&Scenario { dies_every: 60.0, ..calm });
    let most = most(&dying);
    assert!(most <= wanted + 1, "{most} wanted where one dies each minute, {wanted} otherwise");
}

#[test]
fn a_model_that_takes_twice_as_long_gets_twice_the_replicas() {
    let service = Service { drift: (600.0, 2.0), ..SLOW };
    let run = ours(&scenario("drift", service, Shape::Steady(4.4), 1500.0, 5.0, 61));
    let (before, after) = (run.wanted[590], last(&run));
    assert!((1.7..=2.4).contains(&(f64::from(after) / f64::from(before))), "{before} before, {after} after");
}

#[test]
fn starts_that_take_longer_make_replicas_stay_longer() {
    let spike = scenario("spikes", SLOW, Shape::Spike(1.5, 4.0, 120.0), 3000.0, 5.0, 67);
    let seconds_above = |run: &Run| run.wanted.iter().filter(|&&wanted| wanted > 3).count();
    let quick = ours(&spike);
    let slow = ours(&Scenario { start: (5.0, 100.0, 40.0), ..spike });
    assert!(seconds_above(&slow) > seconds_above(&quick) + 60, "{} {}", seconds_above(&slow), seconds_above(&quick));
}

#[test]
fn clients_that_come_again_after_a_refusal_do_not_hold_replicas() {
    let spike = scenario("spikes", SLOW, Shape::Spike(1.5, 5.0, 60.0), 3000.0, 10.0, 71);
    let patient = ours(&Scenario { retry: Retry::Never, ..spike.clone() });
    let stubborn = ours(&Scenario { retry: Retry::After(1.0, 5), ..spike });
    assert!(stubborn.cost <= 1.5 * patient.cost, "{:.0} and {:.0} replica-seconds", stubborn.cost, patient.cost);
}

#[test]
fn no_replica_goes_at_the_moment_at_which_traffic_comes_back() {
    // Replicas stay for 62 s, and each pause takes 60 s.
    for seed in 73..76 {
        let run = ours(&scenario("on and off", SLOW, Shape::OnOff(1.2, 60.0), 3600.0, 15.5, seed));
        assert_eq!(run.starts, 0, "seed {seed}: in 30 pauses");
    }
}
