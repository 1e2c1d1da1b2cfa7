//! One deployment of a model that works in steps, in virtual time: the scheduler of production with simulated arrivals and
//! workers. A worker does not ask: at the end of a step it takes what was sent meanwhile, and steps the key on which it has spent
//! the least time. Seconds throughout.

use crate::random::Random;
use jitney_core::config::limits::{BatchLimits, QueueLimits};
use jitney_core::config::rules::{PolicyChoice, Rules};
use jitney_core::queue::group_key::{GroupKey, KeyPart};
use jitney_core::request::{BatchId, ItemId, Priority, ReplicaClass, ReplicaId};
use jitney_core::scheduler::action::Action;
use jitney_core::scheduler::item::{NewItem, Payload};
use jitney_core::scheduler::results::steps::Step;
use jitney_core::scheduler::state::Scheduler;
use jitney_core::tables::outcome::Outcome as Unanswered;
use jitney_core::time::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// How many steps items need.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lengths {
    Fixed(u32),
    Between(u32, u32),
    /// Median, sigma and most.
    Lognormal(f64, f64, u32),
}

impl Lengths {
    fn draw(self, random: &mut Random) -> u32 {
        match self {
            Lengths::Fixed(steps) => steps,
            Lengths::Between(low, high) => random.between(low.into(), f64::from(high) + 1.0) as u32,
            Lengths::Lognormal(median, sigma, most) => {
                let (mean, cv) = ((sigma * sigma / 2.0).exp(), ((sigma * sigma).exp() - 1.0).sqrt());
                ((median * mean * random.lognormal(cv)).round() as u32).clamp(1, most)
            }
        }
    }

    pub(crate) fn mean(self) -> f64 {
        let mut random = Random(3);
        (0..4000).map(|_| f64::from(self.draw(&mut random))).sum::<f64>() / 4000.0
    }
}

/// What is simulated.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    /// What a step of n items takes: alpha + beta n.
    pub(crate) alpha: f64,
    pub(crate) beta: f64,
    /// What a newcomer takes.
    pub(crate) join: f64,
    pub(crate) lengths: Lengths,
    pub(crate) most: usize,
    pub(crate) replicas: u32,
    /// Steps of each group key take this many times as long.
    pub(crate) keys: Vec<f64>,
    /// Arrivals per second.
    pub(crate) rate: f64,
    pub(crate) requests: usize,
    /// A newcomer that would wait for too long is refused.
    pub(crate) refuses: bool,
    pub(crate) target: Option<f64>,
    pub(crate) seed: u64,
}

impl Scenario {
    pub(crate) fn new(alpha: f64, beta: f64, most: usize, lengths: Lengths) -> Scenario {
        Scenario {
            alpha,
            beta,
            join: 0.0,
            lengths,
            most,
            replicas: 1,
            keys: vec![1.0],
            rate: 1.0,
            requests: 2000,
            refuses: false,
            target: None,
            seed: 1,
        }
    }

    pub(crate) fn step(&self, items: usize) -> f64 {
        self.alpha + self.beta * items as f64
    }

    /// Requests per second that all replicas together can finish.
    pub(crate) fn capacity(&self) -> f64 {
        let full = self.most as f64;
        f64::from(self.replicas) / (self.lengths.mean() * self.step(self.most) / full + self.join)
    }

    /// The same at a share of that.
    pub(crate) fn at(&self, load: f64) -> Scenario {
        Scenario { rate: load * self.capacity(), ..self.clone() }
    }

    /// When requests come, and how many steps they need.
    pub(crate) fn arrivals(&self) -> Vec<Request> {
        let (mut random, mut at) = (Random(self.seed), 0.0);
        let mut next = |_| {
            at += random.exponential(1.0 / self.rate);
            let key = (random.unit() * self.keys.len() as f64) as usize;
            Request { at, key, steps: self.lengths.draw(&mut random), wait: None, first: None }
        };
        (0..self.requests).map(&mut next).collect()
    }

    fn rules(&self) -> Rules {
        let hours = Duration::from_secs(100 * 3600);
        Rules {
            batch: BatchLimits { max_items: self.most, max_cost: u64::MAX },
            queue: QueueLimits { max_items: usize::MAX, max_bytes: u64::MAX },
            boost: Duration::ZERO,
            request_timeout: if self.refuses { Duration::from_secs(60) } else { hours },
            stream_timeout: hours,
            batch_timeout: hours,
            retry: true,
            joins: true,
            side_by_side: false,
            policy: PolicyChoice::Auto,
            target: self.target.map(Duration::from_secs_f64),
            max_wait: None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) at: f64,
    key: usize,
    pub(crate) steps: u32,
    /// The wait that was predicted when it came, and the time until its first part.
    wait: Option<f64>,
    first: Option<f64>,
}

impl Payload for Request {
    type Input = ();

