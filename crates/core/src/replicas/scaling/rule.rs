//! The rule: how many replicas a deployment should have now.
//!
//! Replicas are the load at full batches, a spare that follows from the latency that is wished for and from how bursty the
//! arrivals are, and what the waiting items need. More are wanted at once. Fewer are wanted when fewer were needed for as long
//! as a few starts take. The operator chooses no utilisation, concurrency or queue length.

use crate::replicas::scaling::arrivals::Arrivals;
use crate::replicas::scaling::capacity::Capacity;
use crate::replicas::scaling::explanation::Reasons;
use crate::time::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// One item in a hundred may wait for longer than the target leaves room for: ln 100 / 2, of the tail of the wait of many
/// replicas that are fed by one queue of batches.
const TAIL: f64 = 2.3;
/// What rate and durations are wrong by, as a share of the load.
const ERROR: f64 = 0.04;
/// Without a latency target, this many full batches are as good as one.
const BATCHES_OF_TARGET: f64 = 3.0;
/// The wait has room for at least this share of a batch, or the spare would be without bound.
const LEAST_ROOM: f64 = 0.2;
/// A burst index above this counts as this: no number of replicas absorbs what comes all at once.
const MOST_BURSTS: f64 = 64.0;
/// What waits is worked off within a start, or within this many targets if that is longer.
const TARGETS_OF_BACKLOG: f64 = 4.0;
/// Replicas stay for this many starts after they were needed …
const STARTS_OF_STAY: f64 = 4.0;
/// … but at least and at most for so many seconds.
const STAY_S: (f64, f64) = (20.0, 600.0);

/// Refused items may be counted twice in the windows of the rate until this long after the last refusal.
const REFUSING_FOR: Duration = Duration::from_secs(20);

/// What an operator chose.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaBounds {
    /// Fewest replicas.
    pub min: u32,
    /// Most replicas.
    pub max: u32,
    /// The latency target.
    pub target: Option<Duration>,
    /// Replicas stay for this long after they were needed; learned from the start time if absent.
    pub stays: Option<Duration>,
}

/// What there is now.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// Items that have arrived since the beginning, refused ones included.
    pub arrived: u64,
    /// Items of them that were refused because there were too few replicas.
    pub refused: u64,
    /// Items that wait.
    pub waiting: usize,
    /// Whether any item waits or runs.
    pub is_busy: bool,
    /// Replicas that work.
    pub up: u32,
    /// Replicas that are wanted and for which there is no place. More of them would not help what waits.
    pub without_place: u32,
    /// What one replica can do; `None` while too little was measured.
    pub capacity: Option<Capacity>,
    /// From asking for a replica until it is ready.
    pub start: Duration,
}

/// The state of the rule for one deployment.
#[derive(Clone, Debug)]
pub struct Scaling {
    bounds: ReplicaBounds,
    arrivals: Arrivals,
    /// What was needed when, largest first: what was followed by as much is forgotten.
    needs: VecDeque<(Time, u32)>,
    refused: u64,
    /// Until then, an item that arrives may be one that was refused before.
    refusing_until: Time,
    wanted: u32,
    /// What one replica could do when that was known last.
    capacity: Option<Capacity>,
}

impl Scaling {
    /// A deployment that begins with this many replicas.
    pub fn new(bounds: ReplicaBounds, begins_with: u32) -> Scaling {
        let wanted = begins_with.clamp(bounds.min, bounds.max);
        Scaling {
            bounds,
            arrivals: Arrivals::default(),
            needs: VecDeque::new(),
            refused: 0,
            refusing_until: Time(0),
            wanted,
            capacity: None,
        }
    }

    /// Replicas that there should be, as decided last.
    pub fn wanted(&self) -> u32 {
        self.wanted
    }

    /// Decides how many replicas there should be, and says why. It is called once a second.
    pub fn decide(&mut self, now: Time, situation: &Situation) -> Reasons {
        self.arrivals.note(now.as_secs_f64(), situation.arrived);
        if self.needs.is_empty() {
            // Too little is known at first to end what was begun with.
            let stays = self.bounds.stays.unwrap_or(Duration::from_secs_f64(STAY_S.0));
            self.needs.push_back((now + stays, self.wanted));
        }
        self.capacity = situation.capacity.or(self.capacity);
        let mut reasons = self.needed(situation);
        let ReplicaBounds { min, max, .. } = self.bounds;
        // Clients that are refused may come again and count again. What they seem to need is only known when the replicas
        // that they need are there, so it does not hold for longer.
        if situation.refused > self.refused {
            (self.refused, self.refusing_until) = (situation.refused, now + REFUSING_FOR);
        }
        let is_refusing = now < self.refusing_until;
        let stays = if is_refusing { reasons.stays_s.min(reasons.start_s + STAY_S.0) } else { reasons.stays_s };
        let until = now + Duration::from_secs_f64(stays);
        // A need that is not larger and does not end later than the new one is dropped.
        self.needs.retain(|&(ends, need)| ends > now && (need > reasons.needed || ends > until));
        self.needs.push_back((until, reasons.needed));
        let most = self.needs.iter().map(|&(_, need)| need).max().unwrap_or(0);
        let most = most.max(self.still_used(&reasons));
        reasons.wanted = most.clamp(min, max);
        reasons.bound = match reasons.wanted {
            wanted if wanted < most => Some("max_replicas"),
            wanted if wanted > most => Some("min_replicas"),
            _ => None,
        };
        self.wanted = reasons.wanted;
        reasons
    }

