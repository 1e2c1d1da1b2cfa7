//! Load histories drawn at random: users come and go, alone and in crowds, with requests of one row and of many, next to a
//! process that takes the core now and then. Nothing that was learned in one part may spoil a later one.

use crate::random::Random;
use crate::scenarios::{auto, eager};
use crate::simulator::{rules, time};
use jitney_core::policy::batch_policy::BatchPolicy;
use jitney_core::queue::group_key::GroupKey;
use jitney_core::request::{ItemId, Priority, ReplicaClass, ReplicaId};
use jitney_core::scheduler::action::{Action, Launch};
use jitney_core::scheduler::item::{NewItem, Payload};
use jitney_core::scheduler::state::Scheduler;
use jitney_core::time::Time;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Histories of an ordinary run. `JITNEY_TEST_LONG=1` asks for all of them, and `JITNEY_TEST_LONG=1000..2000` for these.
const SAMPLE: u64 = 40;
const ALL: u64 = 1000;
/// Histories that are always drawn: in each of them the policy was once slow, or took one item again and again.
const HARD: [u64; 15] = [47, 61, 165, 166, 247, 351, 465, 471, 567, 762, 877, 897, 935, 958, 962];
/// Requests that `auto` must answer for each that `eager` does, and the share of batches that may be batches of one that
/// should have been larger.
const LIMITS: Limits = Limits { least_ratio: 0.98, most_ones: 0.01 };
/// Users fall into one of several rhythms, by chance: batches of 24 and 24, or of 32 and 16 of which the full one is sent
/// ahead. A history that fails with one seed is judged by all of these together. Chance is averaged out then, so less is
/// allowed.
const SEEDS_IN_DOUBT: std::ops::Range<u64> = 0..20;
const LIMITS_IN_DOUBT: Limits = Limits { least_ratio: 0.99, most_ones: 0.005 };
/// Most items of a batch.
const MOST: usize = 32;

/// A stretch of the same load.
#[derive(Clone, Copy, Debug)]
struct Part {
    from: f64,
    until: f64,
    users: usize,
    /// Items of each request.
    rows: usize,
    /// From an answer to that user's next request, in seconds.
    rtt: f64,
}

/// One drawn history. All times in seconds.
#[derive(Clone, Debug)]
struct History {
    name: String,
    launch: f64,
    item: f64,
    /// What the front needs for each launch while nothing else happens in it.
    front: f64,
    noise: f64,
    parts: Vec<Part>,
    /// When another process has the core, in order.
    taken: Vec<(f64, f64)>,
    seed: u64,
}

impl History {
    fn draw(number: u64) -> History {
        let random = &mut Random(0x6869_7374_6f72_7900 + number);
        let is_no_op = random.unit() < 0.4;
        let launch = if is_no_op { random.magnitude(0.000_02, 0.000_1) } else { random.magnitude(0.000_2, 0.02) };
        let item = launch / random.magnitude(2.0, 100.0);
        let front = random.magnitude(0.000_05, 0.000_2);
        let full = launch + item * MOST as f64 + front;
        let (mut parts, mut now) = (Vec::new(), 0.0);
        for _ in 0..4 + (random.unit() * 4.0) as usize {
            let length = random.between(0.3, 1.0) * f64::max(1.0, 300.0 * full);
            let users = random.magnitude(1.0, 64.0).round() as usize;
            let rows = random.among(&[1, 1, 2, 8, 16]);
            let rtt = random.magnitude(0.000_1, 0.001);
            parts.push(Part { from: now, until: now + length, users, rows, rtt });
            now += length;
        }
        let (mut taken, mut at) = (Vec::new(), 0.0);
        // Three of four histories have a neighbour.
        while at < now && !number.is_multiple_of(4) {
            at += random.exponential(0.3);
            let until = at + random.exponential(0.2);
            while at < until {
                let slice = random.between(0.001, 0.004);
                taken.push((at, at + slice));
                at += 2.0 * slice;
            }
        }
        let noise = random.among(&[0.0, 0.05, 0.1]);
        let loads: Vec<String> = parts.iter().map(|part| format!("{}x{}", part.users, part.rows)).collect();
        let name = format!(
            "{number}: {:.3} ms + {:.4} ms an item, front {:.3} ms, noise {noise}, neighbour {}, users {}",
            launch * 1e3,
            item * 1e3,
            front * 1e3,
            !taken.is_empty(),
            loads.join(" "),
        );
        History { name, launch, item, front, noise, parts, taken, seed: number }
    }

    fn seconds(&self, items: usize) -> f64 {
        self.launch + self.item * items as f64
    }

