//! Batches whose bytes take longer to move than to compute.

use crate::world::Input;
use jitney_core::config::limits::BatchLimits;
use jitney_core::config::limits::QueueLimits;
use jitney_core::config::rules::{PolicyChoice, Rules};
use jitney_core::policy::batch_policy::CloseReason;
use jitney_core::queue::group_key::{GroupKey, KeyPart};
use jitney_core::request::{ItemId, Priority, ReplicaClass, ReplicaId};
use jitney_core::scheduler::action::{Action, Launch};
use jitney_core::scheduler::item::NewItem;
use jitney_core::scheduler::state::Scheduler;
use jitney_core::time::Time;
use std::time::Duration;

const MEGABYTE: u64 = 1_000_000;
const MS: Duration = Duration::from_millis(1);

/// What the items of a group are like: their bytes, there and again back, and what a batch takes to compute.
#[derive(Clone, Copy)]
struct Kind {
    bytes: u64,
    computing: Duration,
}

/// A batch that has left: of which group, how many, why, and how many others were in flight.
#[derive(Debug, PartialEq)]
struct Left(i64, usize, CloseReason, usize);

fn item(id: u64, group: i64, bytes: u64) -> NewItem<Input> {
    NewItem {
        id: ItemId(id),
        group: GroupKey([KeyPart::Int(group)].into_iter().collect()),
        cost: 1,
        bytes,
        priority: Priority::Normal,
        timeout: None,
        payload: Input { id, fingerprint: id },
    }
}

/// Items of these groups wait always, 64 of each. What left last of 60 batches.
fn last_batches(policy: PolicyChoice, replicas: u32, kinds: &[Kind]) -> Vec<Left> {
    run(policy, replicas, &[kinds]).0
}

/// The same of one phase after another, with the scheduler and the time as they then are.
fn run(policy: PolicyChoice, replicas: u32, phases: &[&[Kind]]) -> (Vec<Left>, Scheduler<Input>, Time) {
    let kinds = phases[0];
    let mut scheduler = Scheduler::new(Rules {
        batch: BatchLimits { max_items: 64, max_cost: u64::MAX },
        queue: QueueLimits { max_items: 5000, max_bytes: u64::MAX },
        boost: Duration::ZERO,
        request_timeout: Duration::from_secs(3600),
        stream_timeout: Duration::from_secs(3600),
        batch_timeout: Duration::from_secs(3600),
        retry: true,
        joins: false,
        side_by_side: false,
        policy,
        target: None,
        max_wait: Some(Duration::from_secs(3600)),
    });
    let (mut now, mut next, mut left) = (Time(0), 0, vec![]);
    (0..replicas).for_each(|id| scheduler.replica_up(now, ReplicaId(id), ReplicaClass::default()));
    let mut waiting = vec![0; kinds.len()];
    // By group, so that a batch is known by its first item.
    let group_of = |id: ItemId| (id.0 % kinds.len() as u64) as usize;
    let mut under_way: Vec<Launch> = vec![];
    for kinds in phases.iter().flat_map(|kinds| std::iter::repeat_n(kinds, 60)) {
        for (group, kind) in kinds.iter().enumerate() {
            for _ in waiting[group]..64 {
                let id = next * kinds.len() as u64 + group as u64;
                next += 1;
                assert!(scheduler.submit(now, item(id, group as i64, kind.bytes)).is_ok());
            }
            waiting[group] = 64;
        }
        while let Some(action) = scheduler.poll(now) {
            let Action::Launch(launch) = action else { panic!("{action:?}") };
            let group = group_of(launch.items[0]);
            waiting[group] -= launch.items.len();
            left.push(Left(group as i64, launch.items.len(), launch.reason, under_way.len()));
            under_way.push(launch);
        }
        let done = under_way.remove(0);
        let Kind { bytes, computing } = kinds[group_of(done.items[0])];
        let moved = done.items.len() as u64 * bytes;
        now = now + computing + Duration::from_nanos(moved);
        scheduler.moved(done.batch, moved, computing, computing);
        done.items.iter().for_each(|&id| _ = scheduler.item_ended(done.batch, id));
        scheduler.batch_ended(now, done.replica, done.batch, true);
    }
    (left.split_off(left.len() - 6), scheduler, now)
}

const MOVED: Kind = Kind { bytes: MEGABYTE, computing: Duration::from_micros(50) };
const COMPUTED: Kind = Kind { bytes: MEGABYTE, computing: Duration::from_millis(200) };

fn sizes(left: &[Left]) -> Vec<usize> {
    left.iter().map(|left| left.1).collect()
}

#[test]
fn a_part_of_what_waits_goes_ahead_if_its_bytes_are_all_that_takes_time() {
    let left = last_batches(PolicyChoice::Auto, 1, &[MOVED]);
    assert!(left.iter().all(|left| *left == Left(0, 4, CloseReason::Full, 1)), "{left:?}");
}

#[test]
fn a_batch_that_takes_long_to_compute_is_as_large_as_it_may_be() {
    assert_eq!(sizes(&last_batches(PolicyChoice::Auto, 1, &[COMPUTED])), [64; 6]);
}

#[test]
fn who_names_when_batches_leave_is_not_overruled() {
    for policy in [PolicyChoice::Eager, PolicyChoice::Fixed(MS)] {
        assert_eq!(sizes(&last_batches(policy, 1, &[MOVED])), [64; 6]);
    }
}

#[test]
fn the_bytes_of_one_group_close_no_batch_of_another() {
    let small = Kind { bytes: 200, computing: Duration::from_millis(5) };
    for left in last_batches(PolicyChoice::Auto, 1, &[MOVED, small]) {
        let Left(group, size, ..) = left;
        assert!(if group == 0 { size <= 4 } else { size > 32 }, "{left:?}");
    }
}

#[test]
fn each_replica_has_its_own() {
    let left = last_batches(PolicyChoice::Auto, 3, &[MOVED]);
    assert!(left.iter().all(|left| left.1 == 4 && left.3 == 5), "one that runs and one ahead of each: {left:?}");
}

#[test]
fn what_larger_batches_once_took_is_not_what_is_waited_for() {
    let (left, mut scheduler, now) = run(PolicyChoice::Auto, 1, &[&[COMPUTED], &[MOVED]]);
    assert_eq!(sizes(&left), [4; 6]);
    // Each of those that wait takes a millisecond.
    let mut is_let_in = |id, milliseconds: usize| {
        let timeout = Some(MS * milliseconds as u32);
        scheduler.submit(now, NewItem { timeout, ..item(id, 0, MEGABYTE) }).is_ok()
    };
    assert!(is_let_in(1 << 40, 100), "60 ms are to be waited for");
    assert!(!is_let_in(1 << 41, 40));
}
