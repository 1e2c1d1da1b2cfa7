//! What a draining server lets in, and what an item costs that leaves while a worker has it.

use jitney_core::config::limits::{BatchLimits, QueueLimits};
use jitney_core::config::rules::{PolicyChoice, Rules};
use jitney_core::queue::group_key::GroupKey;
use jitney_core::replicas::loss_history::Loss;
use jitney_core::request::{BatchId, ItemId, Priority, ReplicaClass, ReplicaId};
use jitney_core::scheduler::action::{Action, Launch};
use jitney_core::scheduler::item::{NewItem, Payload};
use jitney_core::scheduler::state::Scheduler;
use jitney_core::tables::outcome::Outcome;
use jitney_core::time::Time;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// Counts how often its bytes were read.
#[derive(Clone, Debug, Default)]
struct Input(Rc<Cell<usize>>);

impl Payload for Input {
    type Input = Input;

    fn input(&self) -> &Input {
        self
    }

    fn fingerprint(input: &Input) -> u64 {
        input.0.set(input.0.get() + 1);
        0
    }
}

fn scheduler() -> Scheduler<Input> {
    let mut scheduler = Scheduler::new(Rules {
        batch: BatchLimits { max_items: 4, max_cost: u64::MAX },
        queue: QueueLimits { max_items: 100, max_bytes: u64::MAX },
        boost: Duration::ZERO,
        request_timeout: MINUTE,
        stream_timeout: 10 * MINUTE,
        batch_timeout: 10 * MINUTE,
        retry: true,
        joins: false,
        side_by_side: false,
        policy: PolicyChoice::Eager,
        target: None,
        max_wait: None,
    });
    scheduler.replica_up(Time(0), ReplicaId(1), ReplicaClass::default());
    scheduler
}

fn new_item(id: u64, payload: &Input) -> NewItem<Input> {
    NewItem {
        id: ItemId(id),
        group: GroupKey::default(),
        cost: 1,
        bytes: 1,
        priority: Priority::Normal,
        timeout: None,
        payload: payload.clone(),
    }
}

fn submit(scheduler: &mut Scheduler<Input>, id: u64, payload: &Input) -> Option<Outcome> {
    scheduler.submit(Time(0), new_item(id, payload)).err().map(|(_, refusal)| refusal.outcome)
}