    /// When work is done that begins at `from` and takes `seconds` of a core that others take now and then.
    fn done_at(&self, from: f64, seconds: f64) -> f64 {
        let (mut now, mut left) = (from, seconds);
        let first = self.taken.partition_point(|&(_, until)| until <= from);
        for &(begins, ends) in &self.taken[first..] {
            if begins > now {
                if now + left <= begins {
                    break;
                }
                left -= begins - now;
            }
            now = ends;
        }
        now + left
    }
}

/// A row of a user's request.
#[derive(Clone, Copy, Debug)]
struct Row {
    user: usize,
}

impl Payload for Row {
    type Input = ();

    fn input(&self) -> &() {
        &()
    }

    fn fingerprint((): &()) -> u64 {
        0
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Done,
    /// A user of a part sends the next request.
    Ask(usize, usize),
}

/// What a history must keep to.
struct Limits {
    least_ratio: f64,
    most_ones: f64,
}

impl Limits {
    fn hold(&self, ratio: f64, came: Came) -> bool {
        ratio >= self.least_ratio && came.ones as f64 <= self.most_ones * came.batches as f64
    }
}

/// Result of a history.
#[derive(Clone, Copy, Debug, Default)]
struct Came {
    requests: u64,
    batches: u64,
    /// Batches of one item that left others behind although one batch of all would have cost less than 0.75 of it for each.
    ones: u64,
}

struct Run<'a> {
    history: &'a History,
    scheduler: Scheduler<Row>,
    random: Random,
    now: f64,
    events: BinaryHeap<Reverse<(Time, u64)>>,
    what: BTreeMap<u64, Event>,
    next: u64,
    running: Option<Launch>,
    ahead: Vec<Launch>,
    /// Rows that a user still waits for, and the part in which they were asked for.
    missing: BTreeMap<usize, (usize, usize)>,
    came: Came,
}

