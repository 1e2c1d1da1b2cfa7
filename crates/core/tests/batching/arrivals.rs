//! How requests come: independent clients, clients that fan out, rates that change, and users who wait for their answer.

use crate::random::Random;
use std::collections::BTreeMap;

/// One request that is to come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Coming {
    pub(crate) at: f64,
    pub(crate) lane: usize,
    pub(crate) is_high: bool,
}

/// An open stream. Rates are per second.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Open {
    /// Independent clients. Lane i has weight 1/(i+1)^skew; a share `high` has priority.
    Poisson { rate: f64, lanes: usize, skew: f64, high: f64 },
    /// Independent users behind one client whose timer ticks: what is due within a tick is sent at its end, one request every
    /// `apart` seconds.
    Ticks { rate: f64, tick: f64, apart: f64 },
    /// Clients who each send `size` requests within `spread` seconds.
    Fanout { rate: f64, size: usize, spread: f64 },
    /// Independent clients whose rate switches between two values after times of these means.
    OnOff { rates: (f64, f64), means: (f64, f64) },
    /// Independent clients whose rate is a triangle wave.
    Ramp { low: f64, high: f64, period: f64 },
}

pub(crate) fn poisson(rate: f64) -> Open {
    Open::Poisson { rate, lanes: 1, skew: 0.0, high: 0.0 }
}

/// An open stream in progress.
#[derive(Debug)]
pub(crate) struct Stream {
    open: Open,
    weights: Vec<f64>,
    now: f64,
    /// What a client has still to send, by time in nanoseconds; the number keeps equal ones apart.
    pending: BTreeMap<(u64, usize), f64>,
    sent: usize,
    is_on: bool,
    phase_ends: f64,
    /// When the client of `Ticks` sent last.
    sent_at: f64,
}

impl Stream {
    pub(crate) fn new(open: Open, random: &mut Random) -> Stream {
        let weights = match open {
            Open::Poisson { lanes, skew, .. } => (0..lanes).map(|lane| (lane as f64 + 1.0).powf(-skew)).collect(),
            _ => vec![1.0],
        };
        let mut stream = Stream {
            open,
            weights,
            now: 0.0,
            pending: BTreeMap::new(),
            sent: 0,
            is_on: true,
            phase_ends: 0.0,
            sent_at: 0.0,
        };
        match open {
            Open::Fanout { rate, .. } => stream.now = random.exponential(1.0 / rate),
            Open::OnOff { means, .. } => stream.phase_ends = random.exponential(means.0),
            _ => {}
        }
        stream
    }

    pub(crate) fn next(&mut self, random: &mut Random) -> Coming {
        let plain = |at| Coming { at, lane: 0, is_high: false };
        match self.open {
            Open::Poisson { rate, high, .. } => {
                self.now += random.exponential(1.0 / rate);
                let lane = if self.weights.len() > 1 { self.lane(random) } else { 0 };
                Coming { at: self.now, lane, is_high: high > 0.0 && random.unit() < high }
            }
            Open::Ticks { rate, tick, apart } => {
                self.now += random.exponential(1.0 / rate);
                let busy_until = self.sent_at + apart * random.between(0.5, 1.5);
                self.sent_at = ((self.now / tick).ceil() * tick).max(busy_until);
                plain(self.sent_at)
            }
            Open::Fanout { rate, size, spread } => loop {
                if let Some((&key, &at)) = self.pending.first_key_value().filter(|&(_, &at)| at <= self.now) {
                    self.pending.remove(&key);
                    return plain(at);
                }
                for _ in 0..size {
                    let at = self.now + random.between(0.0, spread);
                    self.sent += 1;
                    self.pending.insert(((at * 1e9) as u64, self.sent), at);
                }
                self.now += random.exponential(1.0 / rate);
            },
            Open::OnOff { rates, means } => loop {
                let step = random.exponential(1.0 / if self.is_on { rates.0 } else { rates.1 });
                if self.now + step < self.phase_ends {
                    self.now += step;
                    return plain(self.now);
                }
                (self.now, self.is_on) = (self.phase_ends, !self.is_on);
                self.phase_ends += random.exponential(if self.is_on { means.0 } else { means.1 });
            },
            Open::Ramp { low, high, period } => loop {
                self.now += random.exponential(1.0 / high);
                let phase = 2.0 * (self.now % period) / period;
                if random.unit() * high <= low + (high - low) * (1.0 - (phase - 1.0).abs()) {
                    return plain(self.now);
                }
            },
        }
    }

    fn lane(&self, random: &mut Random) -> usize {
        let mut left = random.unit() * self.weights.iter().sum::<f64>();
        for (lane, weight) in self.weights.iter().enumerate() {
            left -= weight;
            if left < 0.0 {
                return lane;
            }
        }
        self.weights.len() - 1
    }
}

/// Users who send, wait for the answer, think, and send again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Users {
    pub(crate) count: usize,
    /// Mean time from an answer to that user's next request.
    pub(crate) rtt: f64,
    /// The share of it that is exponential; the rest is always the same.
    pub(crate) jitter: f64,
    /// Mean of an added exponential pause.
    pub(crate) think: f64,
    /// Answers of one batch leave one after the other, and each takes this long.
    pub(crate) each: f64,
    pub(crate) lanes: usize,
    pub(crate) goes: Goes,
}

/// Which lane a user asks for next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goes {
    /// The same again.
    Nowhere,
    /// Any.
    Anywhere,
    /// The one after it.
    Around,
}

impl Goes {
    pub(crate) fn from(self, lane: usize, lanes: usize, random: &mut Random) -> usize {
        match self {
            Goes::Nowhere => lane,
            Goes::Anywhere => (random.unit() * lanes as f64) as usize % lanes,
            Goes::Around => (lane + 1) % lanes,
        }
    }
}

pub(crate) fn users(count: usize) -> Users {
    Users { count, rtt: 0.003, jitter: 1.0, think: 0.0, each: 0.0, lanes: 1, goes: Goes::Nowhere }
}

impl Users {
    /// After the answer that was the `place`th of its batch.
    pub(crate) fn returns_after(&self, place: usize, random: &mut Random) -> f64 {
        let wobble = self.rtt * self.jitter;
        let pause = if self.think > 0.0 { random.exponential(self.think) } else { 0.0 };
        self.rtt - wobble + random.exponential(wobble) + pause + self.each * place as f64
    }
}
