//! How busy the cores of this machine are with the programs of all its users, and how late the front wakes.

use crate::engine::server_state::live::points::JUDGED;
use prometheus::core::Metric;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// The time over which both are judged.
const OVER: Duration = Duration::from_secs(JUDGED as u64);

/// The last looks at the machine.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    /// The newest one last. The first one is at most one look older than `OVER`.
    looks: VecDeque<Look>,
}

#[derive(Debug)]
struct Look {
    at: Instant,
    cores: Option<CoreTicks>,
    lag: LagCounts,
}

/// The time of all cores of this machine since its start, in ticks of its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CoreTicks {
    busy: u64,
    all: u64,
}

impl CoreTicks {
    /// Those of now, as Linux says them; `None` elsewhere.
    pub(crate) fn now() -> Option<CoreTicks> {
        CoreTicks::parse(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// The first line has: user, nice, system, idle, iowait, irq, softirq, steal. What follows is part of user and nice.
    fn parse(stat: &str) -> Option<CoreTicks> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line.split_ascii_whitespace().take(8).map_while(|field| field.parse().ok()).collect();
        let all = ticks.iter().sum();
        let idle = ticks.get(3)? + ticks.get(4).unwrap_or(&0);
        Some(CoreTicks { busy: all - idle, all })
    }
}

/// How often the front woke, by how late it was: the bound of each bucket in seconds, and the count up to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LagCounts {
    buckets: Vec<(f64, u64)>,
    all: u64,
}

impl LagCounts {
    /// What this histogram has counted.
    pub(crate) fn of(histogram: &prometheus::Histogram) -> LagCounts {
        let metric = histogram.metric();
        let counted = metric.get_histogram();
        let buckets = counted.get_bucket().iter().map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()));
        LagCounts { buckets: buckets.collect(), all: counted.get_sample_count() }
    }

    /// The lag in seconds that 99 % of the wakes since an earlier look did not exceed. The longest one does not count: a single
    /// long one says nothing.
    fn p99_since(&self, before: &LagCounts) -> Option<f64> {
        let all = self.all.saturating_sub(before.all) as f64;
        let rank = (0.99 * all).min(all - 1.0);
        if rank <= 0.0 {
            return None;
        }
        let (mut bound_before, mut below) = (0.0, 0.0);
        for (place, &(bound, count)) in self.buckets.iter().enumerate() {
            let count = count.saturating_sub(before.buckets.get(place).map_or(0, |(_, count)| *count)) as f64;
            if count >= rank {
                return Some(bound_before + (bound - bound_before) * (rank - below) / (count - below));
            }
            (bound_before, below) = (bound, count);
        }
        Some(bound_before)
    }
}

impl Machine {
    /// Takes note of the present state of the machine.
    pub(crate) fn look(&mut self, at: Instant, cores: Option<CoreTicks>, lag: LagCounts) {
        self.looks.push_back(Look { at, cores, lag });
        while self.looks.get(1).is_some_and(|second| at - second.at >= OVER) {
            self.looks.pop_front();
        }
    }

    /// The share of their time for which the cores of this machine computed, for this server or others.
    pub(crate) fn busy(&self) -> Option<f64> {
        let (first, last) = (self.looks.front()?.cores?, self.looks.back()?.cores?);
        let all = last.all.checked_sub(first.all).filter(|&all| all > 0)?;
        Some((last.busy.saturating_sub(first.busy) as f64 / all as f64).min(1.0))
    }

    /// How late the front wakes, in seconds: 99 % of its wakes are not later.
    pub(crate) fn front_lag_s(&self) -> Option<f64> {
        self.looks.back()?.lag.p99_since(&self.looks.front()?.lag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_cores_is_all_but_what_they_idle() {
        let found = CoreTicks::parse("cpu  100 20 30 400 50 1 2 7 90 9\ncpu0 1 1 1 1\n");
        assert_eq!(found, Some(CoreTicks { busy: 160, all: 610 }), "the guests are part of the first two");
        assert_eq!((CoreTicks::parse("intr 1 2"), CoreTicks::parse("")), (None, None));
    }

    /// Counts of wakes that were so late, in milliseconds.
    fn lag(wakes: &[(u64, u64)]) -> LagCounts {
        let bounds = [0.01, 0.1, 0.25];
        let up_to = |bound: f64| wakes.iter().filter(|(ms, _)| *ms as f64 / 1e3 <= bound).map(|(_, count)| count).sum();
        LagCounts {
            buckets: bounds.iter().map(|&bound| (bound, up_to(bound))).collect(),
            all: wakes.iter().map(|(_, count)| count).sum(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_counts_are_the_last_ten_seconds() {
        let mut machine = Machine::default();
        let (mut busy, mut all) = (0, 0);
        for second in 0..60 {
            (busy, all) = (busy + if second < 30 { 10 } else { 190 }, all + 200);
            machine.look(Instant::now(), Some(CoreTicks { busy, all }), lag(&[(5, second)]));
            let shown = machine.busy().map(|share| (share * 100.0).round());
            match second {
                0 => assert_eq!((shown, machine.front_lag_s()), (None, None), "one look says nothing"),
                29 => assert_eq!(shown, Some(5.0)),
                45.. => assert_eq!(shown, Some(95.0)),
                _ => {}
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(machine.looks.len(), JUDGED + 1);
    }

    #[test]
    fn one_late_wake_says_nothing_and_several_do() {
        let before = lag(&[(5, 1000), (200, 50)]);
        let late = |more: u64| lag(&[(5, 1095), (200, 50 + more)]).p99_since(&before).unwrap();
        assert!(late(1) <= 0.01, "{}", late(1));
        assert!((0.1..=0.25).contains(&late(5)), "{}", late(5));
        assert_eq!(lag(&[(900, 50)]).p99_since(&lag(&[])), Some(0.25), "later than the last bound");
    }

    #[test]
    fn a_histogram_is_read_as_it_counts() {
        let options = prometheus::HistogramOpts::new("lag", "lag").buckets(vec![0.01, 0.1]);
        let histogram = prometheus::Histogram::with_opts(options).unwrap();
        [0.005, 0.05, 0.5].iter().for_each(|&lag| histogram.observe(lag));
        assert_eq!(LagCounts::of(&histogram), LagCounts { buckets: vec![(0.01, 1), (0.1, 2)], all: 3 });
    }
}