impl<'a> Run<'a> {
    fn new(history: &'a History, policy: Box<dyn BatchPolicy>) -> Run<'a> {
        Run {
            history,
            scheduler: Scheduler::with_policy(rules(MOST), policy),
            random: Random(history.seed),
            now: 0.0,
            events: BinaryHeap::new(),
            what: BTreeMap::new(),
            next: 0,
            running: None,
            ahead: Vec::new(),
            missing: BTreeMap::new(),
            came: Came::default(),
        }
    }

    fn push(&mut self, at: f64, event: Event) {
        self.next += 1;
        self.events.push(Reverse((time(at), self.next)));
        self.what.insert(self.next, event);
    }

    fn work(mut self) -> Came {
        self.scheduler.replica_up(Time(0), ReplicaId(0), ReplicaClass::default());
        for (part, load) in self.history.parts.iter().enumerate() {
            (0..load.users).for_each(|user| self.push(load.from, Event::Ask(part, user)));
        }
        loop {
            let next = self.events.peek().map(|&Reverse((at, _))| at);
            let wake = self.scheduler.next_wake().filter(|wake| wake.0 < 3_600_000_000_000);
            match (wake, next) {
                (Some(wake), next) if next.is_none_or(|at| wake < at) => {
                    self.now = self.now.max(wake.as_secs_f64());
                }
                (_, Some(at)) => {
                    let Reverse((_, number)) = self.events.pop().expect("it was looked at");
                    self.now = self.now.max(at.as_secs_f64());
                    match self.what.remove(&number).expect("each number has its event") {
                        Event::Done => self.done(),
                        Event::Ask(part, user) => self.ask(part, user),
                    }
                }
                (_, None) => return self.came,
            }
            self.act();
        }
    }

    fn ask(&mut self, part: usize, user: usize) {
        let load = self.history.parts[part];
        if self.now >= load.until {
            return;
        }
        let user = part << 16 | user;
        for _ in 0..load.rows {
            self.next += 1;
            let item = NewItem {
                id: ItemId(self.next),
                group: GroupKey::default(),
                cost: 1,
                bytes: 1,
                priority: Priority::Normal,
                timeout: None,
                payload: Row { user },
            };
            assert!(self.scheduler.enter(time(self.now), item).is_ok(), "nothing is refused here");
        }
        self.missing.insert(user, (load.rows, part));
    }

    fn done(&mut self) {
        let launch = self.running.take().expect("it ran");
        for id in &launch.items {
            let ended = self.scheduler.item_ended(launch.batch, *id).expect("nobody leaves");
            let user = ended.payload.user;
            let (missing, part) = self.missing.get_mut(&user).expect("it was asked for");
            *missing -= 1;
            if *missing == 0 {
                let part = *part;
                self.missing.remove(&user);
                self.came.requests += 1;
                let at = self.now + self.history.parts[part].rtt * self.random.between(0.5, 1.5);
                self.push(at, Event::Ask(part, user & 0xffff));
            }
        }
        self.scheduler.batch_ended(time(self.now), ReplicaId(0), launch.batch, true);
        if !self.ahead.is_empty() {
            let next = self.ahead.remove(0);
            self.begin(next);
        }
        // The front hands out the answers and prepares what comes next; meanwhile it hears of nothing else.
        self.now = self.history.done_at(self.now, self.history.front);
    }

    fn act(&mut self) {
        while let Some(action) = self.scheduler.poll(time(self.now)) {
            let Action::Launch(launch) = action else { panic!("only launches are due here") };
            self.came.batches += 1;
            let left = self.scheduler.queued_items();
            let whole = (left + 1).min(MOST);
            let each = |items: usize| (self.history.seconds(items) + self.history.front) / items as f64;
            if launch.items.len() == 1 && left > 0 && each(whole) < 0.75 * each(1) {
                self.came.ones += 1;
            }
            if self.running.is_some() { self.ahead.push(launch) } else { self.begin(launch) }
        }
    }

    fn begin(&mut self, launch: Launch) {
        let noise = if self.history.noise > 0.0 { self.random.lognormal(self.history.noise) } else { 1.0 };
        let at = self.history.done_at(self.now, self.history.seconds(launch.items.len()) * noise);
        self.running = Some(launch);
        self.push(at, Event::Done);
    }
}

/// Requests that a policy answers in a history.
pub(crate) fn answered(number: u64, policy: Box<dyn BatchPolicy>) -> u64 {
    Run::new(&History::draw(number), policy).work().requests
}

/// Requests that `auto` answers for each that `eager` does, over all of these seeds.
fn ratio(history: &History, seeds: impl Iterator<Item = u64>) -> (f64, Came) {
    let (mut all, mut eagers) = (Came::default(), 0);
    for seed in seeds {
        let history = History { seed, ..history.clone() };
        let came = Run::new(&history, auto()).work();
        all.requests += came.requests;
        all.batches += came.batches;
        all.ones += came.ones;
        eagers += Run::new(&history, eager()).work().requests;
    }
    (all.requests as f64 / eagers as f64, all)
}

/// The histories that this run judges.
fn numbers() -> Vec<u64> {
    let Some(long) = std::env::var_os("JITNEY_TEST_LONG") else { return (0..SAMPLE).chain(HARD).collect() };
    let long = long.into_string().expect("JITNEY_TEST_LONG is text");
    let number = |text: &str| text.parse().expect("JITNEY_TEST_LONG is 1, or a range such as 1000..2000");
    long.split_once("..").map_or(0..ALL, |(from, until)| number(from)..number(until)).collect()
}

#[test]
fn no_history_of_loads_locks_the_policy_into_what_is_slower_than_never_waiting() {
    let numbers = numbers();
    let count = numbers.len();
    let (mut failed, mut ratios, mut doubts) = (Vec::new(), Vec::new(), Vec::new());
    for history in numbers.into_iter().map(History::draw) {
        let (mut ratio_of_all, mut came) = ratio(&history, [history.seed].into_iter());
        let mut limits = LIMITS;
        if !limits.hold(ratio_of_all, came) {
            (ratio_of_all, came) = ratio(&history, SEEDS_IN_DOUBT);
            limits = LIMITS_IN_DOUBT;
            doubts.push((history.seed, ratio_of_all));
        }
        if !limits.hold(ratio_of_all, came) {
            let Came { ones, batches, .. } = came;
            failed.push(format!(
                "{}: {ratio_of_all:.3} of the answers, {ones} of {batches} batches of one",
                history.name
            ));
        }
        ratios.push(ratio_of_all);
    }
    ratios.sort_by(f64::total_cmp);
    let worst = &ratios[..ratios.len().min(5)];
    eprintln!(
        "{count} histories: answers of auto / eager: median {:.3}, least {worst:.3?}; with twenty seeds {doubts:.3?}",
        ratios[ratios.len() / 2]
    );
    assert!(failed.is_empty(), "{} of {count}: {failed:#?}", failed.len());
}

/// A line for each history, separated by tabs: number, seconds of a launch and of an item, whether another process takes the
/// core now and then, and for each part its seconds, users, items of a request, and seconds from an answer to the next request.
#[test]
#[ignore = "prints histories for benchmarks/histories.py"]
fn histories_of_the_benchmark() {
    for number in 0..ALL {
        let History { launch, item, taken, parts, .. } = History::draw(number);
        let parts: Vec<String> = parts
            .iter()
            .map(|part| format!("{}:{}:{}:{}", part.until - part.from, part.users, part.rows, part.rtt))
            .collect();
        eprintln!("history\t{number}\t{launch}\t{item}\t{}\t{}", !taken.is_empty(), parts.join("\t"));
    }
}
