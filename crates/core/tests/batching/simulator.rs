//! One deployment in virtual time: the scheduler of production with simulated arrivals and workers. Seconds throughout.

use crate::arrivals::{Coming, Open, Stream, Users};
pub(crate) use crate::figures::{Figures, geomean, mean, quantile};
use crate::random::Random;
use jitney_core::config::limits::BatchLimits;
use jitney_core::config::limits::QueueLimits;
use jitney_core::config::rules::{PolicyChoice, Rules};
use jitney_core::learn::batch_cost::{BatchCost, Measure};
use jitney_core::policy::batch_policy::BatchPolicy;
use jitney_core::queue::group_key::{GroupKey, KeyPart};
use jitney_core::request::{ItemId, Priority, ReplicaClass, ReplicaId};
use jitney_core::scheduler::action::{Action, Launch};
use jitney_core::scheduler::admission::refusal::Refusal;
use jitney_core::scheduler::item::{EndedItem, NewItem, Payload};
use jitney_core::scheduler::state::Scheduler;
use jitney_core::tables::outcome::Outcome as Unanswered;
use jitney_core::time::Time;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

/// What a batch takes: a + b·n, and the ways in which real models depart from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Service {
    pub(crate) a: f64,
    pub(crate) b: f64,
    /// Beyond this size the slope is the second number.
    pub(crate) knee: (usize, f64),
    /// A batch is padded up to the next power of two.
    pub(crate) is_padded: bool,
    /// Noise: coefficient of variation.
    pub(crate) cv: f64,
    /// From this time on, times this factor.
    pub(crate) drift: (f64, f64),
    /// A share of batches takes this many times as long.
    pub(crate) slow: (f64, f64),
    /// What n is.
    pub(crate) follows: Measure,
}

pub(crate) const fn service(a: f64, b: f64) -> Service {
    let follows = Measure::Items;
    Service {
        a,
        b,
        follows,
        knee: (usize::MAX, 0.0),
        is_padded: false,
        cv: 0.0,
        drift: (f64::INFINITY, 1.0),
        slow: (0.0, 1.0),
    }
}

impl Service {
    pub(crate) fn seconds(&self, items: usize) -> f64 {
        let items = if self.is_padded { items.next_power_of_two() } else { items };
        let (knee, slope) = self.knee;
        self.a + self.b * items.min(knee) as f64 + slope * items.saturating_sub(knee) as f64
    }

    pub(crate) fn sample(&self, load: BatchCost, now: f64, random: &mut Random) -> f64 {
        let drift = if now >= self.drift.0 { self.drift.1 } else { 1.0 };
        let noise = if self.cv > 0.0 { random.lognormal(self.cv) } else { 1.0 };
        let slow = if self.slow.0 > 0.0 && random.unit() < self.slow.0 { self.slow.1 } else { 1.0 };
        self.seconds(load.units(self.follows)) * drift * noise * slow
    }
}

/// Who refuses late heads of a scenario with a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drop {
    /// The scheduler, by what it has learned.
    ByPolicy,
    /// Somebody who refuses only what has expired: a queue time-out.
    Expired,
    /// A gate that knows what batches take, and refuses what cannot end in time in a batch of at most this size.
    Window(usize),
}

/// Lengths spread as those of texts are: lognormal, cut off at both ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lengths {
    pub(crate) mean: f64,
    pub(crate) cv: f64,
    pub(crate) least: u64,
    pub(crate) most: u64,
}

impl Lengths {
    fn draw(&self, random: &mut Random) -> u64 {
        ((self.mean * random.lognormal(self.cv)) as u64).clamp(self.least, self.most)
    }
}

