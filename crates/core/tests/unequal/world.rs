//! One deployment on replicas that may all differ. A batch takes (a + b·n) times the factor of its replica, plus the way there and
//! back. Seconds throughout.

use crate::random::Random;
use jitney_core::config::limits::{BatchLimits, QueueLimits};
use jitney_core::config::rules::{PolicyChoice, Rules};
use jitney_core::queue::group_key::GroupKey;
use jitney_core::replicas::loss_history::Loss;
use jitney_core::request::{BatchId, ItemId, Priority, ReplicaClass, ReplicaId};
use jitney_core::scheduler::action::{Action, Launch};
use jitney_core::scheduler::item::{NewItem, Payload};
use jitney_core::scheduler::state::Scheduler;
use jitney_core::time::Time;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

/// What a usual batch takes: a launch, and each item.
pub(crate) const LAUNCH_S: f64 = 0.02;
pub(crate) const ITEM_S: f64 = 0.001;
pub(crate) const MAX_BATCH: usize = 32;

/// What a usual replica takes for a batch.
pub(crate) fn seconds(items: usize) -> f64 {
    LAUNCH_S + ITEM_S * items as f64
}

/// One replica.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) factor: f64,
    /// One way; 0 on this machine.
    pub(crate) way: f64,
    /// From, until, and how many times as slow meanwhile.
    pub(crate) slow: (f64, f64, f64),
    pub(crate) up: f64,
    /// When nothing comes from it any more. The front notices it `SILENCE` later.
    pub(crate) silent: f64,
    /// When it leaves in good order.
    pub(crate) leaves: f64,
    /// When it is back after a silence: its model is still loaded.
    pub(crate) back: f64,
}

const NEVER: f64 = f64::INFINITY;
/// After this the front gives a silent replica up.
pub(crate) const SILENCE: f64 = 7.0;

pub(crate) fn kind(factor: f64) -> Kind {
    Kind { factor, way: 0.0, slow: (NEVER, NEVER, 1.0), up: 0.0, silent: NEVER, leaves: NEVER, back: NEVER }
}

/// What is simulated.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) replicas: Vec<Kind>,
    /// Arrivals per second.
    pub(crate) rate: f64,
    /// Items that arrive.
    pub(crate) items: usize,
    /// Coefficient of variation of what batches take.
    pub(crate) cv: f64,
    /// The rule to compare with: all replicas are treated as equal.
    pub(crate) equal: bool,
    /// Whether admission refuses what would wait for too long.
    pub(crate) has_door: bool,
}

impl Scene {
    /// Independent clients at a share of what full batches can answer.
    pub(crate) fn new(replicas: Vec<Kind>, load: f64, items: usize) -> Scene {
        let power: f64 = replicas.iter().map(|replica| 1.0 / replica.factor).sum();
        let rate = load * power * MAX_BATCH as f64 / seconds(MAX_BATCH);
        Scene { replicas, rate, items, cv: 0.1, equal: false, has_door: false }
    }
}

/// One answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub(crate) arrived: f64,
    pub(crate) at: f64,
    pub(crate) replica: u32,
}

impl Answered {
    pub(crate) fn latency(&self) -> f64 {
        self.at - self.arrived
    }
}

/// What happened.
#[derive(Debug, Default)]
pub(crate) struct Story {
    /// By the end.
    pub(crate) answered: Vec<Answered>,
    /// Batches by replica, with the time at which each was sent and its items.
    pub(crate) batches: Vec<(f64, u32, usize)>,
    /// Answers that the front got twice, and items that ended without an answer.
    pub(crate) twice: usize,
    pub(crate) failed: usize,
    /// When admission refused an item.
    pub(crate) refused: Vec<f64>,
    /// Batches of suspects.
    pub(crate) suspects: usize,
    /// When a replica was named as slow.
    pub(crate) named: Vec<(f64, u32)>,
    /// When each item that a lost replica had was sent again.
    pub(crate) again: Vec<f64>,
    pub(crate) polls: usize,
    pub(crate) ended: f64,
}

impl Story {
    /// Mean, p95 and p99 of the latencies of those that arrived within these times.
    pub(crate) fn latencies(&self, from: f64, until: f64) -> [f64; 3] {
        let within = self.answered.iter().filter(|one| (from..until).contains(&one.arrived));
        let mut all: Vec<f64> = within.map(Answered::latency).collect();
        all.sort_by(f64::total_cmp);
        let at = |q: f64| all.get((q * all.len() as f64) as usize).copied().unwrap_or(0.0);
        [all.iter().sum::<f64>() / all.len().max(1) as f64, at(0.95), at(0.99)]
    }

