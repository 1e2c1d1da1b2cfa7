//! What the rules cost per item. Run with
//! `cargo test --release -p jitney-core --test cost -- --ignored --nocapture`.

use jitney_core::config::limits::BatchLimits;
use jitney_core::config::limits::QueueLimits;
use jitney_core::config::rules::{PolicyChoice, Rules};
use jitney_core::policy::auto::Auto;
use jitney_core::policy::batch_policy::{BatchPolicy, Decision, View};
use jitney_core::queue::group_key::{GroupKey, KeyPart};
use jitney_core::request::{ItemId, Priority, ReplicaClass, ReplicaId};
use jitney_core::scheduler::action::{Action, Launch};
use jitney_core::scheduler::item::{NewItem, Payload};
use jitney_core::scheduler::results::steps::Step;
use jitney_core::scheduler::state::Scheduler;
use jitney_core::time::Time;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const MAX_ITEMS: usize = 32;

struct Input(u64);

impl Payload for Input {
    type Input = u64;

    fn input(&self) -> &u64 {
        &self.0
    }

    fn fingerprint(input: &u64) -> u64 {
        *input
    }
}

/// What this thread has computed; other processes do not count, as they would by a clock.
fn processor_time() -> Duration {
    #[allow(clippy::disallowed_methods, reason = "the test measures; the rules do not")]
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0))
}

fn rules(policy: PolicyChoice) -> Rules {
    Rules {
        batch: BatchLimits { max_items: MAX_ITEMS, max_cost: u64::MAX },
        queue: QueueLimits { max_items: 1 << 20, max_bytes: u64::MAX },
        boost: Duration::from_secs(1),
        request_timeout: MINUTE,
        stream_timeout: MINUTE,
        batch_timeout: MINUTE,
        retry: true,
        joins: false,
        side_by_side: false,
        policy,
        target: None,
        max_wait: None,
    }
}

fn item(id: u64, lane: u64) -> NewItem<Input> {
    NewItem {
        id: ItemId(id),
        group: GroupKey([KeyPart::Int(lane.cast_signed())].into_iter().collect()),
        cost: 1,
        bytes: 100,
        priority: Priority::Normal,
        timeout: None,
        payload: Input(id),
    }
}

/// Nanoseconds per item from `submit` to its answer, with about `waiting` items in `lanes` lanes at any time.
fn measure(policy: PolicyChoice, lanes: u64, replicas: u32, waiting: usize, total: u64) -> f64 {
    let mut scheduler = Scheduler::new(rules(policy));
    (0..replicas).for_each(|id| scheduler.replica_up(Time(0), ReplicaId(id), ReplicaClass::default()));
    let (mut running, mut now, mut next) = (VecDeque::new(), Time(0), 0u64);
    let began = processor_time();
    while next < total || !scheduler.is_empty() {
        while next < total && scheduler.queued_items() <= waiting {
            now = Time(now.0 + 1000);
            assert!(scheduler.submit(now, item(next, next % lanes)).is_ok(), "nothing is refused here");
            next += 1;
            while let Some(action) = scheduler.poll(now) {
                let Action::Launch(launch) = action else { panic!("only launches are due here") };
                running.push_back(launch);
            }
        }
        let launch = running.pop_front().expect("something runs");
        scheduler.batch_started(launch.batch);
        for id in launch.items {
            assert!(scheduler.item_ended(launch.batch, id).is_some());
        }
        // Not clean: a known pace would refuse what this queue is meant to hold.
        scheduler.batch_ended(now, launch.replica, launch.batch, false);
        while let Some(action) = scheduler.poll(now) {
            let Action::Launch(launch) = action else { panic!("only launches are due here") };
            running.push_back(launch);
        }
    }
    processor_time().saturating_sub(began).as_nanos() as f64 / total as f64
}

#[test]
#[ignore = "measures; needs a release build"]
fn nanoseconds_per_item() {
    for (lanes, replicas, waiting) in [
        (1, 1, 0),
        (1, 1, 200),
        (1000, 1, 3000),
        (1000, 1, 64_000),
        (1, 8, 500),
        (1, 64, 2500),
        (1, 256, 10_000),
        (1, 1000, 40_000),
    ] {
        for policy in [PolicyChoice::Eager, PolicyChoice::Auto] {
            let best = (0..3).map(|_| measure(policy, lanes, replicas, waiting, 300_000)).fold(f64::MAX, f64::min);
            eprintln!("{policy:?}, {lanes} lanes, {replicas} replicas, {waiting} waiting: {best:.0} ns per item");
        }
    }
}