/// What is simulated.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) service: Service,
    pub(crate) max_batch: usize,
    pub(crate) replicas: u32,
    pub(crate) open: Option<Open>,
    pub(crate) users: Option<Users>,
    /// When all users but one leave.
    pub(crate) crowd_leaves_at: f64,
    /// Batches of odd lanes take this many times as long.
    pub(crate) odd_lanes: f64,
    /// Lengths of requests; without them all cost 1.
    pub(crate) lengths: Option<Lengths>,
    /// The scheduler does not know what requests cost.
    pub(crate) hides_costs: bool,
    /// A share of requests has its own deadline, so many seconds after its arrival.
    pub(crate) hurried: (f64, f64),
    /// A refused client comes back after `Retry-After`, so many times.
    pub(crate) retries: u32,
    /// Answers should come within this.
    pub(crate) target: Option<f64>,
    pub(crate) drop: Drop,
    /// Requests that end.
    pub(crate) ends: usize,
    /// Share of the time left out of the figures.
    pub(crate) warm: f64,
    /// Head start of the high priority, in seconds.
    pub(crate) boost: f64,
    /// Sizes measured before serving: 1, 2, 4, …
    pub(crate) has_profile: bool,
    /// Timers of the server ring at multiples of this, in seconds; 0: to the nanosecond.
    pub(crate) timer: f64,
    /// The scheduler is also polled between events, as by a timer that was set for something else.
    pub(crate) polls_for_nothing: bool,
}

impl Scenario {
    pub(crate) fn new(name: impl Into<String>, service: Service) -> Scenario {
        Scenario {
            name: name.into(),
            service,
            max_batch: 32,
            replicas: 1,
            open: None,
            users: None,
            crowd_leaves_at: f64::INFINITY,
            odd_lanes: 1.0,
            lengths: None,
            hides_costs: false,
            hurried: (0.0, 0.0),
            retries: 0,
            target: None,
            drop: Drop::ByPolicy,
            ends: 3000,
            warm: 0.2,
            boost: 0.0,
            has_profile: false,
            timer: 0.0,
            polls_for_nothing: false,
        }
    }

    fn rules(&self) -> Rules {
        Rules {
            boost: Duration::from_secs_f64(self.boost),
            target: self.target.filter(|_| self.drop == Drop::ByPolicy).map(Duration::from_secs_f64),
            ..rules(self.max_batch)
        }
    }
}

/// Rules that refuse nothing and let nothing expire.
pub(crate) fn rules(max_batch: usize) -> Rules {
    let hours = Duration::from_secs(100 * 3600);
    Rules {
        batch: BatchLimits { max_items: max_batch, max_cost: u64::MAX },
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
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Request {
    lane: usize,
    is_high: bool,
    is_user: bool,
    /// Latency that was predicted when it arrived.
    predicted: Option<f64>,
    cost: u64,
    /// How often it was sent.
    tries: u32,
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

/// What happens; at one time in this order.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Done(ReplicaId),
    Arrive(Coming, bool),
    /// Somebody who was refused comes back.
    Return(Request),
}

/// One answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub(crate) at: f64,
    pub(crate) latency: f64,
    pub(crate) lane: usize,
    pub(crate) is_high: bool,
    pub(crate) predicted: Option<f64>,
    pub(crate) cost: u64,
    pub(crate) tries: u32,
}

/// Somebody who was refused, after so long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) at: f64,
    pub(crate) after: f64,
}

/// One batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ran {
    pub(crate) at: f64,
    pub(crate) items: usize,
    pub(crate) load: BatchCost,
    /// For how long a replica was free while items waited, at most.
    pub(crate) held_s: f64,
    /// Why it was closed, as the metric says it.
    pub(crate) reason: &'static str,
}

#[derive(Debug)]
struct Replica {
    batches: VecDeque<Launch>,
}

