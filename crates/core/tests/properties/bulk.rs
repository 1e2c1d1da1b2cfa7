//! Batches whose bytes take longer to move than to compute.

use crate::world::Input;
use jitney_core::admission::QueueLimits;
use jitney_core::group_key::GroupKey;
use jitney_core::lane::BatchLimits;
use jitney_core::policy::CloseReason;
use jitney_core::request::{ItemId, Priority, ReplicaId};
use jitney_core::rules::{Rules, WhenToLaunch};
use jitney_core::scheduler::{Action, Launch, NewItem, Scheduler};
use jitney_core::time::Time;
use std::time::Duration;

const MEGABYTE: u64 = 1_000_000;
const MS: Duration = Duration::from_millis(1);

fn item(id: u64) -> NewItem<Input> {
    NewItem {
        id: ItemId(id),
        group: GroupKey::default(),
        cost: 1,
        bytes: MEGABYTE,
        priority: Priority::Normal,
        timeout: None,
        payload: Input { id, fingerprint: id },
    }
}

/// Thirty batches of a megabyte there and one back for each item, with so much to compute for each batch; 64 items wait
/// always. Those that left last, with the number that were under way beside each.
fn last_batches(
    launch: WhenToLaunch,
    target: Option<Duration>,
    computing: Duration,
) -> Vec<(usize, CloseReason, usize)> {
    let mut scheduler = Scheduler::new(Rules {
        batch: BatchLimits { max_items: 64, max_cost: u64::MAX },
        queue: QueueLimits { max_items: 5000, max_bytes: u64::MAX },
        boost: Duration::ZERO,
        request_timeout: Duration::from_secs(3600),
        batch_timeout: Duration::from_secs(3600),
        retry: true,
        launch,
        target,
        max_wait: target.is_none().then_some(Duration::from_secs(3600)),
    });
    let (mut now, mut next, mut left) = (Time(0), 0, vec![]);
    scheduler.replica_up(now, ReplicaId(1));
    let mut under_way: Vec<Launch> = vec![];
    for _ in 0..30 {
        while scheduler.queued_items() < 64 {
            assert!(scheduler.submit(now, item(next)).is_ok());
            next += 1;
        }
        while let Some(Action::Launch(launch)) = scheduler.poll(now) {
            left.push((launch.items.len(), launch.reason, under_way.len()));
            under_way.push(launch);
        }
        let done = under_way.remove(0);
        now = now + computing + MS * done.items.len() as u32;
        scheduler.moved(done.batch, done.items.len() as u64 * MEGABYTE, computing);
        done.items.iter().for_each(|&id| _ = scheduler.item_done(done.batch, id));
        scheduler.batch_done(now, done.replica, done.batch, true);
    }
    left.split_off(left.len() - 5)
}

#[test]
fn a_part_of_what_waits_goes_ahead_if_its_bytes_are_all_that_takes_time() {
    assert_eq!(last_batches(WhenToLaunch::Auto, None, MS / 20), [(4, CloseReason::Bulk, 1); 5]);
}

#[test]
fn a_batch_that_takes_long_to_compute_is_as_large_as_it_may_be() {
    let sizes = last_batches(WhenToLaunch::Auto, None, 20 * MS).into_iter().map(|(size, reason, _)| (size, reason));
    assert_eq!(sizes.collect::<Vec<_>>(), [(64, CloseReason::Full); 5]);
}

#[test]
fn who_names_when_batches_leave_is_not_overruled() {
    for launch in [WhenToLaunch::DRAIN, WhenToLaunch::Fixed(MS)] {
        let sizes = last_batches(launch, None, MS / 20).into_iter().map(|(size, reason, _)| (size, reason));
        assert_eq!(sizes.collect::<Vec<_>>(), [(64, CloseReason::Full); 5]);
    }
}

#[test]
fn with_a_target_batches_are_what_is_in_time() {
    let left = last_batches(WhenToLaunch::Auto, Some(Duration::from_secs(60)), MS / 20);
    assert!(left.iter().all(|(_, reason, _)| *reason != CloseReason::Bulk), "{left:?}");
}
