//! What must hold whatever is learned.

use crate::arrivals::{poisson, users};
use crate::scenarios::{LAUNCH, LLM, auto, batch_scenarios};
use crate::simulator::{Scenario, Simulation};
use jitney_core::policy::auto::Auto;
use jitney_core::policy::batch_policy::{BatchPolicy, CloseReason, Decision, View};
use jitney_core::time::Time;
use std::time::Duration;

/// `auto`, with somebody who looks at each decision.
#[derive(Debug, Default)]
struct Watched {
    auto: Auto,
    held_since: Option<Time>,
}

impl BatchPolicy for Watched {
    fn decide(&mut self, view: &View) -> Decision {
        let decision = self.auto.decide(view);
        match decision {
            Decision::AskAgain(at) => {
                let since = *self.held_since.get_or_insert(view.now);
                let most = Duration::from_secs_f64(view.size_model.launch_s() / f64::from(view.replicas) + 1e-6);
                assert!(at > view.now, "asks again at once");
                assert!(at <= since + most, "held since {since:?} until {at:?}, at most {most:?}");
                assert!(view.lanes.first_full().is_none(), "a full lane waits");
            }
            Decision::Launch { lane, size, reason } => {
                let limit = view.lanes.limits().max_items;
                assert!((1..=limit).contains(&size), "{size} of {limit}");
                let was_held = matches!(reason, CloseReason::Returns | CloseReason::Burst);
                assert!(!was_held || self.held_since.is_some(), "{reason:?}, but it was not held");
                assert!(size >= view.lanes.lane(lane).len().min(limit) || reason == CloseReason::Share);
            }
        }
        decision
    }

    fn on_end(&mut self) {
        self.held_since = None;
        self.auto.on_end();
    }
}

#[test]
fn all_holds_of_one_launch_together_take_no_longer_than_a_launch() {
    for scenario in batch_scenarios() {
        let scenario = Scenario { ends: scenario.ends.min(2000), ..scenario };
        let figures = Simulation::run(&scenario, Box::new(Watched::default()), 3);
        assert!(figures.throughput > 0.0, "{}", scenario.name);
    }
}

#[test]
fn timers_that_were_replaced_change_nothing() {
    for replicas in [1, 3] {
        let (open, users) = (Some(poisson(60.0)), Some(users(20)));
        let scenario = Scenario { replicas, open, users, ..Scenario::new("mixed", LLM) };
        let run = |polls_for_nothing| {
            let scenario = Scenario { polls_for_nothing, ..scenario.clone() };
            Simulation::run(&scenario, auto(), 1).batches
        };
        assert_eq!(run(false), run(true));
    }
}

#[test]
fn the_same_story_gives_the_same_batches() {
    let scenario = Scenario { open: Some(poisson(200.0)), replicas: 2, ..Scenario::new("strangers", LAUNCH) };
    let run = |seed| Simulation::run(&scenario, auto(), seed).batches;
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
