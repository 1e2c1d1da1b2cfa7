//! Random schedules: what may happen to a scheduler, and how often.

use crate::world::{Arrival, World};
use jitney_core::config::limits::BatchLimits;
use jitney_core::config::limits::QueueLimits;
use jitney_core::config::rules::{PolicyChoice, Rules};
use jitney_core::replicas::loss_history::Loss;
use jitney_core::request::{BatchId, ItemId, Priority, ReplicaId};
use proptest::prelude::*;
use std::time::Duration;

/// One thing that happens. Numbers choose among what is there, modulo how much is there.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Arrive(Arrival),
    Cancel(usize),
    Wait(Duration),
    /// The running batch of a replica starts; rarely a later one, which only a broken worker would say.
    Start(usize, bool),
    ItemDone(usize, usize),
    /// An answer that was not asked for: stale, double or made up.
    StrayItemDone(u64, u64),
    BatchDone(usize, bool),
    StrayBatchDone(u32, u64),
    Up,
    Retire(usize),
    Lose(usize, Loss),
    /// A replica is silent (true), or heard again.
    Doubt(usize, bool),
    CrashLoop,
    Drain,
    /// From here on answers have so many bytes and batches take so long to compute.
    Work(u64, Duration),
}

impl Op {
    pub(crate) fn apply(&self, world: &mut World) {
        match *self {
            Op::Arrive(ref asked) => _ = world.arrive(asked),
            Op::Cancel(n) => {
                if let Some(id) = choose(world.items.keys(), n) {
                    world.cancel(id);
                }
                world.cancel(ItemId(n as u64));
            }
            Op::Wait(length) => world.wait(length),
            Op::Start(n, is_first) => {
                let wanted = usize::from(!is_first);
                let batches = world.replicas.values().filter_map(|replica| replica.batches.get(wanted));
                if let Some(id) = choose(batches, n) {
                    world.start(id);
                }
            }
            Op::ItemDone(n, m) => {
                if let Some(id) = choose(world.batches.keys(), n)
                    && let Some(item) = choose(world.batches[&id].items.iter(), m)
                {
                    world.item_done(id, item);
                }
            }
            Op::StrayItemDone(batch, item) => world.item_done(BatchId(batch), ItemId(item)),
            Op::BatchDone(n, is_clean) => {
                if let Some(id) = choose(world.batches.keys(), n) {
                    let replica = world.batches[&id].replica;
                    world.batch_done(replica, id, is_clean);
                }
            }
            Op::StrayBatchDone(replica, batch) => world.batch_done(ReplicaId(replica), BatchId(batch), true),
            Op::Up => {
                if world.replicas.len() < 4 {
                    world.up();
                }
            }
            Op::Retire(n) => {
                if let Some(id) = choose(world.replicas.keys(), n) {
                    world.retire(id);
                }
            }
            Op::Lose(n, loss) => {
                if let Some(id) = choose(world.replicas.keys(), n) {
                    world.lose(id, loss);
                }
            }
            Op::Doubt(n, is_doubtful) => {
                let choice = world.replicas.iter().filter(|(_, replica)| replica.doubtful != is_doubtful);
                if let Some(id) = choose(choice.map(|(id, _)| id), n) {
                    if is_doubtful { world.doubt(id) } else { world.trust(id) }
                }
            }
            Op::CrashLoop => world.crash_loop(),
            Op::Drain => world.close(),
            Op::Work(bytes, computing) => world.work = (bytes, computing),
        }
    }
}

fn choose<'a, T: Copy + 'a>(from: impl Iterator<Item = &'a T>, n: usize) -> Option<T> {
    let all: Vec<T> = from.copied().collect();
    (!all.is_empty()).then(|| all[n % all.len()])
}

/// Applies the whole schedule to one scheduler and drains it.
pub(crate) fn run(rules: Rules, ops: &[Op]) -> World {
    let mut world = World::new(rules);
    world.up();
    for op in ops {
        op.apply(&mut world);
    }
    world.drain();
    world
}

