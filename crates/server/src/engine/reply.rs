//! How the engine answers one item: a bounded channel of events, any number of parts and then exactly one end. An answer in
//! one piece is the case of no parts.
//!
//! The channel is one allocation. The queue of parts is allocated with the first part. Neither end needs a runtime: the
//! receiver may be polled by any executor.

use crate::base::ledger::{Account, CountedBytes, CountedItem};
use crate::link::frame::reader::detached;
use crate::values::answer::{Answer, Failure, OutputPart};
use jitney_core::tables::outcome::Outcome;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Parts that may wait for their receiver if they are not counted.
pub const MOST_PARTS: usize = 64;
/// Bytes of parts that may wait for their receiver in any case. Further ones need room where they are counted: 64 large
/// parts for each of a thousand clients that do not read would be all memory.
const LEAST_BYTES: usize = 16 << 10;
/// What a part takes in memory next to its values, in bytes.
const PART_BYTES: usize = 256;
/// When a client should come back to a server whose engine has ended.
const GONE_FOR: Duration = Duration::from_secs(1);

/// The values of one part of an answer.
pub type PartValues = SmallVec<[OutputPart; 1]>;

/// What a part takes in memory, in bytes.
pub(crate) fn bytes_of(part: &[OutputPart]) -> usize {
    PART_BYTES + part.iter().map(|value| value.data.len()).sum::<usize>()
}

/// What the engine says about one item.
#[derive(Clone, Debug)]
pub enum ReplyEvent {
    /// A part of the answer; more events follow.
    Part(PartValues),
    /// The end; nothing follows. An answer without parts before it is whole.
    End(Answer),
}

/// What became of a part.
#[must_use]
#[derive(Debug)]
pub enum PartSent {
    /// It waits for the receiver.
    Taken,
    /// There is no room for it; here it is back.
    Full(PartValues),
    /// The receiver was dropped: nobody waits for this item.
    NobodyWaits,
}

/// A channel for the answer to one item.
pub fn channel() -> (ReplySender, ReplyReceiver) {
    let channel = Arc::new(Channel::default());
    (ReplySender { channel: Some(channel.clone()), waiting: None, unread: None }, ReplyReceiver { channel })
}

/// Where parts count that wait for their receiver.
#[derive(Clone, Debug)]
pub(crate) struct UnreadParts {
    /// The answers that the client has not taken.
    pub(crate) account: Account,
    /// Bytes that the answers of all clients may have.
    pub(crate) limit: u64,
}

impl UnreadParts {
    fn has_room(&self) -> bool {
        self.account.has_room(self.limit)
    }
}

#[derive(Debug, Default)]
struct Channel(Mutex<State>);

/// A part that waits for its receiver.
#[derive(Debug)]
struct Waiting {
    values: PartValues,
    bytes: usize,
    _counted: Option<CountedBytes>,
}

#[derive(Debug, Default)]
struct State {
    parts: VecDeque<Waiting>,
    /// Of all parts that wait.
    bytes: usize,
    end: Option<Answer>,
    /// Of the task that waits for the next event.
    waker: Option<Waker>,
    /// The sender has sent the end, or was dropped.
    is_complete: bool,
    /// The receiver was dropped.
    is_abandoned: bool,
}

impl Channel {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The engine's end. Dropping it without an end tells the receiver that the engine is gone.
#[derive(Debug)]
pub struct ReplySender {
    /// `None` once the end has been sent.
    channel: Option<Arc<Channel>>,
    /// Counts the item while no worker has it.
    waiting: Option<CountedItem>,
    /// `None` if its parts are not counted.
    unread: Option<UnreadParts>,
}

impl ReplySender {
    /// Counts the item, which has `bytes`, in `account` until it is launched or ends.
    pub(crate) fn count_in(&mut self, account: &Account, bytes: u64) {
        self.waiting = Some(account.count_item(bytes));
    }

    /// Counts the parts that wait. As many may as there is room for: a model may be faster than its client.
    pub(crate) fn count_parts(&mut self, unread: UnreadParts) {
        self.unread = Some(unread);
    }

    /// Whether the item waits now: a worker may have it, and be lost.
    pub(crate) fn set_waiting(&mut self, waits: bool) {
        self.waiting.iter_mut().for_each(|item| item.set_counted(waits));
    }

