//! One deployment in virtual time: batches on replicas that come after a start time and go when they are idle. Seconds.

use crate::random::Random;
use jitney_core::learn::batch_cost::BatchCost;
use jitney_core::learn::cost_model::CostModel;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// A batch of n takes a + b·n, with noise, and from a time on as many times longer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Service {
    pub(crate) a: f64,
    pub(crate) b: f64,
    pub(crate) most: usize,
    pub(crate) cv: f64,
    pub(crate) drift: (f64, f64),
}

impl Service {
    pub(crate) fn seconds(&self, items: usize) -> f64 {
        self.a + self.b * items as f64
    }

    /// Items per second of a replica at full batches.
    pub(crate) fn rate(&self) -> f64 {
        self.most as f64 / self.seconds(self.most)
    }
}

/// What is simulated.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) service: Service,
    pub(crate) target: f64,
    /// A start takes the first, and from the second on the third.
    pub(crate) start: (f64, f64, f64),
    pub(crate) arrivals: Rc<[f64]>,
    pub(crate) end: f64,
    pub(crate) min: u32,
    pub(crate) max: u32,
    pub(crate) begins_with: u32,
    /// Replicas for which there is room.
    pub(crate) places: u32,
    /// A replica dies every so many seconds.
    pub(crate) dies_every: f64,
    /// A client that is refused comes back after a second, so many times.
    pub(crate) retries: u32,
    pub(crate) seed: u64,
}

/// What a rule may look at, once a second.
#[derive(Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) now: f64,
    pub(crate) arrived: u64,
    pub(crate) refused: u64,
    pub(crate) waiting: usize,
    /// Items that wait or run.
    pub(crate) ongoing: usize,
    pub(crate) up: u32,
    pub(crate) starting: u32,
    pub(crate) without_place: u32,
    pub(crate) cost_model: &'a CostModel,
    /// Starts that are over, and the age of the oldest that is not.
    pub(crate) started: &'a mut Vec<f64>,
    pub(crate) oldest_start: Option<f64>,
}

/// Says how many replicas there should be.
pub(crate) trait Rule {
    fn wanted(&mut self, seen: Seen) -> u32;
}

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    /// Replica-seconds, starting ones included.
    pub(crate) cost: f64,
    /// Requests that were answered after the target, or refused.
    pub(crate) late: usize,
    pub(crate) requests: usize,
    pub(crate) starts: u32,
    /// What was wanted, each second.
    pub(crate) wanted: Vec<u32>,
    /// When the first request was answered.
    pub(crate) first_answer: Option<f64>,
}

impl Run {
    pub(crate) fn late_share(&self) -> f64 {
        self.late as f64 / self.requests.max(1) as f64
    }
}

/// A number that orders times.
fn key(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

struct World<'a> {
    scenario: &'a Scenario,
    random: Random,
    now: f64,
    cost_model: CostModel,
    /// When it came, and how often it was refused.
    waiting: VecDeque<(f64, u32)>,
    returns: VecDeque<(f64, u32)>,
    next_arrival: usize,
    arrived: u64,
    refused: u64,
    /// End, items, what it took.
    busy: BinaryHeap<Reverse<(u64, usize, u64)>>,
    running: usize,
    up: u32,
    idle: u32,
    retiring: u32,
    /// When each was asked for, and when it is there.
    starting: VecDeque<(f64, f64)>,
    without_place: u32,
    started: Vec<f64>,
    run: Run,
}

pub(crate) fn run(scenario: &Scenario, rule: &mut dyn Rule) -> Run {
    let mut world = World {
        scenario,
        random: Random(scenario.seed),
        now: 0.0,
        cost_model: CostModel::default(),
        waiting: VecDeque::new(),
        returns: VecDeque::new(),
        next_arrival: 0,
        arrived: 0,
        refused: 0,
        busy: BinaryHeap::new(),
        running: 0,
        up: scenario.begins_with,
        idle: scenario.begins_with,
        retiring: 0,
        starting: VecDeque::new(),
        without_place: 0,
        started: vec![scenario.start.0],
        run: Run::default(),
    };
    // The first replica measures batches before it is ready.
    for size in std::iter::successors(Some(1), |size| Some(size * 2)).take_while(|&size| size <= scenario.service.most)
    {
        for _ in 0..2 {
            let seconds = world.sample(size);
            world.cost_model.learn(BatchCost::alike(size, 1), Duration::from_secs_f64(seconds));
        }
    }
    world.work(rule);
    world.run
}

