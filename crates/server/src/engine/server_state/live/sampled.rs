//! What was sampled of one deployment: five minutes in points, and the last seconds in full.

use crate::engine::deployment::live::record::ReplicaUse;
use crate::engine::deployment::live::why::{Lengths, Usual, is_far_larger};
use crate::engine::server_state::live::points::{JUDGED, KEPT, PHASES, Point, Ring, Totals};
use jitney_core::tables::outcome::{Blame, Outcome};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// The length of a point.
pub(crate) const EVERY: Duration = Duration::from_secs(1);
/// Fewer answers than this say nothing about what is usual.
const ENOUGH: u64 = 20;
/// A batch that has had no news for so many times its usual time hangs, if that is so many seconds.
const HANGS_AFTER: f64 = 10.0;
const HANGS_AFTER_S: f64 = 10.0;
/// A model that takes so many times as long as before is slow, if that is so many milliseconds more, and so many batches show it.
const SLOWER: f64 = 3.0;
const NOTABLE_MS: f64 = 10.0;
const FEWEST_BATCHES: u64 = 3;
/// Items wait notably if the oldest one waits for so many times the usual duration of a request, and for so long.
const WAITS: f64 = 3.0;
const WAITS_S: f64 = 0.1;

/// What was sampled of one deployment.
#[derive(Debug, Default)]
pub(crate) struct Sampled {
    pub(crate) ring: Ring,
    /// The last looks, the newest last: one more than the seconds that are judged.
    looks: VecDeque<Look>,
}

/// What grows, at one instant.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) at: Instant,
    pub(crate) totals: Totals,
    /// Requests by outcome, in the order of the table.
    pub(crate) outcomes: Vec<u64>,
    pub(crate) replicas: BTreeMap<u32, ReplicaTimes>,
}

/// How long a replica has been in `predict` and has had a batch, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReplicaTimes {
    pub(crate) predict_s: f64,
    pub(crate) occupied_s: f64,
    /// For how long its batches have had no news.
    pub(crate) silent_s: f64,
    /// Bytes of the largest item of its batch.
    largest_bytes: u64,
    /// Of the batches that have ended: seconds in `predict`, and how many there were.
    ended: (f64, u64),
    /// Its batches are open sets, which say nothing about durations.
    steps: bool,
}

/// A model that takes longer than before: milliseconds of a batch in `predict`, and bytes of an item.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slower {
    pub(crate) now_ms: f64,
    pub(crate) usual_ms: f64,
    pub(crate) bytes: u64,
    pub(crate) usual_bytes: u64,
}

/// Answers per second that are at most half as many as in the minutes before, although items wait.
#[allow(clippy::struct_field_names, reason = "the unit of each")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Halved {
    pub(crate) now_per_s: f64,
    pub(crate) usual_per_s: f64,
    /// The greatest age of an item that waited.
    pub(crate) oldest_s: f64,
}

/// A batch that is computed now, with an item that is far larger than usual.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Large {
    pub(crate) replica: u32,
    /// For how long its replica has had no news.
    pub(crate) silent_s: f64,
    pub(crate) bytes: u64,
    pub(crate) usual_bytes: u64,
}

impl ReplicaTimes {
    pub(crate) fn new(used: &ReplicaUse, now: Instant) -> ReplicaTimes {
        let occupied = used.occupied_until(now);
        // A batch that has run for long counts before its end: until then its time in `predict` is not known.
        let open = if used.steps { Duration::ZERO } else { used.open_until(now).saturating_sub(EVERY) };
        let (predict, ended) = used.ended();
        ReplicaTimes {
            predict_s: (used.predict + open).as_secs_f64(),
            occupied_s: occupied.as_secs_f64(),
            silent_s: used.silent_until(now).as_secs_f64(),
            largest_bytes: used.largest_bytes(),
            ended: (predict.as_secs_f64(), ended),
            steps: used.steps,
        }
    }
}

impl Sampled {
    /// Adds a look, and the point between the last one and this one.
    pub(crate) fn add(&mut self, look: Look, point: impl FnOnce(f64, Totals) -> Point) {
        if let Some(last) = self.looks.back() {
            let length_s = (look.at - last.at).as_secs_f64();
            self.ring.push(point(length_s, look.totals.since(&last.totals)));
        }
        self.looks.push_back(look);
        if self.looks.len() > JUDGED + 1 {
            self.looks.pop_front();
        }
    }

