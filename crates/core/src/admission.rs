//! Who may enter. A request that does not fit is refused at the door, with the instant at which to come back.

use crate::outcome::Outcome;
use crate::pace::Pace;
use std::time::Duration;

/// Longest `Retry-After`: some clients do not retry at all when told to wait much longer.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(30);
/// A request may be made to wait for this many full batches …
const ALLOWED_BATCHES: u32 = 10;
/// … while the server is overloaded for this many halves of one, because then every answer has waited for as long as is
/// allowed: a queue of ten batches that never gets shorter helps nobody and makes all answers late …
const ALLOWED_HALVES_IN_OVERLOAD: u32 = 5;
/// … and always for this long, however fast the batches are.
const ALLOWED_AT_LEAST: Duration = Duration::from_millis(500);

/// The bounds of a deployment's queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueLimits {
    /// Most items that wait.
    pub max_items: usize,
    /// Most bytes that wait.
    pub max_bytes: u64,
}

/// What bounds the wait of those who enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// A number of full batches.
    Batches,
    /// Fewer: something was refused a moment ago.
    FewBatches,
    /// What the options say.
    For(Duration),
    /// A latency target, which is asked elsewhere: see `forecast`.
    Target,
}

/// What the door sees of the queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueState<'a> {
    /// Items that wait.
    pub items: usize,
    /// Bytes that wait.
    pub bytes: u64,
    /// Batches that will run before the one that a new item would join; not those that run now.
    pub ahead: usize,
    /// Items that wait to run alone: batches and they take turns.
    pub alone: usize,
    /// Whether nothing waits in any lane.
    pub is_empty: bool,
    /// Items of a full batch of those that wait.
    pub max_batch_size: usize,
    /// Replicas that work, at least 1.
    pub replicas: u32,
    /// Whether a replica is free now.
    pub idle: bool,
    /// What bounds the wait.
    pub allowed: Allowed,
    /// What batches take.
    pub pace: &'a Pace,
    /// How many times as long as what was measured those take that wait, because they cost more.
    pub weight: f64,
}

impl QueueState<'_> {
    /// What a full batch of those that wait takes.
    pub fn full(&self) -> Duration {
        self.batch(self.max_batch_size)
    }

    fn batch(&self, items: usize) -> Duration {
        self.pace.batch(items).mul_f64(self.weight)
    }
}

/// Why a request may not enter, and when to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which row of the table.
    pub outcome: Outcome,
    /// The wait that was predicted, if one could be.
    pub predicted_wait: Option<Duration>,
    /// Whole seconds, 1 to 30; `None` where coming back would not help.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// Whatever is in the way may be gone in a second.
    pub fn soon(outcome: Outcome) -> Refusal {
        Refusal { retry_after: Some(Duration::from_secs(1)), ..Refusal::never(outcome) }
    }

    /// What was in the way should be gone after `excess`; clients are told whole seconds.
    pub fn after(outcome: Outcome, predicted_wait: Option<Duration>, excess: Duration) -> Refusal {
        let seconds = Duration::from_secs(excess.as_secs_f64().ceil().max(1.0) as u64);
        Refusal { outcome, predicted_wait, retry_after: Some(seconds.min(LONGEST_RETRY_AFTER)) }
    }

    /// Coming back would not help.
    pub fn never(outcome: Outcome) -> Refusal {
        Refusal { outcome, predicted_wait: None, retry_after: None }
    }
}

/// How long an item that arrives now would wait for its launch; `None` while too little has been measured.
pub fn predicted_wait(queue: &QueueState) -> Option<Duration> {
    if !queue.pace.is_known() {
        return None;
    }
    if queue.idle && queue.is_empty {
        return Some(Duration::ZERO);
    }
    // What is concluded from single batches may be far off while the front is busy, and refusing would keep it so.
    let full = queue.full().min(queue.pace.at_the_rate_of_lately(queue.max_batch_size).mul_f64(queue.weight));
    // All replicas are busy: the next one frees after a fraction of what runs, which under little load is far less than
    // a full batch; then each batch ahead takes its turn.
    let runs = if queue.ahead == 0 { queue.pace.recent().min(full) } else { full };
    let alone = queue.batch(1) * queue.alone.min(queue.ahead + 1) as u32;
    Some(runs / (queue.replicas + 1) + (full * queue.ahead as u32 + alone) / queue.replicas)
}

