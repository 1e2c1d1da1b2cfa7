//! Replicas whose links are silent: their items run elsewhere too, the first answer counts, and clients wait for little of
//! the silence.

use jitney_core::config::options::DeploymentOptions;
use jitney_core::config::rules::{PolicyChoice, Rules};
use jitney_core::queue::group_key::GroupKey;
use jitney_core::replicas::loss_history::Loss;
use jitney_core::request::{BatchId, ItemId, Priority, ReplicaClass, ReplicaId};
use jitney_core::scheduler::action::{Action, Launch};
use jitney_core::scheduler::item::{NewItem, Payload};
use jitney_core::scheduler::state::Scheduler;
use jitney_core::supervisor::event::{Cause, Command, Event};
use jitney_core::supervisor::worker_life::WorkerLife;
use jitney_core::time::Time;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

const ONE: ReplicaId = ReplicaId(1);
const TWO: ReplicaId = ReplicaId(2);

/// Whether the item may still run twice.
#[derive(Debug)]
struct Input(bool);

impl Payload for Input {
    type Input = ();

    fn input(&self) -> &() {
        &()
    }

    fn fingerprint((): &()) -> u64 {
        7
    }

    fn may_run_again(&self) -> bool {
        self.0
    }
}

fn rules(max_items: u64, retry: bool) -> Rules {
    let options = DeploymentOptions { max_batch_size: max_items as u32, retry, ..DeploymentOptions::for_test() };
    Rules { policy: PolicyChoice::Eager, ..Rules::new(&options).expect("the options are valid") }
}

fn submit(scheduler: &mut Scheduler<Input>, now: Time, id: u64, may_run_again: bool) {
    let (group, priority, payload) = (GroupKey::default(), Priority::Normal, Input(may_run_again));
    let item = NewItem { id: ItemId(id), group, cost: 1, bytes: 1, priority, timeout: None, payload };
    assert!(scheduler.submit(now, item).is_ok());
}

/// One item, which the first replica has; the second one is idle.
fn one_item(retry: bool, may_run_again: bool) -> (Scheduler<Input>, BatchId) {
    let mut scheduler = Scheduler::new(rules(1, retry));
    scheduler.replica_up(Time(0), ONE, ReplicaClass::default());
    submit(&mut scheduler, Time(0), 1, may_run_again);
    let launch = launched(&mut scheduler).expect("a replica is idle");
    (scheduler, launch.batch)
}