    fn input(&self) -> &() {
        &()
    }

    fn fingerprint((): &()) -> u64 {
        0
    }
}

/// An item in a worker.
#[derive(Debug)]
struct Active {
    id: ItemId,
    batch: BatchId,
    request: Request,
    left: u32,
    first: Option<f64>,
    spoke: f64,
}

/// A step that runs.
#[derive(Clone, Copy, Debug)]
struct Running {
    ends: f64,
    key: usize,
    report: Step,
}

#[derive(Debug, Default)]
struct Worker {
    inbox: Vec<(ItemId, BatchId, Request)>,
    active: Vec<Active>,
    /// Seconds spent on each key.
    spent: Vec<f64>,
    running: Option<Running>,
}

/// One answer; times from its arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub(crate) joined: f64,
    pub(crate) first: f64,
    pub(crate) ended: f64,
    pub(crate) at: f64,
    pub(crate) predicted_wait: Option<f64>,
    pub(crate) predicted_first: Option<f64>,
}

/// The result of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) answered: Vec<Answered>,
    pub(crate) refused: usize,
    /// When those came that were admitted and whose first part would have been too late.
    pub(crate) expired: Vec<f64>,
    /// Seconds between two parts of an item.
    pub(crate) gaps: Vec<f64>,
    pub(crate) ended_at: f64,
}

pub(crate) struct Simulation {
    scenario: Scenario,
    scheduler: Scheduler<Request>,
    workers: BTreeMap<ReplicaId, Worker>,
    now: f64,
    outcome: Outcome,
}

impl Simulation {
    pub(crate) fn run(scenario: &Scenario) -> Outcome {
        let mut simulation = Simulation {
            scenario: scenario.clone(),
            scheduler: Scheduler::new(scenario.rules()),
            workers: BTreeMap::new(),
            now: 0.0,
            outcome: Outcome::default(),
        };
        for id in (0..scenario.replicas).map(ReplicaId) {
            simulation.scheduler.replica_up(Time(0), id, ReplicaClass::default());
            simulation.workers.insert(id, Worker { spent: vec![0.0; scenario.keys.len()], ..Worker::default() });
        }
        simulation.work();
        simulation.outcome
    }

    fn time(&self) -> Time {
        Time((self.now * 1e9).round() as u64)
    }

    fn work(&mut self) {
        let mut arrivals = scenario_arrivals(&self.scenario);
        loop {
            let running = self.workers.iter().filter_map(|(id, worker)| Some((worker.running?.ends, *id)));
            let first = running.min_by(|a, b| a.0.total_cmp(&b.0));
            let coming = arrivals.last().map(|request| request.at);
            match (first, coming) {
                (Some((ends, id)), coming) if coming.is_none_or(|at| ends <= at) => {
                    self.now = ends;
                    self.step_ends(id);
                }
                (_, Some(at)) => {
                    self.now = at;
                    let request = arrivals.pop().expect("it is the next one");
                    self.arrive(request, ItemId(arrivals.len() as u64));
                }
                (_, None) => break,
            }
            self.poll();
        }
        self.outcome.ended_at = self.now;
        assert!(self.scheduler.is_empty(), "all have ended");
    }

    fn arrive(&mut self, mut request: Request, id: ItemId) {
        let (now, group) = (self.time(), GroupKey([KeyPart::Int(request.key as i64)].into_iter().collect()));
        request.wait = self.scheduler.predicted_wait(now).map(|wait| wait.as_secs_f64());
        let forecast = self.scheduler.forecast(now, &group, Priority::Normal, 1);
        request.first = forecast.map(|forecast| forecast.latency.as_secs_f64());
        let item =
            NewItem { id, group, cost: 1, bytes: 1, priority: Priority::Normal, timeout: None, payload: request };
        let result =
            if self.scenario.refuses { self.scheduler.submit(now, item) } else { self.scheduler.enter(now, item) };
        self.outcome.refused += usize::from(result.is_err());
    }

