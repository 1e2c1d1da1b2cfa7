//! How many items arrived, second by second: the rate that counts, its growth, and how bursty it is.

use std::collections::VecDeque;

/// Seconds that are remembered: the longest window, and the longest time over which growth is measured.
const KEPT: usize = 241;
/// A rise is seen in the shortest of these windows in which it is more than noise: seconds, and the standard deviations of
/// the count that do not count. Each is asked once a second, so that few deviations would be found by chance soon.
const SHORT: [(usize, f64); 3] = [(2, 4.0), (5, 4.0), (15, 3.0)];
/// The mean rate is that of the shortest of these windows, in seconds, that holds this many arrivals.
const LONG: [usize; 4] = [30, 60, 120, 240];
const ENOUGH: f64 = 100.0;
/// The mean rate counts less this many standard deviations of its count.
const LONG_DEVIATIONS: f64 = 1.0;
/// The rate has fallen if the count of the last seconds is this many standard deviations below it.
const FALL: f64 = 4.0;
/// The last seconds that show a fall.
const FALL_OVER: usize = 15;
/// Without an arrival for so many seconds, nothing arrives.
const QUIET_AFTER: usize = 5;
/// The burst index is measured over this many seconds …
const BURSTS_OVER: usize = 60;
/// … without the largest differences: that traffic begins and ends is not a burst.
const EDGES: usize = 2;
/// Growth is measured over four windows in a row. The shortest and the longest of these, in seconds.
const GROWTH_OVER: (usize, usize) = (5, 60);
/// Growth counts from this many standard deviations on …
const CERTAIN: f64 = 2.0;
/// … and at most so many times the rate is expected.
const MOST_GROWTH: f64 = 2.0;

/// Arrivals of one deployment, refused ones included.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    /// The total at the end of each second, with the second; the newest last.
    totals: VecDeque<(f64, f64)>,
}

impl Arrivals {
    /// So many items had arrived until `now_s`, in seconds, since the beginning. It is called once a second.
    pub fn note(&mut self, now_s: f64, total: u64) {
        self.totals.push_back((now_s, total as f64));
        if self.totals.len() > KEPT {
            self.totals.pop_front();
        }
    }

    /// Seconds that have been counted.
    fn seconds(&self) -> usize {
        self.totals.len().saturating_sub(1)
    }

    /// Arrivals in `over` seconds that ended `ago` seconds ago, and how many seconds these really were.
    fn count(&self, ago: usize, over: usize) -> (f64, f64) {
        let last = self.totals.len() - 1 - ago;
        let ((to, end), (from, start)) = (self.totals[last], self.totals[last - over]);
        (end - start, (to - from).max(1e-3))
    }

    /// Whether nothing has arrived for a while.
    pub fn is_quiet(&self) -> bool {
        let over = self.seconds().min(QUIET_AFTER);
        over == 0 || self.count(0, over).0 <= 0.0
    }

    /// Arrivals per second: the largest of several windows, each less what chance may have added.
    pub fn rate(&self) -> f64 {
        let seconds = self.seconds();
        if seconds == 0 {
            return 0.0;
        }
        let is_enough = |over: &usize| *over <= seconds && self.count(0, *over).0 >= ENOUGH;
        let long = LONG.into_iter().find(is_enough).unwrap_or(LONG[3]);
        let rate = |(over, deviations): (usize, f64)| {
            let (count, over_s) = self.count(0, over.min(seconds));
            (count - deviations * count.sqrt()).max(0.0) / over_s
        };
        // Load that has ended does not count. So the mean is at most what the last seconds show, plus what chance may have taken
        // from them.
        let (count, over_s) = self.count(0, FALL_OVER.min(seconds));
        let most = (count + FALL * (count + FALL).sqrt()) / over_s;
        let mean = rate((long, LONG_DEVIATIONS)).min(most);
        SHORT.into_iter().map(rate).fold(mean, f64::max)
    }

    /// Arrivals per second in the last seconds, with what chance may have added: the largest of two short windows.
    pub fn latest_rate(&self) -> f64 {
        let rate = |&(over, _): &(usize, f64)| {
            let (count, over_s) = self.count(0, over.min(self.seconds()));
            (count + count.sqrt()) / over_s
        };
        if self.seconds() == 0 { 0.0 } else { SHORT[..2].iter().map(rate).fold(0.0, f64::max) }
    }