fn launched(scheduler: &mut Scheduler<Input>) -> Option<Launch> {
    match scheduler.poll(Time(1)) {
        Some(Action::Launch(launch)) => Some(launch),
        None => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_answer_counts_and_the_other_replica_drops_the_item() {
    for is_first in [true, false] {
        let (mut scheduler, first) = one_item(true, true);
        scheduler.doubt(ONE, true);
        assert!(launched(&mut scheduler).is_none(), "a silent replica gets nothing");
        scheduler.replica_up(Time(1), TWO, ReplicaClass::default());
        let second = launched(&mut scheduler).expect("another replica is idle");
        assert_eq!((second.replica, second.copies), (TWO, 1));
        let (winner, loser) = if is_first { (first, second.batch) } else { (second.batch, first) };
        assert!(scheduler.item_ended(winner, ItemId(1)).is_some());
        let dropped = if is_first { TWO } else { ONE };
        assert!(matches!(scheduler.poll(Time(2)), Some(Action::Forget(at, ItemId(1))) if at == dropped));
        assert!(scheduler.item_ended(loser, ItemId(1)).is_none(), "it was answered");
        assert!(scheduler.is_empty() && scheduler.poll(Time(2)).is_none());
    }
}

#[test]
fn a_replica_that_is_heard_again_keeps_what_no_other_one_has() {
    let (mut scheduler, first) = one_item(true, true);
    scheduler.doubt(ONE, true);
    assert_eq!((scheduler.queued_items(), scheduler.replicas()), (1, 0));
    scheduler.trust(ONE);
    assert_eq!((scheduler.queued_items(), scheduler.queued_bytes(), scheduler.replicas()), (0, 0, 1));
    scheduler.replica_up(Time(1), TWO, ReplicaClass::default());
    assert!(launched(&mut scheduler).is_none(), "it runs");
    assert!(scheduler.item_ended(first, ItemId(1)).is_some());
}

#[test]
fn a_replica_that_is_lost_without_a_word_costs_nothing_more() {
    let (mut scheduler, _) = one_item(true, true);
    scheduler.doubt(ONE, true);
    scheduler.replica_up(Time(1), TWO, ReplicaClass::default());
    let second = launched(&mut scheduler).expect("another replica is idle");
    scheduler.replica_lost(Time(2), ONE, Loss::Away);
    assert!(launched(&mut scheduler).is_none(), "it runs");
    assert!(scheduler.item_ended(second.batch, ItemId(1)).is_some());
}

#[test]
fn a_replica_that_crashes_after_another_one_has_answered_makes_equal_inputs_suspects() {
    let (mut scheduler, _) = one_item(true, true);
    scheduler.doubt(ONE, true);
    scheduler.replica_up(Time(1), TWO, ReplicaClass::default());
    let second = launched(&mut scheduler).expect("another replica is idle");
    assert!(scheduler.item_ended(second.batch, ItemId(1)).is_some());
    scheduler.batch_ended(Time(2), TWO, second.batch, true);
    while scheduler.poll(Time(2)).is_some() {}
    scheduler.replica_lost(Time(2), ONE, Loss::Crashed);
    submit(&mut scheduler, Time(2), 2, true);
    let next = launched(&mut scheduler).expect("a replica is idle");
    assert_eq!(next.reason.label(), "suspect");
}

#[test]
fn what_must_not_run_twice_runs_once() {
    for (retry, may_run_again) in [(false, true), (true, false)] {
        let (mut scheduler, first) = one_item(retry, may_run_again);
        scheduler.doubt(ONE, true);
        scheduler.replica_up(Time(1), TWO, ReplicaClass::default());
        assert!(launched(&mut scheduler).is_none(), "it stays where it is");
        assert!(scheduler.item_ended(first, ItemId(1)).is_some());
        submit(&mut scheduler, Time(1), 2, true);
        assert_eq!(launched(&mut scheduler).map(|launch| launch.replica), Some(TWO));
    }
}

#[test]
fn nothing_joins_a_silent_replica_of_a_model_whose_items_join_one_by_one() {
    let mut scheduler = Scheduler::new(Rules { joins: true, side_by_side: true, ..rules(8, true) });
    for id in [ONE, TWO] {
        scheduler.replica_up(Time(0), id, ReplicaClass::default());
    }
    submit(&mut scheduler, Time(0), 1, true);
    let first = launched(&mut scheduler).expect("there is room").replica;
    let other = if first == ONE { TWO } else { ONE };
    scheduler.doubt(other, true);
    submit(&mut scheduler, Time(0), 2, true);
    assert_eq!(launched(&mut scheduler).map(|launch| launch.replica), Some(first), "the other one is silent");
    scheduler.trust(other);
    submit(&mut scheduler, Time(0), 3, true);
    assert_eq!(launched(&mut scheduler).map(|launch| launch.replica), Some(other), "it holds less");
    scheduler.doubt(other, true);
    assert!(launched(&mut scheduler).is_none(), "its item is not given to another one");
}

/// Three machines with a replica each, and clients that send an item every 2 ms. One machine falls silent after 10 s and stays so.
/// Returns how long each item waited for its answer.
fn silence(copies: bool) -> Vec<Duration> {
    const TICK: Duration = Duration::from_millis(1);
    let batch = |items: usize| Duration::from_millis(20 + items as u64);
    let mut scheduler = Scheduler::new(rules(16, true));
    let mut lives: BTreeMap<ReplicaId, WorkerLife> = BTreeMap::new();
    for id in (1..=3).map(ReplicaId) {
        let mut life = WorkerLife::new(Duration::from_secs(60), false);
        life.tick(Time(0));
        life.placed(true);
        life.apply(Time(0), Event::Ready);
        lives.insert(id, life);
        scheduler.replica_up(Time(0), id, ReplicaClass::default());
    }
    let mut work: BTreeMap<ReplicaId, VecDeque<(Option<Time>, Launch)>> = BTreeMap::new();
    let (begin, end) = (Time(0) + Duration::from_secs(10), Time(0) + Duration::from_secs(20));
    let (mut now, mut id, mut waited) = (Time(0), 0, Vec::new());
    while now < end || !scheduler.is_empty() {
        if now < end && id * 2 <= (now - Time(0)).as_millis() as u64 {
            id += 1;
            submit(&mut scheduler, now, id, true);
        }
        for (&replica, life) in &mut lives {
            if replica != ONE || now < begin {
                life.apply(now, Event::Heard);
            }
            match life.tick(now) {
                Some(Command::Doubt(true)) => scheduler.doubt(replica, copies),
                Some(Command::Doubt(false)) => scheduler.trust(replica),
                Some(Command::Down(Cause::Away)) => scheduler.replica_lost(now, replica, Loss::Away),
                None => {}
                other => panic!("{other:?}"),
            }
        }
        while let Some(action) = scheduler.poll(now) {
            if let Action::Launch(launch) = action {
                work.entry(launch.replica).or_default().push_back((None, launch));
            }
        }
        for (&replica, batches) in work.iter_mut().filter(|(replica, _)| **replica != ONE || now < begin) {
            let Some((done, launch)) = batches.front_mut() else { continue };
            let done = *done.get_or_insert(now + batch(launch.items.len()));
            if done <= now {
                for &item in &launch.items {
                    waited.extend(scheduler.item_ended(launch.batch, item).map(|ended| now - ended.arrival));
                }
                scheduler.batch_ended(now, replica, launch.batch, true);
                batches.pop_front();
            }
        }
        now = now + TICK;
    }
    waited
}

#[test]
fn when_one_of_three_machines_falls_silent_no_client_waits_three_seconds() {
    let late = |waited: &[Duration], most_s| waited.iter().filter(|&&wait| wait > Duration::from_secs(most_s)).count();
    let hedged = silence(true);
    assert_eq!(hedged.len(), 10_000, "all are answered, once");
    assert_eq!(late(&hedged, 3), 0, "the longest wait is {:?}", hedged.iter().max());
    let waiting = silence(false);
    assert_eq!(waiting.len(), 10_000);
    assert!(late(&waiting, 6) > 0, "without copies clients wait until the machine is given up");
}
