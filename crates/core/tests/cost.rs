//! What the rules cost per item. Run with
//! `cargo test --release -p jitney-core --test cost -- --ignored --nocapture`.

use jitney_core::admission::QueueLimits;
use jitney_core::group_key::{GroupKey, KeyPart};
use jitney_core::lane::BatchLimits;
use jitney_core::request::{ItemId, Priority, ReplicaId};
use jitney_core::rules::{Rules, WhenToLaunch};
use jitney_core::scheduler::{Action, NewItem, Payload, Scheduler};
use jitney_core::time::Time;
use std::collections::VecDeque;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const MAX_ITEMS: usize = 32;

struct Input(u64);

impl Payload for Input {
    fn fingerprint(&self) -> u64 {
        self.0
    }
}

/// What this thread has computed; other processes do not count, as they would by a clock.
fn processor_time() -> Duration {
    #[allow(clippy::disallowed_methods, reason = "the test measures; the rules do not")]
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0))
}

/// Nanoseconds per item from `submit` to its answer, with about `waiting` items in `lanes` lanes at any time.
fn measure(lanes: u64, replicas: u32, waiting: usize, total: u64) -> f64 {
    let mut scheduler = Scheduler::new(Rules {
        batch: BatchLimits { max_items: MAX_ITEMS, max_cost: u64::MAX },
        queue: QueueLimits { max_items: 1 << 20, max_bytes: u64::MAX },
        boost: Duration::from_secs(1),
        request_timeout: MINUTE,
        batch_timeout: MINUTE,
        retry: true,
        launch: WhenToLaunch::DRAIN,
        target: None,
    });
    (0..replicas).for_each(|id| scheduler.replica_up(Time(0), ReplicaId(id)));
    let (mut running, mut now, mut next) = (VecDeque::new(), Time(0), 0u64);
    let began = processor_time();
    while next < total || !scheduler.is_empty() {
        while next < total && scheduler.queued_items() <= waiting {
            now = Time(now.0 + 1000);
            let item = NewItem {
                id: ItemId(next),
                group: GroupKey([KeyPart::Int((next % lanes).cast_signed())].into_iter().collect()),
                cost: 1,
                bytes: 100,
                priority: Priority::Normal,
                timeout: None,
                payload: Input(next),
            };
            assert!(scheduler.submit(now, item).is_ok(), "nothing is refused here");
            next += 1;
            while let Some(action) = scheduler.poll(now) {
                let Action::Launch(launch) = action else { panic!("only launches are due here") };
                running.push_back(launch);
            }
        }
        let launch = running.pop_front().expect("something runs");
        scheduler.batch_started(launch.batch);
        for id in launch.items {
            assert!(scheduler.item_done(launch.batch, id).is_some());
        }
        // Not clean: a known pace would refuse what this queue is meant to hold.
        scheduler.batch_done(now, launch.replica, launch.batch, false);
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
    for (lanes, replicas, waiting) in
        [(1, 1, 0), (1, 1, 200), (1000, 1, 3000), (1000, 1, 64_000), (1, 8, 500), (1, 1000, 40_000)]
    {
        let best = (0..3).map(|_| measure(lanes, replicas, waiting, 300_000)).fold(f64::MAX, f64::min);
        eprintln!("{lanes} lanes, {replicas} replicas, {waiting} waiting: {best:.0} ns per item");
    }
}

#[test]
fn the_measured_loop_answers_everything() {
    assert!(measure(3, 2, 100, 2000) >= 0.0);
}
