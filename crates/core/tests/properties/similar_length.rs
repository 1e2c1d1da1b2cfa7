//! Items of like length may pass others, but not without end: `auto` on a model that pads, next to a naive recount of who was
//! passed how often.

use crate::world::Input;
use jitney_core::config::limits::BatchLimits;
use jitney_core::config::limits::QueueLimits;
use jitney_core::config::rules::{PolicyChoice, Rules};
use jitney_core::learn::batch_cost::{BatchCost, Measure};
use jitney_core::policy::batch_policy::MOST_PASSES;
use jitney_core::policy::similar_length::window;
use jitney_core::queue::group_key::GroupKey;
use jitney_core::queue::waiting::rank;
use jitney_core::request::{BatchId, ItemId, Priority, ReplicaClass, ReplicaId};
use jitney_core::scheduler::action::Action;
use jitney_core::scheduler::item::NewItem;
use jitney_core::scheduler::state::Scheduler;
use jitney_core::time::Time;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::time::Duration;

const MAX_ITEMS: usize = 4;
const BOOST: Duration = Duration::from_millis(20);
const HOUR: Duration = Duration::from_secs(3600);

/// One that waits, as a naive reader of the rules counts it.
#[derive(Clone, Debug)]
struct Known {
    id: ItemId,
    arrival: Time,
    priority: Priority,
    cost: u64,
    passed: u32,
}

struct Story {
    scheduler: Scheduler<Input>,
    now: Time,
    waiting: Vec<Known>,
    /// The batch that runs, and what was sent ahead.
    running: VecDeque<(BatchId, ReplicaId, Vec<ItemId>, BatchCost)>,
    next: u64,
    /// Batches that left somebody behind who came earlier.
    passing: u32,
}

impl Story {
    /// With a scheduler that has seen batches padded to the longest.
    fn new() -> Story {
        let rules = Rules {
            batch: BatchLimits { max_items: MAX_ITEMS, max_cost: u64::MAX },
            queue: QueueLimits { max_items: 1 << 20, max_bytes: u64::MAX },
            boost: BOOST,
            request_timeout: 10 * HOUR,
            stream_timeout: 10 * HOUR,
            batch_timeout: 10 * HOUR,
            retry: true,
            joins: false,
            side_by_side: false,
            policy: PolicyChoice::Auto,
            target: None,
            max_wait: None,
        };
        let mut scheduler = Scheduler::new(rules);
        let loads = (0..60u64).map(|n| (0..=n % 4).map(|i| 1 + (n * 37 + i * i * 11) % 90).collect());
        scheduler.profiled(ReplicaClass::default(), loads.map(|load: BatchCost| (load, lasts(load))));
        assert_eq!(scheduler.cost_model().measure(), Measure::Padded);
        scheduler.replica_up(Time(0), ReplicaId(0), ReplicaClass::default());
        Story { scheduler, now: Time(0), waiting: Vec::new(), running: VecDeque::new(), next: 0, passing: 0 }
    }

    fn arrive(&mut self, cost: u64, priority: Priority) {
        self.next += 1;
        let id = ItemId(self.next);
        let payload = Input { id: self.next, fingerprint: self.next };
        let group = GroupKey::default();
        let item = NewItem { id, group, cost, bytes: 1, priority, timeout: None, payload };
        assert!(self.scheduler.enter(self.now, item).is_ok());
        self.waiting.push(Known { id, arrival: self.now, priority, cost, passed: 0 });
    }

    fn finish(&mut self) {
        if let Some((batch, replica, items, load)) = self.running.pop_front() {
            self.now = self.now + lasts(load);
            items.into_iter().for_each(|id| assert!(self.scheduler.item_ended(batch, id).is_some()));
            self.scheduler.batch_ended(self.now, replica, batch, true);
        }
    }

    fn launches(&mut self) {
        while let Some(action) = self.scheduler.poll(self.now) {
            let Action::Launch(launch) = action else { panic!("only launches are due: {action:?}") };
            self.check(&launch.items);
            self.running.push_back((launch.batch, launch.replica, launch.items, launch.load));
        }
    }

    fn check(&mut self, taken: &[ItemId]) {
        assert!((1..=MAX_ITEMS).contains(&taken.len()), "{taken:?}");
        self.waiting.sort_by_key(|known| (rank(known.arrival, known.priority, BOOST), known.id));
        let looked_at = &self.waiting[..self.waiting.len().min(window(self.waiting.len().min(MAX_ITEMS)))];
        let lowest = looked_at.iter().map(|known| known.priority).max().expect("something waits");
        let mut owed = looked_at.iter().filter(|known| known.passed >= MOST_PASSES || known.priority < lowest);
        if let Some(first) = owed.next() {
            assert!(taken.contains(&first.id), "{first:?} was passed again, by {taken:?} of {looked_at:?}");
        }
        assert!(taken.iter().all(|id| looked_at.iter().any(|known| known.id == *id)), "{taken:?}");
        let riding: Vec<u64> =
            looked_at.iter().filter(|known| taken.contains(&known.id)).map(|known| known.cost).collect();
        let (shortest, longest) =
            (riding.iter().min().expect("somebody rides"), riding.iter().max().expect("somebody rides"));
        let left = looked_at.iter().filter(|known| !taken.contains(&known.id));
        let between = left.filter(|known| (shortest + 1..*longest).contains(&known.cost)).count();
        assert_eq!(between, 0, "{riding:?} leave, and an item of a length between is left of {looked_at:?}");
        let last = self.waiting.iter().rposition(|known| taken.contains(&known.id)).expect("they waited");
        let passed = self.waiting[..last].iter_mut().filter(|known| !taken.contains(&known.id));
        self.passing += u32::from(passed.map(|known| known.passed += 1).count() > 0);
        self.waiting.retain(|known| !taken.contains(&known.id));
    }
}

/// A launch costs what ten units cost.
fn lasts(load: BatchCost) -> Duration {
    Duration::from_micros(1000 + 100 * load.padded())
}

fn arrivals() -> impl Strategy<Value = Vec<(u64, Priority, bool)>> {
    let class = prop_oneof![8 => Just(Priority::Normal), 1 => Just(Priority::High), 1 => Just(Priority::Low)];
    prop::collection::vec((1u64..100, class, prop::bool::weighted(0.3)), 1..150)
}

proptest! {
    #![proptest_config(crate::cases(128))]

    #[test]
    fn whoever_was_passed_often_enough_is_not_passed_by_younger_ones_again(arrivals in arrivals()) {
        let mut story = Story::new();
        for (cost, priority, finishes) in arrivals {
            story.arrive(cost, priority);
            if finishes {
                story.finish();
            }
            story.launches();
        }
        while !story.running.is_empty() || !story.waiting.is_empty() {
            story.finish();
            story.launches();
            if story.running.is_empty() && let Some(wake) = story.scheduler.next_wake() {
                story.now = wake;
                story.launches();
            }
        }
        prop_assert_eq!(story.scheduler.len(), 0);
    }
}

#[test]
fn a_long_one_leaves_although_short_ones_never_stop_coming() {
    let mut story = Story::new();
    story.arrive(1, Priority::Normal);
    story.launches();
    story.arrive(99, Priority::Normal);
    let long = ItemId(story.next);
    let mut launches = 0;
    while story.waiting.iter().any(|known| known.id == long) {
        (0..MAX_ITEMS).for_each(|_| story.arrive(2, Priority::Normal));
        story.finish();
        story.launches();
        launches += 1;
        assert!(launches <= MOST_PASSES + 1, "it was passed {launches} times");
    }
    assert!(story.passing > 0, "short ones went first: otherwise this says nothing");
}
