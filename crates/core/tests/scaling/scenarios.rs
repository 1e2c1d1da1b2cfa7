//! What is simulated: traffic of many shapes, by name or drawn at random.

use crate::random::Random;
use crate::world::{Retry, Scenario, Service};
use std::f64::consts::TAU;
use std::rc::Rc;

/// Requests per second as a function of the time. Loads are in replicas at full batches.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// The same load all the time.
    Steady(f64),
    /// Between two loads, over this period.
    Daily(f64, f64, f64),
    /// This load, and twice for so many seconds so many times as much.
    Spike(f64, f64, f64),
    /// Up to a load within so many seconds, then steady, then down at once.
    Ramp(f64, f64),
    /// On and off in turns of so many seconds.
    OnOff(f64, f64),
    /// Two loads, in turns of so many seconds on average.
    Bursts(f64, f64, f64),
}

/// Times of arrivals, and the load of each half a second.
fn arrivals(shape: Shape, rate_of_replica: f64, end: f64, random: &mut Random) -> (Rc<[f64]>, Rc<[f64]>) {
    let mut turns = Vec::new();
    if let Shape::Bursts(.., mean) = shape {
        let mut at = 0.0;
        while at < end {
            turns.push(at);
            at += random.exponential(mean);
        }
    }
    let load = |at: f64| match shape {
        Shape::Steady(load) => load,
        Shape::Daily(low, high, period) => f64::midpoint(high, low) - (high - low) / 2.0 * (TAU * at / period).cos(),
        Shape::Spike(load, times, length) => {
            let is_in = |from: f64| (from..from + length).contains(&at);
            if is_in(end / 3.0) || is_in(end * 2.0 / 3.0) { times * load } else { load }
        }
        Shape::Ramp(high, within) if at < end / 2.0 => high * (0.02 + 0.98 * (at / within).min(1.0)),
        Shape::Ramp(high, _) => high * 0.08,
        Shape::OnOff(load, length) => {
            if ((at / length) as u64).is_multiple_of(2) {
                load
            } else {
                0.0
            }
        }
        Shape::Bursts(low, high, _) => {
            if turns.partition_point(|&turn| turn <= at) % 2 == 1 {
                low
            } else {
                high
            }
        }
    };
    // The rate changes at most every half a second.
    let (mut all, mut loads, mut from) = (Vec::new(), Vec::new(), 0.0);
    while from < end {
        loads.push(load(from));
        let rate = load(from) * rate_of_replica;
        let mut at = from;
        if rate > 0.0 {
            at += random.exponential(1.0 / rate);
            while at < from + 0.5 {
                all.push(at);
                at += random.exponential(1.0 / rate);
            }
        }
        from += 0.5;
    }
    (all.into(), loads.into())
}

/// The model of the trial: 267 items/s in batches of 32, scaled to a quarter of the speed so that fewer requests are needed.
pub(crate) const SLOW: Service = Service { a: 0.16, b: 0.01, most: 32, cv: 0.0, drift: (f64::INFINITY, 1.0) };

/// The same with smaller batches: a replica answers 17 items/s, so that fewer requests are needed.
pub(crate) const SMALL: Service = Service { a: 0.16, b: 0.04, most: 8, cv: 0.0, drift: (f64::INFINITY, 1.0) };

pub(crate) fn scenario(name: &str, service: Service, shape: Shape, end: f64, start: f64, seed: u64) -> Scenario {
    let mut random = Random(seed);
    let (arrivals, loads) = arrivals(shape, service.rate(), end, &mut random);
    let early = arrivals.iter().take_while(|&&at| at < 10.0).count() as f64 / 10.0 / service.rate();
    Scenario {
        name: format!("{name}, start {start:.0} s"),
        service,
        target: 4.0 * service.seconds(service.most),
        start: (start, f64::INFINITY, start),
        arrivals,
        loads,
        end,
        min: 1,
        max: 200,
        begins_with: ((1.1 * early).ceil() as u32).max(1),
        places: u32::MAX,
        dies_every: f64::INFINITY,
        retry: Retry::Never,
        seed,
    }
}

