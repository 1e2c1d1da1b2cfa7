//! The rule of jitney, and the two kinds of threshold rules that others have: requests in the system per replica, averaged
//! over a window, with delays or with a panic mode.

use crate::world::{Rule, Scenario, Seen};
use jitney_core::replicas::scaling::capacity::Capacity;
use jitney_core::replicas::scaling::rule::{ReplicaBounds, Scaling, Situation};
use jitney_core::replicas::scaling::start_time::StartTime;
use jitney_core::time::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// The rule of production.
pub(crate) struct Ours {
    scaling: Scaling,
    start_time: StartTime,
    most: usize,
    target: Duration,
}

impl Ours {
    pub(crate) fn new(scenario: &Scenario) -> Ours {
        let target = Duration::from_secs_f64(scenario.target);
        let bounds = ReplicaBounds { min: scenario.min, max: scenario.max, target: Some(target), stays: None };
        Ours {
            scaling: Scaling::new(bounds, scenario.begins_with),
            start_time: StartTime::default(),
            most: scenario.service.most,
            target,
        }
    }
}

impl Rule for Ours {
    fn wanted(&mut self, seen: Seen) -> u32 {
        seen.started.drain(..).for_each(|took| self.start_time.learn(Duration::from_secs_f64(took)));
        let situation = Situation {
            arrived: seen.arrived,
            refused: seen.refused,
            waiting: seen.waiting,
            is_busy: seen.ongoing > 0,
            up: seen.up,
            without_place: seen.without_place,
            capacity: Capacity::of_batches(seen.cost_model.by_items(), self.most, Some(self.target)),
            start: self.start_time.expected(seen.oldest_start.map(Duration::from_secs_f64)),
        };
        self.scaling.decide(Time((seen.now * 1e9) as u64), &situation).wanted
    }
}

/// The mean of what was seen in the last seconds.
#[derive(Debug, Default)]
struct Window(VecDeque<(f64, f64)>);

impl Window {
    fn note(&mut self, now: f64, ongoing: usize, over: f64) {
        self.0.push_back((now, ongoing as f64));
        while self.0.front().is_some_and(|&(at, _)| at < now - over) {
            self.0.pop_front();
        }
    }

    fn mean(&self, since: f64) -> f64 {
        let seen = || self.0.iter().filter(|(at, _)| *at > since);
        seen().map(|(_, ongoing)| ongoing).sum::<f64>() / seen().count().max(1) as f64
    }
}

/// As many replicas as keep the ongoing requests of each at `target`, after the same wish for `up` or `down` seconds.
#[derive(Debug, Default)]
pub(crate) struct Delayed {
    pub(crate) target: f64,
    pub(crate) up: i32,
    pub(crate) down: i32,
    pub(crate) over: f64,
    window: Window,
    wishes: i32,
}

impl Delayed {
    pub(crate) fn new(target: f64, up: i32, down: i32) -> Delayed {
        Delayed { target, up, down, over: if up == 30 { 30.0 } else { 5.0 }, ..Delayed::default() }
    }
}

impl Rule for Delayed {
    fn wanted(&mut self, seen: Seen) -> u32 {
        self.window.note(seen.now, seen.ongoing, self.over);
        let have = seen.up + seen.starting;
        if seen.up == 0 {
            return if seen.waiting > 0 { have.max(1) } else { have };
        }
        let wish = (self.window.mean(f64::NEG_INFINITY) / self.target - 1e-9).ceil() as u32;
        self.wishes = match wish.cmp(&have) {
            std::cmp::Ordering::Greater => self.wishes.max(0) + 1,
            std::cmp::Ordering::Less => self.wishes.min(0) - 1,
            std::cmp::Ordering::Equal => 0,
        };
        if self.wishes > self.up {
            self.wishes = 0;
            return wish;
        }
        if self.wishes < -self.down {
            self.wishes = 0;
            return wish.max(u32::from(have > 1));
        }
        have
    }
}

/// As many replicas as keep the requests of each at `target`, over a minute, and in a panic over six seconds.
#[derive(Debug)]
pub(crate) struct Panicking {
    target: f64,
    window: Window,
    panics_since: Option<f64>,
    most: u32,
    empty_since: Option<f64>,
}

impl Panicking {
    pub(crate) fn new(target: f64) -> Panicking {
        let target = target * 0.7;
        Panicking { target, window: Window::default(), panics_since: None, most: 0, empty_since: None }
    }
}

impl Rule for Panicking {
    fn wanted(&mut self, seen: Seen) -> u32 {
        self.window.note(seen.now, seen.ongoing, 60.0);
        let (have, ready) = (seen.up + seen.starting, seen.up.max(1));
        let (stable, panic) = (self.window.mean(f64::NEG_INFINITY), self.window.mean(seen.now - 6.0));
        let wish = ((stable / self.target).ceil() as u32).max(if stable / self.target < f64::from(ready) {
            ready / 2
        } else {
            0
        });
        if panic / self.target >= 2.0 * f64::from(ready) {
            if self.panics_since.is_none() {
                self.most = have;
            }
            self.panics_since = Some(seen.now);
        } else if self.panics_since.is_some_and(|since| seen.now - since > 60.0) {
            self.panics_since = None;
        }
        if self.panics_since.is_some() {
            self.most = self.most.max((panic / self.target).ceil() as u32).max(have);
            return self.most;
        }
        if wish > 0 {
            self.empty_since = None;
            return wish;
        }
        let since = *self.empty_since.get_or_insert(seen.now);
        if seen.now - since > 30.0 { 0 } else { have.min(1) }
    }
}

/// Every setting from which hindsight may choose. `batch` is the size of a full batch: sensible targets are shares of it.
pub(crate) fn settings(batch: usize) -> Vec<(String, Box<dyn Rule>)> {
    let mut settings: Vec<(String, Box<dyn Rule>)> = Vec::new();
    for share in [0.25, 0.5, 0.75, 1.0, 1.5] {
        let target = share * batch as f64;
        for up in [0, 5, 30] {
            for down in [30, 120, 600] {
                settings.push((format!("delayed {target} {up} {down}"), Box::new(Delayed::new(target, up, down))));
            }
        }
    }
    for share in [0.5, 1.0, 2.0, 3.0] {
        let target = share * batch as f64;
        settings.push((format!("panicking {target}"), Box::new(Panicking::new(target))));
    }
    settings
}