    /// Sends a part, unless there is no room for it or nobody waits for the item.
    pub fn try_part(&mut self, mut part: PartValues) -> PartSent {
        let Some(channel) = &self.channel else { return PartSent::NobodyWaits };
        let mut state = channel.lock();
        if state.is_abandoned {
            return PartSent::NobodyWaits;
        }
        let bytes = bytes_of(&part);
        let fits = match &self.unread {
            Some(unread) => state.bytes + bytes <= LEAST_BYTES || unread.has_room(),
            None => state.parts.len() < MOST_PARTS,
        };
        if !fits {
            return PartSent::Full(part);
        }
        // It may wait for long, and would keep the parts of all items that came in one frame.
        part.iter_mut().for_each(|value| value.data = detached(std::mem::take(&mut value.data)));
        let counted = self.unread.as_ref().map(|unread| unread.account.hold(bytes));
        state.bytes += bytes;
        state.parts.push_back(Waiting { values: part, bytes, _counted: counted });
        wake(state);
        PartSent::Taken
    }

    /// Sends the end. Returns false if nobody waits for the item.
    pub fn end(mut self, answer: Answer) -> bool {
        // Before the caller knows: its next request may come at once.
        self.waiting = None;
        let Some(channel) = self.channel.take() else { return false };
        let mut state = channel.lock();
        if state.is_abandoned {
            return false;
        }
        state.end = Some(answer);
        state.is_complete = true;
        wake(state);
        true
    }