fn launched(scheduler: &mut Scheduler<Input>) -> Launch {
    match scheduler.poll(Time(0)) {
        Some(Action::Launch(launch)) => launch,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_that_drains_lets_nothing_in_again_whatever_its_workers_do() {
    let (mut scheduler, input) = (scheduler(), Input::default());
    assert_eq!(submit(&mut scheduler, 1, &input), None);
    scheduler.drain();
    assert_eq!(submit(&mut scheduler, 2, &input), Some(Outcome::Draining));
    scheduler.crash_looping();
    assert_eq!(submit(&mut scheduler, 3, &input), Some(Outcome::Draining));
    scheduler.replica_up(Time(0), ReplicaId(2), ReplicaClass::default());
    assert_eq!(submit(&mut scheduler, 4, &input), Some(Outcome::Draining));
}

#[test]
fn an_input_is_read_only_when_a_worker_is_really_lost() {
    let (mut scheduler, input) = (scheduler(), Input::default());
    (1..=4).for_each(|id| assert_eq!(submit(&mut scheduler, id, &input), None));
    let launch = launched(&mut scheduler);
    assert!(scheduler.cancel(ItemId(1)).is_some());
    while let Some(action) = scheduler.poll(Time(0) + MINUTE) {
        assert!(matches!(action, Action::Fail(_, Outcome::DeadlineExceeded) | Action::Forget(..)), "{action:?}");
    }
    assert!(scheduler.is_empty(), "all have left while the worker has them");
    assert_eq!(input.0.get(), 0);
    let mut healthy = scheduler;
    healthy.batch_ended(Time(0) + MINUTE, launch.replica, launch.batch, true);
    assert_eq!(input.0.get(), 0, "the worker lives on");
    (11..=12).for_each(|id| assert_eq!(submit(&mut healthy, id, &input), None));
    launched(&mut healthy);
    assert!(healthy.cancel(ItemId(11)).is_some());
    healthy.replica_lost(Time(0), ReplicaId(1), Loss::Crashed);
    assert!(input.0.get() > 0, "the input may be why the worker died");
}

#[test]
fn an_item_whose_result_came_is_not_suspected_when_its_worker_dies() {
    let (mut scheduler, input) = (scheduler(), Input::default());
    (1..=2).for_each(|id| assert_eq!(submit(&mut scheduler, id, &input), None));
    let launch = launched(&mut scheduler);
    assert!(scheduler.cancel(ItemId(1)).is_some());
    assert!(scheduler.item_ended(launch.batch, ItemId(1)).is_none(), "no request waits for it");
    assert!(scheduler.item_ended(launch.batch, ItemId(2)).is_some());
    scheduler.replica_lost(Time(0), ReplicaId(1), Loss::Crashed);
    assert_eq!(input.0.get(), 0, "the worker was done with both");
}

#[test]
fn the_first_part_of_an_answer_moves_the_deadline_of_who_gave_no_time_out() {
    let (mut scheduler, input) = (scheduler(), Input::default());
    (1..=2).for_each(|id| assert_eq!(submit(&mut scheduler, id, &input), None));
    let own = Some(2 * MINUTE);
    let item = NewItem { id: ItemId(3), timeout: own, ..new_item(3, &input) };
    assert!(scheduler.submit(Time(0), item).is_ok());
    let batch = launched(&mut scheduler).batch;
    (1..=3).for_each(|id| scheduler.part_sent(Time(0), BatchId(batch.0 + 1), ItemId(id)));
    let left = |scheduler: &Scheduler<Input>, id| scheduler.payload(ItemId(id), Time(0)).map(|(_, left)| left);
    assert_eq!(
        [1, 2, 3].map(|id| left(&scheduler, id)),
        [Some(MINUTE), Some(MINUTE), own],
        "that batch holds none of them"
    );
    for id in [1, 3, 1, 4] {
        scheduler.part_sent(Time(0) + MINUTE / 2, batch, ItemId(id));
    }
    assert_eq!([1, 2, 3].map(|id| left(&scheduler, id)), [Some(10 * MINUTE), Some(MINUTE), own]);
    let mut expired = Vec::new();
    for minute in 1..=10 {
        while let Some(action) = scheduler.poll(Time(0) + minute * MINUTE) {
            if let Action::Fail(ended, Outcome::DeadlineExceeded) = action {
                expired.push((minute, ended.id.0));
            }
        }
    }
    assert_eq!(expired, [(1, 2), (2, 3), (10, 1)]);
}

#[test]
fn a_batch_that_sends_parts_does_not_hang_until_it_sends_no_more() {
    let (mut scheduler, input) = (scheduler(), Input::default());
    assert!(scheduler.submit(Time(0), NewItem { timeout: Some(1000 * MINUTE), ..new_item(1, &input) }).is_ok());
    let batch = launched(&mut scheduler).batch;
    for minute in 1..=50 {
        scheduler.part_sent(Time(0) + minute * MINUTE, batch, ItemId(1));
        assert!(scheduler.poll(Time(0) + minute * MINUTE).is_none(), "a part came a moment ago");
    }
    scheduler.excuse(5 * MINUTE);
    let hang = 65 * MINUTE;
    while let Some(wake) = scheduler.next_wake().filter(|&wake| wake < Time(0) + hang) {
        assert!(
            scheduler.poll(wake).is_none(),
            "ten minutes after the last part, without those in which this process stood"
        );
        assert!(scheduler.next_wake() > Some(wake), "it wakes once");
    }
    assert_eq!(scheduler.next_wake(), Some(Time(0) + hang));
    assert!(matches!(scheduler.poll(Time(0) + hang), Some(Action::Kill(ReplicaId(1)))));
}

/// What fails because the model hung on it alone.
fn failed_alone(scheduler: &mut Scheduler<Input>, at: Time) -> Vec<u64> {
    let actions = std::iter::from_fn(|| scheduler.poll(at));
    let failed = actions.filter_map(|action| match action {
        Action::Fail(ended, Outcome::WorkerLost) if ended.hung_alone => Some(ended.id.0),
        Action::Fail(..) | Action::Launch(_) => panic!("{action:?}"),
        Action::Forget(..) | Action::Kill(_) | Action::Slow(..) => None,
    });
    failed.collect()
}

#[test]
fn an_item_that_hangs_alone_runs_once_and_an_equal_one_runs_alone_later() {
    let (mut scheduler, input) = (scheduler(), Input::default());
    let patient = |id| NewItem { timeout: Some(1000 * MINUTE), ..new_item(id, &input) };
    assert!(scheduler.submit(Time(0), patient(1)).is_ok());
    launched(&mut scheduler);
    let hung = Time(0) + 10 * MINUTE;
    assert_eq!(failed_alone(&mut scheduler, hung), [1]);
    scheduler.replica_lost(hung, ReplicaId(1), Loss::Crashed);
    assert!(scheduler.is_empty());
    scheduler.replica_up(hung, ReplicaId(2), ReplicaClass::default());
    for id in [2, 3] {
        assert!(scheduler.submit(hung, patient(id)).is_ok(), "one hang may be this worker's own");
    }
    assert_eq!(launched(&mut scheduler).items, [ItemId(2)], "an equal input may hang too, so it runs alone");
}

#[test]
fn of_several_items_in_a_batch_that_hangs_each_runs_again_and_the_last_one_that_is_left_does_not() {
    for answered in 0..=2 {
        let (mut scheduler, input) = (scheduler(), Input::default());
        for id in 1..=3 {
            let item = NewItem { timeout: Some(1000 * MINUTE), ..new_item(id, &input) };
            assert!(scheduler.submit(Time(0), item).is_ok());
        }
        let batch = launched(&mut scheduler).batch;
        (1..=answered).for_each(|id| assert!(scheduler.item_ended(batch, ItemId(id)).is_some()));
        let hung = Time(0) + 10 * MINUTE;
        let failed: &[u64] = if answered == 2 { &[3] } else { &[] };
        assert_eq!(failed_alone(&mut scheduler, hung), failed, "{answered} of 3 were answered");
        scheduler.replica_lost(hung, ReplicaId(1), Loss::Crashed);
        assert_eq!(scheduler.queued_items() as u64, if answered == 2 { 0 } else { 3 - answered });
    }
}
