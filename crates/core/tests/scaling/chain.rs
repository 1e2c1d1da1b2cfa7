//! Two deployments of which the second gets the answers of the first.

use crate::oracle::MORE_LATE;
use crate::rules::{Ours, settings};
use crate::scenarios::{SMALL, Shape, scenario};
use crate::sweep::{AS_CHEAP, AS_GOOD, MEAN};
use crate::world::{Rule, Run, Scenario, Seen, World};
use std::cmp::Reverse;

/// What the second deployment knows of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knows {
    /// What arrives: answers of the first one, and clients that are refused because of the second one. The server does this.
    Own,
    /// What arrives at the first one, times the fan-out.
    First,
}

/// A rule that gets these counts instead of those of its deployment.
struct Counting<'a> {
    rule: &'a mut dyn Rule,
    arrived: u64,
    refused: u64,
}

impl Rule for Counting<'_> {
    fn wanted(&mut self, seen: Seen) -> u32 {
        self.rule.wanted(Seen { arrived: self.arrived, refused: self.refused, ..seen })
    }
}

/// Both runs, the first one first.
#[derive(Debug)]
struct Story {
    outer: Run,
    inner: Run,
    fan_out: usize,
}

impl Story {
    fn cost(&self) -> f64 {
        self.outer.cost + self.inner.cost
    }

    /// Of all items that should have left the second deployment.
    fn late_share(&self) -> f64 {
        (self.outer.late * self.fan_out + self.inner.late) as f64 / (self.outer.requests * self.fan_out) as f64
    }
}

/// `None` if it costs more than `most`.
fn run(scenarios: [&Scenario; 2], fan_out: usize, rules: [&mut dyn Rule; 2], knows: Knows, most: f64) -> Option<Story> {
    let (mut outer, mut inner) = (World::new(scenarios[0]), World::new(scenarios[1]));
    let [outer_rule, inner_rule] = rules;
    outer.answers = Some(Vec::new());
    // Only the whole may be late.
    outer.late_after = f64::INFINITY;
    inner.late_after = scenarios[0].target + scenarios[1].target;
    loop {
        let (first, second) = (outer.next(), inner.next());
        if first.min(second) >= scenarios[0].end {
            break;
        }
        if first <= second {
            outer.is_blocked = inner.is_full();
            if outer.advance(first) {
                // Those that are refused because of the second one arrived here too.
                let (arrived, refused) = (outer.arrived + outer.blocked, outer.refused + outer.blocked);
                let wanted = outer.wanted(&mut Counting { rule: &mut *outer_rule, arrived, refused });
                outer.allot(wanted);
                if outer.cost() + inner.cost() > most {
                    return None;
                }
            }
            outer.launch();
            for (end, since) in outer.answers.iter_mut().flat_map(|answers| answers.drain(..)) {
                inner.inflow.extend(std::iter::repeat_n(Reverse((end, since)), fan_out));
            }
        } else {
            if inner.advance(second) {
                // As many items as a client that was refused would have brought.
                let blocked = outer.blocked * fan_out as u64;
                let (arrived, refused) = match knows {
                    Knows::Own => (inner.arrived + blocked, blocked),
                    Knows::First => (outer.arrived * fan_out as u64 + blocked, outer.refused + blocked),
                };
                let wanted = inner.wanted(&mut Counting { rule: &mut *inner_rule, arrived, refused });
                inner.allot(wanted);
            }
            inner.launch();
        }
    }
    let (outer, mut inner) = (outer.end(), inner.end());
    inner.requests = outer.requests * fan_out;
    Some(Story { outer, inner, fan_out })
}

/// The second deployment of a chain: for each answer of the first one it gets so many items.
fn inner_of(outer: &Scenario, fan_out: usize) -> Scenario {
    let begins_with = outer.begins_with * fan_out as u32;
    Scenario { arrivals: [].into(), begins_with, seed: outer.seed + 1, ..outer.clone() }
}