    fn poll(&mut self) {
        while let Some(action) = self.scheduler.poll(self.time()) {
            match action {
                Action::Launch(launch) => {
                    let now = self.time();
                    let sent = launch.items.iter().map(|&id| {
                        let (request, _) = self.scheduler.payload(id, now).expect("it was sent a moment ago");
                        (id, launch.batch, *request)
                    });
                    let sent: Vec<_> = sent.collect();
                    self.workers.get_mut(&launch.replica).expect("it is up").inbox.extend(sent);
                    self.begin(launch.replica);
                }
                Action::Fail(ended, Unanswered::DeadlineExceeded) => self.outcome.expired.push(ended.payload.at),
                Action::Fail(..) => self.outcome.refused += 1,
                Action::Forget(id, item) => {
                    let worker = self.workers.get_mut(&id).expect("it is up");
                    worker.active.iter_mut().filter(|one| one.id == item).for_each(|one| one.left = 1);
                }
                Action::Kill(id) => panic!("{id:?} does not hang"),
                Action::Slow(id, _) => panic!("{id:?} has no batches that could be slow"),
            }
        }
    }

    /// A worker that does nothing takes what was sent and begins a step.
    fn begin(&mut self, id: ReplicaId) {
        let (now, scenario) = (self.now, &self.scenario);
        let worker = self.workers.get_mut(&id).expect("it is up");
        if worker.running.is_some() {
            return;
        }
        let spent =
            |worker: &Worker, key| worker.active.iter().any(|one| one.request.key == key).then_some(worker.spent[key]);
        let joined = worker.inbox.len();
        for (id, batch, request) in std::mem::take(&mut worker.inbox) {
            if spent(worker, request.key).is_none() {
                // A key that becomes active starts level with the one on which the least was spent.
                let least = (0..scenario.keys.len()).filter_map(|key| spent(worker, key)).fold(f64::INFINITY, f64::min);
                worker.spent[request.key] = if least.is_finite() { least } else { 0.0 };
            }
            let (left, first) = (request.steps, None);
            worker.active.push(Active { id, batch, request, left, first, spoke: now });
        }
        let keys = (0..scenario.keys.len()).filter_map(|key| Some((spent(worker, key)?, key)));
        let Some((_, key)) = keys.min_by(|a, b| a.0.total_cmp(&b.0)) else { return };
        let active = worker.active.iter().filter(|one| one.request.key == key).count();
        let (took, join_took) = (scenario.step(active) * scenario.keys[key], scenario.join * joined as f64);
        worker.spent[key] += took;
        let length = Duration::from_secs_f64;
        let report = Step { active, joined, took: length(took), join_took: length(join_took), is_out_of_memory: false };
        worker.running = Some(Running { ends: now + took + join_took, key, report });
    }

    fn step_ends(&mut self, id: ReplicaId) {
        let (now, time) = (self.now, self.time());
        let worker = self.workers.get_mut(&id).expect("it is up");
        let Running { key, report, .. } = worker.running.take().expect("it ran");
        for one in worker.active.iter_mut().filter(|one| one.request.key == key) {
            one.left -= 1;
            if one.first.is_some() {
                self.outcome.gaps.push(now - one.spoke);
            } else {
                one.first = Some(now);
                self.scheduler.part_sent(time, one.batch, one.id);
            }
            one.spoke = now;
        }
        let ended: Vec<Active> = worker.active.extract_if(.., |one| one.left == 0).collect();
        self.begin(id);
        self.scheduler.stepped(time, id, report);
        for one in ended {
            let Some(ended) = self.scheduler.item_ended(one.batch, one.id) else { continue };
            let arrived = one.request.at;
            self.outcome.answered.push(Answered {
                joined: ended.launched.expect("it joined").as_secs_f64() - arrived,
                first: one.first.expect("a step was made") - arrived,
                ended: now - arrived,
                at: now,
                predicted_wait: one.request.wait,
                predicted_first: one.request.first,
            });
        }
    }
}

/// The last one first.
fn scenario_arrivals(scenario: &Scenario) -> Vec<Request> {
    let mut arrivals = scenario.arrivals();
    arrivals.reverse();
    arrivals
}

impl Outcome {
    /// Without those of the beginning.
    pub(crate) fn settled(&self) -> &[Answered] {
        &self.answered[self.answered.len() / 10..]
    }

    pub(crate) fn mean(&self, of: impl Fn(&Answered) -> f64) -> f64 {
        self.settled().iter().map(of).sum::<f64>() / self.settled().len() as f64
    }
}

pub(crate) fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share) as usize]
}
