//! The window cut into intervals: what ended in each, for the series and for the terminal.

use super::answer::{Answer, Loss};
use super::histogram::Durations;
use super::totals::{Kind, PartCounts, Totals, kind};
use std::collections::VecDeque;

/// The part of a run that counts, in nanoseconds since its beginning.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The end of the warm-up.
    pub from_ns: u64,
    /// Nothing is due from here on.
    pub to_ns: u64,
    /// The length of an interval; the last one may be shorter.
    pub interval_ns: u64,
}

impl Window {
    /// Whether an instant is in it.
    pub fn holds(&self, at_ns: u64) -> bool {
        (self.from_ns..self.to_ns).contains(&at_ns)
    }

    /// How many intervals it has.
    pub fn intervals(&self) -> usize {
        (self.to_ns - self.from_ns).div_ceil(self.interval_ns) as usize
    }

    /// Where this interval begins and ends.
    pub fn interval(&self, number: usize) -> (u64, u64) {
        let from_ns = self.from_ns + number as u64 * self.interval_ns;
        (from_ns, (from_ns + self.interval_ns).min(self.to_ns))
    }

    fn number(&self, at_ns: u64) -> Option<usize> {
        self.holds(at_ns).then(|| ((at_ns - self.from_ns) / self.interval_ns) as usize)
    }
}

/// What happened in one interval, in one thread or in all.
#[derive(Clone, Debug, Default)]
pub struct Interval {
    /// Requests that were due.
    pub due: u64,
    /// Requests that were answered, refused and that failed, whenever they were due.
    pub answered: u64,
    /// See `answered`.
    pub refused: u64,
    /// See `answered`.
    pub failed: u64,
    /// Latencies of the answered ones.
    pub latency: Durations,
    /// From the due instant to the first part of those that came in parts.
    pub first_part: Durations,
    /// Parts that came.
    pub parts: PartCounts,
    /// Of those with a `server-timing`: how many, and the sums of two of its lengths. Of an answer in parts the second one is
    /// the time to its first part.
    pub timed: u64,
    /// See `timed`.
    pub queue_us: u64,
    /// See `timed`.
    pub model_us: u64,
    /// Of those with a batch size: how many, and the sum of the sizes.
    pub batched: u64,
    /// See `batched`.
    pub batch_items: u64,
    /// How long the generator's busiest thread computed, in nanoseconds.
    pub cpu_ns: u64,
    /// How long a thread that wanted to compute had to wait for a core, in nanoseconds.
    pub waited_ns: u64,
}

impl Interval {
    fn record(&mut self, latency_ns: u64, end: &Result<Answer, Loss>) {
        match kind(end) {
            Kind::Answered => self.answered += 1,
            Kind::Refused => self.refused += 1,
            Kind::Failed => self.failed += 1,
        }
        let (Kind::Answered, Ok(answer)) = (kind(end), end) else { return };
        self.latency.record_ns(latency_ns);
        let first_ns = answer.streamed.as_ref().and_then(|streamed| streamed.first_part_ns);
        first_ns.into_iter().for_each(|first_ns| self.first_part.record_ns(first_ns));
        if let Some(timing) = answer.timing {
            self.timed += 1;
            self.queue_us += timing.queue_us;
            self.model_us += timing.model_us.or(timing.first_part_us).unwrap_or_default();
        }
        if let Some(size) = answer.batch_size {
            self.batched += 1;
            self.batch_items += u64::from(size);
        }
    }

    /// Adds another thread's.
    pub fn merge(&mut self, other: &Interval) {
        for (ours, theirs) in [
            (&mut self.due, other.due),
            (&mut self.answered, other.answered),
            (&mut self.refused, other.refused),
            (&mut self.failed, other.failed),
            (&mut self.timed, other.timed),
            (&mut self.queue_us, other.queue_us),
            (&mut self.model_us, other.model_us),
            (&mut self.batched, other.batched),
            (&mut self.batch_items, other.batch_items),
        ] {
            *ours += theirs;
        }
        self.latency.merge(&other.latency);
        self.first_part.merge(&other.first_part);
        self.parts.merge(&other.parts);
        // The busiest thread is the one that may be the limit.
        if other.cpu_ns + other.waited_ns > self.cpu_ns + self.waited_ns {
            (self.cpu_ns, self.waited_ns) = (other.cpu_ns, other.waited_ns);
        }
    }
}

/// Counts what one thread does.
#[derive(Debug)]
pub struct Recorder {
    window: Window,
    has_users: bool,
    items_per_request: u32,
    totals: Totals,
    /// The number of the first of `open`.
    first: usize,
    open: VecDeque<Interval>,
}

impl Recorder {
    /// Nothing has happened yet. `has_users`: a request is due when its user has been answered, not by a schedule.
    pub fn new(window: Window, has_users: bool, items_per_request: u32) -> Recorder {
        Recorder { window, has_users, items_per_request, totals: Totals::default(), first: 0, open: VecDeque::new() }
    }

    /// A request is due.
    pub fn due(&mut self, due_ns: u64) {
        if let Some(interval) = self.interval(due_ns) {
            interval.due += 1;
        }
    }

    /// A request of an open loop that found a free connection is sent.
    pub fn sent(&mut self, due_ns: u64, now_ns: u64) {
        if self.window.holds(due_ns) {
            self.totals.record_sent(now_ns.saturating_sub(due_ns));
        }
    }

    /// A request of an open loop is due while all connections are busy.
    pub fn held(&mut self, due_ns: u64) {
        self.totals.held_count += u64::from(self.window.holds(due_ns));
    }

