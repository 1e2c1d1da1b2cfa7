//! What refused clients still send is read and discarded in turns. Otherwise a thousand refused clients that go on sending
//! would take the CPU and the memory that other clients need.

use crate::protocols::connection::limits::{DROP_PAUSE, DROPPED_AT_ONCE, DROPPING_MOST};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// Connections and streams of the whole process whose bytes are discarded.
static DROPPING: AtomicU32 = AtomicU32::new(0);
/// The resolution of the runtime's timers: a shorter pause would take as long.
const SHORTEST: Duration = Duration::from_millis(1);

/// The turns of one connection or stream, until this is dropped.
#[derive(Debug)]
pub(crate) struct DiscardTurns {
    read: u64,
    pause: Option<Pin<Box<Sleep>>>,
}

impl DiscardTurns {
    /// `None` if there are `DROPPING_MOST` already: the connection then ends while its client sends.
    pub(crate) fn begin() -> Option<DiscardTurns> {
        let begun = DROPPING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |others| {
            (others < DROPPING_MOST).then_some(others + 1)
        });
        begun.is_ok().then_some(DiscardTurns { read: 0, pause: None })
    }

    /// Notes bytes that were read. Returns whether the turn is over.
    pub(crate) fn read(&mut self, bytes: u64) -> bool {
        let before = self.read;
        self.read += bytes;
        let is_over = before / DROPPED_AT_ONCE != self.read / DROPPED_AT_ONCE;
        if is_over {
            let others = DROPPING.load(Ordering::Relaxed).saturating_sub(1);
            self.pause =
                Some(DROP_PAUSE * others).filter(|&pause| pause >= SHORTEST).map(|pause| Box::pin(sleep(pause)));
        }
        is_over
    }

    /// Waits for the next turn. The wait is proportional to the number of the others.
    pub(crate) fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        Poll::Ready(())
    }

    /// Waits for the next turn, as a future.
    pub(crate) async fn turn(&mut self) {
        poll_fn(|cx| self.poll_turn(cx)).await;
    }
}

impl Drop for DiscardTurns {
    fn drop(&mut self) {
        DROPPING.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    // One test, because the count is of the process.
    #[tokio::test(start_paused = true)]
    async fn turns_are_the_rarer_the_more_there_are_and_there_are_not_too_many() {
        let waits = async |dropping: &mut DiscardTurns| {
            let start = Instant::now();
            assert!(!dropping.read(DROPPED_AT_ONCE - 1));
            dropping.turn().await;
            assert_eq!(start.elapsed(), Duration::ZERO, "the turn is not over");
            assert!(dropping.read(1));
            dropping.turn().await;
            start.elapsed()
        };
        let mut one = DiscardTurns::begin().unwrap();
        assert_eq!(waits(&mut one).await, Duration::ZERO, "a single connection has none to wait for");
        let mut all: Vec<DiscardTurns> = std::iter::from_fn(DiscardTurns::begin).collect();
        assert_eq!(all.len() + 1, DROPPING_MOST as usize);
        let longest = waits(&mut one).await;
        assert!(longest >= DROP_PAUSE * (DROPPING_MOST - 1), "{longest:?}");
        all.truncate(100);
        let shorter = waits(&mut one).await;
        assert!((DROP_PAUSE * 100..longest / 4).contains(&shorter), "{shorter:?}");
        drop(all);
        assert_eq!(waits(&mut one).await, Duration::ZERO);
    }
}
