//! How requests arrive: how many, in what rhythm, and how soon after an answer the next one comes, and of which group. Clients
//! are not distinguished: an arrival is matched to the oldest answer that no request has followed up, one of the same group
//! if there is one.

use crate::learn::group_transitions::GroupTransitions;
use crate::learn::size_model::SizeModel;
use crate::request::GroupId;
use crate::time::Time;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Samples kept of each distribution …
const KEPT: usize = 256;
/// … and needed before it is believed.
const NEEDED: usize = 20;
/// Those of one batch are similar: they must be of this many batches to be believed.
const NEEDED_BATCHES: u32 = 6;
/// After so many in a row who came alone the next one is taken to be alone as well, whatever came in bursts before.
const ALONE_AFTER: u32 = 8;
/// The window of the arrival rate, in batches.
const WINDOW_BATCHES: f64 = 20.0;
/// Shortest window and longest forgetting, in seconds: models that cost nothing have users too.
const LEAST_S: f64 = 1e-3;
/// Groups of answers watched at once; a deployment with more has enough to do without waiting for users.
const MOST_GROUPS: usize = 64;

/// The last samples of a length of time, in order of arrival and in order of size.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    in_order: VecDeque<f64>,
    sorted: Vec<f64>,
}

impl Samples {
    fn add(&mut self, seconds: f64) {
        let place = self.sorted.partition_point(|&other| other <= seconds);
        self.in_order.push_back(seconds);
        if self.in_order.len() <= KEPT {
            self.sorted.insert(place, seconds);
            return;
        }
        // Only what lies between the two moves: this is done for every request.
        let oldest = self.in_order.pop_front().unwrap_or(seconds);
        let gone = self.sorted.partition_point(|&other| other < oldest);
        if gone < place {
            self.sorted.copy_within(gone + 1..place, gone);
            self.sorted[place - 1] = seconds;
        } else {
            self.sorted.copy_within(place..gone, place + 1);
            self.sorted[place] = seconds;
        }
    }

    /// Whether there are enough.
    fn is_known(&self) -> bool {
        self.sorted.len() >= NEEDED
    }

    /// How many are longer.
    pub fn above(&self, seconds: f64) -> f64 {
        (self.sorted.len() - self.sorted.partition_point(|&other| other <= seconds)) as f64
    }

    /// The share of what ends at all, and its median; `None` while too few are known.
    pub fn median(&self) -> Option<(f64, f64)> {
        let ended = self.sorted.partition_point(|seconds| seconds.is_finite());
        let share = ended as f64 / self.sorted.len().max(1) as f64;
        self.is_known().then(|| (share, self.sorted.get(ended / 2).copied().unwrap_or(f64::INFINITY)))
    }
}

/// Answers of one batch that no request has followed up yet.
#[derive(Clone, Copy, Debug)]
struct Answers {
    at: f64,
    missing: usize,
    group: GroupId,
}

/// Those of one batch who may be about to come back: `weight` each of the `alive` lags that are longer than `age`. `here` is
/// the share of them that will ask for a certain group.
#[derive(Clone, Copy, Debug)]
struct Users {
    weight: f64,
    age: f64,
    alive: f64,
    here: f64,
}

/// Users who may be about to come back.
#[derive(Clone, Debug)]
pub struct Returning<'a> {
    lags: &'a Samples,
    users: SmallVec<[Users; 4]>,
}

/// How many users have come back after some time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Back {
    /// Whatever they ask for.
    pub all: f64,
    /// Users that ask for a certain group.
    pub here: f64,
}

impl Returning<'_> {
    /// How many will have come back when `wait` more seconds have passed.
    pub fn within(&self, wait: f64) -> Back {
        self.users.iter().fold(Back::default(), |back, users| {
            let more = users.weight * (users.alive - self.lags.above(users.age + wait));
            Back { all: back.all + more, here: back.here + users.here * more }
        })
    }
}

/// What the last arrival was to those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// It came long after them.
    #[default]
    Begun,
    /// It came soon after another.
    Going,
    /// It came soon after another, and no user that was answered is still away: if these are users who come back, all have.
    Complete,
}