    /// Whether a request has ended since the last look, which had these outcomes, or waits.
    pub(crate) fn is_busy(&self, outcomes: &[u64], queued: u64) -> bool {
        queued > 0 || self.looks.back().is_none_or(|last| last.outcomes != outcomes)
    }

    /// The outcome with the most requests of the last seconds, among those that are meant.
    pub(crate) fn most_frequent(&self, is_meant: impl Fn(Blame) -> bool) -> Option<&'static str> {
        let (first, last) = (self.looks.front()?, self.looks.back()?);
        let count = |outcome: Outcome| last.outcomes[outcome as usize].saturating_sub(first.outcomes[outcome as usize]);
        let meant = Outcome::ALL.iter().filter(|outcome| is_meant(outcome.blame()) && count(**outcome) > 0);
        meant.max_by_key(|outcome| count(**outcome)).map(|outcome| outcome.reason())
    }

    /// How requests have ended since the start: those outcomes that there were.
    pub(crate) fn outcomes(&self) -> Vec<(Outcome, u64)> {
        let counts = self.looks.back().map(|look| &look.outcomes).into_iter().flatten();
        Outcome::ALL.iter().copied().zip(counts.copied()).filter(|(_, count)| *count > 0).collect()
    }

    /// The shares of the last seconds for which a replica was in `predict`, and had a batch.
    pub(crate) fn replica_shares(&self, number: u32) -> Option<ReplicaTimes> {
        let (first, last) = (self.looks.front()?, self.looks.back()?);
        let length_s = (last.at - first.at).as_secs_f64();
        let now = last.replicas.get(&number)?;
        let before = first.replicas.get(&number).copied().unwrap_or_default();
        let share = |now: f64, before: f64| ((now - before) / length_s).clamp(0.0, 1.0);
        (length_s > 0.0).then(|| ReplicaTimes {
            predict_s: share(now.predict_s, before.predict_s),
            occupied_s: share(now.occupied_s, before.occupied_s),
            ..*now
        })
    }

    /// The replica whose batches have had no news for longest, and for how many seconds, if that is notable: ten times as long as
    /// a batch takes, or half of `timeout_s` if none has ended.
    pub(crate) fn hanging(&self, timeout_s: f64) -> Option<(u32, f64)> {
        let replicas = &self.looks.back()?.replicas;
        let (seconds, ended) = replicas
            .values()
            .fold((0.0, 0), |(seconds, count), replica| (seconds + replica.ended.0, count + replica.ended.1));
        let longest = if ended == 0 { timeout_s / 2.0 } else { HANGS_AFTER * seconds / ended as f64 };
        let silent = replicas.iter().map(|(&number, replica)| (number, replica.silent_s));
        let (number, silent_s) = silent.max_by(|one, other| one.1.total_cmp(&other.1))?;
        (silent_s >= longest.max(HANGS_AFTER_S)).then_some((number, silent_s))
    }

    /// How slow the model has become, if both a batch and an item take `SLOWER` times as long as in the minutes before. Batches that are only larger
    /// or only smaller do not count.
    pub(crate) fn slower(&self) -> Option<Slower> {
        if self.looks.back()?.replicas.values().any(|replica| replica.steps) {
            return None;
        }
        let now = self.ring.sum(JUDGED).1;
        let usual = self.ring.sum(KEPT).1.since(&now);
        if now.batches() < FEWEST_BATCHES || usual.batches() < ENOUGH {
            return None;
        }
        let batch_ms = |totals: &Totals| totals.predict_s * 1e3 / totals.batches() as f64;
        let item_ms = |totals: &Totals| totals.predict_s * 1e3 / totals.items.max(1) as f64;
        let (now_ms, usual_ms) = (batch_ms(&now), batch_ms(&usual));
        let is_slower = now_ms >= SLOWER * usual_ms && item_ms(&now) >= SLOWER * item_ms(&usual);
        let bytes = |totals: &Totals| totals.bytes / totals.items.max(1);
        (is_slower && now_ms - usual_ms >= NOTABLE_MS).then(|| Slower {
            now_ms,
            usual_ms,
            bytes: bytes(&now),
            usual_bytes: bytes(&usual),
        })
    }

    /// Whether answers have become half as many as in the minutes before, while items wait far longer than usual.
    pub(crate) fn halved(&self) -> Option<Halved> {
        let (length_s, now) = self.ring.sum(JUDGED);
        let (all_s, all) = self.ring.sum(KEPT);
        let before = all.since(&now);
        let before_s = all_s - length_s;
        let (seconds, oldest_s) = self.ring.waiting(JUDGED);
        let median_s = self.ring.quantiles(KEPT)?.p50_ms / 1e3;
        let is_waiting = seconds * 2 >= JUDGED && oldest_s >= WAITS_S.max(WAITS * median_s);
        if !is_waiting || before_s < JUDGED as f64 || before.answered < ENOUGH {
            return None;
        }
        let (now_per_s, usual_per_s) = (now.answered as f64 / length_s, before.answered as f64 / before_s);
        (now_per_s * 2.0 <= usual_per_s).then_some(Halved { now_per_s, usual_per_s, oldest_s })
    }

    /// The batch that a replica has computed for longest, if it takes more than a second and has an item that is far larger than
    /// usual.
    pub(crate) fn large(&self) -> Option<Large> {
        let (_, sum) = self.ring.sum(KEPT);
        let usual_bytes = sum.bytes.checked_div(sum.items)?;
        let replicas = self.looks.back()?.replicas.iter().filter(|(_, times)| {
            times.silent_s >= EVERY.as_secs_f64() && is_far_larger(times.largest_bytes, usual_bytes)
        });
        let (&replica, times) = replicas.max_by(|one, other| one.1.silent_s.total_cmp(&other.1.silent_s))?;
        Some(Large { replica, silent_s: times.silent_s, bytes: times.largest_bytes, usual_bytes })
    }

    /// What is usual, for the explanation of requests that are not.
    pub(crate) fn usual(&self) -> Option<Usual> {
        let (_, sum) = self.ring.sum(KEPT);
        let median = self.ring.quantiles(KEPT)?;
        let items = sum.items.max(1) as f64;
        let phase = |name: &str| PHASES.iter().position(|phase| *phase == name).map_or(0.0, |at| sum.phases[at]);
        let mean = |names: &[&str]| Duration::from_secs_f64(names.iter().map(|name| phase(name)).sum::<f64>() / items);
        (sum.answered >= ENOUGH).then(|| Usual {
            total: Duration::from_secs_f64(median.p50_ms / 1e3),
            lengths: Lengths {
                queue: mean(&["queue"]),
                link: mean(&["link", "decode", "encode"]),
                predict: mean(&["predict"]),
            },
            bytes: (sum.bytes as f64 / items) as u64,
            ..Usual::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::deployment::live::histogram::DurationCounts;
    use crate::engine::deployment::live::record::LiveRecord;
    use crate::engine::deployment::live::why::BatchFacts;
    use jitney_core::policy::batch_policy::CloseReason;
    use jitney_core::request::ReplicaId;

    /// Samples of a second each: batches of two items, their time in the model in all, and for how long replica 0 had no news.
    fn sampled(seconds: &[(u64, f64, f64)]) -> Sampled {
        let mut sampled = Sampled::default();
        let (mut totals, mut ended) = (Totals::default(), 0);
        let start = Instant::now();
        for (place, &(batches, predict_s, silent_s)) in seconds.iter().enumerate() {
            ended += batches;
            totals.sizes[1] += batches;
            totals.items += 2 * batches;
            totals.predict_s += predict_s;
            let times = ReplicaTimes { silent_s, ended: (totals.predict_s, ended), ..ReplicaTimes::default() };
            let look = Look {
                at: start + EVERY * place as u32,
                totals: totals.clone(),
                outcomes: Vec::new(),
                replicas: BTreeMap::from([(0, times)]),
            };
            sampled.add(look, |length_s, new| Point { length_s, new, ..Point::default() });
        }
        sampled
    }

    #[test]
    fn a_model_is_slower_if_batches_and_items_take_longer_than_in_the_minutes_before() {
        let usual = [(20, 0.4, 0.0); 60];
        assert!(sampled(&usual).slower().is_none());
        let slower = sampled(&[&usual[..], &[(4, 0.8, 0.0); 10]].concat()).slower().unwrap();
        assert!((slower.now_ms - 200.0).abs() < 1.0 && (slower.usual_ms - 20.0).abs() < 1.0, "{slower:?}");
        assert!(sampled(&[(4, 0.8, 0.0); 15]).slower().is_none(), "it was never quicker");
    }

    /// Seconds with so many answers of 10 ms, in each of which items of 60 bytes waited for so long. Replica 1 has an item of 1 MB.
    fn waited(seconds: &[(u64, f64)]) -> Sampled {
        let mut sampled = Sampled::default();
        let mut totals = Totals::default();
        let start = Instant::now();
        for (place, &(answered, oldest_s)) in seconds.iter().enumerate() {
            totals.answered += answered;
            totals.items += answered;
            totals.bytes += 60 * answered;
            let times = ReplicaTimes { silent_s: oldest_s, largest_bytes: 1_000_000, ..ReplicaTimes::default() };
            let replicas = BTreeMap::from([(0, ReplicaTimes::default()), (1, times)]);
            let at = start + EVERY * place as u32;
            let durations = DurationCounts::default();
            (0..answered).for_each(|_| durations.add(Duration::from_millis(10)));
            let queued = u64::from(oldest_s > 0.0);
            sampled.add(Look { at, totals: totals.clone(), outcomes: Vec::new(), replicas }, |length_s, new| Point {
                length_s,
                new,
                durations: durations.take(),
                queued,
                oldest_s,
                ..Point::default()
            });
        }
        sampled
    }

    #[test]
    fn answers_that_halve_while_items_wait_are_noticed_and_fewer_requests_are_not() {
        let usual = [(300, 0.01); 60];
        let after = |seconds: [(u64, f64); 10]| waited(&[&usual[..], &seconds].concat());
        assert_eq!(after([(300, 0.01); 10]).halved(), None);
        assert_eq!(after([(25, 0.0); 10]).halved(), None, "nothing waits: fewer are asked for");
        assert_eq!(after([(25, 0.02); 10]).halved(), None, "they wait for a moment");
        let halved = after([(25, 6.0); 10]);
        let found = halved.halved().unwrap();
        assert_eq!((found.now_per_s, found.usual_per_s.round(), found.oldest_s), (25.0, 300.0, 6.0));
        assert_eq!(halved.large(), Some(Large { replica: 1, silent_s: 6.0, bytes: 1_000_000, usual_bytes: 60 }));
        assert_eq!(after([(25, 0.5); 10]).large(), None, "it is computed for less than a second");
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_that_sends_parts_counts_before_its_end_and_does_not_hang() {
        let (record, replica) = (LiveRecord::default(), ReplicaId(0));
        record.replica_up(replica, 0);
        record.launched(
            replica,
            &BatchFacts {
                items: 1,
                most_items: 8,
                reason: CloseReason::Eager,
                held: Duration::ZERO,
                largest_cost: 1,
                largest_bytes: 10,
                bytes: 10,
                replica: 0,
                factor: 1.0,
            },
        );
        for half_second in 1..=120 {
            tokio::time::advance(Duration::from_millis(500)).await;
            record.progressed(replica);
            let times = ReplicaTimes::new(&record.replicas()[&0], Instant::now());
            let due = (f64::from(half_second) / 2.0 - 1.0).max(0.0);
            assert_eq!((times.predict_s, times.silent_s), (due, 0.0), "after {half_second} half seconds");
        }
        record.batch_ended(replica, Duration::from_secs(59));
        let times = ReplicaTimes::new(&record.replicas()[&0], Instant::now());
        assert_eq!((times.predict_s, times.ended), (59.0, (59.0, 1)));
    }

    #[test]
    fn a_batch_hangs_if_it_takes_ten_times_as_long_as_others_and_ten_seconds() {
        let hanging = |silent_s| sampled(&[(20, 0.4, 0.0), (20, 0.4, silent_s)]).hanging(60.0);
        assert_eq!((hanging(9.0), hanging(11.0)), (None, Some((0, 11.0))));
        let long = |silent_s| sampled(&[(1, 5.0, 0.0), (1, 5.0, silent_s)]).hanging(600.0);
        assert_eq!((long(45.0), long(55.0)), (None, Some((0, 55.0))), "its batches take five seconds");
        let first = |silent_s| sampled(&[(0, 0.0, silent_s)]).hanging(60.0);
        assert_eq!((first(25.0), first(31.0)), (None, Some((0, 31.0))), "none has ended");
    }
}
