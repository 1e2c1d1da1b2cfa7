//! Admission: what it predicts, and how it answers refused requests.

use crate::world::Input;
use jitney_core::config::limits::BatchLimits;
use jitney_core::config::limits::QueueLimits;
use jitney_core::config::rules::{PolicyChoice, Rules};
use jitney_core::learn::size_model::SizeModel;
use jitney_core::queue::group_key::{GroupKey, KeyPart};
use jitney_core::request::{ItemId, Priority, ReplicaClass, ReplicaId};
use jitney_core::scheduler::admission::bounds::{Allowed, QueueState, admit, predicted_wait};
use jitney_core::scheduler::item::{NewItem, RequestTerms};
use jitney_core::scheduler::state::Scheduler;
use jitney_core::tables::outcome::Outcome;
use jitney_core::time::Time;
use proptest::prelude::*;
use std::time::Duration;

fn size_models() -> impl Strategy<Value = SizeModel> {
    let batch = (1usize..64, 0u64..3_000_000_000).prop_map(|(items, ns)| (items, Duration::from_nanos(ns)));
    prop::collection::vec(batch, 0..30).prop_map(|batches| {
        let mut size_model = SizeModel::default();
        for (items, length) in batches {
            size_model.learn(items, length);
        }
        size_model
    })
}

fn rules() -> Rules {
    Rules {
        batch: BatchLimits { max_items: 4, max_cost: 20 },
        queue: QueueLimits { max_items: 5000, max_bytes: u64::MAX },
        boost: Duration::ZERO,
        request_timeout: Duration::from_secs(3600),
        stream_timeout: Duration::from_secs(3600),
        batch_timeout: Duration::from_secs(3600),
        retry: true,
        joins: false,
        side_by_side: false,
        policy: PolicyChoice::Eager,
        target: None,
        max_wait: None,
    }
}

fn item(id: u64, group: u64, cost: u64) -> NewItem<Input> {
    NewItem {
        id: ItemId(id),
        group: GroupKey([KeyPart::Int(group.cast_signed())].into_iter().collect()),
        cost,
        bytes: 1,
        priority: Priority::Normal,
        timeout: None,
        payload: Input { id, fingerprint: id },
    }
}

proptest! {
    #![proptest_config(crate::cases(128))]

    #[test]
    fn a_longer_queue_never_predicts_a_shorter_wait(
        size_model in size_models(), max_batch_size in 1usize..64, replicas in 1u32..8, idle in any::<bool>(), alone in 0usize..40,
    ) {
        let wait = |ahead, is_empty| {
            let queue = QueueState { items: 0, bytes: 0, ahead, suspects: alone, is_empty, max_batch_size, replicas, idle, allowed: Allowed::Batches, size_model: &size_model, weight: 1.0 };
            predicted_wait(&queue)
        };
        let waits: Vec<_> = std::iter::once(wait(0, true)).chain((0..50).map(|ahead| wait(ahead, false))).collect();
        prop_assert!(waits.windows(2).all(|pair| pair[0] <= pair[1]), "{:?}", waits);
        prop_assert_eq!(waits[0].is_some(), size_model.is_known());
    }

    #[test]
    fn each_item_that_enters_makes_the_predicted_wait_no_shorter(
        arrivals in prop::collection::vec((0u64..4, 0u64..40), 1..60),
    ) {
        let mut scheduler = Scheduler::new(rules());
        scheduler.replica_up(Time(0), ReplicaId(1), ReplicaClass::default());
        for n in 0..4 {
            let id = 1_000_000 + n;
            prop_assert!(scheduler.submit(Time(0), item(id, 0, 1)).is_ok());
            let Some(jitney_core::scheduler::action::Action::Launch(launch)) = scheduler.poll(Time(0)) else { panic!("idle") };
            if n < 3 {
                scheduler.item_ended(launch.batch, ItemId(id));
                scheduler.batch_ended(Time(0) + Duration::from_millis(1), launch.replica, launch.batch, true);
            }
        }
        let mut last = scheduler.predicted_wait(Time(0));
        prop_assert!(last.is_some());
        for (id, (group, cost)) in arrivals.into_iter().enumerate() {
            prop_assert!(scheduler.submit(Time(0), item(id as u64, group, cost)).is_ok());
            let wait = scheduler.predicted_wait(Time(0));
            prop_assert!(wait >= last, "{:?} after {:?}", wait, last);
            last = wait;
        }
    }

    #[test]
    fn a_refusal_says_when_to_come_back_in_whole_seconds_from_1_to_30(
        size_model in size_models(), items in 0usize..2000, bytes in 0u64..2000, replicas in 1u32..8,
        timeouts in (0u64..100_000, 0u64..100_000),
    ) {
        let limits = QueueLimits { max_items: 1000, max_bytes: 1000 };
        let (ahead, is_empty) = (items / 8, items == 0);
        let queue =
            QueueState { items, bytes, ahead, suspects: 0, is_empty, max_batch_size: 8, replicas, idle: false, allowed: Allowed::Batches, size_model: &size_model, weight: 1.0 };
        let (timeout, remaining) = (Duration::from_millis(timeouts.0), Duration::from_millis(timeouts.1));
        if let Err(refusal) = admit(&queue, limits, 10, timeout, remaining) {
            let expected = refusal.outcome == Outcome::DeadlineUnreachable;
            prop_assert_eq!(refusal.retry_after.is_none(), expected);
            if let Some(after) = refusal.retry_after {
                prop_assert!((1..=30).contains(&after.as_secs()) && after.subsec_nanos() == 0, "{:?}", after);
            }
        }
    }
}