impl World<'_> {
    fn sample(&mut self, items: usize) -> f64 {
        let service = self.scenario.service;
        let drift = if self.now >= service.drift.0 { service.drift.1 } else { 1.0 };
        let noise = if service.cv > 0.0 { self.random.lognormal(service.cv) } else { 1.0 };
        service.seconds(items) * drift * noise
    }

    fn work(&mut self, rule: &mut dyn Rule) {
        let (mut next_tick, mut next_death) = (0.0, self.scenario.dies_every);
        while self.now < self.scenario.end {
            let mut next: f64 = f64::min(next_tick, next_death);
            if let Some(&Reverse((end, ..))) = self.busy.peek() {
                next = next.min(end as f64 * 1e-9);
            }
            if let Some(&(_, at)) = self.starting.front() {
                next = next.min(at);
            }
            if self.idle > 0 && self.up > 0 {
                next = next.min(self.scenario.arrivals.get(self.next_arrival).copied().unwrap_or(f64::INFINITY));
                next = next.min(self.returns.front().map_or(f64::INFINITY, |&(at, _)| at));
            }
            let next = next.max(self.now);
            self.run.cost += (f64::from(self.up) + self.starting.len() as f64) * (next - self.now);
            self.now = next;
            self.arrive();
            self.finish();
            while self.starting.front().is_some_and(|&(_, at)| at <= next) {
                let (asked, _) = self.starting.pop_front().expect("there is one");
                self.started.push(next - asked);
                (self.up, self.idle) = (self.up + 1, self.idle + 1);
            }
            if next >= next_death {
                next_death += self.scenario.dies_every;
                if self.idle > 0 {
                    (self.up, self.idle) = (self.up - 1, self.idle - 1);
                    self.start_one();
                }
            }
            if next >= next_tick {
                next_tick += 1.0;
                self.ask(rule);
            }
            self.launch();
        }
        self.run.late += self.waiting.len() + self.returns.len();
        self.run.requests = self.scenario.arrivals.len();
    }

    fn arrive(&mut self) {
        while let Some(&at) = self.scenario.arrivals.get(self.next_arrival).filter(|&&at| at <= self.now) {
            self.next_arrival += 1;
            self.enter(at, 0);
        }
        while self.returns.front().is_some_and(|&(at, _)| at <= self.now) {
            let (at, tries) = self.returns.pop_front().expect("there is one");
            self.enter(at, tries);
        }
    }

    /// Admission refuses what would be later than one and a half targets.
    fn enter(&mut self, at: f64, tries: u32) {
        self.arrived += 1;
        let most = self.scenario.service.most;
        let full = self.cost_model.by_items().seconds(most);
        let batches = self.waiting.len() as f64 / most as f64 + 0.5;
        let is_refused = if self.up == 0 {
            self.waiting.len() >= 400
        } else {
            self.waiting.len() >= 8 && batches * full / f64::from(self.up) + full > 1.5 * self.scenario.target
        };
        self.refused += u64::from(is_refused);
        if !is_refused {
            self.waiting.push_back((at, tries));
        } else if tries < self.scenario.retries {
            self.returns.push_back((at + 1.0, tries + 1));
        } else {
            self.run.late += 1;
        }
    }

    fn finish(&mut self) {
        while let Some(&Reverse((end, items, took))) =
            self.busy.peek().filter(|Reverse((end, ..))| *end <= key(self.now))
        {
            self.busy.pop();
            self.running -= items;
            self.run.first_answer.get_or_insert(end as f64 * 1e-9);
            self.cost_model.learn(BatchCost::alike(items, 1), Duration::from_nanos(took));
            if self.retiring > 0 {
                (self.retiring, self.up) = (self.retiring - 1, self.up - 1);
            } else {
                self.idle += 1;
            }
        }
    }

    fn start_one(&mut self) {
        let (before, from, after) = self.scenario.start;
        let takes = if self.now >= from { after } else { before };
        self.starting.push_back((self.now, self.now + takes));
        self.run.starts += 1;
    }

    fn ask(&mut self, rule: &mut dyn Rule) {
        let (min, max) = (self.scenario.min, self.scenario.max);
        let working = self.up - self.retiring;
        let seen = Seen {
            now: self.now,
            arrived: self.arrived,
            refused: self.refused,
            waiting: self.waiting.len(),
            ongoing: self.waiting.len() + self.running,
            up: working,
            starting: self.starting.len() as u32 + self.without_place,
            without_place: self.without_place,
            cost_model: &self.cost_model,
            oldest_start: self.starting.front().map(|&(asked, _)| self.now - asked),
            started: &mut self.started,
        };
        let wanted = rule.wanted(seen).clamp(min, max);
        self.run.wanted.push(wanted);
        let places = wanted.min(self.scenario.places);
        self.without_place = wanted - places;
        let have = working + self.starting.len() as u32;
        for _ in have..places {
            if self.retiring > 0 { self.retiring -= 1 } else { self.start_one() }
        }
        for _ in places..have {
            if self.starting.pop_back().is_some() {
            } else if self.idle > 0 {
                (self.idle, self.up) = (self.idle - 1, self.up - 1);
            } else {
                self.retiring += 1;
            }
        }
    }

    fn launch(&mut self) {
        while self.idle > 0 && !self.waiting.is_empty() {
            let share = self.waiting.len().div_ceil(self.idle as usize);
            let items = share.clamp(1, self.scenario.service.most);
            self.idle -= 1;
            let seconds = self.sample(items);
            let end = self.now + seconds;
            for (at, tries) in self.waiting.drain(..items) {
                let since = at - f64::from(tries);
                self.run.late += usize::from(end - since > self.scenario.target);
            }
            self.busy.push(Reverse((key(end).max(key(self.now) + 1), items, key(seconds))));
            self.running += items;
        }
    }
}
