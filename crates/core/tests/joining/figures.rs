//! What joining at every step gains, and whether the predicted waits are right. Run with `--nocapture` to see the tables.

use crate::simulator::{Lengths, Outcome, Scenario, Simulation, quantile};
use std::collections::VecDeque;

const SPREAD: Lengths = Lengths::Lognormal(60.0, 0.9, 500);

/// Diffusion and language models; a launch costs at least as much as an item adds.
fn models() -> [(&'static str, Scenario); 6] {
    [
        ("diffusion, 30 steps, a/b 2", Scenario::new(0.04, 0.02, 16, Lengths::Fixed(30))),
        ("diffusion, 8 to 50 steps, a/b 2", Scenario::new(0.04, 0.02, 16, Lengths::Between(8, 50))),
        ("diffusion, 30 steps, a/b 20", Scenario::new(0.03, 0.0015, 16, Lengths::Fixed(30))),
        ("text, 60 tokens, a/b 40", Scenario::new(0.008, 0.0002, 32, SPREAD)),
        ("text, 60 tokens, a/b 5", Scenario::new(0.008, 0.0016, 32, SPREAD)),
        ("text, 60 tokens, a/b 1", Scenario::new(0.004, 0.004, 32, SPREAD)),
    ]
}

/// The mean latency if a batch runs to the end before the next one begins. An item is answered when its own steps are done, and
/// the next steps are as short as if it had never been there.
fn to_the_end(scenario: &Scenario) -> f64 {
    let mut coming: VecDeque<_> = scenario.arrivals().into();
    let (mut now, mut latencies) = (0.0_f64, Vec::new());
    while let Some(first) = coming.front() {
        now = now.max(first.at);
        let waiting = coming.iter().take(scenario.most).take_while(|request| request.at <= now).count();
        let mut batch: Vec<_> = coming.drain(..waiting).map(|request| (request.at, request.steps)).collect();
        while !batch.is_empty() {
            now += scenario.step(batch.len());
            batch.iter_mut().for_each(|(_, left)| *left -= 1);
            latencies.extend(batch.extract_if(.., |(_, left)| *left == 0).map(|(at, _)| now - at));
        }
    }
    let settled = &latencies[latencies.len() / 10..];
    settled.iter().sum::<f64>() / settled.len() as f64
}

#[test]
fn joining_beats_batches_that_run_to_the_end() {
    for (name, model) in models() {
        for load in [0.5, 0.85] {
            let scenario = model.at(load);
            let (joining, batches) = (Simulation::run(&scenario).mean(|one| one.ended), to_the_end(&scenario));
            eprintln!(
                "{name}, load {load}: {joining:.3} s, batches to the end {batches:.3} s: {:.2}",
                joining / batches
            );
            assert!(joining <= 0.85 * batches, "{name}, load {load}: {joining} s, {batches} s");
        }
    }
}

#[test]
fn no_smaller_set_is_better_where_a_launch_costs_something() {
    for (name, model) in models() {
        for load in [0.5, 0.85] {
            let scenario = model.at(load);
            let joining = Simulation::run(&scenario).mean(|one| one.ended);
            for most in [1, 2, 4, 8] {
                let smaller = Scenario { most, ..scenario.clone() };
                if smaller.capacity() > 1.02 * scenario.rate {
                    let other = Simulation::run(&smaller).mean(|one| one.ended);
                    assert!(joining <= 1.02 * other, "{name}, load {load}: {joining} s, at most {most}: {other} s");
                }
            }
        }
    }
}

#[test]
fn prompts_delay_the_others_by_about_a_launch_cost() {
    let model = Scenario { join: 0.004, ..Scenario::new(0.008, 0.0002, 32, SPREAD) };
    for load in [0.5, 0.85, 1.5] {
        let outcome = Simulation::run(&model.at(load));
        let (gap, bound) = (quantile(outcome.gaps.clone(), 0.99), model.step(32) + model.alpha + model.join);
        eprintln!("prompts of 4 ms, load {load}: 99 of 100 gaps are below {:.1} ms", gap * 1e3);
        assert!(gap <= bound, "load {load}: {gap} s, {bound} s");
    }
}

/// Few steps and dear newcomers: limited to what a launch costs, newcomers would never fill the replica.
#[test]
fn a_limit_of_newcomers_never_keeps_a_replica_from_being_full() {
    let model = Scenario { join: 0.03, ..Scenario::new(0.03, 0.006, 16, Lengths::Fixed(4)) };
    let outcome = Simulation::run(&model.at(3.0));
    let rate = outcome.answered.len() as f64 / outcome.ended_at;
    eprintln!("4 steps, newcomers as dear as a launch: {:.2} of the capacity", rate / model.capacity());
    assert!(rate >= 0.8 * model.capacity(), "{rate}, {}", model.capacity());
}

/// Answers per second between the first and the last arrival.
fn goodput(scenario: &Scenario, outcome: &Outcome) -> f64 {
    let lasts = scenario.requests as f64 / scenario.rate;
    let within = |at: f64| (0.2 * lasts..lasts).contains(&at);
    outcome.answered.iter().filter(|one| within(one.at)).count() as f64 / (0.8 * lasts)
}

#[test]
fn overload_costs_no_goodput() {
    for (name, model) in models() {
        let served = |load: f64| {
            // As long at each load, so that the queue has filled.
            let model = Scenario { refuses: true, requests: (1200.0 * load) as usize, ..model.clone() };
            let scenario = model.at(load);
            let outcome = Simulation::run(&scenario);
            // Until the first items have ended, nothing says how long they take.
            let lasts = scenario.requests as f64 / scenario.rate;
            let late = outcome.expired.iter().filter(|&&at| at > 0.1 * lasts).count();
            assert!(late == 0, "{name}, load {load}: {late} first parts after more than 60 s");
            goodput(&scenario, &outcome) / scenario.capacity()
        };
        let figures = [0.8, 1.0, 1.5, 3.0, 10.0].map(served);
        eprintln!("{name}: goodput at 0.8, 1, 1.5, 3 and 10 of the capacity {figures:.2?}");
        let peak = figures.iter().copied().fold(0.0, f64::max);
        assert!(figures[4] >= 0.95 * peak, "{name}: {figures:?}");
    }
}

#[test]
fn predicted_waits_are_right() {
    for (name, model) in models() {
        for (replicas, keys) in [(1, vec![1.0]), (4, vec![1.0]), (1, vec![1.0, 1.0, 4.0]), (2, vec![1.0, 2.0])] {
            for load in [1.2, 3.0] {
                let dear = keys.iter().sum::<f64>() / keys.len() as f64;
                // Each key has its own steps, so that fewer share one: the capacity is not known, but the load is heavy.
                let model = Scenario { replicas, keys: keys.clone(), refuses: true, requests: 3000, ..model.clone() };
                let outcome = Simulation::run(&model.at(load / if keys.len() > 1 { dear } else { 1.0 }));
                let waited = outcome.settled().iter().filter(|one| one.joined > 2.0 * model.step(1));
                let ratios: Vec<f64> = waited.filter_map(|one| Some(one.predicted_wait? / one.joined)).collect();
                assert!(ratios.len() > 100, "{name}: too few waited");
                let [low, middle, high] = [0.1, 0.5, 0.9].map(|share| quantile(ratios.clone(), share));
                eprintln!(
                    "{name}, {replicas} replicas, {} keys, load {load}: predicted / actual {low:.2} {middle:.2} {high:.2}",
                    keys.len()
                );
                assert!((0.7..=1.3).contains(&middle), "{name}, {replicas} replicas, {keys:?}: {middle}");
            }
        }
    }
}

#[test]
fn with_a_target_first_parts_come_in_time() {
    for (name, model) in models() {
        let target = 12.0 * model.step(model.most);
        for load in [0.7, 1.5, 5.0] {
            let model =
                Scenario { refuses: true, target: Some(target), requests: (1500.0 * load) as usize, ..model.clone() };
            let scenario = model.at(load);
            let outcome = Simulation::run(&scenario);
            let settled = outcome.settled();
            let in_time = settled.iter().filter(|one| one.first <= target).count() as f64 / settled.len() as f64;
            let ratios = settled.iter().filter_map(|one| Some(one.predicted_first? / one.first)).collect();
            let (middle, served) = (quantile(ratios, 0.5), goodput(&scenario, &outcome) / scenario.capacity());
            eprintln!(
                "{name}, load {load}, first parts within {target:.2} s: {in_time:.3} of the answers, {served:.2} of the \
                 capacity, predicted / actual {middle:.2}"
            );
            assert!(in_time >= 0.98, "{name}, load {load}: {in_time}");
            assert!(served >= 0.9 * load.min(1.0), "{name}, load {load}: {served}");
        }
    }
}
