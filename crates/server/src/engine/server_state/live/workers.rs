//! The replicas over time: since when each is in its state, what its process uses, and why its last worker was lost.

use crate::base::telemetry::process_stats::ProcessStats;
use crate::base::telemetry::workers::WorkerSeen;
use crate::engine::server_state::live::sampled::EVERY;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// Memory is noted as often.
const MEMORY_EVERY: Duration = Duration::from_secs(10);
/// So many notes of memory are five minutes.
const MEMORY_NOTES: usize = 31;
/// Memory grows if it gained so many bytes, and a fifth, within so many notes.
const GROWTH_BYTES: u64 = 64 << 20;
const GROWTH_NOTES: usize = 7;
/// After its load a model settles for so long.
const SETTLES_FOR: Duration = Duration::from_secs(30);
/// Losses are counted for so long.
const LOSSES_FOR: Duration = Duration::from_secs(300);

/// What is known about one replica.
#[derive(Clone, Debug)]
pub(crate) struct KnownWorker {
    pub(crate) seen: WorkerSeen,
    /// Since when it is in its state.
    pub(crate) since: Instant,
    /// Bytes of memory every ten seconds, with the instants of these looks, the newest last. They begin anew with each process.
    pub(crate) memory: VecDeque<(Instant, u64)>,
    /// Cores that it used since the last look; `None` if it runs elsewhere, or its process is new.
    pub(crate) cores: Option<f64>,
    /// When workers of it were lost within five minutes.
    losses: VecDeque<Instant>,
    cpu: Option<Look>,
    noted: Option<Instant>,
}

/// The memory of a worker that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Growth {
    pub(crate) replica: u32,
    /// What it takes now, and by how much that is more than so many seconds ago.
    pub(crate) bytes: u64,
    pub(crate) by: u64,
    pub(crate) seconds: u64,
}

/// The CPU time of a process at one instant.
#[derive(Clone, Copy, Debug)]
struct Look {
    pid: u32,
    at: Instant,
    cpu_s: f64,
}

impl Look {
    /// The cores that the process used since an earlier look at it.
    fn cores_since(&self, before: Option<Look>) -> Option<f64> {
        let before = before.filter(|before| before.pid == self.pid)?;
        let length_s = (self.at - before.at).as_secs_f64();
        (length_s > 0.0).then(|| (self.cpu_s - before.cpu_s).max(0.0) / length_s)
    }
}

impl KnownWorker {
    fn new(seen: WorkerSeen, now: Instant) -> KnownWorker {
        KnownWorker {
            seen,
            since: now,
            memory: VecDeque::new(),
            cores: None,
            losses: VecDeque::new(),
            cpu: None,
            noted: None,
        }
    }

    /// Workers of it that were lost within five minutes.
    pub(crate) fn lost(&self) -> u64 {
        self.losses.len() as u64
    }

    /// How its memory grows, if it has done so for a while, by much, and goes on. A model that was just loaded takes memory for its
    /// first batches.
    pub(crate) fn growth(&self, now: Instant) -> Option<Growth> {
        if self.seen.state != "ready" || now - self.since < SETTLES_FOR {
            return None;
        }
        let notes: Vec<(Instant, u64)> = self.memory.iter().rev().take(GROWTH_NOTES).copied().collect();
        let (last, before, first) = (notes.first()?.1, notes.get(1)?.1, notes.get(2)?.1);
        let is_steady = last > before + (1 << 20) && before > first + GROWTH_BYTES / 4;
        let &(began, beginning) = notes.iter().min_by_key(|(_, bytes)| *bytes)?;
        let by = last - beginning;
        (is_steady && by >= GROWTH_BYTES && by * 5 >= beginning).then(|| Growth {
            replica: self.seen.replica,
            bytes: last,
            by,
            seconds: (notes[0].0 - began).as_secs_f64().round() as u64,
        })
    }

