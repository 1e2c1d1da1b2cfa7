//! One deployment in virtual time: batches on replicas that come after a start time and go when they are idle. Seconds.

use crate::random::Random;
use jitney_core::learn::batch_cost::BatchCost;
use jitney_core::learn::cost_model::CostModel;
use std::cmp::{Ordering, Reverse};
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

/// What a client does that was refused.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Retry {
    Never,
    /// It comes again after so many seconds, at most so many times.
    After(f64, u32),
    /// It comes again when the refusal says (`Retry-After`), at most so many times.
    Obeying(u32),
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
    /// The load of each half a second, in replicas at full batches.
    pub(crate) loads: Rc<[f64]>,
    pub(crate) end: f64,
    pub(crate) min: u32,
    pub(crate) max: u32,
    pub(crate) begins_with: u32,
    /// Replicas for which there is room.
    pub(crate) places: u32,
    /// A replica dies every so many seconds.
    pub(crate) dies_every: f64,
    pub(crate) retry: Retry,
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
    /// What was wanted, and what was up, each second.
    pub(crate) wanted: Vec<u32>,
    pub(crate) up: Vec<u32>,
    /// When the first request was answered.
    pub(crate) first_answer: Option<f64>,
}

impl Run {
    pub(crate) fn late_share(&self) -> f64 {
        self.late as f64 / self.requests.max(1) as f64
    }
}

/// A run is of no use when it costs more than `cost` and is late more often than `late`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) cost: f64,
    pub(crate) late: usize,
    /// It is of no use either when it costs more than this.
    pub(crate) most_cost: f64,
}

/// A time that can be compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Instant(pub(crate) f64);

impl Eq for Instant {}

