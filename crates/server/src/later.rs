//! What large requests keep until its turn comes: bounded, and nobody's turn is longer than a piece.

use crate::call::Failure;
use crate::held::Held;
use jitney_core::outcome::Outcome;
use prometheus::IntGauge;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What an item of a request takes beside its bytes: as a call, and then as an answer.
pub(crate) const ITEM_BYTES: usize = 600;
/// So few items of so few bytes are not counted.
const FEW: usize = 1024;
const SMALL: usize = 1 << 20;
/// Pieces of large requests that one deployment has in its queue: while one is answered the next waits there. With one for
/// each request, ten requests filled the queue, and nobody else came in.
const TURNS: usize = 2;
/// When to come back if there is no room for another large request.
const COME_BACK: Duration = Duration::from_secs(1);

/// Of one deployment.
#[derive(Debug)]
pub(crate) struct Later {
    gauge: IntGauge,
    most: u64,
    /// Items of a first piece, at the least.
    piece: usize,
    turns: Arc<Semaphore>,
}

impl Later {
    /// For large requests that may hold so many bytes together, as those may that wait in the queue; a first piece has so
    /// many items at the least.
    pub(crate) fn new(gauge: IntGauge, max_queued_bytes: u64, piece: usize) -> Later {
        Later { gauge, most: max_queued_bytes, piece, turns: Arc::new(Semaphore::new(TURNS)) }
    }

    /// Counts a request of so many items, and bytes of them all, until this is dropped; or refuses it. A single one always
    /// finds room, and what fits into a first piece is counted by the queue.
    pub(crate) fn hold(&self, items: usize, bytes: usize) -> Result<Option<Held>, Failure> {
        if items <= FEW && (items <= self.piece || bytes < SMALL) {
            return Ok(None);
        }
        let is_alone = self.gauge.get() == 0;
        let mut held = Held::new(self.gauge.clone());
        if held.grow(items * ITEM_BYTES + bytes, self.most) || is_alone {
            return Ok(Some(held));
        }
        let most = self.most;
        let detail = format!(
            "other requests of many items hold the {most} bytes that they may (max_queued_bytes); come back in a \
             second, or send fewer items at once"
        );
        Err(Failure { retry_after: Some(COME_BACK), ..Failure::new(Outcome::QueueBytesFull, detail) })
    }

    /// Waits for a turn; `None` if the request's time is over first.
    pub(crate) async fn turn(&self, runtime: &Handle, left: Duration) -> Option<OwnedSemaphorePermit> {
        if let Ok(turn) = self.turns.clone().try_acquire_owned() {
            return Some(turn);
        }
        let turn = self.turns.clone().acquire_owned();
        // In a task of the runtime, because this may be polled from outside, where there is no clock.
        runtime.spawn(tokio::time::timeout(left, turn)).await.ok()?.ok()?.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_requests_hold_so_much_together_and_one_alone_what_it_needs() {
        let later = Later::new(IntGauge::new("held", "bytes").unwrap(), 10_000 * ITEM_BYTES as u64, 64);
        let alone = later.hold(50_000, 7).expect("nobody else is there");
        let failure = later.hold(2000, 7).unwrap_err();
        assert_eq!((failure.outcome, failure.retry_after), (Outcome::QueueBytesFull, Some(COME_BACK)));
        assert!(later.hold(FEW, SMALL - 1).expect("it is not large").is_none());
        assert!(later.hold(64, 1 << 30).expect("it is one piece").is_none());
        assert!(later.hold(65, SMALL).is_err());
        drop(alone);
        let both = (later.hold(4000, 0), later.hold(5999, ITEM_BYTES));
        assert!(both.0.is_ok() && both.1.is_ok());
        assert!(later.hold(2000, 0).is_err());
        drop(both);
        assert_eq!(later.gauge.get(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn turns_are_taken_in_order_until_the_time_of_a_request_is_over() {
        let later = Later::new(IntGauge::new("held", "bytes").unwrap(), 1, 1);
        let (runtime, second) = (Handle::current(), Duration::from_secs(1));
        let turns = [later.turn(&runtime, second).await, later.turn(&runtime, second).await];
        assert!(turns.iter().all(Option::is_some));
        assert!(later.turn(&runtime, second).await.is_none());
        drop(turns);
        assert!(later.turn(&runtime, second).await.is_some());
    }
}
