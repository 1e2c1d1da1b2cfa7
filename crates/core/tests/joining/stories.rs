//! Single promises, each in a short story.

use crate::world::key;
use jitney_core::config::options::DeploymentOptions;
use jitney_core::config::rules::Rules;
use jitney_core::policy::batch_policy::CloseReason;
use jitney_core::replicas::loss_history::Loss;
use jitney_core::request::{ItemId, Priority, ReplicaClass, ReplicaId};
use jitney_core::scheduler::action::{Action, Launch};
use jitney_core::scheduler::item::{NewItem, Payload};
use jitney_core::scheduler::results::steps::Step;
use jitney_core::scheduler::state::Scheduler;
use jitney_core::tables::outcome::Outcome;
use jitney_core::time::Time;
use std::time::Duration;

#[derive(Debug)]
struct Input {
    number: u64,
    /// How often it went back to its lane.
    returns: u32,
}

impl Payload for Input {
    type Input = u64;

    fn input(&self) -> &u64 {
        &self.number
    }

    fn fingerprint(input: &u64) -> u64 {
        *input
    }

    fn waits_again(&mut self) {
        self.returns += 1;
    }
}

fn scheduler(max_batch_size: u32, max_batch_cost: Option<u64>, replicas: u32) -> Scheduler<Input> {
    let options = DeploymentOptions { max_batch_size, max_batch_cost, steps: true, ..DeploymentOptions::for_test() };
    let mut scheduler = Scheduler::new(Rules::new(&options).expect("the options are valid"));
    (0..replicas).for_each(|id| scheduler.replica_up(Time(0), ReplicaId(id), ReplicaClass::default()));
    scheduler
}

fn item(id: u64, cost: u64) -> NewItem<Input> {
    let (group, priority, payload) = (key(0), Priority::Normal, Input { number: id, returns: 0 });
    NewItem { id: ItemId(id), group, cost, bytes: 1, priority, timeout: None, payload }
}

fn launched(scheduler: &mut Scheduler<Input>, now: Time) -> Vec<Launch> {
    let actions = std::iter::from_fn(|| scheduler.poll(now));
    let launches = actions.filter_map(|action| if let Action::Launch(launch) = action { Some(launch) } else { None });
    launches.collect()
}

/// The numbers of the items that join, and their replica.
fn joined(scheduler: &mut Scheduler<Input>, now: Time) -> Vec<(u32, Vec<u64>)> {
    let launches = launched(scheduler, now).into_iter();
    launches.map(|launch| (launch.replica.0, launch.items.iter().map(|id| id.0).collect())).collect()
}

#[test]
fn items_that_come_together_are_spread_over_the_replicas_and_each_gets_one_frame() {
    let mut scheduler = scheduler(4, None, 2);
    (0..6).for_each(|id| assert!(scheduler.submit(Time(0), item(id, 1)).is_ok()));
    assert_eq!(joined(&mut scheduler, Time(0)), [(0, vec![0, 2, 4]), (1, vec![1, 3, 5])]);
    assert!(scheduler.submit(Time(1), NewItem { group: key(1), ..item(6, 1) }).is_ok());
    let launch = launched(&mut scheduler, Time(1)).pop().expect("another key has room too");
    assert_eq!((launch.replica.0, launch.reason), (0, CloseReason::Joined));
    assert_eq!(
        scheduler.item_ended(launch.batch, ItemId(6)).map(|ended| ended.batch_size),
        Some(4),
        "with three others"
    );
}