    /// A connection was opened.
    pub fn opened(&mut self) {
        self.totals.connections_opened += 1;
    }

    /// Parts of one answer have come together; `before_ns` is the instant of the part before them.
    pub fn parts(&mut self, before_ns: Option<u64>, now_ns: u64, count: u64) {
        let gap_ns = before_ns.map(|before_ns| now_ns.saturating_sub(before_ns));
        if self.window.holds(now_ns) {
            self.totals.parts.record(gap_ns, count);
        }
        if let Some(interval) = self.interval(now_ns) {
            interval.parts.record(gap_ns, count);
        }
    }

    /// A request has ended.
    pub fn ended(&mut self, due_ns: u64, now_ns: u64, end: &Result<Answer, Loss>) {
        let latency_ns = now_ns.saturating_sub(due_ns);
        if self.concerns(due_ns, now_ns) {
            self.totals.record(latency_ns, self.items_per_request, end);
        }
        if let Some(interval) = self.interval(now_ns) {
            interval.record(latency_ns, end);
        }
    }

    /// The next interval is over. Later reports about it count into the one after it.
    pub fn close(&mut self) -> Interval {
        self.first += 1;
        self.open.pop_front().unwrap_or_default()
    }

    /// All is over.
    pub fn finish(self) -> Totals {
        self.totals
    }

    /// Whether a request counts: it was due in the window, or kept its user waiting through the whole of it. Without the
    /// latter a server that answers only some of its users, from the warm-up on, would look quick. Of a schedule every
    /// instant of the window has its own request, and those before it have none.
    fn concerns(&self, due_ns: u64, ended_ns: u64) -> bool {
        let window = self.window;
        window.holds(due_ns) || self.has_users && due_ns < window.from_ns && ended_ns >= window.to_ns
    }

    fn interval(&mut self, at_ns: u64) -> Option<&mut Interval> {
        let place = self.window.number(at_ns)?.saturating_sub(self.first);
        while self.open.len() <= place {
            self.open.push_back(Interval::default());
        }
        self.open.get_mut(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn window() -> Window {
        Window { from_ns: 2 * SECOND_NS, to_ns: 4 * SECOND_NS + 1, interval_ns: SECOND_NS }
    }

    fn ok() -> Answer {
        Answer { status: 200, ..Answer::default() }
    }

    #[test]
    fn intervals_cover_the_window_and_nothing_else() {
        let window = window();
        assert_eq!(window.intervals(), 3);
        assert_eq!(window.interval(2), (4 * SECOND_NS, 4 * SECOND_NS + 1));
        assert_eq!(
            (window.number(0), window.number(2 * SECOND_NS), window.number(5 * SECOND_NS)),
            (None, Some(0), None)
        );
    }

    #[test]
    fn latencies_are_of_what_was_due_and_rates_of_what_ended() {
        let mut recorder = Recorder::new(window(), true, 1);
        // Due in the warm-up, ended in the window; due in the window, ended after it.
        recorder.ended(SECOND_NS, 3 * SECOND_NS, &Ok(ok()));
        recorder.ended(4 * SECOND_NS, 9 * SECOND_NS, &Ok(ok()));
        let intervals: Vec<u64> = (0..3).map(|_| recorder.close().answered).collect();
        assert_eq!(intervals, [0, 1, 0]);
        let totals = recorder.finish();
        assert_eq!(totals.latency.count(), 1);
        assert!((totals.latency.quantile_ms(0.5) - 5000.0).abs() < 5.0);
    }

    #[test]
    fn who_is_never_answered_in_the_window_counts_though_due_before_it() {
        let mut recorder = Recorder::new(window(), true, 1);
        recorder.ended(SECOND_NS, 5 * SECOND_NS, &Ok(ok()));
        recorder.ended(SECOND_NS, 6 * SECOND_NS, &Err(Loss::Timeout));
        let totals = recorder.finish();
        assert_eq!((totals.count(Kind::Answered), totals.count(Kind::Failed)), (1, 1));
        assert!((totals.latency.quantile_ms(0.5) - 4000.0).abs() < 5.0);

        let mut scheduled = Recorder::new(window(), false, 1);
        scheduled.ended(SECOND_NS, 5 * SECOND_NS, &Ok(ok()));
        assert_eq!(scheduled.finish().count(Kind::Answered), 0);
    }

    #[test]
    fn parts_count_when_they_come() {
        let mut recorder = Recorder::new(window(), true, 1);
        recorder.parts(None, SECOND_NS, 5);
        recorder.parts(Some(SECOND_NS), 2 * SECOND_NS, 1);
        recorder.parts(Some(2 * SECOND_NS), 3 * SECOND_NS, 2);
        let intervals: Vec<u64> = (0..3).map(|_| recorder.close().parts.count).collect();
        assert_eq!(intervals, [1, 2, 0]);
        let totals = recorder.finish();
        assert_eq!((totals.parts.count, totals.parts.gap.count()), (3, 3));
    }

    #[test]
    fn what_is_told_too_late_counts_into_the_next_interval() {
        let mut recorder = Recorder::new(window(), true, 1);
        recorder.close();
        recorder.due(2 * SECOND_NS);
        assert_eq!(recorder.close().due, 1);
    }

    #[test]
    fn of_several_threads_the_busiest_counts() {
        let mut one = Interval { cpu_ns: 5, waited_ns: 1, answered: 1, ..Interval::default() };
        one.merge(&Interval { cpu_ns: 4, waited_ns: 3, answered: 2, ..Interval::default() });
        assert_eq!((one.cpu_ns, one.waited_ns, one.answered), (4, 3, 3));
    }
}