    /// Whether the receiver was dropped.
    pub fn is_abandoned(&self) -> bool {
        self.channel.as_ref().is_none_or(|channel| channel.lock().is_abandoned)
    }
}

impl Drop for ReplySender {
    fn drop(&mut self) {
        if let Some(channel) = self.channel.take() {
            let mut state = channel.lock();
            state.is_complete = true;
            wake(state);
        }
    }
}

/// Wakes the receiver, after the lock was given back: it may run at once on another thread.
fn wake(mut state: MutexGuard<'_, State>) {
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The caller's end. Dropping it says that nobody waits for the item any more.
#[derive(Debug)]
pub struct ReplyReceiver {
    channel: Arc<Channel>,
}

impl ReplyReceiver {
    /// The next event. After the end there is none: do not poll again.
    pub fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        let mut state = self.channel.lock();
        if let Some(part) = state.parts.pop_front() {
            state.bytes -= part.bytes;
            return Poll::Ready(ReplyEvent::Part(part.values));
        }
        if let Some(answer) = state.end.take() {
            return Poll::Ready(ReplyEvent::End(answer));
        }
        if state.is_complete {
            return Poll::Ready(ReplyEvent::End(gone()));
        }
        if state.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Waits for the next event.
    pub async fn next(&mut self) -> ReplyEvent {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    /// Waits for the end and drops the parts before it: for callers of models that answer in one piece.
    pub async fn end(&mut self) -> Answer {
        loop {
            if let ReplyEvent::End(answer) = self.next().await {
                return answer;
            }
        }
    }
}

impl Drop for ReplyReceiver {
    fn drop(&mut self) {
        let mut state = self.channel.lock();
        state.is_abandoned = true;
        let unread = (std::mem::take(&mut state.parts), state.end.take(), state.waker.take());
        drop(state);
        // Outside of the lock: these may be large.
        drop(unread);
    }
}

/// The answer of an engine that has ended.
pub(crate) fn gone() -> Answer {
    let detail = "the server is going down, or starts again; come back in a second";
    Answer::failed(Failure { retry_after: Some(GONE_FOR), ..Failure::new(Outcome::Draining, detail) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::tensor::Tag;
    use bytes::Bytes;
    use futures_util::FutureExt;
    use smallvec::smallvec;

    fn part(number: u32) -> PartValues {
        let data = Bytes::copy_from_slice(&number.to_le_bytes());
        smallvec![OutputPart { name: "".into(), tag: Tag::Bytes, tensor: None, media_type: None, data }]
    }

    fn number(part: &PartValues) -> u32 {
        u32::from_le_bytes(part[0].data[..].try_into().unwrap())
    }

    fn answer() -> Answer {
        Answer { result: Ok(part(7)), ..Answer::failed(Failure::new(Outcome::Internal, "")) }
    }

    #[test]
    fn a_whole_answer_is_one_event() {
        let (sender, mut receiver) = channel();
        assert!(receiver.next().now_or_never().is_none());
        assert!(sender.end(answer()));
        let Some(ReplyEvent::End(end)) = receiver.next().now_or_never() else { panic!("no end") };
        assert_eq!(number(&end.result.unwrap()), 7);
    }

    #[test]
    fn parts_come_in_order_and_before_the_end() {
        let (mut sender, mut receiver) = channel();
        for number in 0..MOST_PARTS as u32 {
            assert!(matches!(sender.try_part(part(number)), PartSent::Taken));
        }
        let PartSent::Full(back) = sender.try_part(part(99)) else { panic!("there is no bound") };
        assert_eq!(number(&back), 99);
        let Some(ReplyEvent::Part(first)) = receiver.next().now_or_never() else { panic!("no part") };
        assert_eq!(number(&first), 0);
        assert!(matches!(sender.try_part(back), PartSent::Taken));
        assert!(sender.end(answer()));
        let mut seen = Vec::new();
        while let Some(ReplyEvent::Part(part)) = receiver.next().now_or_never() {
            seen.push(number(&part));
        }
        assert_eq!(seen, (1..MOST_PARTS as u32).chain([99]).collect::<Vec<_>>());
    }

    #[test]
    fn a_model_may_be_faster_than_its_client_while_the_connection_has_room() {
        let server = Account::default();
        let (mut sender, mut receiver) = channel();
        sender.count_parts(UnreadParts { account: server.part(), limit: 4 << 20 });
        let sent = (0..100_000).take_while(|&number| matches!(sender.try_part(part(number)), PartSent::Taken)).count();
        let held = server.amount();
        assert!(sent > 10 * MOST_PARTS && (1 << 20..(1 << 20) + 300).contains(&held), "a quarter: {sent}, {held}");
        let Some(ReplyEvent::Part(_)) = receiver.next().now_or_never() else { panic!("no part") };
        assert!(server.amount() < held, "what was taken does not count");
        drop(receiver);
        assert_eq!(server.amount(), 0);
    }

    #[test]
    fn large_parts_wait_only_while_there_is_room_and_short_ones_do_not_keep_their_frame() {
        let server = Account::default();
        let (mut sender, receiver) = channel();
        sender.count_parts(UnreadParts { account: server.part(), limit: 4 << 20 });
        let frame = Bytes::from(vec![7; 1 << 20]);
        let slice = |bytes| smallvec![OutputPart { data: frame.slice(..bytes), ..part(0).remove(0) }];
        let sent = (0..64).take_while(|_| matches!(sender.try_part(slice(1 << 20)), PartSent::Taken)).count();
        assert_eq!(sent, 1, "more would leave no room for other connections");
        let (mut other, _unread) = channel();
        other.count_parts(UnreadParts { account: server.part(), limit: 1 });
        assert!(matches!(other.try_part(slice(10)), PartSent::Taken), "a little always finds room");
        assert!(matches!(other.try_part(slice(20_000)), PartSent::Full(_)));
        drop(sender);
        drop(receiver);
        assert!(frame.is_unique(), "a short part was copied");
    }

    #[test]
    fn a_sender_that_is_dropped_ends_the_answer() {
        let (sender, mut receiver) = channel();
        drop(sender);
        let failure = receiver.end().now_or_never().expect("an end").result.unwrap_err();
        assert_eq!((failure.outcome, failure.retry_after), (Outcome::Draining, Some(GONE_FOR)));
    }

    #[test]
    fn a_receiver_that_is_dropped_takes_nothing() {
        let (mut sender, receiver) = channel();
        assert!(!sender.is_abandoned());
        let value = Bytes::from(vec![1; 1 << 16]); // a shorter one is copied
        let part_of_value = smallvec![OutputPart { data: value.clone(), ..part(0).remove(0) }];
        assert!(matches!(sender.try_part(part_of_value), PartSent::Taken));
        assert!(!value.is_unique());
        drop(receiver);
        assert!(value.is_unique(), "unread parts are freed");
        assert!(sender.is_abandoned() && matches!(sender.try_part(part(1)), PartSent::NobodyWaits));
        assert!(!sender.end(answer()));
    }

    #[test]
    fn events_arrive_once_and_in_order_between_threads() {
        for round in 0..200 {
            let (mut sender, mut receiver) = channel();
            let count = round * 7;
            let sending = std::thread::spawn(move || {
                for number in 0..count {
                    let mut next = part(number);
                    while let PartSent::Full(back) = sender.try_part(next) {
                        next = back;
                        std::thread::yield_now();
                    }
                }
                assert!(sender.end(answer()));
            });
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let seen = runtime.block_on(async {
                let mut seen = Vec::new();
                loop {
                    match receiver.next().await {
                        ReplyEvent::Part(part) => seen.push(number(&part)),
                        ReplyEvent::End(_) => return seen,
                    }
                }
            });
            sending.join().unwrap();
            assert_eq!(seen, (0..count).collect::<Vec<_>>());
        }
    }
}
