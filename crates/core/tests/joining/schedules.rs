//! Random schedules of everything that can happen to a model that works in steps, or whose items run side by side.

use crate::world::{Arrival, World};
use jitney_core::config::limits::{BatchLimits, QueueLimits};
use jitney_core::config::rules::{PolicyChoice, Rules};
use jitney_core::replicas::loss_history::Loss;
use jitney_core::request::{BatchId, ItemId, Priority, ReplicaId};
use jitney_core::scheduler::results::steps::Step;
use proptest::prelude::*;
use proptest::test_runner::Config;
use std::time::Duration;

const FREE: Duration = Duration::ZERO;
const DEAR: Duration = Duration::from_millis(12);

/// One thing that happens. Numbers choose among what is there, modulo how much is there.
#[derive(Clone, Debug)]
enum Op {
    Arrive(Arrival),
    Cancel(usize),
    Wait(Duration),
    Excuse(Duration),
    /// A replica makes a step, and each of these of its items ends.
    Step(usize, Vec<usize>, Duration),
    Part(usize),
    Pause(usize, Option<Duration>),
    Resume(usize),
    Done(usize),
    Later(usize),
    Start(usize),
    TooLarge(usize),
    /// A worker says what makes no sense.
    Stray(u64, u64),
    Up,
    Retire(usize),
    Lose(usize, Loss),
    CrashLoop,
    Close,
}

fn choose<T: Clone>(from: impl Iterator<Item = T>, n: usize) -> Option<T> {
    let all: Vec<T> = from.collect();
    (!all.is_empty()).then(|| all[n % all.len()].clone())
}

impl Op {
    fn apply(&self, world: &mut World) {
        let held = |world: &World, n| {
            let held = choose(world.replicas.values().flat_map(|replica| replica.held.clone()), n)?;
            Some((held.batch, held.id))
        };
        let replica = |world: &World, n| choose(world.replicas.keys().copied(), n);
        match *self {
            Op::Arrive(ref asked) => world.arrive(asked),
            Op::Cancel(n) => choose(world.items.keys().copied(), n).into_iter().for_each(|id| world.cancel(id)),
            Op::Wait(length) => world.wait(length),
            Op::Excuse(away) => world.excuse(away),
            Op::Step(n, ref ends, join_took) => {
                let Some(id) = replica(world, n) else { return };
                let active = world.replicas[&id].held.len();
                let took = Duration::from_millis(8 + active as u64);
                world.step(id, Step { active, joined: active / 2, took, join_took, is_out_of_memory: false });
                for &end in ends {
                    let held =
                        choose(world.replicas.get(&id).map(|r| r.held.clone()).unwrap_or_default().into_iter(), end);
                    held.into_iter().for_each(|held| world.item_done(held.batch, held.id));
                }
            }
            Op::Part(n) => held(world, n).into_iter().for_each(|(batch, id)| world.part(batch, id)),
            Op::Pause(n, patience) => {
                choose(world.items.keys().copied(), n).into_iter().for_each(|id| world.pause(id, patience));
            }
            Op::Resume(n) => choose(world.items.keys().copied(), n).into_iter().for_each(|id| world.resume(id)),
            Op::Done(n) => held(world, n).into_iter().for_each(|(batch, id)| world.item_done(batch, id)),
            Op::Later(n) => held(world, n).into_iter().for_each(|(batch, id)| world.later(batch, id)),
            Op::Start(n) => choose(world.batches.keys().copied(), n).into_iter().for_each(|id| world.start(id)),
            Op::TooLarge(n) => choose(world.batches.keys().copied(), n).into_iter().for_each(|id| world.too_large(id)),
            Op::Stray(batch, item) => {
                world.item_done(BatchId(batch), ItemId(item));
                world.part(BatchId(batch), ItemId(item));
                world.later(BatchId(batch), ItemId(item));
                world.step(ReplicaId(1000), Step::default());
                world.scheduler.batch_ended(world.now, ReplicaId(1), BatchId(batch), true);
            }
            Op::Up if world.replicas.len() < 4 => world.up(),
            Op::Up => {}
            Op::Retire(n) => replica(world, n).into_iter().for_each(|id| world.retire(id)),
            Op::Lose(n, loss) => replica(world, n).into_iter().for_each(|id| world.lose(id, loss)),
            Op::CrashLoop => world.crash_loop(),
            Op::Close => world.close(),
        }
    }
}

