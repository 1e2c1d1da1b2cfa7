//! How the engine answers one item: a bounded channel of events, any number of parts and then exactly one end. An answer in
//! one piece is the case of no parts.
//!
//! The channel is one allocation. The queue of parts is allocated with the first part. Neither end needs a runtime: the
//! receiver may be polled by any executor.

use crate::base::ledger::{Account, CountedBytes, CountedItem, TAKE_RATE};
use crate::link::frame::reader::detached;
use crate::values::answer::{Answer, Failure, OutputPart};
use crate::values::tensor::Tag;
use jitney_core::tables::outcome::Outcome;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Bytes of parts that may wait for their receiver in any case. For further ones there must be room where they are counted,
/// else the item is paused.
const LEAST_BYTES: usize = 16 << 10;
/// With more bytes of parts that wait an item is paused.
pub const PAUSE_BYTES: usize = 256 << 10;
/// Bytes that may wait in any case after the pause: parts that were on their way. An item that cannot be paused reaches this.
pub const LATE_BYTES: usize = 1 << 20;
/// From so many bytes on, texts that wait are put together: a token takes much less room then, and a text model is hardly
/// ever paused. Before that a client gets each text as it was made: some wait whenever the model is faster than the connection.
const TOGETHER_FROM: usize = 64 << 10;
/// The same while untaken answers leave no room for more.
const TOGETHER_FROM_WITHOUT_ROOM: usize = LEAST_BYTES / 2;
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
    /// It waits for the receiver, and now so much waits that the item should be paused. The receiver says when it may go on.
    Filled,
    /// There is no room for it, although the item was to be paused.
    Full,
    /// It is large, and the answers that clients have not taken already have as many bytes as they may: this many.
    NoRoom(u64),
    /// The receiver was dropped: no client waits for this item.
    NobodyWaits,
}

/// A channel for the answer to one item.
pub fn channel() -> (ReplySender, ReplyReceiver) {
    let channel = Arc::new(Channel::default());
    let sender = ReplySender { channel: Some(channel.clone()), waiting: None, unread: None };
    (sender, ReplyReceiver { channel, may_resume: false })
}

/// Where parts count that wait for their receiver.
#[derive(Clone, Debug)]
pub(crate) struct UnreadParts {
    /// The answers that the client has not taken.
    pub(crate) account: Account,
    /// Bytes that the answers of all clients may have.
    pub(crate) limit: u64,
    /// For how long the client may read nothing; `None` for any time.
    pub(crate) silence: Option<Duration>,
}

impl UnreadParts {
    fn has_room(&self) -> bool {
        self.account.has_room(self.limit)
    }

    /// For how long an item may be paused: its client may read what waits on its connection at `TAKE_RATE`.
    fn patience(&self) -> Option<Duration> {
        let waiting = self.account.amount() as f64 / TAKE_RATE as f64;
        Some(self.silence?.saturating_add(Duration::from_secs_f64(waiting)))
    }
}

#[derive(Debug, Default)]
struct Channel(Mutex<State>);

/// A part that waits for its receiver, or several that are texts.
#[derive(Debug)]
struct UnreadPart {
    values: PartValues,
    /// The text of several parts, if they were put together.
    text: Vec<u8>,
    bytes: usize,
    counted: Option<CountedBytes>,
}

impl UnreadPart {
    /// Appends a part that is a text to one that is a text too.
    fn append(&mut self, part: &[OutputPart]) {
        let (Some(own), Some(more)) = (self.values.first_mut(), part.first()) else { return };
        if self.text.is_empty() {
            self.text = std::mem::take(&mut own.data).into();
        }
        self.text.extend_from_slice(&more.data);
        self.bytes += more.data.len();
        self.counted.iter_mut().for_each(|counted| counted.add(more.data.len() as u64));
    }

    fn into_values(mut self) -> PartValues {
        if let Some(value) = self.values.first_mut().filter(|_| !self.text.is_empty()) {
            value.data = self.text.into();
        }
        self.values
    }
}

/// Whether a part is one text and nothing else.
fn is_text(part: &[OutputPart]) -> bool {
    matches!(part, [value] if value.tag == Tag::Text && value.name.is_empty() && value.media_type.is_none())
}

#[derive(Debug, Default)]
struct State {
    parts: VecDeque<UnreadPart>,
    /// Of all parts that wait.
    bytes: usize,
    /// For how long the item waited before it was launched, and how many items its batch had then. Known with its first part.
    launch: Option<(Duration, u32)>,
    /// The item is to be paused until so few bytes wait.
    resume_at: Option<usize>,
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

/// The engine's end of the channel of one item. If it is dropped without an end, the receiver knows that the engine has
/// ended.
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