/// A run in progress.
pub(crate) struct Simulation {
    scenario: Scenario,
    scheduler: Scheduler<Request>,
    now: Time,
    keys: Vec<GroupKey>,
    events: BinaryHeap<Reverse<(Time, u8, u64)>>,
    what: BTreeMap<u64, Event>,
    next: u64,
    stream: Option<Stream>,
    work_random: Random,
    length_random: Random,
    arrival_random: Random,
    replicas: BTreeMap<ReplicaId, Replica>,
    users_left: usize,
    holding_since: Option<f64>,
    /// Who waits, where the scheduler does not refuse late heads itself.
    waiting: VecDeque<(ItemId, f64)>,
    result: Outcome,
}

/// Result of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) answered: Vec<Answered>,
    pub(crate) refused: Vec<Refused>,
    pub(crate) batches: Vec<Ran>,
    pub(crate) ended_at: f64,
}

impl Simulation {
    pub(crate) fn run(scenario: &Scenario, policy: Box<dyn BatchPolicy>, seed: u64) -> Figures {
        let lanes = match (scenario.open, scenario.users) {
            (Some(Open::Poisson { lanes, .. }), _) => lanes,
            (_, Some(users)) => users.lanes,
            _ => 1,
        };
        let keys = (0..lanes as i64).map(|lane| GroupKey([KeyPart::Int(lane)].into_iter().collect())).collect();
        let mut arrival_random = Random(seed + 1000);
        let stream = scenario.open.map(|open| Stream::new(open, &mut arrival_random));
        let mut simulation = Simulation {
            scheduler: Scheduler::with_policy(scenario.rules(), policy),
            now: Time(0),
            keys,
            events: BinaryHeap::new(),
            what: BTreeMap::new(),
            next: 0,
            stream,
            work_random: Random(seed),
            length_random: Random(seed + 2000),
            arrival_random,
            replicas: BTreeMap::new(),
            users_left: scenario.users.map_or(0, |users| users.count),
            holding_since: None,
            waiting: VecDeque::new(),
            result: Outcome::default(),
            scenario: scenario.clone(),
        };
        simulation.start();
        simulation.work();
        Figures::of(&simulation.result, scenario)
    }

    fn start(&mut self) {
        for id in (0..self.scenario.replicas).map(ReplicaId) {
            self.scheduler.replica_up(self.now, id, ReplicaClass::default());
            self.replicas.insert(id, Replica { batches: VecDeque::new() });
        }
        if self.scenario.has_profile {
            let sizes = std::iter::successors(Some(1), |size| Some(size * 2));
            let sizes = sizes.take_while(|&size| size <= self.scenario.max_batch);
            let measured = sizes.map(|size| {
                let load = BatchCost::alike(size, 1);
                (load, Duration::from_secs_f64(self.scenario.service.sample(load, 0.0, &mut self.work_random)))
            });
            self.scheduler.profiled(ReplicaClass::default(), measured);
        }
        self.next_stranger();
        if let Some(users) = self.scenario.users {
            for user in 0..users.count {
                let at = users.returns_after(0, &mut self.arrival_random);
                let coming = Coming { at, lane: user % users.lanes, is_high: false };
                self.push(at, Event::Arrive(coming, true));
            }
        }
    }

    fn next_stranger(&mut self) {
        if let Some(stream) = &mut self.stream {
            let coming = stream.next(&mut self.arrival_random);
            self.push(coming.at, Event::Arrive(coming, false));
        }
    }

    fn push(&mut self, at: f64, event: Event) {
        let kind = u8::from(!matches!(event, Event::Done(_)));
        self.next += 1;
        self.events.push(Reverse((time(at), kind, self.next)));
        self.what.insert(self.next, event);
    }