/// Those on which the rule was developed.
pub(crate) fn known(start: f64, seed: u64) -> Vec<Scenario> {
    let of = |name: &str, shape, end| scenario(name, SLOW, shape, end, start, seed);
    vec![
        of("quiet, load 0.1", Shape::Steady(0.1), 1800.0),
        of("steady, load 3.7", Shape::Steady(3.7), 1800.0),
        of("steady, load 20", Shape::Steady(20.0), 900.0),
        of("daily, 2 h", Shape::Daily(0.75, 7.5, 7200.0), 7200.0),
        of("spikes of x6", Shape::Spike(1.1, 6.0, 180.0), 3600.0),
        of("ramp, plateau, drop", Shape::Ramp(9.3, 600.0), 3600.0),
        Scenario { min: 0, ..of("on and off, 10 min", Shape::OnOff(3.0, 600.0), 4800.0) },
        of("bursts of 20 s", Shape::Bursts(1.5, 4.5, 20.0), 3600.0),
    ]
}

/// A day. Its model takes 6 s for two items, so that a day has 120,000 requests.
pub(crate) fn day(start: f64, seed: u64) -> Scenario {
    const DAY: f64 = 24.0 * 3600.0;
    let service = Service { a: 2.0, b: 2.0, most: 2, cv: 0.1, drift: (f64::INFINITY, 1.0) };
    scenario("daily, 24 h", service, Shape::Daily(0.75, 7.5, DAY), DAY, start, seed)
}

/// Starts and batches that take twice as long from half of the time on, too few places, replicas that die, clients that come
/// again.
pub(crate) fn changing(seed: u64) -> Vec<Scenario> {
    let of = |name: &str, shape| scenario(name, SMALL, shape, 2400.0, 30.0, seed);
    let spikes = |name: &str| of(name, Shape::Spike(1.5, 5.0, 120.0));
    let bursts = |name: &str| of(name, Shape::Bursts(1.5, 4.5, 60.0));
    let half_as_fast = Service { drift: (1200.0, 2.0), ..SMALL };
    vec![
        Scenario { start: (30.0, 1200.0, 60.0), ..spikes("spikes, starts take twice as long") },
        scenario("steady, batches take twice as long", half_as_fast, Shape::Steady(3.7), 2400.0, 30.0, seed),
        Scenario { places: 5, ..spikes("spikes, 5 places") },
        Scenario { dies_every: 60.0, ..bursts("bursts, one dies each minute") },
        Scenario { retry: Retry::Obeying(5), ..spikes("spikes, clients obey Retry-After") },
        Scenario { retry: Retry::After(0.2, 10), ..spikes("spikes, clients come again after 0.2 s") },
    ]
}

/// One of many, drawn at random.
pub(crate) fn drawn(seed: u64) -> Scenario {
    let mut random = Random(seed);
    // A quarter are models that take seconds for a few items.
    let is_slow = random.unit() < 0.25;
    let most = if is_slow { random.among(&[1, 2, 4]) } else { random.among(&[8, 16, 32, 64]) };
    let full = if is_slow { random.magnitude(1.0, 10.0) } else { random.magnitude(0.1, 1.0) };
    let share = random.between(0.1, 0.7);
    let (a, b) = (share * full, (1.0 - share) * full / most as f64);
    let service = Service { a, b, most, cv: random.between(0.0, 0.2), drift: (f64::INFINITY, 1.0) };
    let (kind, load) = ((random.unit() * 6.0) as usize, random.magnitude(0.7, 12.0));
    let (times, length) = (random.between(1.5, 6.0), random.magnitude(15.0, 600.0));
    let (traffic, kind) = match kind {
        0 => (Shape::Steady(load), "steady"),
        1 => (Shape::Daily(load / times, load, random.between(1800.0, 7200.0)), "daily"),
        2 => (Shape::Spike(load / times, times, length), "spikes"),
        3 => (Shape::Ramp(load, 2.0 * length), "ramp"),
        4 => (Shape::OnOff(load, length.max(60.0)), "on and off"),
        _ => (Shape::Bursts(load / times, load, length), "bursts"),
    };
    let start = random.magnitude(2.0, 120.0);
    // As many requests as can be simulated for all settings.
    let end = (60_000.0 / (load * service.rate())).clamp(1200.0, 5400.0);
    let target = random.between(2.0, 6.0) * full;
    let retry = if random.unit() < 0.3 { Retry::After(1.0, 3) } else { Retry::Never };
    let name = format!(
        "{seed} {kind}, load {load:.1} x{times:.1} {length:.0} s, batch {most} {full:.2} s, target {target:.2} s"
    );
    Scenario { target, retry, ..scenario(&name, service, traffic, end, start, seed + 1) }
}
