//! The places in the open sets of replicas, and for how long an item that asks to enter would wait for one.

use crate::config::limits::QueueLimits;
use crate::learn::group_models::GroupModels;
use crate::scheduler::admission::bounds::{Allowed, Door};
use crate::scheduler::admission::forecast::Forecast;
use crate::scheduler::admission::refusal::Refusal;
use std::time::Duration;

/// What an item that asks to enter finds.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// Items that wait, suspects included.
    pub items: usize,
    /// Bytes that wait.
    pub bytes: u64,
    /// Items that will join before it.
    pub ahead: usize,
    /// Suspects, each of which has a replica for itself.
    pub suspects: usize,
    /// Items that the replicas hold and that make steps.
    pub stepping: usize,
    /// Items that may join now, by count and by cost.
    pub free: usize,
    /// Items that all replicas together have room for, by count and by cost.
    pub all: usize,
    /// Replicas that work, at least 1.
    pub replicas: u32,
    /// What bounds the wait.
    pub allowed: Allowed,
    /// Items run side by side: each takes its own time, and there are no steps.
    pub side_by_side: bool,
    /// What steps take, and how many an item needs; or for how long an item stays.
    pub models: &'a GroupModels,
}

impl Places<'_> {
    /// Items of each replica, once what waits has joined.
    fn load(&self) -> f64 {
        let joins = self.free.min(self.ahead + 1);
        ((self.stepping + joins) as f64 / f64::from(self.replicas)).max(1.0)
    }

    /// For how long an item stays in its replica, in seconds.
    fn stay_s(&self, load: f64) -> Option<f64> {
        if self.side_by_side {
            return self.models.stays.stay_s();
        }
        self.models.steps.stay_s(self.models.all(), load)
    }

    /// The time in which all places become free once: what a full batch is to other models.
    pub fn full(&self) -> Duration {
        let load = self.all as f64 / f64::from(self.replicas);
        self.stay_s(load).map_or(Duration::ZERO, Duration::from_secs_f64)
    }

    /// The time between two places that become free, in seconds.
    fn between_s(&self) -> Option<f64> {
        let load = self.load();
        Some(self.stay_s(load)? / load / f64::from(self.replicas))
    }

    /// The time until an item that arrives now joins a replica; `None` while too little has been measured.
    pub fn predicted_wait(&self) -> Option<Duration> {
        let between = self.between_s()?;
        let behind = (self.ahead + 1).saturating_sub(self.free);
        let suspects = self.suspects.min(self.ahead + 1) as f64 * self.stay_s(1.0)? / f64::from(self.replicas);
        Some(Duration::from_secs_f64(behind as f64 * between + suspects))
    }

    /// The time until its first part.
    pub fn forecast(&self) -> Option<Forecast> {
        let wait = self.predicted_wait()?;
        if self.side_by_side {
            let first_part = Duration::from_secs_f64(self.models.stays.first_part_s()?);
            return Some(Forecast { wait, latency: wait + first_part, batch: first_part });
        }
        let steps = &self.models.steps;
        let step = steps.step_s(self.models.all(), self.load());
        // An item ends with a step, and the next one has begun when its place is given away.
        let rest = if wait > Duration::ZERO {
            step
        } else if self.stepping > 0 {
            step / 2.0
        } else {
            0.0
        };
        let latency = wait + Duration::from_secs_f64(rest + steps.join_s() + step);
        Some(Forecast { wait, latency, batch: Duration::from_secs_f64(step) })
    }

    /// How many items may wait until the next one would wait for longer than a request may which may take `timeout`, or until its
    /// first part would miss the target.
    pub fn most_waiting(&self, timeout: Duration, target: Option<Duration>) -> Option<usize> {
        if let Some(target) = target {
            return Forecast::most_waiting(target, |ahead| Places { ahead, ..*self }.forecast());
        }
        let free_meanwhile = self.allowed.wait(self.full(), timeout).as_secs_f64() / self.between_s()?;
        Some(self.free.saturating_add(free_meanwhile as usize))
    }

    /// Lets a request of `bytes` in, or returns the refusal. `remaining` is the time until its deadline; only the first part must come
    /// until then, unless the client gave the time-out.
    pub fn admit(
        &self,
        limits: QueueLimits,
        bytes: u64,
        timeout: Duration,
        remaining: Duration,
        has_own_timeout: bool,
    ) -> Result<(), Refusal> {
        let stay = self.stay_s(self.load()).map_or(Duration::ZERO, Duration::from_secs_f64);
        let first = self.forecast().map_or(Duration::ZERO, |forecast| forecast.latency.saturating_sub(forecast.wait));
        Door {
            items: self.items,
            bytes: self.bytes,
            wait: self.predicted_wait(),
            full: self.full(),
            longest: self.allowed.wait(self.full(), timeout),
            own: if has_own_timeout { stay } else { first },
            has_target: self.allowed == Allowed::Target,
        }
        .admit(limits, bytes, remaining)
    }
}
