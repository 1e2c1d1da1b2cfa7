//! What a start time makes impossible: the rule next to an oracle that knows the load of the next start time.

use crate::scenarios::{SMALL, Shape, scenario};
use crate::sweep::{compare, figures};
use crate::world::{Rule, Run, Scenario, Seen, run};
use std::rc::Rc;

/// As many replicas as the true load needs, now and at any time until a replica that is asked for now is ready.
struct Oracle {
    loads: Rc<[f64]>,
    ahead: f64,
    spare: f64,
}

impl Oracle {
    /// It knows the load of so many seconds.
    fn new(scenario: &Scenario, ahead: f64) -> Oracle {
        let full = scenario.service.seconds(scenario.service.most);
        // The spare of the rule, for independent clients.
        let spare = 2.3 / scenario.service.most as f64 * full / (scenario.target - full);
        Oracle { loads: scenario.loads.clone(), ahead, spare }
    }
}

impl Rule for Oracle {
    fn wanted(&mut self, seen: Seen) -> u32 {
        let at = |seconds: f64| ((2.0 * seconds) as usize).min(self.loads.len() - 1);
        let loads = &self.loads[at(seen.now)..=at(seen.now + self.ahead)];
        let load = loads.iter().copied().fold(0.0, f64::max);
        if load > 0.0 { (1.04 * load + self.spare).ceil() as u32 } else { 0 }
    }
}

/// The rule may be late so much more often than the best setting that is as cheap, and the oracle.
pub(crate) const MORE_LATE: f64 = 0.005;

/// Where load rises and stays for minutes, so much more often than one that knows the true load of now and nothing ahead.
const MORE_LATE_THAN_NOW: f64 = 0.05;

/// A seed that no rule was tuned on.
const SEED: u64 = 6007;

fn scenarios() -> Vec<Scenario> {
    let of = |start: f64| {
        let of = |name: &str, shape, end| scenario(name, SMALL, shape, end, start, SEED);
        [
            of("spikes of x6", Shape::Spike(1.1, 6.0, 180.0), 3600.0),
            Scenario { min: 0, ..of("on and off, 10 min", Shape::OnOff(3.0, 600.0), 3600.0) },
            of("bursts of 20 s", Shape::Bursts(1.5, 4.5, 20.0), 2400.0),
        ]
    };
    [2.0, 30.0, 120.0].into_iter().flat_map(of).collect()
}

#[test]
fn it_is_late_no_more_often_than_the_best_setting_as_cheap_but_where_an_oracle_is_too() {
    let mut failed = Vec::new();
    for scenario in scenarios() {
        let compared = compare(&scenario);
        let oracle = |ahead: f64| run(&scenario, &mut Oracle::new(&scenario, ahead));
        // It asks a second before, because it is asked once a second.
        let (knows, sees) = (oracle(scenario.start.0 + 1.0), oracle(0.0));
        let of = |run: &Run| figures(&scenario, run);
        let best = compared.best.as_ref();
        println!(
            "| {:33} | {} | {} | {} | {} |",
            scenario.name,
            of(&compared.ours),
            best.map_or("none".into(), |(name, run)| format!("{} ({name})", of(run))),
            of(&knows),
            of(&sees)
        );
        let as_cheap = best.map_or(1.0, |(_, run)| run.late_share()) + knows.late_share() + MORE_LATE;
        let is_long = !scenario.name.starts_with("bursts");
        let most = if is_long { as_cheap.min(sees.late_share() + MORE_LATE_THAN_NOW) } else { as_cheap };
        if compared.ours.late_share() > most {
            failed.push(format!("{}: {:.4} late, at most {most:.4}", scenario.name, compared.ours.late_share()));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