/// Lets a request of `bytes` in, or says why not. A request enters when the queue is below its bound.
pub fn admit(
    queue: &QueueState,
    limits: QueueLimits,
    bytes: u64,
    timeout: Duration,
    remaining: Duration,
) -> Result<(), Refusal> {
    let wait = predicted_wait(queue);
    let full = queue.full();
    let within_reason = |batches: Duration| batches.max(ALLOWED_AT_LEAST).min(timeout / 2);
    let allowed = match queue.allowed {
        Allowed::FewBatches => within_reason(full * ALLOWED_HALVES_IN_OVERLOAD / 2),
        Allowed::Batches | Allowed::Target => within_reason(full * ALLOWED_BATCHES),
        Allowed::For(wait) => wait,
    };
    let refuse = |outcome| {
        let excess = wait.map_or(Duration::ZERO, |wait| wait.saturating_sub(allowed) + full);
        Err(Refusal::after(outcome, wait, excess))
    };
    if queue.items >= limits.max_items {
        return refuse(Outcome::QueueFull);
    }
    if queue.bytes > 0 && queue.bytes.saturating_add(bytes) > limits.max_bytes {
        return refuse(Outcome::QueueBytesFull);
    }
    let Some(wait) = wait.filter(|_| queue.allowed != Allowed::Target) else { return Ok(()) };
    if wait > allowed {
        return refuse(Outcome::WaitTooLong);
    }
    // Only a wait that is there can make a deadline unreachable: with nobody ahead the model itself decides.
    if wait > Duration::ZERO && wait + queue.batch(1) > remaining {
        return Err(Refusal { outcome: Outcome::DeadlineUnreachable, predicted_wait: Some(wait), retry_after: None });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: QueueLimits = QueueLimits { max_items: 100, max_bytes: 1000 };
    const MINUTE: Duration = Duration::from_secs(60);

    fn pace(batch_ms: u64) -> Pace {
        let mut pace = Pace::default();
        (0..3).for_each(|_| pace.learn(8, Duration::from_millis(batch_ms)));
        pace
    }

    fn queue(pace: &Pace, items: usize) -> QueueState<'_> {
        QueueState {
            items,
            bytes: 0,
            ahead: items / 8,
            alone: 0,
            is_empty: items == 0,
            max_batch_size: 8,
            replicas: 1,
            idle: false,
            allowed: Allowed::Batches,
            pace,
            weight: 1.0,
        }
    }

    fn outcome(result: Result<(), Refusal>) -> Outcome {
        result.map_or_else(|refusal| refusal.outcome, |()| Outcome::Ok)
    }

    #[test]
    fn the_options_may_say_how_long_a_request_waits() {
        let pace = pace(1000);
        let outcome = |ahead, allowed| {
            let queue = QueueState { ahead, allowed, ..queue(&pace, 1) };
            admit(&queue, LIMITS, 1, MINUTE, MINUTE).err().map(|refusal| refusal.outcome)
        };
        assert_eq!(outcome(20, Allowed::Batches), Some(Outcome::WaitTooLong));
        assert_eq!(outcome(20, Allowed::For(Duration::from_secs(40))), None);
        assert_eq!(outcome(3, Allowed::For(Duration::from_secs(2))), Some(Outcome::WaitTooLong));
        assert_eq!(outcome(0, Allowed::For(Duration::ZERO)), Some(Outcome::WaitTooLong), "all replicas are busy");
    }

    #[test]
    fn each_bound_refuses_above_and_serves_below() {
        let unknown = Pace::default();
        let ask = |items, held, bytes| {
            outcome(admit(&QueueState { bytes: held, ..queue(&unknown, items) }, LIMITS, bytes, MINUTE, MINUTE))
        };
        assert_eq!((ask(99, 0, 1), ask(100, 0, 1)), (Outcome::Ok, Outcome::QueueFull));
        assert_eq!((ask(1, 900, 100), ask(1, 900, 101)), (Outcome::Ok, Outcome::QueueBytesFull));
        assert_eq!(ask(0, 0, 5000), Outcome::Ok, "an item above the bound enters an empty queue");
    }

    #[test]
    fn the_wait_that_may_be_asked_for_follows_the_batches() {
        let (quick, slow) = (pace(10), pace(1000));
        assert_eq!(outcome(admit(&queue(&quick, 90), LIMITS, 1, MINUTE, MINUTE)), Outcome::Ok);
        assert_eq!(outcome(admit(&queue(&slow, 79), LIMITS, 1, MINUTE, MINUTE)), Outcome::Ok, "9.5 batches");
        let refusal = admit(&queue(&slow, 99), LIMITS, 1, MINUTE, MINUTE).expect_err("12.5 batches");
        assert_eq!(refusal.outcome, Outcome::WaitTooLong);
        assert_eq!(
            refusal.retry_after,
            Some(Duration::from_secs(4)),
            "12.5 s of work, 10 s allowed, one batch, whole seconds"
        );
    }

    #[test]
    fn those_who_wait_are_not_predicted_to_leave_more_slowly_than_others_did() {
        // Nothing was ever seen of full batches but three late ones; the rest is as quick as before.
        let mut pace = pace(1000);
        (0..100).for_each(|_| pace.learn(4, Duration::from_millis(1)));
        let queue = QueueState { ahead: 20, ..queue(&pace, 160) };
        let wait = predicted_wait(&queue).expect("it is known");
        assert!(wait < Duration::from_millis(100), "20 batches of 2 ms: {wait:?}");
    }

    #[test]
    fn in_overload_the_queue_is_kept_short() {
        let slow = pace(1000);
        let ask = |items| {
            outcome(admit(
                &QueueState { allowed: Allowed::FewBatches, ..queue(&slow, items) },
                LIMITS,
                1,
                MINUTE,
                MINUTE,
            ))
        };
        assert_eq!((ask(16), ask(24)), (Outcome::Ok, Outcome::WaitTooLong), "2.5 and 3.5 batches");
    }

    #[test]
    fn a_deadline_that_the_queue_alone_would_pass_is_refused() {
        let slow = pace(100);
        let remaining = Duration::from_millis(300);
        assert_eq!(outcome(admit(&queue(&slow, 32), LIMITS, 1, MINUTE, remaining)), Outcome::DeadlineUnreachable);
        assert_eq!(outcome(admit(&queue(&slow, 8), LIMITS, 1, MINUTE, remaining)), Outcome::Ok);
        let alone = QueueState { idle: true, ..queue(&slow, 0) };
        assert_eq!(outcome(admit(&alone, LIMITS, 1, MINUTE, Duration::from_millis(1))), Outcome::Ok);
    }
}
