//! Answers that wait for their client to read them: how many bytes they hold, and when they must have been read.

use crate::base::clock;
use crate::base::ledger::{Account, CountedBytes, TAKE_RATE};
use crate::link::frame::reader::detached;
use crate::protocols::connection::limits::COUNTED_BYTES;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// What a piece of a stream of HTTP/2 takes in memory next to its bytes, in bytes. A model may make thousands of tiny ones.
const PIECE_BYTES: usize = 256;
/// How often `overdue` looks.
const LOOK: Duration = Duration::from_secs(1);

/// The waiting answers of one connection, or of one stream of HTTP/2.
#[derive(Debug, Default)]
pub(crate) struct ResponseBacklog {
    account: Account,
    state: Mutex<State>,
    /// The connection, or the stream, ends because its client has not taken what waits.
    is_given_up: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    bytes: usize,
    /// How many answers must have been read by when. A program may leave thousands of parts waiting.
    ends: BTreeMap<Instant, usize>,
    /// The waiting answers of streams that have ended.
    adopted: Vec<Arc<ResponseBacklog>>,
    /// Wakes the stream when its client has taken everything.
    waker: Option<Waker>,
}

impl ResponseBacklog {
    /// Of a connection with this account of answers.
    pub(crate) fn new(account: Account) -> ResponseBacklog {
        ResponseBacklog { account, ..ResponseBacklog::default() }
    }

    /// When the first waiting answer must have been read; `None` if no answer waits.
    pub(crate) fn end(&self) -> Option<Instant> {
        let mut state = self.lock();
        state.adopted.retain(|stream| stream.end().is_some());
        let adopted = state.adopted.iter().filter_map(|stream| stream.end()).min();
        state.ends.keys().next().copied().into_iter().chain(adopted).min()
    }

    /// Waits for the rest of a stream from now on.
    pub(crate) fn adopt(&self, stream: &Arc<ResponseBacklog>) {
        if stream.end().is_some() {
            self.lock().adopted.push(stream.clone());
        }
    }

    /// Waits until the client has taken everything.
    pub(crate) fn poll_taken(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.ends.is_empty() {
            return Poll::Ready(());
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Whether the client has taken everything.
    pub(crate) fn is_taken(&self) -> bool {
        self.lock().ends.is_empty()
    }

    /// The connection, or the stream, ends because its client has not taken what waits.
    pub(crate) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    /// Whether it ends for that.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes that wait for their client until this is dropped.
#[derive(Debug)]
pub(crate) struct Untaken {
    bytes: usize,
    end: Instant,
    backlog: Arc<ResponseBacklog>,
    _held: CountedBytes,
}

/// One answer. The protocol drops it when its last byte has been written.
#[derive(Debug)]
struct CountedAnswer(Bytes, #[allow(dead_code, reason = "held for as long as the bytes are")] Untaken);

impl AsRef<[u8]> for CountedAnswer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Untaken {
    fn drop(&mut self) {
        let mut state = self.backlog.lock();
        state.bytes -= self.bytes;
        if let Entry::Occupied(mut answers) = state.ends.entry(self.end) {
            *answers.get_mut() -= 1;
            if *answers.get() == 0 {
                answers.remove();
            }
        }
        let waker = if state.ends.is_empty() { state.waker.take() } else { None };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The same bytes, counted until they are dropped. `silence` as `hold` has it.
pub(crate) fn counted(data: Bytes, backlog: &Arc<ResponseBacklog>, silence: Duration) -> Bytes {
    let data = detached(data);
    if data.len() < COUNTED_BYTES {
        return data;
    }
    let untaken = hold(data.len(), backlog, silence);
    Bytes::from_owner(CountedAnswer(data, untaken))
}

/// The same for a piece of a stream of HTTP/2, however short it is: a window without room holds it, and all that comes
/// behind it, for any time. The protocol keeps thousands of short ones.
pub(crate) fn counted_in_stream(data: Bytes, backlog: &Arc<ResponseBacklog>, silence: Duration) -> Bytes {
    let data = detached(data);
    let untaken = hold_with(data.len(), PIECE_BYTES, backlog, silence);
    Bytes::from_owner(CountedAnswer(data, untaken))
}

/// Counts bytes that wait for their client. `silence` is how long a client may take nothing; beyond that it must take all
/// that waits on its connection at a least rate.
pub(crate) fn hold(bytes: usize, backlog: &Arc<ResponseBacklog>, silence: Duration) -> Untaken {
    hold_with(bytes, 0, backlog, silence)
}

/// The same, with what they take in memory next to the bytes that are sent.
fn hold_with(bytes: usize, more: usize, backlog: &Arc<ResponseBacklog>, silence: Duration) -> Untaken {
    let held = backlog.account.hold(bytes + more);
    let mut state = backlog.lock();
    state.bytes += bytes;
    let end = end(Instant::now(), silence, state.bytes);
    *state.ends.entry(end).or_default() += 1;
    drop(state);
    Untaken { bytes, end, backlog: backlog.clone(), _held: held }
}

/// Waits until a client has left its answers for too long.
pub(crate) async fn overdue(backlog: &ResponseBacklog) {
    while backlog.end().is_none_or(|end| end > Instant::now()) {
        sleep(LOOK).await;
    }
}

fn end(now: Instant, silence: Duration, waiting: usize) -> Instant {
    let patience = silence.saturating_add(Duration::from_secs_f64(waiting as f64 / TAKE_RATE as f64));
    clock::after(now, patience)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::frame::reader::OWN_BYTES;

    #[test]
    fn an_answer_is_counted_until_its_last_byte_is_gone() {
        let backlog = Arc::new(ResponseBacklog::default());
        let silence = Duration::from_secs(20);
        let mut long = counted(Bytes::from(vec![1; 10 * TAKE_RATE]), &backlog, silence);
        let first = backlog.end().unwrap();
        assert!(first >= Instant::now() + Duration::from_secs(29) && first <= Instant::now() + Duration::from_secs(31));
        // What waits behind it has the time of both.
        let behind = counted(Bytes::from(vec![2; 10 * TAKE_RATE]), &backlog, silence);
        assert_eq!((backlog.account.amount(), backlog.end()), (20 * TAKE_RATE as u64, Some(first)));
        let rest = long.split_off(long.len() - 1);
        drop(long);
        assert_eq!(backlog.account.amount(), 20 * TAKE_RATE as u64);
        drop(rest);
        assert_eq!(backlog.account.amount(), 10 * TAKE_RATE as u64);
        assert!(backlog.end().unwrap() >= first + Duration::from_secs(9));
        drop(behind);
        assert_eq!((backlog.account.amount(), backlog.end()), (0, None));
        drop(counted(Bytes::from_static(b"short"), &backlog, silence));
        assert_eq!(backlog.account.amount(), 0);
    }

    #[test]
    fn a_short_answer_does_not_keep_the_answers_of_its_batch() {
        let backlog = Arc::new(ResponseBacklog::default());
        for length in [10, COUNTED_BYTES, OWN_BYTES - 1] {
            let frame = Bytes::from(vec![7; 32 * OWN_BYTES]);
            let answer = counted(frame.slice(5..5 + length), &backlog, Duration::from_secs(20));
            assert_eq!(&answer[..], &frame[5..5 + length]);
            assert!(frame.is_unique(), "{length}");
        }
        let own = Bytes::from(vec![7; 100]);
        let place = own.as_ptr();
        assert_eq!(detached(own).as_ptr(), place, "bytes with a single user are not copied");
    }
}