fn run(rules: Rules, ops: &[Op], joins_at_once: bool) -> World {
    let mut world = World::new(rules);
    world.joins_at_once = joins_at_once;
    world.up();
    ops.iter().for_each(|op| op.apply(&mut world));
    world.drain();
    world
}

fn ms(range: std::ops::Range<u64>) -> impl Strategy<Value = Duration> {
    range.prop_map(Duration::from_millis)
}

fn rules() -> impl Strategy<Value = Rules> {
    let batch = (1usize..8, prop_oneof![Just(u64::MAX), 4u64..24]);
    let queue = (3usize..40, 60u64..400);
    let times = (ms(0..60), ms(50..1500), ms(30..600), ms(100..3000));
    (batch, queue, times, any::<bool>(), any::<bool>()).prop_map(|(batch, queue, times, retry, side_by_side)| Rules {
        batch: BatchLimits { max_items: batch.0, max_cost: batch.1 },
        queue: QueueLimits { max_items: queue.0, max_bytes: queue.1 },
        boost: times.0,
        request_timeout: times.1,
        stream_timeout: times.1 + times.3,
        batch_timeout: times.2,
        retry,
        joins: true,
        side_by_side,
        policy: PolicyChoice::Auto,
        target: None,
        max_wait: None,
    })
}

fn arrival() -> impl Strategy<Value = Op> {
    let cost = prop_oneof![20 => 0u64..12, 1 => (u64::MAX - 3)..=u64::MAX];
    let priority = prop_oneof![3 => Just(Priority::Normal), 1 => Just(Priority::High), 1 => Just(Priority::Low)];
    let timeout = prop_oneof![3 => Just(None), 1 => ms(0..200).prop_map(Some)];
    (0u8..4, cost, 0u64..40, priority, timeout).prop_map(|(group, cost, bytes, priority, timeout)| {
        Op::Arrive(Arrival { group, cost, bytes, priority, timeout })
    })
}

/// Where a newcomer takes time, only some join between two steps: when, the reference does not recount.
fn ops(join_took: Duration) -> impl Strategy<Value = Vec<Op>> {
    let n = || 0usize..1000;
    let loss = prop_oneof![Just(Loss::Crashed), Just(Loss::Killed)];
    let op = prop_oneof![
        30 => arrival(),
        3 => n().prop_map(Op::Cancel),
        10 => ms(0..30).prop_map(Op::Wait),
        1 => ms(30..2000).prop_map(Op::Wait),
        1 => ms(0..500).prop_map(Op::Excuse),
        15 => (n(), prop::collection::vec(n(), 0..3)).prop_map(move |(n, ends)| Op::Step(n, ends, join_took)),
        8 => n().prop_map(Op::Part),
        4 => (n(), prop::option::of(ms(0..400))).prop_map(|(n, patience)| Op::Pause(n, patience)),
        4 => n().prop_map(Op::Resume),
        4 => n().prop_map(Op::Done),
        3 => n().prop_map(Op::Later),
        4 => n().prop_map(Op::Start),
        1 => n().prop_map(Op::TooLarge),
        1 => (0u64..40, 0u64..60).prop_map(|(batch, item)| Op::Stray(batch, item)),
        4 => Just(Op::Up),
        3 => (n(), loss).prop_map(|(n, loss)| Op::Lose(n, loss)),
        1 => n().prop_map(Op::Retire),
        1 => (0u8..24).prop_map(|n| if n == 0 { Op::Close } else if n < 5 { Op::CrashLoop } else { Op::Up }),
    ];
    prop::collection::vec(op, 1..160)
}

/// Enough cases for every change; `PROPTEST_CASES` asks for another number, as a long run does.
fn cases(enough: u32) -> Config {
    let config = Config::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { config.cases } else { enough };
    Config { cases, ..config }
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn every_item_ends_once_nothing_exceeds_a_limit_and_nothing_waits_beside_room(rules in rules(), ops in ops(FREE)) {
        let world = run(rules, &ops, true);
        prop_assert!(world.broken.is_empty(), "{:#?}", world.broken);
    }

    #[test]
    fn limited_newcomers_change_nothing_but_the_time_at_which_they_join(rules in rules(), ops in ops(DEAR)) {
        let world = run(rules, &ops, false);
        prop_assert!(world.broken.is_empty(), "{:#?}", world.broken);
    }

    #[test]
    fn the_same_events_give_the_same_actions(rules in rules(), ops in ops(DEAR)) {
        prop_assert_eq!(run(rules, &ops, false).log, run(rules, &ops, false).log);
    }
}