    fn work(&mut self) {
        while self.result.answered.len() + self.result.refused.len() < self.scenario.ends {
            let next = self.events.peek().map(|&Reverse(next)| next);
            if let Some(wake) = self
                .scheduler
                .next_wake()
                .map(|wake| self.rings_at(wake))
                .filter(|&wake| next.is_none_or(|(at, ..)| wake < at))
            {
                self.now = wake.max(self.now);
                self.act();
                continue;
            }
            let Some((at, _, number)) = next else { break };
            self.events.pop();
            if self.scenario.polls_for_nothing {
                self.now = Time(self.now.0.midpoint(at.0));
                self.act();
            }
            self.now = at;
            match self.what.remove(&number).expect("each number has its event") {
                Event::Arrive(coming, is_user) => self.arrive(coming, is_user),
                Event::Done(replica) => self.done(replica),
                Event::Return(request) => self.enter(request),
            }
            self.act();
        }
        self.result.ended_at = self.now.as_secs_f64();
    }

    /// When a timer rings that was set for `wake`.
    fn rings_at(&self, wake: Time) -> Time {
        let step = (self.scenario.timer * 1e9) as u64;
        if step == 0 || wake <= self.now { wake } else { Time(wake.0.div_ceil(step) * step) }
    }

    fn arrive(&mut self, coming: Coming, is_user: bool) {
        if !is_user {
            self.next_stranger();
        }
        let cost = self.scenario.lengths.map_or(1, |lengths| lengths.draw(&mut self.length_random));
        let Coming { lane, is_high, .. } = coming;
        self.enter(Request { lane, is_high, is_user, predicted: None, cost, tries: 1 });
    }

    fn enter(&mut self, request: Request) {
        self.next += 1;
        let (id, group) = (ItemId(self.next), self.keys[request.lane].clone());
        let cost = if self.scenario.hides_costs { 1 } else { request.cost };
        let priority = if request.is_high { Priority::High } else { Priority::Normal };
        let forecast = self.scheduler.forecast(self.now, &group, priority, cost);
        let predicted = forecast.map(|forecast| forecast.latency.as_secs_f64());
        let (share, deadline) = self.scenario.hurried;
        let is_hurried = share > 0.0 && self.length_random.unit() < share;
        let item = NewItem {
            id,
            group,
            cost,
            bytes: 1,
            priority,
            timeout: is_hurried.then(|| Duration::from_secs_f64(deadline)),
            payload: Request { predicted, ..request },
        };
        if self.scenario.drop == Drop::ByPolicy && self.scenario.target.is_some() {
            if let Err((request, refusal)) = self.scheduler.submit(self.now, item) {
                self.refused(request, self.now, refusal);
            }
        } else {
            // Not by admission: without a target a policy must not look good because others were refused.
            assert!(self.scheduler.enter(self.now, item).is_ok(), "nothing is refused here");
            self.waiting.push_back((id, self.now.as_secs_f64()));
        }
    }

    fn refused(&mut self, request: Request, arrival: Time, refusal: Refusal) {
        if let Some(after) = refusal.retry_after.filter(|_| request.tries <= self.scenario.retries) {
            let back = Request { tries: request.tries + 1, ..request };
            // No user is back to the nanosecond.
            let at = self.now.as_secs_f64() + after.as_secs_f64() + self.length_random.between(0.0, 0.1);
            self.push(at, Event::Return(back));
            return;
        }
        self.result.refused.push(Refused { at: self.now.as_secs_f64(), after: (self.now - arrival).as_secs_f64() });
    }

    /// Refuses late heads as servers do that know no better.
    fn drop_late(&mut self) {
        let (Some(target), true) = (self.scenario.target, self.is_free()) else { return };
        let now = self.now.as_secs_f64();
        while let Some(&(id, arrival)) = self.waiting.front() {
            let needed = match self.scenario.drop {
                Drop::ByPolicy => return,
                Drop::Expired => 0.0,
                Drop::Window(size) => {
                    self.scenario.service.seconds(size.min(self.scenario.max_batch).min(self.waiting.len()))
                }
            };
            if arrival + target - now > needed {
                return;
            }
            self.waiting.pop_front();
            let ended = self.scheduler.cancel(id).expect("it waits");
            self.refused(ended.payload, ended.arrival, Refusal::never(Unanswered::WouldBeLate));
        }
    }

