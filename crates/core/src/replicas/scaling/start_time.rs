//! How long a replica takes from the moment at which it is asked for until it answers.

use std::collections::VecDeque;
use std::time::Duration;

/// Starts that count.
const KEPT: usize = 5;
/// Before the first start is over.
const GUESS: Duration = Duration::from_secs(10);

/// The last starts of a deployment.
#[derive(Clone, Debug, Default)]
pub struct StartTime {
    starts: VecDeque<Duration>,
}

impl StartTime {
    /// A replica has become ready, this long after it was asked for.
    pub fn learn(&mut self, took: Duration) {
        self.starts.push_back(took);
        if self.starts.len() > KEPT {
            self.starts.pop_front();
        }
    }

    /// The median of the last starts. A start that takes longer than this shows that by itself: `oldest` is the age of
    /// the oldest one that is not over.
    pub fn expected(&self, oldest: Option<Duration>) -> Duration {
        let mut starts: Vec<Duration> = self.starts.iter().copied().collect();
        starts.sort_unstable();
        let median = starts.get(starts.len() / 2).copied().unwrap_or(GUESS);
        median.max(oldest.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_start_changes_little_and_a_new_pace_is_learned() {
        let seconds = Duration::from_secs;
        let mut start_time = StartTime::default();
        assert_eq!(start_time.expected(None), GUESS);
        [2, 2, 60].into_iter().for_each(|took| start_time.learn(seconds(took)));
        assert_eq!(start_time.expected(None), seconds(2));
        assert_eq!(start_time.expected(Some(seconds(9))), seconds(9));
        [30, 30, 30].into_iter().for_each(|took| start_time.learn(seconds(took)));
        assert_eq!(start_time.expected(None), seconds(30));
    }
}