    /// The same without the first fifth.
    pub(crate) fn figures(&self) -> [f64; 3] {
        self.latencies(self.ended / 5.0, f64::INFINITY)
    }

    /// The share of the answers within these times that came from one replica.
    pub(crate) fn share(&self, replica: u32, from: f64, until: f64) -> f64 {
        let within = self.answered.iter().filter(|one| (from..until).contains(&one.at));
        let (own, all) =
            within.fold((0_u32, 0_u32), |(own, all), one| (own + u32::from(one.replica == replica), all + 1));
        f64::from(own) / f64::from(all.max(1))
    }
}

#[derive(Clone, Copy, Debug)]
struct Input;

impl Payload for Input {
    type Input = ();

    fn input(&self) -> &() {
        &()
    }

    fn fingerprint((): &()) -> u64 {
        0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Results(ReplicaId, BatchId),
    Up(usize, ReplicaId),
    Lost(ReplicaId),
    Leaves(ReplicaId),
    Arrive,
}

#[derive(Debug)]
struct Worker {
    kind: Kind,
    index: u32,
    /// When it has computed all that it was sent.
    free: f64,
    silent_from: f64,
    leaves: bool,
}

pub(crate) struct World {
    scene: Scene,
    scheduler: Scheduler<Input>,
    now: f64,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    next: u64,
    arrivals: Random,
    work: Random,
    workers: BTreeMap<ReplicaId, Worker>,
    batches: BTreeMap<BatchId, (Launch, f64)>,
    lost_items: BTreeSet<ItemId>,
    arrived: Vec<f64>,
    is_answered: Vec<bool>,
    story: Story,
}

pub(crate) fn run(scene: &Scene, seed: u64) -> Story {
    let hours = Duration::from_secs(100 * 3600);
    let rules = Rules {
        batch: BatchLimits { max_items: MAX_BATCH, max_cost: u64::MAX },
        queue: QueueLimits { max_items: usize::MAX, max_bytes: u64::MAX },
        boost: Duration::ZERO,
        request_timeout: hours,
        stream_timeout: hours,
        batch_timeout: hours,
        retry: true,
        joins: false,
        side_by_side: false,
        policy: PolicyChoice::Auto,
        target: None,
        max_wait: None,
    };
    let mut world = World {
        scene: scene.clone(),
        scheduler: Scheduler::new(rules),
        now: 0.0,
        events: BinaryHeap::new(),
        next: 0,
        arrivals: Random(seed + 1000),
        work: Random(seed),
        workers: BTreeMap::new(),
        batches: BTreeMap::new(),
        lost_items: BTreeSet::new(),
        arrived: Vec::new(),
        is_answered: Vec::new(),
        story: Story::default(),
    };
    if scene.equal {
        world.scheduler.treat_replicas_as_equal();
    }
    world.work();
    world.story
}

impl World {
    fn work(&mut self) {
        for index in 0..self.scene.replicas.len() {
            let kind = self.scene.replicas[index];
            let id = ReplicaId(index as u32);
            self.push(kind.up, Event::Up(index, id));
            if kind.silent.is_finite() {
                self.push(kind.silent + SILENCE, Event::Lost(id));
                // A worker that comes back gets a new number.
                self.push(kind.back, Event::Up(index, ReplicaId(id.0 + self.scene.replicas.len() as u32)));
            }
            self.push(kind.leaves, Event::Leaves(id));
        }
        self.push(self.arrivals.clone().exponential(1.0 / self.scene.rate), Event::Arrive);
        while self.story.answered.len() + self.story.failed + self.story.refused.len() < self.scene.items {
            let next = self.events.peek().map(|Reverse((at, ..))| *at);
            let wake = self.scheduler.next_wake().filter(|&wake| next.is_none_or(|at| wake < at));
            if let Some(wake) = wake {
                self.now = wake.as_secs_f64().max(self.now);
            } else {
                let Reverse((at, _, event)) = self.events.pop().expect("what waits is answered some time");
                self.now = at.as_secs_f64();
                self.happen(event);
            }
            self.act();
        }
        self.story.ended = self.now;
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive => self.arrive(),
            Event::Results(replica, batch) => self.results(replica, batch),
            Event::Up(index, id) => {
                let kind = self.scene.replicas[index];
                let is_back = id.0 as usize >= self.scene.replicas.len();
                let silent_from = if is_back { NEVER } else { kind.silent };
                let worker = Worker { kind, index: index as u32, free: 0.0, silent_from, leaves: false };
                self.workers.insert(id, worker);
                self.scheduler.replica_up(time(self.now), id, ReplicaClass::default());
                if kind.way > 0.0 {
                    self.scheduler.replica_is_far(id);
                }
            }
            Event::Lost(id) => {
                self.workers.remove(&id);
                let held = self.batches.values().filter(|(launch, _)| launch.replica == id);
                self.lost_items.extend(held.flat_map(|(launch, _)| launch.items.iter().copied()));
                self.scheduler.replica_lost(time(self.now), id, Loss::Away);
            }
            Event::Leaves(id) => {
                self.scheduler.retire(id);
                if let Some(worker) = self.workers.get_mut(&id) {
                    worker.leaves = true;
                }
                self.leave_if_done(id);
            }
        }
    }