    /// Counts the parts that wait: a model may be faster than its client.
    pub(crate) fn count_parts(&mut self, unread: UnreadParts) {
        self.unread = Some(unread);
    }

    /// Whether the item waits now: a worker may have it, and be lost.
    pub(crate) fn set_waiting(&mut self, waits: bool) {
        self.waiting.iter_mut().for_each(|item| item.set_counted(waits));
    }

    /// The first part of the item comes, which waited for so long before it was launched with so many items.
    pub(crate) fn begin(&mut self, launch: Option<(Duration, u32)>) {
        if let Some(channel) = &self.channel {
            channel.lock().launch = launch;
        }
    }

    /// For how long the item may be paused; `None` if its receiver may take any time.
    pub(crate) fn patience(&self) -> Option<Duration> {
        self.unread.as_ref().and_then(UnreadParts::patience)
    }

    /// Sends a part, unless there is no room for it or no client waits for the item.
    pub fn try_part(&mut self, mut part: PartValues) -> PartSent {
        let Some(channel) = &self.channel else { return PartSent::NobodyWaits };
        let mut state = channel.lock();
        if state.is_abandoned {
            return PartSent::NobodyWaits;
        }
        let bytes = bytes_of(&part);
        let size = bytes - PART_BYTES;
        let has_room = || self.unread.as_ref().map(UnreadParts::has_room);
        let is_late = state.resume_at.is_some();
        if state.bytes + size > LATE_BYTES && has_room() != Some(true) {
            if is_late {
                return PartSent::Full;
            }
            if let Some(unread) = &self.unread {
                return PartSent::NoRoom(unread.limit);
            }
        }
        let is_alone = state.parts.is_empty();
        let is_crowded = state.bytes >= TOGETHER_FROM_WITHOUT_ROOM && has_room() == Some(false);
        let goes_together = (is_crowded || state.bytes >= TOGETHER_FROM) && is_text(&part);
        if let Some(last) = state.parts.back_mut().filter(|last| goes_together && is_text(&last.values)) {
            last.append(&part);
            state.bytes += size;
        } else {
            // It may wait for long, and would keep the parts of all items that came in one frame.
            part.iter_mut().for_each(|value| value.data = detached(std::mem::take(&mut value.data)));
            let counted = self.unread.as_ref().map(|unread| unread.account.hold(bytes));
            state.bytes += bytes;
            state.parts.push_back(UnreadPart { values: part, text: Vec::new(), bytes, counted });
        }
        let is_much = !is_alone && state.bytes > PAUSE_BYTES;
        let is_filled = !is_late && state.bytes > LEAST_BYTES && (is_much || has_room() == Some(false));
        if is_filled {
            state.resume_at = Some(state.bytes / 2);
        }
        wake(state);
        if is_filled { PartSent::Filled } else { PartSent::Taken }
    }

    /// Whether so much waits that the item is to be paused.
    pub(crate) fn is_filled(&self) -> bool {
        self.channel.as_ref().is_some_and(|channel| channel.lock().resume_at.is_some())
    }

    /// Sends the end. Returns false if no client waits for the item.
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

/// The caller's end of the channel of one item. If it is dropped, no client waits for the item any more.
#[derive(Debug)]
pub struct ReplyReceiver {
    channel: Arc<Channel>,
    /// The item was to be paused, and may go on.
    may_resume: bool,
}

impl ReplyReceiver {
    /// The next event. After the end there is none: do not poll again.
    pub fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        let mut state = self.channel.lock();
        if let Some(part) = state.parts.pop_front() {
            state.bytes -= part.bytes;
            if state.resume_at.is_some_and(|at| state.bytes <= at) {
                state.resume_at = None;
                self.may_resume = true;
            }
            return Poll::Ready(ReplyEvent::Part(part.into_values()));
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

    /// Whether the item, which was to be paused, may go on since the last event.
    pub fn take_resume(&mut self) -> bool {
        std::mem::take(&mut self.may_resume)
    }

    /// For how long the item waited before it was launched, and how many items its batch had then.
    pub fn launch(&self) -> Option<(Duration, u32)> {
        self.channel.lock().launch
    }

    /// How the item ended, if its end waits here.
    pub fn unread_end(&self) -> Option<Outcome> {
        self.channel.lock().end.as_ref().map(Answer::outcome)
    }

    /// Notes who is to be woken by what comes next.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        self.channel.lock().waker = Some(waker.clone());
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
mod tests;