/// Within so many seconds after a rise of the load the first has what it needs, and so many later the second.
fn lags(story: &Story, scenario: &Scenario, load: f64) -> Option<(usize, usize)> {
    let rise = scenario.loads.iter().position(|&now| now >= load)? / 2;
    let from = |run: &Run, need: f64| (rise..run.up.len()).find(|&second| f64::from(run.up[second]) >= need);
    let (outer, inner) = (from(&story.outer, load)?, from(&story.inner, load * story.fan_out as f64)?);
    Some((outer - rise, inner.saturating_sub(outer)))
}

fn ours(outer: &Scenario, fan_out: usize, knows: Knows) -> Story {
    let inner = inner_of(outer, fan_out);
    let (mut first, mut second) = (Ours::new(outer), Ours::new(&inner));
    run([outer, &inner], fan_out, [&mut first, &mut second], knows, f64::INFINITY).expect("it costs less than all")
}

fn chains(start: f64) -> [(Scenario, f64); 3] {
    let of = |name: &str, shape, most| (scenario(name, SMALL, shape, 2400.0, start, 6317), most);
    [
        of("spikes of x5", Shape::Spike(1.5, 5.0, 300.0), 7.5),
        of("ramp, plateau, drop", Shape::Ramp(8.0, 600.0), 8.0),
        of("on and off, 10 min", Shape::OnOff(4.0, 600.0), 4.0),
    ]
}

#[test]
fn the_second_of_a_chain_follows_the_first() {
    let starts: &[f64] = if std::env::var_os("JITNEY_TEST_LONG").is_some() { &[5.0, 30.0, 120.0] } else { &[30.0] };
    for &start in starts {
        for (outer, load) in chains(start) {
            for fan_out in [1, 3] {
                let stories = [Knows::Own, Knows::First].map(|knows| ours(&outer, fan_out, knows));
                let least = outer.arrivals.len() as f64 / SMALL.rate() * (1 + fan_out) as f64;
                let of = |story: &Story| {
                    let starts = story.outer.starts + story.inner.starts;
                    let lags = lags(story, &outer, load);
                    format!("{:5.2} {:6.2} % {starts:4} {lags:?}", story.cost() / least, 100.0 * story.late_share())
                };
                println!("| {:32} | {fan_out} | {} | {} |", outer.name, of(&stories[0]), of(&stories[1]));
                let (_, lag) = lags(&stories[0], &outer, load).expect("both have what they need some time");
                assert!(lag as f64 <= start + 10.0, "{} x{fan_out}: {lag} s after the first", outer.name);
            }
        }
    }
}

#[test]
fn a_chain_costs_no_more_than_the_best_thresholds_in_hindsight() {
    let (outer, _) = &chains(30.0)[0];
    let (inner, fan_out) = (inner_of(outer, 2), 2);
    let ours = ours(outer, fan_out, Knows::Own);
    let (mut cheapest, mut best) = (f64::INFINITY, 1.0);
    for ((_, mut first), (_, mut second)) in settings(SMALL.most).into_iter().zip(settings(SMALL.most)) {
        let most = cheapest.max(1.02 * ours.cost());
        let rules: [&mut dyn Rule; 2] = [&mut *first, &mut *second];
        let Some(story) = run([outer, &inner], fan_out, rules, Knows::Own, most) else { continue };
        if story.late_share() <= ours.late_share() + AS_GOOD {
            cheapest = story.cost().min(cheapest);
        }
        if story.cost() <= AS_CHEAP * ours.cost() {
            best = story.late_share().min(best);
        }
    }
    println!(
        "ours: {:.0}, {:.4} late; cheapest as good {cheapest:.0}, best as cheap {best:.4}",
        ours.cost(),
        ours.late_share()
    );
    assert!(ours.cost() <= MEAN * cheapest, "{:.0} and {cheapest:.0} replica-seconds", ours.cost());
    assert!(ours.late_share() <= best + MORE_LATE, "{:.4} and {best:.4} late", ours.late_share());
}