#[test]
fn a_thousand_and_twenty_four_lanes_may_live_and_an_emptied_one_makes_room() {
    let mut scheduler = Scheduler::new(rules());
    scheduler.replica_up(Time(0), ReplicaId(1), ReplicaClass::default());
    for n in 0..1024 {
        assert!(scheduler.submit(Time(0), item(n, n, 1)).is_ok());
    }
    let refused = |scheduler: &mut Scheduler<Input>, id, group| {
        scheduler.submit(Time(0), item(id, group, 1)).err().map(|(_, refusal)| refusal.outcome)
    };
    assert_eq!(refused(&mut scheduler, 2000, 2000), Some(Outcome::TooManyLanes));
    assert_eq!(refused(&mut scheduler, 2001, 5), None, "a lane that lives takes more");
    assert!(scheduler.cancel(ItemId(7)).is_some());
    assert_eq!(refused(&mut scheduler, 2002, 2000), None);
}

/// The next batch, which ends after so long.
fn run(scheduler: &mut Scheduler<Input>, now: &mut Time, length: Duration) {
    let Some(jitney_core::scheduler::action::Action::Launch(launch)) = scheduler.poll(*now) else {
        panic!("nothing left")
    };
    *now = *now + length;
    for id in launch.items {
        scheduler.item_ended(launch.batch, id);
    }
    scheduler.batch_ended(*now, launch.replica, launch.batch, true);
}

#[test]
fn a_slow_start_does_not_shut_the_door_of_a_latency_target_for_ever() {
    let mut scheduler = Scheduler::new(Rules { target: Some(Duration::from_millis(50)), ..rules() });
    scheduler.replica_up(Time(0), ReplicaId(1), ReplicaClass::default());
    let mut now = Time(0);
    for id in 0..3 {
        assert!(scheduler.submit(now, item(id, 0, 1)).is_ok());
        run(&mut scheduler, &mut now, Duration::from_secs(2));
    }
    // It takes 2 s, as far as is known: a request behind another is refused, and one that is first shows what it takes.
    for id in 3..103 {
        now = now + Duration::from_secs(1);
        assert!(scheduler.submit(now, item(id, 0, 1)).is_ok(), "item {id}");
        if id == 3 {
            let refused = scheduler.submit(now, item(1000, 0, 1)).err().map(|(_, refusal)| refusal.outcome);
            assert_eq!(refused, Some(Outcome::WouldBeLate));
        }
        run(&mut scheduler, &mut now, Duration::from_millis(5));
    }
    for id in 200..204 {
        assert!(scheduler.submit(now, item(id, 0, 1)).is_ok(), "what it takes has been seen");
    }
}

/// Holds whatever waits until it has been held for a second.
#[derive(Debug, Default)]
struct Patient(Option<Time>);