    fn is_free(&self) -> bool {
        self.replicas.values().any(|replica| replica.batches.is_empty())
    }

    fn act(&mut self) {
        loop {
            self.drop_late();
            let Some(action) = self.scheduler.poll(self.now) else { break };
            match action {
                Action::Launch(launch) => self.launched(launch),
                Action::Fail(ended, outcome) => {
                    let refusal = match outcome {
                        Unanswered::WouldBeLate => self.scheduler.refusal_of_late(self.now),
                        other => Refusal::never(other),
                    };
                    self.refused(ended.payload, ended.arrival, refusal);
                }
                Action::Forget(..) => {}
                Action::Slow(replica, factor) => panic!("all are equal, but {replica:?} takes {factor} times as long"),
                Action::Kill(replica) => panic!("nothing hangs here, but {replica:?} is to be killed"),
            }
        }
        if self.is_free() && self.scheduler.queued_items() > 0 {
            self.holding_since.get_or_insert(self.now.as_secs_f64());
        }
    }

    fn launched(&mut self, launch: Launch) {
        let now = self.now.as_secs_f64();
        let held_s = self.holding_since.take().map_or(0.0, |since| now - since);
        self.result.batches.push(Ran {
            at: now,
            items: launch.items.len(),
            load: launch.load,
            held_s,
            reason: launch.reason.label(),
        });
        self.waiting.drain(..launch.items.len().min(self.waiting.len()));
        let id = launch.replica;
        let replica = self.replicas.get_mut(&id).expect("launches go to replicas that are up");
        replica.batches.push_back(launch);
        if replica.batches.len() == 1 {
            self.begin(id);
        }
    }

    fn begin(&mut self, id: ReplicaId) {
        let now = self.now.as_secs_f64();
        if let Some(launch) = self.replicas[&id].batches.front() {
            let costs = launch.items.iter().filter_map(|&id| Some(self.scheduler.payload(id, self.now)?.0.cost));
            let load: BatchCost = costs.collect();
            let seconds = self.scenario.service.sample(load, now, &mut self.work_random);
            let first = self.scheduler.payload(launch.items[0], self.now);
            let is_odd = first.is_some_and(|(request, _)| request.lane % 2 == 1);
            let seconds = if is_odd { seconds * self.scenario.odd_lanes } else { seconds };
            self.push(now + seconds, Event::Done(id));
        }
    }

    fn done(&mut self, id: ReplicaId) {
        let replica = self.replicas.get_mut(&id).expect("it ran");
        let Launch { batch, items, .. } = replica.batches.pop_front().expect("it ran");
        for (place, item) in items.into_iter().enumerate() {
            // A request with a deadline may have expired.
            if let Some(ended) = self.scheduler.item_ended(batch, item) {
                self.answered(&ended, place);
            }
        }
        self.scheduler.batch_ended(self.now, id, batch, true);
        self.begin(id);
    }

    fn answered(&mut self, ended: &EndedItem<Request>, place: usize) {
        let Request { lane, is_high, is_user, predicted, cost, tries, .. } = ended.payload;
        let now = self.now.as_secs_f64();
        let latency = (self.now - ended.arrival).as_secs_f64();
        self.result.answered.push(Answered { at: now, latency, lane, is_high, predicted, cost, tries });
        if let Some(users) = self.scenario.users.filter(|_| is_user) {
            if now >= self.scenario.crowd_leaves_at && self.users_left > 1 {
                self.users_left -= 1;
                return;
            }
            let at = now + users.returns_after(place, &mut self.arrival_random);
            let lane = users.goes.from(lane, users.lanes, &mut self.arrival_random);
            self.push(at, Event::Arrive(Coming { at, lane, is_high: false }, true));
        }
    }
}

pub(crate) fn time(seconds: f64) -> Time {
    Time((seconds * 1e9).round() as u64)
}
