//! What is to be done: where to, what load, for how long. Written by the command line, checked again here.

use super::parts::Dialect;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Nothing sensible takes longer, in seconds; and more would not fit into a histogram.
const LONGEST_S: f64 = 86_400.0;

/// A plan that cannot be carried out; the text names the value and what to do.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct PlanError(String);

/// One run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Name or address of the server.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Path and query of every request.
    pub path: String,
    /// Headers of every request, in addition to `host`, `content-type` and `content-length`.
    pub headers: Vec<(String, String)>,
    /// Items in each request.
    pub items_per_request: u32,
    /// How successful answers come in parts; `None` if they come as a whole.
    pub stream: Option<Dialect>,
    /// How requests come.
    pub load: Load,
    /// What comes before the window, in seconds.
    pub warmup_s: f64,
    /// The window, in seconds.
    pub duration_s: f64,
    /// When a request has failed, in seconds from the instant at which it was due.
    pub timeout_s: f64,
    /// The length of an interval of the series, in seconds.
    pub interval_s: f64,
    /// Threads of the generator; each drives its part of the users or of the arrivals.
    pub threads: usize,
    /// What random numbers begin with.
    pub seed: u64,
}

/// How requests come.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Load {
    /// Users, each with one request at a time.
    Closed {
        /// How many.
        users: usize,
        /// They start evenly over this time, in seconds.
        ramp_s: f64,
        /// Between an answer and the next request, drawn evenly from this range, in seconds.
        think_s: (f64, f64),
    },
    /// A schedule that does not look at the answers.
    Open {
        /// Requests per second.
        rate_per_s: f64,
        /// How they are spread.
        arrivals: Arrivals,
        /// Requests that are due at one instant.
        burst: u32,
        /// Connections at most; beyond them requests wait, and their clocks run.
        connections: usize,
    },
}

/// How the instants of an open loop are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Independent clients: exponential gaps.
    Poisson,
    /// At equal distances.
    Constant,
    /// Several at one instant; the instants have exponential gaps.
    Bursts,
}

impl Plan {
    /// Says what is wrong, if something is.
    pub fn check(&self) -> Result<(), PlanError> {
        length("the duration", self.duration_s, true)?;
        length("the warm-up", self.warmup_s, false)?;
        length("the timeout", self.timeout_s, true)?;
        length("the interval", self.interval_s, true)?;
        if self.interval_s > self.duration_s {
            return wrong(format!("an interval of {} s does not fit into {} s", self.interval_s, self.duration_s));
        }
        if self.threads == 0 {
            return wrong("0 threads can send nothing; use at least 1".into());
        }
        if !self.path.starts_with('/') || !self.path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return wrong(format!("{:?} is not a path: it begins with / and has no spaces", self.path));
        }
        for (name, value) in &self.headers {
            let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
            if !is_name || !value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
                // The value may be a secret.
                return wrong(format!("the header {name:?} has a name or a value that HTTP does not allow"));
            }
        }
        self.check_load()
    }

    fn check_load(&self) -> Result<(), PlanError> {
        match self.load {
            Load::Closed { users, ramp_s, think_s } => {
                length("the ramp", ramp_s, false)?;
                length("the time to think", think_s.0, false)?;
                length("the time to think", think_s.1, false)?;
                if think_s.0 > think_s.1 {
                    return wrong(format!("a time to think from {} to {} s runs backwards", think_s.0, think_s.1));
                }
                many("user", users, self.threads)
            }
            Load::Open { rate_per_s, burst, connections, .. } => {
                if !(rate_per_s > 0.0 && rate_per_s <= 1e7) {
                    return wrong(format!(
                        "a rate of {rate_per_s} requests/s; it must be above 0, and 10,000,000 at most"
                    ));
                }
                if burst == 0 {
                    return wrong("a burst of 0 requests; use at least 1".into());
                }
                many("connection", connections, self.threads)
            }
        }
    }
}

fn length(what: &str, seconds: f64, is_above_zero: bool) -> Result<(), PlanError> {
    let is_long_enough = if is_above_zero { seconds > 0.0 } else { seconds >= 0.0 };
    if is_long_enough && seconds <= LONGEST_S {
        return Ok(());
    }
    let least = if is_above_zero { "above 0" } else { "0 or more" };
    wrong(format!("{what} is {seconds} s; it must be {least}, and a day at most"))
}

fn many(what: &str, count: usize, threads: usize) -> Result<(), PlanError> {
    if count >= threads {
        return Ok(());
    }
    wrong(format!("{count} {what}(s) for {threads} thread(s); each thread needs one at least"))
}

fn wrong(text: String) -> Result<(), PlanError> {
    Err(PlanError(text))
}