fn ms(range: std::ops::Range<u64>) -> impl Strategy<Value = Duration> {
    range.prop_map(Duration::from_millis)
}

pub(crate) fn rules() -> impl Strategy<Value = Rules> {
    let batch = (1usize..6, prop_oneof![Just(u64::MAX), 4u64..16]);
    let queue = (3usize..40, 60u64..400);
    let times = (ms(0..60), ms(50..1500), ms(30..600));
    let policy = prop_oneof![
        2 => Just(PolicyChoice::Eager),
        2 => ms(1..50).prop_map(PolicyChoice::Fixed),
        3 => Just(PolicyChoice::Auto),
    ];
    (batch, queue, times, any::<bool>(), policy).prop_map(|(batch, queue, times, retry, policy)| Rules {
        batch: BatchLimits { max_items: batch.0, max_cost: batch.1 },
        queue: QueueLimits { max_items: queue.0, max_bytes: queue.1 },
        boost: times.0,
        request_timeout: times.1,
        stream_timeout: times.2 * 5,
        batch_timeout: times.2,
        retry,
        joins: false,
        side_by_side: false,
        policy,
        target: None,
        max_wait: None,
    })
}

pub(crate) fn arrival() -> impl Strategy<Value = Arrival> {
    // Few groups hold most of the items, so that lanes fill; some costs are absurd, as a client may send them.
    let group = prop_oneof![4 => 0u8..2, 2 => 2u8..8];
    let cost = prop_oneof![20 => 0u64..12, 1 => (u64::MAX - 3)..=u64::MAX];
    let priority = prop_oneof![3 => Just(Priority::Normal), 1 => Just(Priority::High), 1 => Just(Priority::Low)];
    let timeout = prop_oneof![3 => Just(None), 1 => ms(0..200).prop_map(Some)];
    (group, cost, priority, timeout, 0u64..60).prop_map(|(group, cost, priority, timeout, fingerprint)| {
        // The same input has as many bytes.
        Arrival { group, cost, bytes: fingerprint * 7 % 40, priority, timeout, fingerprint }
    })
}

pub(crate) fn ops() -> impl Strategy<Value = Vec<Op>> {
    let n = || 0usize..1000;
    let op = prop_oneof![
        30 => arrival().prop_map(Op::Arrive),
        3 => n().prop_map(Op::Cancel),
        10 => ms(0..30).prop_map(Op::Wait),
        1 => ms(30..2000).prop_map(Op::Wait),
        8 => (n(), prop::bool::weighted(0.95)).prop_map(|(n, is_first)| Op::Start(n, is_first)),
        12 => (n(), n()).prop_map(|(n, m)| Op::ItemDone(n, m)),
        2 => (0u64..30, 0u64..60).prop_map(|(batch, item)| Op::StrayItemDone(batch, item)),
        8 => (n(), any::<bool>()).prop_map(|(n, is_clean)| Op::BatchDone(n, is_clean)),
        1 => (0u32..6, 0u64..30).prop_map(|(replica, batch)| Op::StrayBatchDone(replica, batch)),
        4 => Just(Op::Up),
        4 => (n(), prop_oneof![Just(Loss::Crashed), Just(Loss::Killed), Just(Loss::Away)]).prop_map(|(n, loss)| Op::Lose(n, loss)),
        3 => (n(), any::<bool>()).prop_map(|(n, is_doubtful)| Op::Doubt(n, is_doubtful)),
        2 => n().prop_map(Op::Retire),
        // A server drains once, so this must be rare for the rest of the schedule to mean anything.
        1 => (0u8..24).prop_map(|n| if n == 0 { Op::Drain } else if n < 5 { Op::CrashLoop } else { Op::Up }),
        1 => (prop_oneof![Just(0), 0u64..12_000_000], ms(0..3)).prop_map(|(bytes, takes)| Op::Work(bytes, takes)),
    ];
    prop::collection::vec(op, 1..160)
}