/// Nanoseconds per item in virtual time, at a load of 0.8, where batches teach how fast each replica is: all equal, or every factor from
/// 1 to 8. The time that this loop itself takes is in it.
fn learning(replicas: u32, differ: bool, is_told_apart: bool, total: u64) -> f64 {
    let mut scheduler = Scheduler::new(rules(PolicyChoice::Auto));
    if !is_told_apart {
        scheduler.treat_replicas_as_equal();
    }
    (0..replicas).for_each(|id| scheduler.replica_up(Time(0), ReplicaId(id), ReplicaClass::default()));
    let factor = |id: ReplicaId| if differ { 1 + id.0 % 8 } else { 1 };
    let power: f64 = (0..replicas).map(|id| 1.0 / f64::from(factor(ReplicaId(id)))).sum();
    let apart = Duration::from_secs_f64(0.052 / 32.0 / power / 0.8);
    let (mut ends, mut free) = (BTreeMap::new(), vec![Time(0); replicas as usize]);
    let (mut arrives, mut next) = (Time(0), 0u64);
    let began = processor_time();
    while next < total || !scheduler.is_empty() {
        let ended = ends.first_key_value().map(|(&(at, batch), _)| (at, batch));
        let arrival = (next < total).then_some(arrives);
        let wake = scheduler.next_wake();
        let now = [ended.map(|(at, _)| at), arrival, wake].into_iter().flatten().min().expect("something is to come");
        if let Some(key) = ended.filter(|(at, _)| *at == now) {
            let launch: Launch = ends.remove(&key).expect("it is there");
            for id in launch.items {
                assert!(scheduler.item_ended(launch.batch, id).is_some());
            }
            scheduler.batch_ended(now, launch.replica, launch.batch, true);
        } else if arrival == Some(now) {
            assert!(scheduler.enter(now, item(next, 0)).is_ok());
            (next, arrives) = (next + 1, arrives + apart);
        }
        while let Some(action) = scheduler.poll(now) {
            let Action::Launch(launch) = action else { continue };
            let takes = Duration::from_millis(20 + launch.items.len() as u64) * factor(launch.replica);
            let free = &mut free[launch.replica.0 as usize];
            *free = (*free).max(now) + takes;
            ends.insert((*free, launch.batch), launch);
        }
    }
    processor_time().saturating_sub(began).as_nanos() as f64 / total as f64
}

#[test]
#[ignore = "measures; needs a release build"]
fn nanoseconds_per_item_where_replicas_differ() {
    for replicas in [1, 8, 64, 256, 1000] {
        let total = 300_000.max(u64::from(replicas) * 1000);
        let best = |differ, told| (0..3).map(|_| learning(replicas, differ, told, total)).fold(f64::MAX, f64::min);
        let [equal, differ] = [false, true].map(|differ| (best(differ, false), best(differ, true)));
        eprintln!(
            "{replicas} replicas: all equal {:.0} ns per item, {:.0} if factors are learned; factors 1 to 8 {:.0} ns, {:.0} if they are learned",
            equal.0, equal.1, differ.0, differ.1
        );
    }
}

/// `auto`, asked a thousand times wherever the scheduler asks once; counts decisions and what they cost.
#[derive(Debug, Default)]
struct Asked {
    auto: Auto,
    spent: Arc<Mutex<(Duration, u32)>>,
}

impl BatchPolicy for Asked {
    fn decide(&mut self, view: &View) -> Decision {
        const TIMES: u32 = 1000;
        let mut decision = self.auto.decide(view);
        let began = processor_time();
        for _ in 0..TIMES {
            let mut auto = self.auto;
            decision = std::hint::black_box(auto.decide(std::hint::black_box(view)));
        }
        let mut spent = self.spent.lock().expect("one thread");
        *spent = (spent.0 + processor_time().saturating_sub(began), spent.1 + TIMES);
        decision
    }
}