/// What was learned about arrivals.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    /// Arrivals in an exponential window that ends at `counted_at`.
    count: f64,
    counted_at: f64,
    began: Option<f64>,
    /// From an answer to the next request; infinite where none came in time.
    lags: Samples,
    /// From an arrival to the next one, by the phase of the burst: bursts begin, go on and end like earlier bursts.
    gaps: [Samples; 3],
    answers: VecDeque<Answers>,
    transitions: GroupTransitions,
    /// Batches of answers that `lags` is about.
    followed: u32,
    last: Option<f64>,
    phase: Phase,
    /// Those in a row who came alone, or after a gap that is longer than those within a burst.
    alone: u32,
}

impl Traffic {
    /// An item entered a lane. `is_alone`: all others have been answered.
    pub fn arrived(&mut self, now: Time, group: GroupId, is_alone: bool, size_model: &SizeModel) {
        let now = now.as_secs_f64();
        if let Some(last) = self.last {
            self.gaps[self.phase as usize].add(now - last);
            // A user that comes back at once is not his own company.
            let in_burst = !is_alone && now - last <= size_model.launch_s();
            self.alone = if in_burst { 0 } else { self.alone.saturating_add(1) };
            self.phase = if in_burst { Phase::Going } else { Phase::Begun };
        }
        self.last = Some(now);
        let window = window(size_model);
        self.began.get_or_insert(now);
        self.count = self.count * (-(now - self.counted_at) / window).exp() + 1.0;
        self.counted_at = now;
        self.forget(now, size_model);
        let own = self.answers.iter().position(|answers| answers.group == group);
        if let Some(place) = own.or_else(|| (!self.answers.is_empty()).then_some(0)) {
            let answers = &mut self.answers[place];
            self.lags.add(now - answers.at);
            self.transitions.learn(answers.group, group);
            answers.missing -= 1;
            if answers.missing == 0 {
                self.answers.remove(place);
                self.followed = self.followed.saturating_add(1);
            }
        }
        if self.phase == Phase::Going && self.answers.is_empty() {
            self.phase = Phase::Complete;
        }
    }

    /// A batch of a lane was answered.
    pub fn answered(&mut self, now: Time, group: GroupId, items: usize, size_model: &SizeModel) {
        let now = now.as_secs_f64();
        self.forget(now, size_model);
        if self.answers.len() == MOST_GROUPS {
            self.answers.pop_front();
        }
        if items > 0 {
            self.answers.push_back(Answers { at: now, missing: items, group });
        }
    }

    /// A user that has not come back within a launch's cost is not waited for.
    fn forget(&mut self, now: f64, size_model: &SizeModel) {
        let longest = longest(size_model);
        while let Some(answers) = self.answers.front().filter(|answers| now - answers.at > longest) {
            (0..answers.missing.min(KEPT)).for_each(|_| self.lags.add(f64::INFINITY));
            self.followed = self.followed.saturating_add(1);
            self.answers.pop_front();
        }
    }

    /// Arrivals per second.
    pub fn rate(&self, now: Time, size_model: &SizeModel) -> f64 {
        let (now, window) = (now.as_secs_f64(), window(size_model));
        let Some(age) = self.began.map(|began| now - began).filter(|&age| age > 0.0) else { return 0.0 };
        self.count * (-(now - self.counted_at) / window).exp() / (window * (1.0 - (-age / window).exp()))
    }

    /// The users who may be about to come back, to this group or another.
    pub fn returning(&self, now: Time, group: GroupId, size_model: &SizeModel) -> Returning<'_> {
        let (now, longest) = (now.as_secs_f64(), longest(size_model));
        let is_known = self.lags.is_known() && self.followed >= NEEDED_BATCHES;
        let users = self.answers.iter().filter(|_| is_known).filter_map(|answers| {
            let age = now - answers.at;
            let alive = self.lags.above(age);
            let (weight, here) = (answers.missing as f64 / alive, self.transitions.share(answers.group, group));
            (alive > 0.0 && age <= longest).then_some(Users { weight, age, alive, here })
        });
        Returning { lags: &self.lags, users: users.collect() }
    }

    /// How likely another request arrives in a time from now, after a silence as long as the present one; `None` if that
    /// cannot be said, or if no user has come in company for long.
    pub fn next_within(&self, now: Time) -> Option<impl Fn(f64) -> f64 + '_> {
        if self.are_alone() {
            return None;
        }
        let gaps = &self.gaps[self.phase as usize];
        let quiet = now.as_secs_f64() - self.last?;
        let alive = gaps.above(quiet);
        (gaps.is_known() && alive > 0.0).then_some(move |wait| 1.0 - gaps.above(quiet + wait) / alive)
    }

    /// Whether no user has come in company for long: each came later than a launch takes after the one before.
    pub fn are_alone(&self) -> bool {
        self.alone >= ALONE_AFTER
    }

    /// From an answer to the next request.
    pub fn lags(&self) -> &Samples {
        &self.lags
    }
}