impl jitney_core::policy::batch_policy::BatchPolicy for Patient {
    fn decide(
        &mut self,
        view: &jitney_core::policy::batch_policy::View,
    ) -> jitney_core::policy::batch_policy::Decision {
        use jitney_core::policy::batch_policy::{CloseReason, Decision};
        let until = *self.0.get_or_insert(view.now) + Duration::from_secs(1);
        let lane = view.lanes.by_rank().next().expect("something waits");
        if view.now < until {
            return Decision::AskAgain(until);
        }
        Decision::Launch { lane, size: 1, reason: CloseReason::Delay }
    }

    fn on_end(&mut self) {
        self.0 = None;
    }
}

#[test]
fn who_was_held_and_went_away_does_not_count_for_who_comes_next() {
    use jitney_core::scheduler::action::Action;
    let mut scheduler = Scheduler::with_policy(rules(), Box::new(Patient::default()));
    let at = |seconds| Time(0) + Duration::from_secs(seconds);
    scheduler.replica_up(at(0), ReplicaId(1), ReplicaClass::default());
    assert!(scheduler.submit(at(0), item(1, 0, 1)).is_ok());
    assert!(scheduler.poll(at(0)).is_none());
    assert!(scheduler.cancel(ItemId(1)).is_some());
    assert!(scheduler.poll(at(0)).is_none());
    assert!(scheduler.submit(at(3600), item(2, 0, 1)).is_ok());
    assert!(scheduler.poll(at(3600)).is_none(), "it is held as long as others");
    let Some(Action::Launch(launch)) = scheduler.poll(at(3601)) else { panic!("held for too long") };
    assert_eq!(launch.held, Duration::from_secs(1));
}

#[test]
fn what_was_not_computed_does_not_count_as_part_of_its_batch() {
    use jitney_core::scheduler::action::Action;
    let mut scheduler = Scheduler::new(rules());
    let mut now = Time(0);
    scheduler.replica_up(now, ReplicaId(1), ReplicaClass::default());
    for round in 0..10 {
        (0..4).for_each(|n| assert!(scheduler.submit(now, item(4 * round + n, 0, 1)).is_ok()));
        let Some(Action::Launch(launch)) = scheduler.poll(now) else { panic!("nothing left") };
        now = now + Duration::from_millis(10);
        launch.items.iter().for_each(|&id| _ = scheduler.item_ended(launch.batch, id));
        scheduler.computed(launch.batch, 1);
        scheduler.batch_ended(now, launch.replica, launch.batch, true);
    }
    let sizes: Vec<f64> = scheduler.explain(now).sizes.iter().map(|size| size.items).collect();
    assert_eq!(sizes, [1.0], "three of four were refused each time");
}

#[test]
fn a_batch_that_waits_at_its_replica_is_waited_for_too() {
    let mut scheduler = Scheduler::new(rules());
    scheduler.replica_up(Time(0), ReplicaId(1), ReplicaClass::default());
    let mut now = Time(0);
    for batch in 0..4 {
        (0..4).for_each(|n| assert!(scheduler.submit(now, item(4 * batch + n, 0, 1)).is_ok()));
        run(&mut scheduler, &mut now, Duration::from_secs(1));
    }
    let waits = [10, 11, 12].map(|batch| {
        (0..4).for_each(|n| assert!(scheduler.submit(now, item(4 * batch + n, 0, 1)).is_ok()));
        while scheduler.poll(now).is_some() {}
        scheduler.predicted_wait(now)
    });
    // One runs, one was sent ahead, one is in the queue: where a batch waits makes no difference to later requests.
    assert_eq!(waits, [0.5, 1.5, 2.5].map(|seconds| Some(Duration::from_secs_f64(seconds))));
}

