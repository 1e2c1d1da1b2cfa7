//! The memory of large requests that the queue does not count, which is bounded, and their turns, which end with a piece.

use crate::base::ledger::{Account, CountedBytes};
use crate::values::answer::Failure;
use jitney_core::tables::outcome::Outcome;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that an item of a request takes in addition to its values: as a call, and then as an answer.
pub(crate) const ITEM_BYTES: usize = 600;
/// So few items of so few bytes are not counted, and neither are so few bytes that are kept for the answer.
const FEW: usize = 1024;
const SMALL: usize = 1 << 20;
/// Pieces of large requests that one deployment has in its queue: while one is answered, the next waits there. With one
/// piece for each request, ten requests filled the queue, and all other requests were refused.
const TURNS: usize = 2;
/// When to come back if there is no room for another large request.
const COME_BACK: Duration = Duration::from_secs(1);

/// Of one deployment.
#[derive(Debug)]
pub(crate) struct LargeRequests {
    /// Bytes of large requests that the queue does not count.
    account: Account,
    most: u64,
    turns: Arc<Semaphore>,
}

impl LargeRequests {
    /// For large requests that may hold so many bytes together, as those may that wait in the queue.
    pub(crate) fn new(account: Account, max_queued_bytes: u64) -> LargeRequests {
        LargeRequests { account, most: max_queued_bytes, turns: Arc::new(Semaphore::new(TURNS)) }
    }

    /// Counts a request until the returned value is dropped, or refuses it. `items` is its number of items, `bytes`
    /// their size, and `asked` the bytes that the request keeps for its answer. One request alone always finds room.
    /// The queue counts a request that fits into the first piece, which has at least `piece` items.
    pub(crate) fn hold(
        &self,
        items: usize,
        bytes: usize,
        asked: usize,
        piece: usize,
    ) -> Result<Option<CountedBytes>, Failure> {
        let is_queued = items <= FEW && (items <= piece || bytes < SMALL);
        let of_items = if is_queued { 0 } else { items * ITEM_BYTES + bytes };
        let all = of_items + if asked < SMALL { 0 } else { asked };
        if all == 0 {
            return Ok(None);
        }
        if let Some(held) = self.account.hold_within(all, self.most) {
            return Ok(Some(held));
        }
        let most = self.most;
        let detail = format!(
            "other large requests hold the {most} bytes that they may (max_queued_bytes); come back in a second, or send \
             less at once"
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
        let large = LargeRequests::new(Account::default(), 10_000 * ITEM_BYTES as u64);
        let hold = |items, bytes| large.hold(items, bytes, 0, 64);
        let alone = hold(50_000, 7).expect("nobody else is there");
        let failure = hold(2000, 7).unwrap_err();
        assert_eq!((failure.outcome, failure.retry_after), (Outcome::QueueBytesFull, Some(COME_BACK)));
        assert!(hold(FEW, SMALL - 1).expect("it is not large").is_none());
        assert!(hold(64, 1 << 30).expect("it is one piece").is_none());
        assert!(hold(65, SMALL).is_err());
        drop(alone);
        let both = (hold(4000, 0), hold(5999, ITEM_BYTES));
        assert!(both.0.is_ok() && both.1.is_ok());
        assert!(hold(2000, 0).is_err());
        drop(both);
        assert_eq!(large.account.amount(), 0);
        assert!(large.hold(1, 7, SMALL - 1, 64).expect("it is short").is_none());
        let asked = large.hold(1, 7, SMALL, 64).expect("nobody else is there");
        assert_eq!(large.account.amount(), SMALL as u64);
        drop(asked);
    }

    #[tokio::test(start_paused = true)]
    async fn turns_are_taken_in_order_until_the_time_of_a_request_is_over() {
        let large = LargeRequests::new(Account::default(), 1);
        let (runtime, second) = (Handle::current(), Duration::from_secs(1));
        let turns = [large.turn(&runtime, second).await, large.turn(&runtime, second).await];
        assert!(turns.iter().all(Option::is_some));
        assert!(large.turn(&runtime, second).await.is_none());
        drop(turns);
        assert!(large.turn(&runtime, second).await.is_some());
    }
}
