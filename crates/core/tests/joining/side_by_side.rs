//! A model whose items run side by side, in virtual time: what joining at any time gains over batches, and whether the predicted
//! waits are right. Run with `--nocapture` to see the figures.

use crate::random::Random;
use crate::simulator::quantile;
use crate::world::key;
use jitney_core::config::options::DeploymentOptions;
use jitney_core::config::rules::Rules;
use jitney_core::request::{BatchId, ItemId, Priority, ReplicaClass, ReplicaId};
use jitney_core::scheduler::action::Action;
use jitney_core::scheduler::item::{NewItem, Payload};
use jitney_core::scheduler::results::steps::Step;
use jitney_core::scheduler::state::Scheduler;
use jitney_core::time::Time;
use std::collections::BTreeMap;
use std::time::Duration;

const MOST: usize = 16;

/// An item: when it comes and what it takes, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Request {
    at: u64,
    takes: u64,
    predicted: Option<Duration>,
}

impl Payload for Request {
    type Input = u64;

    fn input(&self) -> &u64 {
        &self.at
    }

    fn fingerprint(input: &u64) -> u64 {
        *input
    }
}

/// Items that take 1 s on average, with a long tail; `load` is the share of the capacity.
fn requests(count: usize, replicas: usize, load: f64) -> Vec<Request> {
    let (mut random, mut at) = (Random(7), 0.0);
    let rate = load * (MOST * replicas) as f64;
    let mut next = |_| {
        at += random.exponential(1.0 / rate);
        Request { at: (at * 1e9) as u64, takes: (random.lognormal(1.5) * 1e9) as u64 + 1, predicted: None }
    };
    (0..count).map(&mut next).collect()
}

/// One item that was answered: the wait that was predicted for it, its wait and its latency, in seconds.
struct Answered {
    predicted: Option<f64>,
    waited: f64,
    latency: f64,
}

#[derive(Default)]
struct Run {
    answered: Vec<Answered>,
    refused: usize,
    most_active: usize,
}

/// Lets all requests come and end. With `options` for time-outs.
fn run(requests: &[Request], replicas: u32, options: DeploymentOptions) -> Run {
    let options = DeploymentOptions { concurrent: true, batched: false, max_batch_size: MOST as u32, ..options };
    let mut scheduler: Scheduler<Request> = Scheduler::new(Rules::new(&options).expect("the options are valid"));
    (0..replicas).for_each(|id| scheduler.replica_up(Time(0), ReplicaId(id), ReplicaClass::default()));
    let mut active: BTreeMap<(u64, ItemId), (BatchId, ReplicaId)> = BTreeMap::new();
    let (mut coming, mut result) = (requests.iter().enumerate().peekable(), Run::default());
    loop {
        let ends = active.first_key_value().map(|(&(at, _), _)| at);
        let comes = coming.peek().map(|(_, request)| request.at);
        let Some(now) = ends.into_iter().chain(comes).min().map(Time) else { break };
        if ends == Some(now.0) {
            let ((_, id), (batch, replica)) = active.pop_first().expect("it is there");
            scheduler.stepped(now, replica, Step::default());
            let ended = scheduler.item_ended(batch, id).expect("it is answered once");
            result.answered.push(Answered {
                predicted: ended.payload.predicted.map(|wait| wait.as_secs_f64()),
                waited: (ended.launched.expect("it joined") - ended.arrival).as_secs_f64(),
                latency: (now - ended.arrival).as_secs_f64(),
            });
        } else if let Some((number, request)) = coming.next() {
            let payload = Request { predicted: scheduler.predicted_wait(now), ..*request };
            let (id, group, priority) = (ItemId(number as u64), key(0), Priority::Normal);
            let item = NewItem { id, group, cost: 1, bytes: 1, priority, timeout: None, payload };
            result.refused += usize::from(scheduler.submit(now, item).is_err());
        }
        while let Some(action) = scheduler.poll(now) {
            match action {
                Action::Launch(launch) => active.extend(launch.items.iter().map(|id| {
                    let (request, _) = scheduler.payload(*id, now).expect("it was sent a moment ago");
                    ((now.0 + request.takes, *id), (launch.batch, launch.replica))
                })),
                Action::Fail(ended, outcome) => panic!("{ended:?} failed: {outcome:?}"),
                other => panic!("{other:?}"),
            }
        }
        for replica in (0..replicas).map(ReplicaId) {
            let held = active.values().filter(|(_, id)| *id == replica).count();
            result.most_active = result.most_active.max(held);
        }
    }
    assert!(scheduler.is_empty(), "all have ended");
    result
}

/// The mean latency if the next batch begins when the whole last one has ended.
fn batch_after_batch(requests: &[Request]) -> f64 {
    let (mut now, mut latencies, mut left) = (0, Vec::new(), requests);
    while let Some(first) = left.first() {
        now = first.at.max(now);
        let (batch, rest) = left.split_at(left.iter().take(MOST).take_while(|one| one.at <= now).count());
        latencies.extend(batch.iter().map(|one| (now + one.takes - one.at) as f64 / 1e9));
        now += batch.iter().map(|one| one.takes).max().unwrap_or(0);
        left = rest;
    }
    latencies.iter().sum::<f64>() / latencies.len() as f64
}

fn patient() -> DeploymentOptions {
    let hours = 100.0 * 3600.0;
    DeploymentOptions {
        request_timeout_s: hours,
        stream_timeout_s: hours,
        batch_timeout_s: hours,
        max_wait_s: Some(hours),
        max_queued_items: u64::MAX,
        ..DeploymentOptions::for_test()
    }
}

#[test]
fn an_item_joins_whenever_there_is_room_and_never_more_than_have_room() {
    for load in [0.3, 0.8] {
        let requests = requests(3000, 1, load);
        let outcome = run(&requests, 1, patient());
        let joining = outcome.answered.iter().map(|one| one.latency).sum::<f64>() / outcome.answered.len() as f64;
        let batches = batch_after_batch(&requests);
        eprintln!("load {load}: {joining:.2} s, batch after batch {batches:.2} s");
        assert!(outcome.most_active <= MOST && outcome.refused == 0);
        assert!(joining <= 0.5 * batches, "{joining} s, {batches} s");
        let waited = outcome.answered.iter().filter(|one| one.waited > 0.0).count();
        assert!(load > 0.5 || waited < 30, "{waited} of 3000 waited next to free places");
    }
}

#[test]
fn predicted_waits_are_right() {
    for (replicas, load) in [(1, 1.3), (1, 4.0), (4, 1.3)] {
        let requests = requests(4000, replicas, load);
        let options = DeploymentOptions { max_wait_s: None, request_timeout_s: 60.0, ..patient() };
        let outcome = run(&requests, replicas as u32, options);
        let settled = &outcome.answered[outcome.answered.len() / 10..];
        let waited = settled.iter().filter(|one| one.waited > 0.1);
        let ratios: Vec<f64> = waited.filter_map(|one| Some(one.predicted? / one.waited)).collect();
        let [low, middle, high] = [0.1, 0.5, 0.9].map(|share| quantile(ratios.clone(), share));
        eprintln!(
            "{replicas} replicas, load {load}: predicted / actual {low:.2} {middle:.2} {high:.2}, {} refused",
            outcome.refused
        );
        assert!(outcome.refused > 0, "load {load}: what would wait for too long is refused");
        assert!((0.7..=1.3).contains(&middle), "{replicas} replicas, load {load}: {middle}");
    }
}