fn longest(size_model: &SizeModel) -> f64 {
    size_model.launch_s().max(LEAST_S)
}

fn window(size_model: &SizeModel) -> f64 {
    (WINDOW_BATCHES * size_model.recent().as_secs_f64()).max(LEAST_S)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const GROUP: GroupId = GroupId(1);

    fn at(seconds: f64) -> Time {
        Time(0) + Duration::from_secs_f64(seconds)
    }

    /// Batches of 1 to 2 that take 100 ms.
    fn size_model() -> SizeModel {
        let mut size_model = SizeModel::default();
        [1, 2, 1, 2].iter().for_each(|&items| size_model.learn(items, Duration::from_millis(100)));
        size_model
    }

    #[test]
    fn samples_are_the_last_ones_in_order_of_size() {
        let (mut samples, mut all, mut seed) = (Samples::default(), Vec::new(), 7_u64);
        for _ in 0..4 * KEPT {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Few different ones, so that many are equal, and some that never end.
            let seconds = if seed >> 60 == 0 { f64::INFINITY } else { (seed >> 58) as f64 };
            samples.add(seconds);
            all.push(seconds);
            let mut last = all[all.len().saturating_sub(KEPT)..].to_vec();
            last.sort_by(f64::total_cmp);
            assert_eq!(samples.sorted, last);
        }
    }

    #[test]
    fn the_rate_is_exact_while_it_is_young_and_fades_when_nobody_comes() {
        let (mut traffic, size_model) = (Traffic::default(), size_model());
        (0..50).for_each(|n| traffic.arrived(at(0.1 * f64::from(n)), GROUP, false, &size_model));
        let rate = traffic.rate(at(5.0), &size_model);
        assert!((9.0..11.5).contains(&rate), "{rate}");
        assert!(traffic.rate(at(60.0), &size_model) < 0.1);
    }

    #[test]
    fn who_came_back_soon_after_each_answer_is_expected_after_the_next() {
        let (mut traffic, size_model) = (Traffic::default(), size_model());
        for n in 0..30 {
            traffic.answered(at(f64::from(n)), GROUP, 1, &size_model);
            traffic.arrived(at(f64::from(n) + 0.01), GROUP, false, &size_model);
        }
        traffic.answered(at(30.0), GROUP, 1, &size_model);
        let expected = |group, wait| traffic.returning(at(30.0), group, &size_model).within(wait).here;
        assert!(expected(GROUP, 0.02) > 0.99);
        assert!(expected(GROUP, 0.005) < 0.01);
        assert!(expected(GroupId(2), 0.02) < 1e-9, "another lane's users are not theirs");
    }

    #[test]
    fn who_asks_for_another_group_each_time_is_expected_there() {
        let (mut traffic, size_model) = (Traffic::default(), size_model());
        let group = |n: u32| GroupId(u64::from(n % 2));
        for n in 0..30 {
            traffic.answered(at(f64::from(n)), group(n), 1, &size_model);
            traffic.arrived(at(f64::from(n) + 0.01), group(n + 1), false, &size_model);
        }
        traffic.answered(at(30.0), group(30), 1, &size_model);
        let back = |group| traffic.returning(at(30.0), group, &size_model).within(0.02);
        let (there, here) = (back(group(31)), back(group(30)));
        assert!(there.here > 0.9 && here.here < 0.1 && here.all > 0.99, "{there:?}, {here:?}");
    }

    #[test]
    fn strangers_are_not_expected() {
        let (mut traffic, size_model) = (Traffic::default(), size_model());
        for n in 0..30 {
            traffic.answered(at(f64::from(n)), GROUP, 1, &size_model);
            traffic.arrived(at(f64::from(n) + 0.5), GROUP, false, &size_model);
        }
        traffic.answered(at(30.0), GROUP, 1, &size_model);
        assert_eq!(traffic.returning(at(30.0), GROUP, &size_model).within(0.1), Back::default());
        assert_eq!(traffic.lags().median().map(|(share, _)| share), Some(0.0));
    }
}
