//! Answers that are there and that a client has not taken yet: what they hold, and until when they may.

use super::limits::{COUNTED_BYTES, TAKE_RATE};
use super::socket::Activity;
use crate::held::Held;
use bytes::Bytes;
use prometheus::IntGauge;
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Those of one connection.
#[derive(Debug, Default)]
pub(crate) struct Untaken {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    bytes: usize,
    ends: SmallVec<[Instant; 1]>,
}

impl Untaken {
    /// When the first of them must have been taken; `None` if there are none.
    pub(crate) fn end(&self) -> Option<Instant> {
        self.lock().ends.iter().min().copied()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of them. The protocol drops it when its last byte has been written.
#[derive(Debug)]
struct Answer {
    data: Bytes,
    end: Instant,
    activity: Arc<Activity>,
    _held: Held,
}

impl AsRef<[u8]> for Answer {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let mut state = self.activity.untaken.lock();
        state.bytes -= self.data.len();
        if let Some(place) = state.ends.iter().position(|end| *end == self.end) {
            state.ends.swap_remove(place);
        }
    }
}

/// The same bytes, counted until they are dropped. `silence` is how long a client may take nothing; beyond that it must
/// take all that waits on its connection at a least rate.
pub(crate) fn counted(data: Bytes, gauge: &IntGauge, activity: &Arc<Activity>, silence: Duration) -> Bytes {
    if data.len() < COUNTED_BYTES {
        return data;
    }
    let mut held = Held::new(gauge.clone());
    held.grow(data.len(), u64::MAX);
    let mut state = activity.untaken.lock();
    state.bytes += data.len();
    let end = end(Instant::now(), silence, state.bytes);
    state.ends.push(end);
    drop(state);
    Bytes::from_owner(Answer { data, end, activity: activity.clone(), _held: held })
}

fn end(now: Instant, silence: Duration, waiting: usize) -> Instant {
    let patience = silence.saturating_add(Duration::from_secs_f64(waiting as f64 / TAKE_RATE as f64));
    now.checked_add(patience).unwrap_or_else(|| now + Duration::from_secs(86_400 * 365))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_counted_until_its_last_byte_is_gone() {
        let gauge = IntGauge::new("x", "x").unwrap();
        let activity = Arc::new(Activity::default());
        let silence = Duration::from_secs(20);
        let mut long = counted(Bytes::from(vec![1; 10 * TAKE_RATE]), &gauge, &activity, silence);
        let first = activity.untaken.end().unwrap();
        assert!(first >= Instant::now() + Duration::from_secs(29) && first <= Instant::now() + Duration::from_secs(31));
        // What waits behind it has the time of both.
        let behind = counted(Bytes::from(vec![2; 10 * TAKE_RATE]), &gauge, &activity, silence);
        assert_eq!((gauge.get(), activity.untaken.end()), (20 * TAKE_RATE as i64, Some(first)));
        let rest = long.split_off(long.len() - 1);
        drop(long);
        assert_eq!(gauge.get(), 20 * TAKE_RATE as i64);
        drop(rest);
        assert_eq!(gauge.get(), 10 * TAKE_RATE as i64);
        assert!(activity.untaken.end().unwrap() >= first + Duration::from_secs(9));
        drop(behind);
        assert_eq!((gauge.get(), activity.untaken.end()), (0, None));
        drop(counted(Bytes::from_static(b"short"), &gauge, &activity, silence));
        assert_eq!(gauge.get(), 0);
    }
}