    /// What is added to the rate until a replica that is asked for now is there, `ahead_s` seconds from now. A step does not
    /// go on: the smallest of three differences between four windows counts, and at most two of them contain a step.
    pub fn growth(&self, rate: f64, ahead_s: f64) -> f64 {
        let over = ((ahead_s / 2.0) as usize).clamp(GROWTH_OVER.0, GROWTH_OVER.1);
        if self.seconds() < 4 * over {
            return 0.0;
        }
        let counts = [0, 1, 2, 3].map(|window| self.count(window * over, over).0);
        let more = counts.windows(2).map(|pair| pair[0] - pair[1]).fold(f64::INFINITY, f64::min);
        let is_certain = counts[0] - counts[3] > CERTAIN * (counts[0] + counts[3]).sqrt();
        if more <= 0.0 || !is_certain {
            return 0.0;
        }
        let per_s = more / (over * over) as f64;
        (per_s * (ahead_s + 2.0)).min((MOST_GROWTH - 1.0) * rate)
    }

    /// The variance of the counts of seconds over their mean: 1 for independent clients. It is computed from differences, so
    /// that a trend does not count as a burst, less two standard errors.
    pub fn burst_index(&self) -> f64 {
        let over = self.seconds().min(BURSTS_OVER);
        if over < 6 {
            return 1.0;
        }
        let counts: Vec<f64> = (0..over).map(|ago| self.count(ago, 1).0).collect();
        let mean = counts.iter().sum::<f64>() / over as f64;
        if mean <= 0.0 {
            return 1.0;
        }
        let mut squares: Vec<f64> = counts.windows(2).map(|pair| (pair[0] - pair[1]).powi(2)).collect();
        squares.sort_unstable_by(f64::total_cmp);
        squares.truncate(over - 1 - EDGES);
        let square = squares.iter().sum::<f64>() / squares.len() as f64;
        let certain = 1.0 - 2.0 * (2.0 / over as f64).sqrt();
        (square / 2.0 / mean * certain).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(counts: impl IntoIterator<Item = u64>) -> Arrivals {
        let (mut arrivals, mut total) = (Arrivals::default(), 0);
        arrivals.note(0.0, 0);
        for (second, count) in counts.into_iter().enumerate() {
            total += count;
            arrivals.note(second as f64 + 1.0, total);
        }
        arrivals
    }

    #[test]
    fn a_step_is_seen_within_three_seconds_and_noise_is_not() {
        let calm = arrivals([100; 30]);
        assert!((90.0..=100.0).contains(&calm.rate()), "{}", calm.rate());
        let step = arrivals([100; 30].into_iter().chain([200; 2]));
        assert!(step.rate() > 150.0, "{}", step.rate());
        let noise = arrivals([100; 30].into_iter().chain([110, 112]));
        assert!(noise.rate() < 105.0, "{}", noise.rate());
    }

    #[test]
    fn what_has_ended_does_not_count() {
        let over = arrivals([100; 30].into_iter().chain([1; 15]));
        assert!(over.rate() < 4.0, "{}", over.rate());
        let slow = arrivals((0..120).map(|second| u64::from(second % 4 == 0)));
        assert!((0.15..0.3).contains(&slow.rate()), "{}", slow.rate());
    }

    #[test]
    fn traffic_that_comes_back_is_in_the_latest_rate_before_it_is_certain() {
        let back = arrivals([100; 60].into_iter().chain([0; 60]).chain([100; 2]));
        assert!(back.latest_rate() >= 100.0 && back.rate() < 80.0, "{} {}", back.latest_rate(), back.rate());
        assert!(Arrivals::default().latest_rate() <= 0.0);
    }

    #[test]
    fn a_trend_goes_on_and_is_no_burst() {
        let ramp = arrivals((0..60).map(|second| 100 + 10 * second));
        let step = arrivals((0..60).map(|second| if second < 33 { 100 } else { 300 }));
        assert!(step.growth(step.rate(), 20.0) <= 0.0);
        let growth = ramp.growth(ramp.rate(), 20.0);
        assert!((150.0..300.0).contains(&growth), "{growth}");
        assert!(ramp.burst_index() <= 1.0);
        assert!(arrivals([100; 60]).growth(100.0, 20.0) <= 0.0);
        assert!(arrivals([100; 9]).growth(100.0, 5.0) <= 0.0, "too few seconds");
    }

    #[test]
    fn clients_that_come_together_are_a_burst() {
        let bursts = arrivals((0..60).map(|second| if second % 7 < 2 { 300 } else { 10 }));
        assert!(bursts.burst_index() > 20.0, "{}", bursts.burst_index());
        assert!(arrivals([0; 60]).burst_index() <= 1.0);
    }

    #[test]
    fn quiet_is_a_window_without_a_request() {
        assert!(Arrivals::default().is_quiet());
        assert!(!arrivals([1, 0, 0]).is_quiet());
        assert!(arrivals([1].into_iter().chain([0; 16])).is_quiet());
    }
}