    /// Replicas that are not removed in this second, because the arrivals of the last seconds may need them: traffic that comes
    /// back after a pause counts as needed only after some seconds.
    fn still_used(&self, reasons: &Reasons) -> u32 {
        if reasons.needed == 0 || reasons.items_per_s_of_a_replica <= 0.0 {
            return 0;
        }
        let load = self.arrivals.latest_rate() / reasons.items_per_s_of_a_replica;
        whole(load + reasons.spare).min(self.wanted)
    }

    /// What is needed now, whatever was needed before.
    fn needed(&self, situation: &Situation) -> Reasons {
        let start_s = situation.start.as_secs_f64();
        let learned_stay = (STARTS_OF_STAY * start_s).clamp(STAY_S.0, STAY_S.1);
        let rate = self.arrivals.rate();
        let mut reasons = Reasons {
            arrivals_per_s: rate,
            burst_index: self.arrivals.burst_index(),
            start_s,
            items_per_s_of_a_replica: self.capacity.map_or(0.0, |capacity| capacity.rate()),
            wakes: situation.is_busy && self.wanted == 0,
            stays_s: self.bounds.stays.map_or(learned_stay, |stays| stays.as_secs_f64()),
            ..Reasons::default()
        };
        if self.arrivals.is_quiet() && !situation.is_busy {
            reasons.arrivals_per_s = 0.0;
            return reasons;
        }
        let Some(capacity) = self.capacity else {
            // Nothing is known about the model. It keeps what it has until its first batches have been measured.
            reasons.needed = situation.up.max(1);
            return reasons;
        };
        reasons.growth_per_s = self.arrivals.growth(rate, start_s);
        reasons.load = (rate + reasons.growth_per_s) / capacity.rate();
        let Capacity { items, seconds } = capacity;
        let target_s = self.bounds.target.map_or(BATCHES_OF_TARGET * seconds, |target| target.as_secs_f64());
        let room = (target_s - seconds).max(LEAST_ROOM * seconds);
        // Items that arrive together are in one batch: a burst is averaged over it.
        let bursts = reasons.burst_index.min(MOST_BURSTS) / items;
        reasons.spare = if rate > 0.0 { TAIL * bursts * seconds / room } else { 0.0 };
        if situation.without_place == 0 {
            // What waits is a backlog beyond one batch for each replica.
            let batches = situation.waiting as f64 / items - f64::from(situation.up);
            reasons.backlog = batches.max(0.0) * seconds / start_s.max(TARGETS_OF_BACKLOG * target_s);
        }
        let replicas = reasons.load + reasons.spare + reasons.backlog;
        let with_doubt = whole(replicas + ERROR * reasons.load);
        // What is there is enough while it is enough without the doubt: a number on the edge does not go up and down.
        reasons.needed = if whole(replicas) > self.wanted { with_doubt } else { with_doubt.min(self.wanted) };
        reasons
    }
}

/// A whole number of replicas, at least one.
fn whole(replicas: f64) -> u32 {
    ((replicas - 1e-9).ceil().clamp(0.0, 1e9) as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_replica_can_do_is_known_while_there_is_none_and_a_request_that_waits_is_the_reason_for_the_first() {
        let bounds = ReplicaBounds { min: 0, max: 4, target: None, stays: Some(Duration::from_secs(1)) };
        let mut scaling = Scaling::new(bounds, 1);
        let capacity = Some(Capacity { items: 4.0, seconds: 1.0 });
        let busy = Situation {
            arrived: 1,
            refused: 0,
            waiting: 0,
            is_busy: true,
            up: 1,
            without_place: 0,
            capacity,
            start: Duration::from_secs(1),
        };
        let at = |second| Time(0) + Duration::from_secs(second);
        assert!(!scaling.decide(at(0), &busy).wakes);
        let quiet = Situation { is_busy: false, up: 0, capacity: None, ..busy };
        let mut last = Reasons::default();
        for second in 1..90 {
            last = scaling.decide(at(second), &quiet);
        }
        assert_eq!(last.wanted, 0);
        assert!((last.items_per_s_of_a_replica - 4.0).abs() < 1e-9, "{last:?}");
        assert_eq!(last.to_string(), "no items arrive");
        let waits = Situation { arrived: 2, waiting: 1, is_busy: true, ..quiet };
        let first = scaling.decide(at(90), &waits);
        assert!(first.wakes && first.wanted > 0, "{first:?}");
        assert!((first.items_per_s_of_a_replica - 4.0).abs() < 1e-9, "{first:?}");
    }
}