    fn follow(&mut self, seen: WorkerSeen, now: Instant) {
        if seen.state != self.seen.state || seen.pid != self.seen.pid {
            self.since = now;
        }
        if seen.pid != self.seen.pid {
            (self.memory, self.noted) = (VecDeque::new(), None);
        }
        let losses = seen.losses.saturating_sub(self.seen.losses);
        (0..losses.min(LOSSES_KEPT)).for_each(|_| self.losses.push_back(now));
        while self.losses.front().is_some_and(|&at| now - at >= LOSSES_FOR) || self.losses.len() > LOSSES_KEPT as usize
        {
            self.losses.pop_front();
        }
        self.seen = seen;
    }

    fn look(&mut self, now: Instant, stats: Option<ProcessStats>) {
        let look = self.seen.pid.zip(stats).map(|(pid, stats)| Look { pid, at: now, cpu_s: stats.cpu_s });
        self.cores = look.and_then(|look| look.cores_since(self.cpu));
        self.cpu = look;
        let Some(stats) = stats else { return };
        match self.memory.back_mut() {
            // A look that should be ten seconds later comes a little earlier or later.
            Some(last) if self.noted.is_some_and(|noted| now - noted + EVERY / 2 < MEMORY_EVERY) => {
                *last = (now, stats.resident_bytes);
            }
            _ => {
                self.noted = Some(now);
                self.memory.push_back((now, stats.resident_bytes));
                if self.memory.len() > MEMORY_NOTES {
                    self.memory.pop_front();
                }
            }
        }
    }
}

/// More losses of one replica within five minutes are not counted.
const LOSSES_KEPT: u64 = 100;

/// All replicas of a server, and the front itself.
#[derive(Debug, Default)]
pub(crate) struct KnownWorkers {
    by_replica: BTreeMap<(String, u32), KnownWorker>,
    front: Option<Look>,
    front_cores: Option<f64>,
    front_stats: Option<ProcessStats>,
}

impl KnownWorkers {
    /// Takes note of the present replicas.
    pub(crate) fn follow(&mut self, now: Instant, seen: Vec<WorkerSeen>) {
        let mut before = std::mem::take(&mut self.by_replica);
        for seen in seen {
            let name = (seen.deployment.clone(), seen.replica);
            let known = match before.remove(&name) {
                Some(mut known) => {
                    known.follow(seen, now);
                    known
                }
                None => KnownWorker::new(seen, now),
            };
            self.by_replica.insert(name, known);
        }
    }

    /// Looks at the processes. `stats` reads what one uses.
    pub(crate) fn look(&mut self, now: Instant, stats: impl Fn(u32) -> Option<ProcessStats>) {
        for known in self.by_replica.values_mut() {
            known.look(now, known.seen.pid.and_then(&stats));
        }
        let own = std::process::id();
        self.front_stats = stats(own);
        let look = self.front_stats.map(|stats| Look { pid: own, at: now, cpu_s: stats.cpu_s });
        self.front_cores = look.and_then(|look| look.cores_since(self.front));
        self.front = look;
    }

    /// The replicas of a deployment, by their numbers.
    pub(crate) fn of(&self, deployment: &str) -> impl Iterator<Item = &KnownWorker> {
        self.by_replica.iter().filter(move |((name, _), _)| name == deployment).map(|(_, known)| known)
    }

    /// Cores that the front used since the last look.
    pub(crate) fn front_cores(&self) -> Option<f64> {
        self.front_cores
    }

    /// What the front's process uses.
    pub(crate) fn front_stats(&self) -> Option<ProcessStats> {
        self.front_stats
    }