/// Nanoseconds of one decision with items in `lanes` lanes; users come back, so that holds are weighed.
fn decision(lanes: u64) -> f64 {
    let asked = Asked::default();
    let spent = asked.spent.clone();
    let mut scheduler = Scheduler::with_policy(rules(PolicyChoice::Auto), Box::new(asked));
    scheduler.replica_up(Time(0), ReplicaId(0), ReplicaClass::default());
    let (mut now, mut next) = (Time(0), 0u64);
    let mut enter = |scheduler: &mut Scheduler<Input>, now, lane: u64| {
        next += 1;
        assert!(scheduler.enter(now, item(next, lane)).is_ok());
    };
    (0..lanes).for_each(|lane| enter(&mut scheduler, now, lane));
    for round in 0..400u64 {
        if let Some(Action::Launch(launch)) = scheduler.poll(now) {
            now = now + Duration::from_micros(5000 + 100 * launch.items.len() as u64);
            for id in &launch.items {
                assert!(scheduler.item_ended(launch.batch, *id).is_some());
            }
            scheduler.batch_ended(now, launch.replica, launch.batch, true);
            now = now + Duration::from_micros(100);
            (0..=round % 5).for_each(|n| enter(&mut scheduler, now, (round + n) % lanes));
        } else {
            now = scheduler.next_wake().unwrap_or(now);
        }
    }
    let (spent, count) = *spent.lock().expect("one thread");
    spent.as_nanos() as f64 / f64::from(count)
}

#[test]
#[ignore = "measures; needs a release build"]
fn nanoseconds_per_decision() {
    for lanes in [1, 4, 1000] {
        let best = (0..3).map(|_| decision(lanes)).fold(f64::MAX, f64::min);
        eprintln!("{lanes} lanes: {best:.0} ns per decision");
    }
}

/// Nanoseconds per item of a model that works in steps: `active` items in one replica, each of which ends after `parts` steps.
fn steps(active: usize, parts: u64, sends_parts: bool, total: u64) -> f64 {
    let mut scheduler = Scheduler::new(Rules {
        joins: true,
        side_by_side: false,
        batch: BatchLimits { max_items: active, max_cost: u64::MAX },
        ..rules(PolicyChoice::Auto)
    });
    scheduler.replica_up(Time(0), ReplicaId(0), ReplicaClass::default());
    let (mut held, mut next, mut now) = (VecDeque::new(), 0u64, Time(0));
    let began = processor_time();
    while next < total || !scheduler.is_empty() {
        while next < total && scheduler.queued_items() < 4 {
            assert!(scheduler.enter(now, item(next, 0)).is_ok());
            next += 1;
        }
        while let Some(action) = scheduler.poll(now) {
            let Action::Launch(launch) = action else { panic!("only launches are due here") };
            held.extend(launch.items.into_iter().map(|id| (launch.batch, id)));
        }
        now = now + Duration::from_millis(10);
        if sends_parts {
            held.iter().for_each(|&(batch, id)| scheduler.part_sent(now, batch, id));
        }
        let (ends, took) = (held.len().div_ceil(parts as usize), Duration::from_millis(10));
        scheduler.stepped(now, ReplicaId(0), Step { active: held.len(), joined: ends, took, ..Step::default() });
        for (batch, id) in held.drain(..ends) {
            assert!(scheduler.item_ended(batch, id).is_some());
        }
    }
    processor_time().saturating_sub(began).as_nanos() as f64 / total as f64
}

#[test]
#[ignore = "measures; needs a release build"]
fn nanoseconds_of_steps() {
    for (active, parts) in [(64, 64), (256, 64), (64, 4)] {
        let best = |sends| (0..3).map(|_| steps(active, parts, sends, 100_000)).fold(f64::MAX, f64::min);
        let (item, with_parts) = (best(false), best(true));
        let part = (with_parts - item) / parts as f64;
        eprintln!("{active} active items of {parts} steps: {item:.0} ns per item, {part:.0} ns per part");
    }
}

#[test]
fn the_measured_loop_answers_everything() {
    // It ends when all are answered, and panics where somebody is refused or lost.
    measure(PolicyChoice::Auto, 3, 2, 100, 2000);
    assert!(learning(8, true, true, 2000).is_finite(), "no learning was measured");
    assert!(decision(5).is_finite(), "no decision was measured");
    assert!(steps(8, 4, true, 100).is_finite(), "no steps were measured");
}