    fn arrive(&mut self) {
        let id = ItemId(self.arrived.len() as u64);
        self.arrived.push(self.now);
        self.is_answered.push(false);
        let (group, priority) = (GroupKey::default(), Priority::Normal);
        let item = NewItem { id, group, cost: 1, bytes: 1, priority, timeout: None, payload: Input };
        if !self.scene.has_door {
            assert!(self.scheduler.enter(time(self.now), item).is_ok(), "nothing is refused here");
        } else if self.scheduler.submit(time(self.now), item).is_err() {
            self.story.refused.push(self.now);
        }
        if self.arrived.len() < self.scene.items {
            let at = self.now + self.arrivals.exponential(1.0 / self.scene.rate);
            self.push(at, Event::Arrive);
        }
    }

    fn act(&mut self) {
        loop {
            self.story.polls += 1;
            match self.scheduler.poll(time(self.now)) {
                None => return,
                Some(Action::Launch(launch)) => self.launched(launch),
                Some(Action::Fail(..)) => self.story.failed += 1,
                Some(Action::Slow(id, _)) => self.story.named.push((self.now, self.workers[&id].index)),
                Some(Action::Forget(..)) => {}
                Some(Action::Kill(id)) => panic!("nothing hangs here, but {id:?} is to be killed"),
            }
        }
    }

    fn launched(&mut self, launch: Launch) {
        let again = launch.items.iter().filter(|&id| self.lost_items.remove(id)).count();
        self.story.again.extend(std::iter::repeat_n(self.now, again));
        let worker = self.workers.get_mut(&launch.replica).expect("launches go to replicas that are up");
        self.story.batches.push((self.now, worker.index, launch.items.len()));
        self.story.suspects += usize::from(launch.reason.label() == "suspect");
        let kind = worker.kind;
        let begins = worker.free.max(self.now + kind.way);
        let (from, until, times) = kind.slow;
        let slow = if (from..until).contains(&begins) { times } else { 1.0 };
        let takes = seconds(launch.items.len()) * kind.factor * slow * self.work.lognormal(self.scene.cv);
        worker.free = begins + takes;
        let (at, id, batch) = (worker.free + kind.way, launch.replica, launch.batch);
        let comes = at < worker.silent_from;
        self.batches.insert(batch, (launch, takes));
        if comes {
            self.push(at, Event::Results(id, batch));
        }
    }

    fn results(&mut self, replica: ReplicaId, batch: BatchId) {
        let Some(worker) = self.workers.get(&replica) else { return };
        let index = worker.index;
        let (launch, takes) = self.batches.remove(&batch).expect("it was sent");
        for item in launch.items {
            if self.scheduler.item_ended(batch, item).is_some() {
                let was = std::mem::replace(&mut self.is_answered[item.0 as usize], true);
                self.story.twice += usize::from(was);
                let arrived = self.arrived[item.0 as usize];
                self.story.answered.push(Answered { arrived, at: self.now, replica: index });
            }
        }
        let takes = Duration::from_secs_f64(takes);
        self.scheduler.moved(batch, 1, takes, takes);
        self.scheduler.batch_ended(time(self.now), replica, batch, true);
        self.leave_if_done(replica);
    }

    /// A replica that was asked to end does so when it has finished what it holds.
    fn leave_if_done(&mut self, id: ReplicaId) {
        let holds = || self.batches.values().any(|(launch, _)| launch.replica == id);
        if self.workers.get(&id).is_some_and(|worker| worker.leaves) && !holds() {
            self.workers.remove(&id);
            self.scheduler.replica_lost(time(self.now), id, Loss::Killed);
        }
    }

    fn push(&mut self, at: f64, event: Event) {
        if at.is_finite() {
            self.next += 1;
            self.events.push(Reverse((time(at), self.next, event)));
        }
    }
}

fn time(seconds: f64) -> Time {
    Time((seconds * 1e9).round() as u64)
}