#[test]
fn the_first_in_order_of_rank_joins_when_a_place_is_free_and_small_items_do_not_pass() {
    let mut scheduler = scheduler(8, Some(10), 1);
    assert!(scheduler.submit(Time(0), item(1, 9)).is_ok());
    let first = launched(&mut scheduler, Time(0)).pop().expect("a lone item never waits");
    let hour = Duration::from_secs(3600);
    for (id, cost, at, priority) in [(2, 5, 1, Priority::Low), (3, 8, 2, Priority::Normal), (4, 1, 3, Priority::Normal)]
    {
        let item = NewItem { priority, timeout: Some(hour), ..item(id, cost) };
        assert!(scheduler.submit(Time(at), item).is_ok());
    }
    assert!(launched(&mut scheduler, Time(4)).is_empty(), "item 4 would fit, and item 3 would wait for longer");
    assert!(scheduler.item_ended(first.batch, ItemId(1)).is_some());
    assert_eq!(joined(&mut scheduler, Time(5)), [(0, vec![3, 4])]);
    let refused = scheduler.submit(Time(6), item(5, 11)).map_err(|(_, refusal)| (refusal.outcome, refusal.retry_after));
    assert_eq!(refused.err(), Some((Outcome::TooLarge, None)), "it could never join");
}

#[test]
fn what_did_not_fit_into_memory_halves_the_set_for_a_while() {
    let mut scheduler = scheduler(8, None, 1);
    (0..20).for_each(|id| assert!(scheduler.submit(Time(0), item(id, 1)).is_ok()));
    let launch = launched(&mut scheduler, Time(0)).pop().expect("eight have room");
    assert_eq!(scheduler.too_large(Time(0), launch.batch), Some(4));
    for left in (0..8).rev() {
        let end = launch.items[left];
        scheduler.stepped(Time(1), ReplicaId(0), Step { active: left + 1, ..Step::default() });
        assert!(scheduler.item_ended(launch.batch, end).is_some());
        assert_eq!(launched(&mut scheduler, Time(1)).len(), usize::from(left < 4), "{left} are left of the first ones");
    }
    assert_eq!(scheduler.len() - scheduler.queued_items(), 4);
}

#[test]
fn an_item_for_which_the_model_had_no_room_waits_again() {
    let mut scheduler = scheduler(4, None, 1);
    assert!(scheduler.submit(Time(0), item(1, 1)).is_ok());
    let first = launched(&mut scheduler, Time(0)).pop().expect("it is alone");
    scheduler.later(Time(0), first.batch, ItemId(1));
    let next = scheduler.next_wake().expect("the replica is offered another item after a pause");
    let again = launched(&mut scheduler, next).pop().expect("the pause is over");
    let ended = scheduler.item_ended(again.batch, ItemId(1)).expect("it ends once");
    assert_eq!(ended.payload.returns, 1);
}

#[test]
fn after_a_crash_each_item_has_the_replica_for_itself_in_turns_with_the_others() {
    let mut scheduler = scheduler(4, None, 1);
    (1..=2).for_each(|id| assert!(scheduler.submit(Time(0), item(id, 1)).is_ok()));
    assert_eq!(joined(&mut scheduler, Time(0)), [(0, vec![1, 2])]);
    scheduler.replica_lost(Time(0), ReplicaId(0), Loss::Crashed);
    (3..=4).for_each(|id| assert!(scheduler.submit(Time(0), item(id, 1)).is_ok()));
    scheduler.replica_up(Time(0), ReplicaId(1), ReplicaClass::default());
    for expected in [vec![1], vec![3, 4], vec![2]] {
        let launches = launched(&mut scheduler, Time(0));
        let [launch] = &launches[..] else { panic!("{launches:?}") };
        assert_eq!(launch.items, expected.iter().map(|&id| ItemId(id)).collect::<Vec<_>>());
        launch.items.iter().for_each(|&id| assert!(scheduler.item_ended(launch.batch, id).is_some()));
    }
    assert!(scheduler.submit(Time(0), item(5, 1)).is_ok());
    assert_eq!(joined(&mut scheduler, Time(0)), [(1, vec![5])]);
}

