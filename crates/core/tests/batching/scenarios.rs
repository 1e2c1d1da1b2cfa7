//! The scenarios, and the cells that each is measured against.

use crate::arrivals::{Open, Users, poisson, users};
use crate::cells::{Cell, Clock};
use crate::simulator::{Figures, Scenario, Service, Simulation, service};
use jitney_core::policy::auto::Auto;
use jitney_core::policy::batch_policy::{BatchPolicy, Fixed};

pub(crate) const SEEDS: [u64; 2] = [1, 2];

/// Launch cost rules: a/b = 50.
pub(crate) const LAUNCH: Service = service(0.05, 0.001);
/// a/b = 5.
pub(crate) const MIXED: Service = service(0.03, 0.006);
/// a/b = 1.
pub(crate) const LINEAR: Service = service(0.01, 0.01);
/// Batching gains nothing.
pub(crate) const NO_GAIN: Service = service(0.0, 0.01);
/// As a small language model.
pub(crate) const LLM: Service = service(0.0232, 0.0018);
/// As a text-to-image model, seconds per image.
pub(crate) const DIFFUSION: Service = service(1.3, 0.6);
pub(crate) const PADDED: Service = Service { is_padded: true, ..service(0.02, 0.004) };

/// Independent clients at a share of what full batches can answer.
pub(crate) fn at_load(service: &Service, load: f64, replicas: u32) -> Open {
    poisson(load * 32.0 * f64::from(replicas) / service.seconds(32))
}

pub(crate) fn batch_scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    let mut add = |name: &str, service: Service, change: &dyn Fn(&mut Scenario)| {
        let mut scenario = Scenario::new(name, service);
        change(&mut scenario);
        all.push(scenario);
    };
    add("lone: a/b=50, 5 req/s", LAUNCH, &|s| (s.open, s.ends) = (Some(poisson(5.0)), 1500));
    add("lone: LLM, 1 user", LLM, &|s| (s.users, s.max_batch, s.ends) = (Some(users(1)), 50, 1500));
    for (name, service, loads) in [
        ("a/b=50", LAUNCH, &[0.3, 0.6, 0.9][..]),
        ("a/b=5", MIXED, &[0.6, 0.9]),
        ("a/b=1", LINEAR, &[0.6, 0.9]),
        ("a=0", NO_GAIN, &[0.7]),
    ] {
        for &load in loads {
            let open = at_load(&service, load, 1);
            add(&format!("Poisson arrivals, {name}, load {load}"), service, &|s| s.open = Some(open));
        }
    }
    for (replicas, name, service, load) in
        [(2, "a/b=50", LAUNCH, 0.5), (4, "a/b=50", LAUNCH, 0.3), (4, "a/b=5", MIXED, 0.6), (4, "a/b=1", LINEAR, 0.8)]
    {
        let open = at_load(&service, load, replicas);
        let name = format!("Poisson arrivals, {name}, load {load}, R={replicas}");
        add(&name, service, &|s| (s.open, s.replicas) = (Some(open), replicas));
    }
    let slow = |count| Users { rtt: 0.05, ..users(count) };
    for count in [4, 8, 16] {
        let change = |s: &mut Scenario| (s.users, s.max_batch, s.ends) = (Some(slow(count)), 16, 2000);
        add(&format!("diffusion, {count} users"), DIFFUSION, &change);
    }
    for count in [2, 8, 40, 100] {
        add(&format!("LLM, {count} users"), LLM, &|s| (s.users, s.max_batch) = (Some(users(count)), 50));
    }
    add("a/b=1, 8 users", LINEAR, &|s| s.users = Some(Users { rtt: 0.002, ..users(8) }));
    let thinking = Users { think: 0.3, ..users(40) };
    add("LLM, 40 users, think 0.3 s", LLM, &|s| (s.users, s.max_batch) = (Some(thinking), 50));
    add("diffusion, 8 users, R=2", DIFFUSION, &|s| {
        (s.users, s.max_batch, s.replicas, s.ends) = (Some(slow(8)), 16, 2, 2000);
    });
    add("a/b=50, 40 users, R=4", LAUNCH, &|s| (s.users, s.replicas) = (Some(users(40)), 4));
    let fanout = |rate, size| Some(Open::Fanout { rate, size, spread: 0.002 });
    add("fan-out 16 in 2 ms", LAUNCH, &|s| s.open = fanout(2.5, 16));
    add("fan-out 4 in 2 ms", LAUNCH, &|s| s.open = fanout(10.0, 4));
    add("on/off 300/5 per s", LAUNCH, &|s| s.open = Some(Open::OnOff { rates: (300.0, 5.0), means: (0.3, 1.0) }));
    add("ramp 10..350 per s", LAUNCH, &|s| s.open = Some(Open::Ramp { low: 10.0, high: 350.0, period: 20.0 }));
    add("LLM, 20 users + 60 Poisson arrivals/s", LLM, &|s| {
        (s.users, s.open, s.max_batch) = (Some(users(20)), Some(poisson(60.0)), 50);
    });
    let noisy = |service| Service { cv: 0.5, ..service };
    add("250 Poisson arrivals/s, noise 0.5", noisy(LAUNCH), &|s| {
        (s.open, s.max_batch) = (Some(poisson(250.0)), 64);
    });
    let forty = |s: &mut Scenario| (s.users, s.max_batch) = (Some(users(40)), 50);
    add("LLM, 40 users, noise 0.5", noisy(LLM), &forty);
    add("LLM, 40 users, 2% slow x10", Service { slow: (0.02, 10.0), ..LLM }, &forty);
    let doubles = |service| Service { drift: (10.0, 2.0), ..service };
    add("S doubles at 10 s, 40 users", doubles(LLM), &|s| (s.users, s.max_batch, s.ends) = (Some(users(40)), 50, 6000));
    add("S doubles at 10 s, load 0.4", doubles(LAUNCH), &|s| s.open = Some(at_load(&LAUNCH, 0.4, 1)));
    let roofline = Service { knee: (10, 0.005), ..service(0.05, 0.0002) };
    add("roofline, load 0.5", roofline, &|s| s.open = Some(at_load(&roofline, 0.5, 1)));
    add("padded, load 0.5", PADDED, &|s| s.open = Some(at_load(&PADDED, 0.5, 1)));
    add("padded, 20 users", PADDED, &|s| s.users = Some(users(20)));
    all
}

