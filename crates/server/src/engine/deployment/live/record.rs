//! What the requests and batches of one deployment leave behind for the next sample. Protocols and the engine write it.

use crate::engine::deployment::live::histogram::DurationCounts;
use crate::engine::deployment::live::why::{BatchFacts, Largest, RequestFacts, Usual};
use jitney_core::request::ReplicaId;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// Requests of a kind that are shown.
pub(crate) const SHOWN: usize = 10;
/// Batch sizes are counted in ranges that double: 1, 2, 3–4, 5–8 …; the last has all that are larger.
pub(crate) const SIZES: usize = 14;
/// Samples in a generation of slow requests.
const GENERATION: u32 = 30;
/// Batches that weigh in what is usual for the largest item of a batch.
const AVERAGED: u32 = 256;
/// The slowest requests of so many generations are shown: five minutes.
const GENERATIONS: usize = 10;

/// What has happened since the last sample, and the requests that are worth an explanation.
#[derive(Debug, Default)]
pub(crate) struct LiveRecord {
    /// Of answered requests.
    pub(crate) durations: DurationCounts,
    /// Requests that took less are not among the slowest of their generation.
    slow_from_us: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    batches: BatchTotals,
    /// The number of each replica that is up.
    numbers: FxHashMap<ReplicaId, u32>,
    replicas: BTreeMap<u32, ReplicaUse>,
    /// The newest generation last.
    slow: VecDeque<Vec<RequestFacts>>,
    samples: u32,
    failed: VecDeque<RequestFacts>,
    usual: Option<Usual>,
    /// Of the largest item of each batch, the mean of the last some hundred batches.
    largest: Largest,
    /// Batches in that mean.
    averaged: u32,
}

/// All batches that were launched.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BatchTotals {
    /// Batches of each range of sizes.
    pub(crate) sizes: [u64; SIZES],
    pub(crate) items: u64,
    pub(crate) bytes: u64,
}

/// The work of one replica, whichever workers were it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplicaUse {
    pub(crate) batches: u64,
    pub(crate) items: u64,
    /// Time in `predict` of the batches that have ended.
    pub(crate) predict: Duration,
    /// Time with at least one batch.
    pub(crate) occupied: Duration,
    /// Its time in `predict` is known before its batches end.
    pub(crate) steps: bool,
    /// Bytes of the largest item of each batch that it has now, in the order in which it got them.
    running: VecDeque<u64>,
    /// Since when it has at least one batch.
    since: Option<Instant>,
    /// Since when it computes the batch that it has now: when the last one ended, or the first one came.
    begun: Option<Instant>,
    /// When its batches had news last: one came, sent a part, or ended.
    news: Option<Instant>,
}

impl ReplicaUse {
    /// The time with at least one batch until now.
    pub(crate) fn occupied_until(&self, now: Instant) -> Duration {
        self.occupied + self.since.map_or(Duration::ZERO, |since| now - since)
    }

    /// For how long no batch has ended or had news, although it has one.
    pub(crate) fn silent_until(&self, now: Instant) -> Duration {
        self.news.filter(|_| self.since.is_some()).map_or(Duration::ZERO, |news| now - news)
    }

    /// For how long it has computed the batch that it has now.
    pub(crate) fn open_until(&self, now: Instant) -> Duration {
        self.begun.filter(|_| self.since.is_some()).map_or(Duration::ZERO, |begun| now - begun)
    }

    /// Time in `predict` of all batches that have ended, and how many those are.
    pub(crate) fn ended(&self) -> (Duration, u64) {
        (self.predict, self.batches.saturating_sub(self.running.len() as u64))
    }

    /// Bytes of the largest item of the batch that it has had for longest; 0 without a batch.
    pub(crate) fn largest_bytes(&self) -> u64 {
        self.running.front().copied().unwrap_or_default()
    }

    fn release(&mut self, now: Instant) {
        self.occupied = self.occupied_until(now);
        self.running.clear();
        self.since = None;
    }
}

impl LiveRecord {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A replica is up which has this number among those of its deployment.
    pub(crate) fn replica_up(&self, replica: ReplicaId, number: u32) {
        let mut state = self.lock();
        state.numbers.insert(replica, number);
        state.replicas.entry(number).or_default();
    }

    /// A replica is lost, with the batches that it had.
    pub(crate) fn replica_lost(&self, replica: ReplicaId) {
        let mut state = self.lock();
        if let Some(number) = state.numbers.remove(&replica)
            && let Some(replica) = state.replicas.get_mut(&number)
        {
            replica.release(Instant::now());
        }
    }

    /// A batch is sent to its replica.
    pub(crate) fn launched(&self, replica: ReplicaId, batch: &BatchFacts) {
        let mut state = self.lock();
        state.batches.sizes[size_range(batch.items)] += 1;
        state.batches.items += batch.items as u64;
        state.batches.bytes += batch.bytes;
        state.average(batch);
        let Some(replica) = state.replica(replica) else { return };
        replica.batches += 1;
        replica.items += batch.items as u64;
        replica.running.push_back(batch.largest_bytes);
        if replica.since.is_none() {
            let now = Instant::now();
            (replica.since, replica.begun, replica.news) = (Some(now), Some(now), Some(now));
        }
    }