#[test]
fn what_was_learned_is_explained() {
    let mut scheduler = scheduler(4, None, 1);
    for id in 0..12 {
        assert!(scheduler.submit(Time(0), item(id, 1)).is_ok());
        let launch = launched(&mut scheduler, Time(0)).pop().expect("it is alone");
        let (took, join_took) = (Duration::from_millis(10), Duration::from_millis(3));
        let step = Step { active: 1, joined: 1, took, join_took, ..Step::default() };
        (0..5).for_each(|_| scheduler.stepped(Time(0), ReplicaId(0), step));
        assert!(scheduler.item_ended(launch.batch, ItemId(id)).is_some());
    }
    let explanation = scheduler.explain(Time(0));
    let steps = explanation.steps.expect("the model works in steps");
    assert_eq!((steps.join_ms, steps.steps_per_item, explanation.sizes[0].ms), (3.0, Some(5.0), 10.0));
    assert_eq!(explanation.predicted_latency_ms, Some(13.0), "it would join at once, and make a step");
}

#[test]
fn items_that_run_side_by_side_are_learned_one_by_one_and_a_worker_that_reports_does_not_hang() {
    let options =
        DeploymentOptions { max_batch_size: 2, concurrent: true, batched: false, ..DeploymentOptions::for_test() };
    let timeout = Duration::from_secs_f64(options.batch_timeout_s);
    let mut scheduler: Scheduler<Input> = Scheduler::new(Rules::new(&options).expect("the options are valid"));
    scheduler.replica_up(Time(0), ReplicaId(0), ReplicaClass::default());
    let no_deadline = |id| NewItem { timeout: Some(timeout * 100), ..item(id, 1) };
    (0..3).for_each(|id| assert!(scheduler.submit(Time(0), no_deadline(id)).is_ok()));
    let long = launched(&mut scheduler, Time(0)).pop().expect("two have room");
    assert_eq!(long.items, [ItemId(0), ItemId(1)]);
    let mut now = Time(0) + Duration::from_millis(20);
    let mut ends = (long.batch, ItemId(1));
    for next in 3..12 {
        scheduler.stepped(now, ReplicaId(0), Step::default());
        assert!(scheduler.item_ended(ends.0, ends.1).is_some());
        let launch = launched(&mut scheduler, now).pop().expect("the next one joins while the first goes on");
        assert!(scheduler.submit(now, no_deadline(next)).is_ok());
        ends = (launch.batch, launch.items[0]);
        now = now + Duration::from_millis(20);
    }
    let explanation = scheduler.explain(now);
    let stays = explanation.side_by_side.expect("items run side by side");
    assert_eq!((stays.item_ms, stays.active_items, explanation.steps.is_none()), (Some(20.0), 2, true));
    assert_eq!(explanation.predicted_latency_ms, Some(40.0), "one waits before it: two places in 20 ms, and 20 ms");

    for _ in 0..3 {
        now = now + timeout.mul_f64(0.9);
        scheduler.stepped(now, ReplicaId(0), Step::default());
        assert!(scheduler.poll(now).is_none(), "its event loop runs");
    }
    assert!(matches!(scheduler.poll(now + timeout), Some(Action::Kill(ReplicaId(0)))));
}

#[test]
fn only_an_item_that_was_alone_in_its_replica_when_that_hung_does_not_run_again() {
    for items in 1..=2 {
        let mut scheduler = scheduler(4, None, 1);
        let timeout = Duration::from_secs_f64(DeploymentOptions::for_test().batch_timeout_s);
        for id in 1..=items {
            assert!(scheduler.submit(Time(0), NewItem { timeout: Some(10 * timeout), ..item(id, 1) }).is_ok());
            launched(&mut scheduler, Time(0));
        }
        let hung = Time(0) + timeout;
        let failed = std::iter::from_fn(|| scheduler.poll(hung))
            .filter(|action| matches!(action, Action::Fail(ended, Outcome::WorkerLost) if ended.hung_alone));
        assert_eq!(failed.count(), usize::from(items == 1), "{items} items");
        scheduler.replica_lost(hung, ReplicaId(0), Loss::Crashed);
        assert_eq!(scheduler.queued_items(), if items == 1 { 0 } else { 2 });
    }
}