#[test]
fn where_cost_closes_batches_waits_are_those_of_such_batches() {
    let batch = BatchLimits { max_items: 32, max_cost: 400 };
    let mut scheduler = Scheduler::new(Rules { batch, ..rules() });
    scheduler.replica_up(Time(0), ReplicaId(1), ReplicaClass::default());
    let (mut now, mut next) = (Time(0), 0);
    let length = |items: u64| Duration::from_millis(10 + 60 * items);
    for items in [1, 2, 3, 4, 1, 2, 3, 4, 4] {
        (0..items).for_each(|n| assert!(scheduler.submit(now, item(next + n, 0, 100)).is_ok()));
        next += items;
        run(&mut scheduler, &mut now, length(items));
    }
    // One batch of four runs, one was sent ahead, two are in the queue.
    (next..next + 16).for_each(|id| assert!(scheduler.submit(now, item(id, 0, 100)).is_ok()));
    while scheduler.poll(now).is_some() {}
    let predicted = scheduler.predicted_wait(now).expect("batches were measured").as_secs_f64();
    let ratio = predicted / (3.5 * length(4).as_secs_f64());
    assert!((0.8..1.3).contains(&ratio), "predicted / actual wait {ratio:.2}");
    // It has the time for six such batches, and would not for two of 32.
    let hurried = NewItem { timeout: Some(Duration::from_millis(1500)), ..item(1000, 0, 100) };
    assert!(scheduler.submit(now, hurried).is_ok());
}

#[test]
fn a_queue_that_is_full_of_bytes_is_not_taken_for_a_long_wait() {
    let queue = QueueLimits { max_items: 5000, max_bytes: 1000 };
    let mut scheduler = Scheduler::new(Rules { queue, ..rules() });
    scheduler.replica_up(Time(0), ReplicaId(1), ReplicaClass::default());
    let mut now = Time(0);
    for batch in 0..4 {
        (0..4).for_each(|n| assert!(scheduler.submit(now, item(4 * batch + n, 0, 1)).is_ok()));
        run(&mut scheduler, &mut now, Duration::from_secs(1));
    }
    let told = |scheduler: &mut Scheduler<Input>, id, bytes| {
        let item = NewItem { bytes, ..item(id, 0, 1) };
        scheduler.submit(now, item).err().map(|(_, refusal)| refusal.outcome)
    };
    // Six batches wait, of the ten that may.
    (100..124).for_each(|id| assert_eq!(told(&mut scheduler, id, 1), None));
    assert_eq!(told(&mut scheduler, 200, 5000), Some(Outcome::QueueBytesFull));
    assert_eq!(told(&mut scheduler, 201, 1), None);
    let refused = (300..400).find_map(|id| told(&mut scheduler, id, 1));
    assert_eq!(refused, Some(Outcome::WaitTooLong));
    assert_eq!(told(&mut scheduler, 500, 1), Some(Outcome::WaitTooLong));
}

/// A scheduler that has run four full batches of a second each.
fn measured(rules: Rules) -> (Scheduler<Input>, Time) {
    let (mut scheduler, mut now) = (Scheduler::new(rules), Time(0));
    scheduler.replica_up(now, ReplicaId(1), ReplicaClass::default());
    for batch in 0..4 {
        (0..4).for_each(|n| assert!(scheduler.submit(now, item(4 * batch + n, 0, 1)).is_ok()));
        run(&mut scheduler, &mut now, Duration::from_secs(1));
    }
    (scheduler, now)
}

#[test]
fn a_later_piece_of_a_request_that_finds_no_room_is_no_sign_of_overload() {
    let (mut scheduler, now) = measured(rules());
    let group = item(0, 0, 1).group;
    let piece = RequestTerms {
        group: &group,
        priority: Priority::Normal,
        cost: 1,
        bytes: 4,
        timeout: None,
        continues: true,
        asked: false,
    };
    (100..144).for_each(|id| assert!(scheduler.enter(now, item(id, 0, 1)).is_ok()));
    let told = scheduler.admit(now, &piece).map_err(|refusal| refusal.outcome);
    assert_eq!(told, Err(Outcome::WaitTooLong), "eleven batches wait");
    (100..112).for_each(|id| assert!(scheduler.cancel(ItemId(id)).is_some()));
    // Eight are left of the ten that may wait; under overload it would be two and a half.
    assert!(scheduler.submit(now, item(200, 0, 1)).is_ok());
}