/// The grid of cells of a scenario.
pub(crate) fn grid(scenario: &Scenario) -> Vec<Cell> {
    let unit = scenario.service.seconds(1);
    let sizes: Vec<usize> =
        [1, 2, 4, 8, 16, 32, 64].into_iter().filter(|&size| size < 2 * scenario.max_batch).collect();
    let cell = |delay, size, clock| Cell::new(delay, size, clock);
    let mut cells: Vec<Cell> = sizes.iter().map(|&size| cell(0.0, size, Clock::Head)).collect();
    for (clock, shares) in [(Clock::Head, &[0.05, 0.1, 0.25, 0.5][..]), (Clock::Idle, &[0.1, 0.25, 0.5])] {
        for share in shares {
            cells.extend(sizes.iter().filter(|&&size| size >= 4).map(|&size| cell(share * unit, size, clock)));
        }
    }
    cells
}

pub(crate) fn auto() -> Box<dyn BatchPolicy> {
    Box::new(Auto::default())
}

pub(crate) fn eager() -> Box<dyn BatchPolicy> {
    Box::new(Fixed::EAGER)
}

/// Means over seeds.
pub(crate) fn measure(scenario: &Scenario, policy: &dyn Fn() -> Box<dyn BatchPolicy>, seeds: &[u64]) -> Figures {
    let runs: Vec<Figures> = seeds.iter().map(|&seed| Simulation::run(scenario, policy(), seed)).collect();
    let of = |figure: &dyn Fn(&Figures) -> f64| runs.iter().map(figure).sum::<f64>() / runs.len() as f64;
    Figures {
        throughput: of(&|f| f.throughput),
        mean: of(&|f| f.mean),
        p50: of(&|f| f.p50),
        p95: of(&|f| f.p95),
        p99: of(&|f| f.p99),
        padding: of(&|f| f.padding),
        long: of(&|f| f.long),
        batch: of(&|f| f.batch),
        held: of(&|f| f.held),
        lone_held: of(&|f| f.lone_held),
        prediction: of(&|f| f.prediction),
        ..Figures::default()
    }
}

/// The best cell by mean latency over these seeds, with its figures.
pub(crate) fn best_cell(scenario: &Scenario, seeds: &[u64]) -> (Cell, Figures) {
    let tried = grid(scenario).into_iter().map(|cell| (cell, measure(scenario, &|| Box::new(cell), seeds)));
    tried.min_by(|a, b| a.1.mean.total_cmp(&b.1.mean)).expect("the grid is not empty")
}