    /// A batch has ended, or all items that joined together.
    pub(crate) fn batch_ended(&self, replica: ReplicaId, predict: Duration) {
        let mut state = self.lock();
        let Some(replica) = state.replica(replica) else { return };
        let now = Instant::now();
        replica.predict += predict;
        replica.running.pop_front();
        (replica.begun, replica.news) = (Some(now), Some(now));
        if replica.running.is_empty() {
            replica.release(now);
        }
    }

    /// A replica whose items join and leave one by one has news, and has computed for so long.
    pub(crate) fn stepped(&self, replica: ReplicaId, took: Duration) {
        if let Some(replica) = self.lock().replica(replica) {
            replica.predict += took;
            replica.steps = true;
            replica.news = Some(Instant::now());
        }
    }

    /// A replica has reported something of the batches that it has: a part of an answer, or that it lives.
    pub(crate) fn progressed(&self, replica: ReplicaId) {
        if let Some(replica) = self.lock().replica(replica) {
            replica.news = Some(Instant::now());
        }
    }

    /// Whether a request that took so long is among the slowest.
    pub(crate) fn is_slow(&self, total: Duration) -> bool {
        total.as_micros() > u128::from(self.slow_from_us.load(Ordering::Relaxed))
    }

    /// Remembers a request that is slow or has failed. `batch` lacks the number of its replica.
    pub(crate) fn remember(&self, mut facts: RequestFacts, replica: Option<ReplicaId>) {
        let mut state = self.lock();
        facts.usual = state.usual;
        if let (Some(batch), Some(replica)) = (&mut facts.batch, replica) {
            batch.replica = state.numbers.get(&replica).copied().unwrap_or_default();
        }
        if facts.failure.is_some() {
            return state.add_failed(facts);
        }
        if let Some(slow_from) = state.add_slow(facts) {
            self.slow_from_us.store(u64::try_from(slow_from.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// A sample was taken, and this is usual now.
    pub(crate) fn sampled(&self, usual: Option<Usual>) {
        let mut state = self.lock();
        let largest = state.largest;
        state.usual = usual.map(|usual| Usual { largest, ..usual });
        state.samples += 1;
        if state.samples.is_multiple_of(GENERATION) {
            state.slow.push_back(Vec::new());
            if state.slow.len() > GENERATIONS {
                state.slow.pop_front();
            }
            self.slow_from_us.store(0, Ordering::Relaxed);
        }
    }

    /// What is usual, as of the last sample.
    pub(crate) fn usual(&self) -> Option<Usual> {
        self.lock().usual
    }

    /// All batches that were launched.
    pub(crate) fn batches(&self) -> BatchTotals {
        self.lock().batches
    }

    /// The work of each replica, by its number.
    pub(crate) fn replicas(&self) -> BTreeMap<u32, ReplicaUse> {
        self.lock().replicas.clone()
    }

    /// The slowest requests of five minutes, the slowest first.
    pub(crate) fn slowest(&self) -> Vec<RequestFacts> {
        let state = self.lock();
        let mut all: Vec<&RequestFacts> = state.slow.iter().flatten().collect();
        all.sort_by_key(|facts| std::cmp::Reverse(facts.lengths.total()));
        all.into_iter().take(SHOWN).cloned().collect()
    }

    /// The last requests that failed, the newest first.
    pub(crate) fn failed(&self) -> Vec<RequestFacts> {
        self.lock().failed.iter().rev().cloned().collect()
    }
}

impl State {
    fn replica(&mut self, replica: ReplicaId) -> Option<&mut ReplicaUse> {
        self.replicas.get_mut(self.numbers.get(&replica)?)
    }

    fn average(&mut self, batch: &BatchFacts) {
        self.averaged = AVERAGED.min(self.averaged + 1);
        let weight = 1.0 / f64::from(self.averaged);
        self.largest.cost += (batch.largest_cost as f64 - self.largest.cost) * weight;
        self.largest.bytes += (batch.largest_bytes as f64 - self.largest.bytes) * weight;
    }

    fn add_failed(&mut self, facts: RequestFacts) {
        // The items of one request fail together.
        if self.failed.back().is_some_and(|last| last.request_id == facts.request_id) {
            return;
        }
        if self.failed.len() == SHOWN {
            self.failed.pop_front();
        }
        self.failed.push_back(facts);
    }

    /// The duration from which on a request is among the slowest of its generation, if there are enough of them.
    fn add_slow(&mut self, facts: RequestFacts) -> Option<Duration> {
        if self.slow.is_empty() {
            self.slow.push_back(Vec::new());
        }
        let slowest = self.slow.back_mut()?;
        let total = |facts: &RequestFacts| facts.lengths.total();
        // The items of one request are slow together: the slowest of them stands for it.
        match slowest.iter_mut().find(|other| other.request_id == facts.request_id) {
            Some(other) if total(other) >= total(&facts) => {}
            Some(other) => *other = facts,
            None => slowest.push(facts),
        }
        slowest.sort_by_key(|facts| std::cmp::Reverse(total(facts)));
        slowest.truncate(SHOWN);
        slowest.get(SHOWN - 1).map(total)
    }
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The range that a batch of so many items is in.
fn size_range(items: usize) -> usize {
    (items.max(1).next_power_of_two().ilog2() as usize).min(SIZES - 1)
}

/// What a range of sizes is called.
pub(crate) fn size_label(range: usize) -> String {
    match range {
        0 | 1 => (range + 1).to_string(),
        _ if range == SIZES - 1 => format!("{}+", (1 << (range - 1)) + 1),
        _ => format!("{}–{}", (1 << (range - 1)) + 1, 1 << range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::deployment::live::why::Lengths;
    use crate::values::answer::Failure;
    use jitney_core::policy::batch_policy::CloseReason;
    use jitney_core::tables::outcome::Outcome;

    fn facts(id: u64, ms: u64) -> RequestFacts {
        RequestFacts {
            request_id: id.to_string().into(),
            at_ms: 0,
            lengths: Lengths { predict: Duration::from_millis(ms), ..Lengths::default() },
            ahead: 0,
            bytes: 0,
            cost: 1,
            returns: 0,
            replicas: 1,
            batch: None,
            failure: None,
            usual: None,
        }
    }

    fn slowest(record: &LiveRecord) -> Vec<u64> {
        record.slowest().iter().map(|facts| facts.lengths.total().as_millis() as u64).collect()
    }

    #[test]
    fn the_slowest_requests_of_five_minutes_are_kept() {
        let record = LiveRecord::default();
        let add = |ms| {
            let is_slow = record.is_slow(Duration::from_millis(ms));
            if is_slow {
                record.remember(facts(ms, ms), None);
            }
            is_slow
        };
        (1..=100).for_each(|ms| assert!(add(ms), "each is slower than all before"));
        assert!(!add(5), "ten were slower");
        assert_eq!(slowest(&record), (91..=100).rev().collect::<Vec<_>>());
        (0..GENERATION).for_each(|_| record.sampled(None));
        assert!(add(5), "a new generation has begun");
        assert_eq!(slowest(&record)[0], 100, "those of the one before are shown");
        (0..GENERATION * GENERATIONS as u32).for_each(|_| record.sampled(None));
        assert_eq!(slowest(&record), [0; 0]);
    }

    #[test]
    fn a_request_of_many_items_is_there_once() {
        let record = LiveRecord::default();
        [3, 9, 5].iter().for_each(|&ms| record.remember(facts(7, ms), None));
        assert_eq!(slowest(&record), [9]);
        let failed = |id| RequestFacts { failure: Some(Failure::new(Outcome::ModelFailed, "x")), ..facts(id, 1) };
        [1, 1, 2].iter().for_each(|&id| record.remember(failed(id), None));
        let ids: Vec<_> = record.failed().iter().map(|facts| facts.request_id.to_string()).collect();
        assert_eq!(ids, ["2", "1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_is_occupied_while_it_has_a_batch() {
        let (record, replica) = (LiveRecord::default(), ReplicaId(5));
        let second = Duration::from_secs(1);
        let batch = BatchFacts {
            items: 3,
            most_items: 8,
            reason: CloseReason::Eager,
            held: Duration::ZERO,
            largest_cost: 1,
            largest_bytes: 10,
            bytes: 30,
            replica: 0,
            factor: 1.0,
        };
        record.launched(replica, &batch);
        record.replica_up(replica, 1);
        record.launched(replica, &batch);
        tokio::time::advance(second).await;
        record.launched(replica, &batch);
        tokio::time::advance(second).await;
        let used = |record: &LiveRecord| record.replicas()[&1].occupied_until(Instant::now()).as_secs();
        let silent = |record: &LiveRecord| record.replicas()[&1].silent_until(Instant::now()).as_secs();
        assert_eq!((used(&record), silent(&record)), (2, 2), "it is not over");
        assert_eq!(record.replicas()[&1].largest_bytes(), 10);
        record.progressed(replica);
        assert_eq!((silent(&record), record.replicas()[&1].ended().1), (0, 0), "a part of it was sent");
        record.batch_ended(replica, second);
        assert_eq!((used(&record), silent(&record)), (2, 0), "the other one is not over");
        record.batch_ended(replica, second);
        tokio::time::advance(second).await;
        assert_eq!((used(&record), record.replicas()[&1].batches), (2, 2));
        assert_eq!(record.replicas()[&1].largest_bytes(), 0, "it has none");
        record.launched(replica, &batch);
        tokio::time::advance(second).await;
        record.replica_lost(replica);
        tokio::time::advance(second).await;
        assert_eq!((used(&record), record.replicas()[&1].predict), (3, second * 2));
        assert_eq!(record.batches().sizes[2], 4, "3 and 4 items are one range");
    }

    #[test]
    fn sizes_are_in_ranges_that_double() {
        for (items, label) in
            [(0, "1"), (1, "1"), (2, "2"), (3, "3–4"), (4, "3–4"), (5, "5–8"), (64, "33–64"), (100_000, "4097+")]
        {
            assert_eq!(size_label(size_range(items)), label, "{items}");
        }
    }
}