impl PartialOrd for Instant {
    fn partial_cmp(&self, other: &Instant) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Instant {
    fn cmp(&self, other: &Instant) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// A number that orders times.
fn key(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// One deployment. A driver asks for the next event, and goes on to it.
pub(crate) struct World<'a> {
    scenario: &'a Scenario,
    random: Random,
    now: f64,
    next_tick: f64,
    next_death: f64,
    cost_model: CostModel,
    /// When each came first.
    waiting: VecDeque<f64>,
    /// Refused clients: when each comes again, when it came first, how often it was refused.
    returns: BinaryHeap<Reverse<(Instant, Instant, u32)>>,
    /// Items that another deployment sends: when each comes, and when its request came. They are not refused.
    pub(crate) inflow: BinaryHeap<Reverse<(Instant, Instant)>>,
    /// The end of each item and when its request came, where another deployment gets it.
    pub(crate) answers: Option<Vec<(Instant, Instant)>>,
    /// An answer is late after so many seconds.
    pub(crate) late_after: f64,
    /// Whether the deployment that gets the answers would refuse them: then clients are refused here.
    pub(crate) is_blocked: bool,
    /// Clients that were refused so.
    pub(crate) blocked: u64,
    next_arrival: usize,
    pub(crate) arrived: u64,
    pub(crate) refused: u64,
    /// End, items, what it took.
    busy: BinaryHeap<Reverse<(u64, usize, u64)>>,
    running: usize,
    up: u32,
    idle: u32,
    retiring: u32,
    /// When each was asked for, and when it is there.
    starting: VecDeque<(f64, f64)>,
    without_place: u32,
    wanted: u32,
    started: Vec<f64>,
    run: Run,
}

pub(crate) fn run(scenario: &Scenario, rule: &mut dyn Rule) -> Run {
    let all = Limits { cost: f64::INFINITY, late: usize::MAX, most_cost: f64::INFINITY };
    run_within(scenario, rule, all).expect("it is within all limits")
}

/// `None` as soon as it is of no use.
pub(crate) fn run_within(scenario: &Scenario, rule: &mut dyn Rule, limits: Limits) -> Option<Run> {
    let mut world = World::new(scenario);
    while world.now < scenario.end {
        if world.advance(world.next()) {
            let wanted = world.wanted(rule);
            world.allot(wanted.min(scenario.places));
            let Run { cost, late, .. } = world.run;
            if cost > limits.cost && (late > limits.late || cost > limits.most_cost) {
                return None;
            }
        }
        world.launch();
    }
    Some(world.end())
}

impl<'a> World<'a> {
    pub(crate) fn new(scenario: &'a Scenario) -> World<'a> {
        let mut world = World {
            scenario,
            random: Random(scenario.seed),
            now: 0.0,
            next_tick: 0.0,
            next_death: scenario.dies_every,
            cost_model: CostModel::default(),
            waiting: VecDeque::new(),
            returns: BinaryHeap::new(),
            inflow: BinaryHeap::new(),
            answers: None,
            late_after: scenario.target,
            is_blocked: false,
            blocked: 0,
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
            wanted: scenario.begins_with,
            started: vec![scenario.start.0],
            run: Run::default(),
        };
        // The first replica measures batches before it is ready.
        let most = scenario.service.most;
        for size in std::iter::successors(Some(1), |size| Some(size * 2)).take_while(|&size| size <= most) {
            for _ in 0..2 {
                let seconds = world.sample(size);
                world.cost_model.learn(BatchCost::alike(size, 1), Duration::from_secs_f64(seconds));
            }
        }
        world
    }

    /// Replicas that it has, those that start and those that end included.
    pub(crate) fn has(&self) -> u32 {
        self.up + self.starting.len() as u32
    }

    /// Replica-seconds until now.
    pub(crate) fn cost(&self) -> f64 {
        self.run.cost
    }

    /// Replicas that work.
    fn working(&self) -> u32 {
        self.up - self.retiring
    }

    /// Replicas that work or start.
    pub(crate) fn staying(&self) -> u32 {
        self.working() + self.starting.len() as u32
    }

    /// The result, when the driver has come to the end.
    pub(crate) fn end(mut self) -> Run {
        self.run.late += self.waiting.len() + self.returns.len();
        self.run.requests = self.scenario.arrivals.len();
        self.run
    }

    fn sample(&mut self, items: usize) -> f64 {
        let service = self.scenario.service;
        let drift = if self.now >= service.drift.0 { service.drift.1 } else { 1.0 };
        let noise = if service.cv > 0.0 { self.random.lognormal(service.cv) } else { 1.0 };
        service.seconds(items) * drift * noise
    }

    /// When something happens next. What arrives while no replica is idle is taken in later.
    pub(crate) fn next(&self) -> f64 {
        let mut next = self.next_tick.min(self.next_death);
        let mut at = |event: Option<f64>| next = next.min(event.unwrap_or(f64::INFINITY));
        at(self.busy.peek().map(|&Reverse((end, ..))| end as f64 * 1e-9));
        at(self.starting.front().map(|&(_, ready)| ready));
        if self.idle > 0 {
            at(self.scenario.arrivals.get(self.next_arrival).copied());
            at(self.returns.peek().map(|Reverse((back, ..))| back.0));
            at(self.inflow.peek().map(|Reverse((comes, _))| comes.0));
        }
        next.max(self.now)
    }

    /// Goes on to this time. Returns whether the number of replicas is to be decided.
    pub(crate) fn advance(&mut self, to: f64) -> bool {
        self.run.cost += f64::from(self.has()) * (to - self.now);
        self.now = to;
        self.arrive();
        self.finish();
        while self.starting.front().is_some_and(|&(_, ready)| ready <= to) {
            let (asked, _) = self.starting.pop_front().expect("there is one");
            self.started.push(to - asked);
            (self.up, self.idle) = (self.up + 1, self.idle + 1);
        }
        if to >= self.next_death {
            self.next_death += self.scenario.dies_every;
            if self.idle > 0 {
                (self.up, self.idle) = (self.up - 1, self.idle - 1);
                self.start_one();
            }
        }
        let ticks = to >= self.next_tick;
        self.next_tick += if ticks { 1.0 } else { 0.0 };
        ticks
    }

    fn arrive(&mut self) {
        while let Some(&at) = self.scenario.arrivals.get(self.next_arrival).filter(|&&at| at <= self.now) {
            self.next_arrival += 1;
            self.enter(at, at, 0);
        }
        let now = Instant(self.now);
        while let Some(&Reverse((at, since, tries))) = self.returns.peek().filter(|Reverse((at, ..))| *at <= now) {
            self.returns.pop();
            self.enter(at.0, since.0, tries);
        }
        while let Some(&Reverse((_, since))) = self.inflow.peek().filter(|Reverse((at, _))| *at <= now) {
            self.inflow.pop();
            self.arrived += 1;
            self.waiting.push_back(since.0);
        }
    }

    /// What a full batch takes, and by how much what comes now would be later than one and a half targets.
    fn excess(&self) -> (f64, f64) {
        let most = self.scenario.service.most;
        let full = self.cost_model.by_items().seconds(most);
        let batches = self.waiting.len() as f64 / most as f64 + 0.5;
        let latency = batches * full / f64::from(self.up.max(1)) + full;
        (full, latency - 1.5 * self.scenario.target)
    }

    /// Whether admission would refuse what comes now.
    pub(crate) fn is_full(&self) -> bool {
        let waiting = self.waiting.len();
        if self.up == 0 { waiting >= 400 } else { waiting >= 8 && self.excess().1 > 0.0 }
    }

    fn enter(&mut self, at: f64, since: f64, tries: u32) {
        if self.is_blocked {
            self.blocked += 1;
            self.run.late += 1;
            return;
        }
        self.arrived += 1;
        if !self.is_full() {
            return self.waiting.push_back(since);
        }
        self.refused += 1;
        let again = match self.scenario.retry {
            Retry::After(wait, times) if tries < times => at + wait,
            Retry::Obeying(times) if tries < times => {
                let (full, excess) = self.excess();
                at + (excess + full).ceil().clamp(1.0, 30.0)
            }
            _ => return self.run.late += 1,
        };
        self.returns.push(Reverse((Instant(again), Instant(since), tries + 1)));
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

    /// How many replicas the rule wants.
    pub(crate) fn wanted(&mut self, rule: &mut dyn Rule) -> u32 {
        let (min, max) = (self.scenario.min, self.scenario.max);
        let seen = Seen {
            now: self.now,
            arrived: self.arrived,
            refused: self.refused,
            waiting: self.waiting.len(),
            ongoing: self.waiting.len() + self.running,
            up: self.working(),
            starting: self.starting.len() as u32 + self.without_place,
            without_place: self.without_place,
            cost_model: &self.cost_model,
            oldest_start: self.starting.front().map(|&(asked, _)| self.now - asked),
            started: &mut self.started,
        };
        self.wanted = rule.wanted(seen).clamp(min, max);
        self.run.wanted.push(self.wanted);
        self.run.up.push(self.working());
        self.wanted
    }

    /// It may have so many replicas of those that it wants.
    pub(crate) fn allot(&mut self, places: u32) {
        self.without_place = self.wanted - places;
        let have = self.staying();
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

    pub(crate) fn launch(&mut self) {
        while self.idle > 0 && !self.waiting.is_empty() {
            let share = self.waiting.len().div_ceil(self.idle as usize);
            let items = share.clamp(1, self.scenario.service.most);
            self.idle -= 1;
            let seconds = self.sample(items);
            let end = self.now + seconds;
            for since in self.waiting.drain(..items) {
                self.run.late += usize::from(end - since > self.late_after);
                if let Some(answers) = &mut self.answers {
                    answers.push((Instant(end), Instant(since)));
                }
            }
            self.busy.push(Reverse((key(end).max(key(self.now) + 1), items, key(seconds))));
            self.running += items;
        }
    }
}