    /// Cores that the front and all workers of this machine used since the last look.
    pub(crate) fn used_cores(&self) -> Option<f64> {
        Some(self.front_cores? + self.by_replica.values().filter_map(|known| known.cores).sum::<f64>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(state: &'static str, pid: Option<u32>, losses: u64) -> WorkerSeen {
        WorkerSeen {
            deployment: "a".into(),
            replica: 0,
            state,
            is_surplus: false,
            pid,
            host: None,
            device: None,
            starts: losses + 1,
            load: None,
            losses,
            failure: None,
        }
    }

    fn stats(cpu_s: f64) -> impl Fn(u32) -> Option<ProcessStats> {
        move |_| Some(ProcessStats { cpu_s, resident_bytes: 7, threads: 1, started_s: 0.0 })
    }

    #[tokio::test(start_paused = true)]
    async fn a_state_lasts_until_another_one_or_another_process_comes() {
        let mut known = KnownWorkers::default();
        let second = Duration::from_secs(1);
        for (place, (state, pid, losses, since_s)) in [
            ("ready", Some(1), 0, 0),
            ("ready", Some(1), 0, 1),
            ("loading", None, 1, 0),
            ("ready", Some(2), 1, 0),
            ("ready", Some(3), 2, 0),
        ]
        .into_iter()
        .enumerate()
        {
            known.follow(Instant::now(), vec![seen(state, pid, losses)]);
            known.look(Instant::now(), stats(place as f64));
            let one = known.of("a").next().unwrap();
            assert_eq!(((Instant::now() - one.since).as_secs(), one.lost()), (since_s, losses), "{place}");
            // The CPU time of another process says nothing.
            assert_eq!(one.cores, (place == 1).then_some(1.0), "{place}");
            tokio::time::advance(second).await;
        }
        assert_eq!(known.front_cores(), Some(1.0));
        tokio::time::advance(LOSSES_FOR).await;
        known.follow(Instant::now(), vec![seen("ready", Some(3), 2)]);
        assert_eq!(known.of("a").next().unwrap().lost(), 0);
        known.follow(Instant::now(), Vec::new());
        assert_eq!(known.of("a").count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn memory_grows_if_it_goes_on_and_not_by_one_large_batch() {
        const MB: u64 = 1 << 20;
        for (name, bytes_at, grows) in [
            ("a leak", (|s| s * 10 * MB) as fn(u64) -> u64, true),
            ("one large batch", |s| if s < 50 { 100 * MB } else { 400 * MB }, false),
            ("a slow leak", |s| 500 * MB + s * MB, false),
        ] {
            let mut known = KnownWorkers::default();
            let mut said = Vec::new();
            for second in 0..100 {
                known.follow(Instant::now(), vec![seen("ready", Some(1), 0)]);
                known.look(Instant::now(), |_| {
                    Some(ProcessStats {
                        cpu_s: 0.0,
                        resident_bytes: 50 * MB + bytes_at(second),
                        threads: 1,
                        started_s: 0.0,
                    })
                });
                said.extend(known.of("a").next().unwrap().growth(Instant::now()).map(|growth| (second, growth)));
                tokio::time::advance(Duration::from_secs(1)).await;
            }
            assert_eq!(!said.is_empty(), grows, "{name}: {said:?}");
            if let Some((second, growth)) = said.first() {
                assert_eq!((*second, growth.seconds, growth.bytes), (30, 21, 350 * MB), "it was just loaded before");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn looks_that_come_a_little_early_or_late_are_noted_with_their_instants() {
        let mut known = KnownWorkers::default();
        for look in 0..10u64 {
            known.follow(Instant::now(), vec![seen("ready", Some(1), 0)]);
            let resident_bytes = look * (100 << 20);
            known.look(Instant::now(), |_| {
                Some(ProcessStats { cpu_s: 0.0, resident_bytes, threads: 1, started_s: 0.0 })
            });
            tokio::time::advance(Duration::from_millis(if look % 2 == 0 { 9999 } else { 10_001 })).await;
        }
        let one = known.of("a").next().unwrap();
        assert_eq!(one.memory.len(), 10);
        let growth = one.growth(Instant::now()).unwrap();
        assert_eq!((growth.by, growth.seconds), (600 << 20, 60));
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_noted_every_ten_seconds_for_five_minutes() {
        let mut known = KnownWorkers::default();
        for _ in 0..1000 {
            known.follow(Instant::now(), vec![seen("ready", Some(1), 0)]);
            known.look(Instant::now(), stats(0.0));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(known.of("a").next().unwrap().memory.len(), MEMORY_NOTES);
    }
}