#[test]
fn overload_of_a_class_is_none_of_those_before_it() {
    for (refused, others) in [(Priority::Low, [true, true, false]), (Priority::Normal, [true, false, false])] {
        for (class, is_let_in) in Priority::ALL.into_iter().zip(others) {
            let (mut scheduler, now) = measured(Rules { boost: Duration::from_secs(60), ..rules() });
            let mut submit = |id, priority| scheduler.submit(now, NewItem { priority, ..item(id, 0, 1) }).is_ok();
            let first = (100..200).find(|&id| !submit(id, refused)).expect("ten batches are enough");
            // Of the ten batches that its class may wait for five are left.
            (100..first - 20).for_each(|id| assert!(scheduler.cancel(ItemId(id)).is_some()));
            let mut submit = |id, priority| scheduler.submit(now, NewItem { priority, ..item(id, 0, 1) }).is_ok();
            let before = (1000..1020).filter(|&id| submit(id, class)).count();
            assert_eq!(before == 20, is_let_in, "{refused:?} was refused, then {before} of 20 {class:?} were admitted");
        }
    }
}

#[test]
fn suspects_and_lanes_take_turns_and_newcomers_are_told() {
    use jitney_core::policy::batch_policy::CloseReason;
    use jitney_core::replicas::loss_history::Loss;
    use jitney_core::scheduler::action::Action;
    let (mut scheduler, mut now) = measured(rules());
    (100..104).for_each(|id| assert!(scheduler.submit(now, item(id, 0, 1)).is_ok()));
    while scheduler.poll(now).is_some() {}
    scheduler.replica_lost(now, ReplicaId(1), Loss::Killed);
    scheduler.replica_up(now, ReplicaId(2), ReplicaClass::default());
    let mut launched = vec![];
    let mut waits = vec![];
    loop {
        while let Some(action) = scheduler.poll(now) {
            let Action::Launch(launch) = action else { panic!("{action:?}") };
            launched.push(launch);
        }
        waits.push(scheduler.predicted_wait(now).expect("batches were measured").as_millis());
        if launched.len() == 1 {
            (200..208).for_each(|id| assert!(scheduler.submit(now, item(id, 0, 1)).is_ok()));
        }
        let Some(launch) = launched.last().filter(|_| !scheduler.is_empty()) else { break };
        now = now + Duration::from_secs(1);
        launch.items.iter().for_each(|&id| _ = scheduler.item_ended(launch.batch, id));
        scheduler.batch_ended(now, launch.replica, launch.batch, true);
    }
    let is_trial: Vec<bool> = launched.iter().map(|launch| launch.reason == CloseReason::Suspect).collect();
    assert_eq!(is_trial, [true, false, true, false, true, true]);
    assert_eq!(waits[0], 500 + 1000, "the rest of what runs, and the next suspect");
    assert_eq!(waits[1], 500 + 1000 + 2000, "what runs, another batch, and two suspects before and after it");
}

/// Two classes apart, so two head starts of `rules` are what the later one may make up for.
#[test]
fn whoever_ranks_before_those_that_wait_is_not_refused_for_them() {
    let mut scheduler = Scheduler::new(Rules { boost: Duration::from_secs(60), ..rules() });
    scheduler.replica_up(Time(0), ReplicaId(1), ReplicaClass::default());
    let mut now = Time(0);
    for batch in 0..4 {
        (0..4).for_each(|n| assert!(scheduler.submit(now, item(4 * batch + n, 0, 1)).is_ok()));
        run(&mut scheduler, &mut now, Duration::from_secs(1));
    }
    let of = |id, group, priority| NewItem { priority, ..item(id, group, 1) };
    let mut refused = None;
    for id in 100..300 {
        refused = refused.or(scheduler.submit(now, of(id, id % 2, Priority::Low)).err().map(|(_, refusal)| refusal));
    }
    assert_eq!(refused.map(|refusal| refusal.outcome), Some(Outcome::WaitTooLong), "the low ones fill what they may");
    for (id, group) in [(1000, 0), (1001, 1), (1002, 2)] {
        assert!(scheduler.submit(now, of(id, group, Priority::High)).is_ok(), "group {group}");
    }
    let late = now + Duration::from_secs(130);
    let refusal = scheduler.submit(late, of(1003, 0, Priority::High)).map_err(|(_, refusal)| refusal.outcome);
    assert_eq!(refusal, Err(Outcome::WaitTooLong), "those that have waited for two head starts go first");
}
