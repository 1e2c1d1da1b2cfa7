//! The bounds of the queue. A request that would exceed one is refused, with the time after which to try again.

use crate::config::limits::QueueLimits;
use crate::learn::size_model::SizeModel;
use crate::scheduler::admission::refusal::Refusal;
use crate::tables::outcome::Outcome;
use std::time::Duration;

/// The longest wait that a request may have, in full batches.
const ALLOWED_BATCHES: u32 = 10;
/// The longest wait that a request may have during overload, in halves of a full batch. Then every request waits for as long as
/// is allowed, and a long queue that never gets shorter only makes all answers late.
const ALLOWED_HALVES_IN_OVERLOAD: u32 = 5;
/// A request may always wait for this long, however fast the batches are.
const ALLOWED_AT_LEAST: Duration = Duration::from_millis(500);

/// What bounds the wait of a request that enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Ten full batches.
    Batches,
    /// Two and a half full batches, because a request was refused a moment ago.
    DuringOverload,
    /// The option `max_wait_s`.
    For(Duration),
    /// A latency target, which is checked by the forecast.
    Target,
}

impl Allowed {
    /// The longest wait that a request may have which may take `timeout`, where a full batch takes `full`.
    pub fn wait(self, full: Duration, timeout: Duration) -> Duration {
        let within_reason = |batches: Duration| batches.max(ALLOWED_AT_LEAST).min(timeout / 2);
        match self {
            Allowed::DuringOverload => within_reason(full * ALLOWED_HALVES_IN_OVERLOAD / 2),
            Allowed::Batches | Allowed::Target => within_reason(full * ALLOWED_BATCHES),
            Allowed::For(wait) => wait,
        }
    }
}

/// The state of the queue when a request asks to enter.
#[derive(Clone, Copy, Debug)]
pub struct QueueState<'a> {
    /// Items that wait.
    pub items: usize,
    /// Bytes that wait.
    pub bytes: u64,
    /// Batches that will run before the one that a new item would join, without the batches that run now.
    pub ahead: usize,
    /// Suspects, which wait to be computed alone; they and the lanes take turns.
    pub suspects: usize,
    /// Whether nothing waits in any lane.
    pub is_empty: bool,
    /// Items in a full batch of what waits.
    pub max_batch_size: usize,
    /// Replicas that work, at least 1.
    pub replicas: u32,
    /// Whether a replica is idle now.
    pub idle: bool,
    /// What bounds the wait.
    pub allowed: Allowed,
    /// What batches take, by their number of items.
    pub size_model: &'a SizeModel,
    /// The cost of the waiting items, relative to the items that were measured.
    pub weight: f64,
}

impl QueueState<'_> {
    /// The time that a full batch of the waiting items takes.
    pub fn full(&self) -> Duration {
        self.batch(self.max_batch_size)
    }

    /// The time by which each full batch delays those behind it: `full`, but no longer than recent batches took on average.
    /// Single batches may seem far too slow while the front is busy; refusing because of them would keep the estimate wrong.
    fn pace(&self, full: Duration) -> Duration {
        full.min(self.size_model.at_the_rate_of_lately(self.max_batch_size).mul_f64(self.weight))
    }

    fn batch(&self, items: usize) -> Duration {
        self.size_model.batch(items).mul_f64(self.weight)
    }
}

/// The time that an item which arrives now would wait for its launch; `None` while too little has been measured.
pub fn predicted_wait(queue: &QueueState) -> Option<Duration> {
    wait_behind(queue, queue.full())
}

/// The predicted wait where a full batch takes `full`. Callers that know `full` pass it, because to compute it takes half of
/// the time of this function.
fn wait_behind(queue: &QueueState, full: Duration) -> Option<Duration> {
    if !queue.size_model.is_known() {
        return None;
    }
    if queue.idle && queue.is_empty {
        return Some(Duration::ZERO);
    }
    let full = queue.pace(full);
    // All replicas are busy. The next one is free after a part of its running batch, which under little load is far shorter
    // than a full batch. Then each batch ahead takes its turn.
    let runs = if queue.ahead == 0 { queue.size_model.recent().min(full) } else { full };
    let alone = match queue.suspects.min(queue.ahead + 1) as u32 {
        0 => Duration::ZERO,
        suspects => queue.batch(1) * suspects,
    };
    Some(runs / (queue.replicas + 1) + (full * queue.ahead as u32 + alone) / queue.replicas)
}

/// How many items may wait until the next one would wait for longer than a request may which may take `timeout`. `None` while
/// too little has been measured, and with a latency target, where a forecast decides.
pub fn most_waiting(queue: &QueueState, timeout: Duration) -> Option<usize> {
    if queue.allowed == Allowed::Target {
        return None;
    }
    let full = queue.full();
    let allowed = queue.allowed.wait(full, timeout);
    let wait = |ahead| wait_behind(&QueueState { ahead, idle: false, ..*queue }, full);
    // From one batch on, each batch more adds the same.
    let batches = match allowed.checked_sub(wait(1)?) {
        None => usize::from(wait(0)? <= allowed),
        Some(rest) => 2 + (rest.as_secs_f64() * f64::from(queue.replicas) / queue.pace(full).as_secs_f64()) as usize,
    };
    let left = batches.saturating_sub(queue.ahead).saturating_mul(queue.max_batch_size);
    Some((queue.items + left).saturating_sub(queue.items % queue.max_batch_size))
}

/// Lets a request of `bytes` in, or returns the refusal. A request enters while the queue is below its bounds.
pub fn admit(
    queue: &QueueState,
    limits: QueueLimits,
    bytes: u64,
    timeout: Duration,
    remaining: Duration,
) -> Result<(), Refusal> {
    let full = queue.full();
    let door = Door {
        items: queue.items,
        bytes: queue.bytes,
        wait: wait_behind(queue, full),
        full,
        longest: queue.allowed.wait(full, timeout),
        own: queue.batch(1),
        has_target: queue.allowed == Allowed::Target,
    };
    door.admit(limits, bytes, remaining)
}

/// What decides about one request.
#[derive(Clone, Copy, Debug)]
pub struct Door {
    /// Items that wait.
    pub items: usize,
    /// Bytes that wait.
    pub bytes: u64,
    /// The wait that is predicted for the request; `None` while too little has been measured.
    pub wait: Option<Duration>,
    /// What a full batch takes.
    pub full: Duration,
    /// The longest wait that the request may have.
    pub longest: Duration,
    /// What the request itself takes, after its wait.
    pub own: Duration,
    /// A forecast decides, not the wait.
    pub has_target: bool,
}

impl Door {
    /// Lets a request of `bytes` in which has `remaining` until its deadline, or returns the refusal.
    pub fn admit(&self, limits: QueueLimits, bytes: u64, remaining: Duration) -> Result<(), Refusal> {
        let refuse = |outcome| {
            let excess = self.wait.map_or(Duration::ZERO, |wait| wait.saturating_sub(self.longest) + self.full);
            Err(Refusal::after(outcome, self.wait, excess))
        };
        if self.items >= limits.max_items {
            return refuse(Outcome::QueueFull);
        }
        if self.bytes > 0 && self.bytes.saturating_add(bytes) > limits.max_bytes {
            return refuse(Outcome::QueueBytesFull);
        }
        let Some(wait) = self.wait.filter(|_| !self.has_target) else { return Ok(()) };
        if wait > self.longest {
            return refuse(Outcome::WaitTooLong);
        }
        // Only a wait makes a deadline unreachable. Without one the item is computed, whatever the model seems to take.
        if wait > Duration::ZERO && wait + self.own > remaining {
            return Err(Refusal {
                outcome: Outcome::DeadlineUnreachable,
                predicted_wait: Some(wait),
                retry_after: None,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: QueueLimits = QueueLimits { max_items: 100, max_bytes: 1000 };
    const MINUTE: Duration = Duration::from_secs(60);

    fn size_model(batch_ms: u64) -> SizeModel {
        let mut size_model = SizeModel::default();
        (0..3).for_each(|_| size_model.learn(8, Duration::from_millis(batch_ms)));
        size_model
    }

    fn queue(size_model: &SizeModel, items: usize) -> QueueState<'_> {
        QueueState {
            items,
            bytes: 0,
            ahead: items / 8,
            suspects: 0,
            is_empty: items == 0,
            max_batch_size: 8,
            replicas: 1,
            idle: false,
            allowed: Allowed::Batches,
            size_model,
            weight: 1.0,
        }
    }

    fn outcome(result: Result<(), Refusal>) -> Outcome {
        result.map_or_else(|refusal| refusal.outcome, |()| Outcome::Ok)
    }

    #[test]
    fn the_options_may_say_how_long_a_request_waits() {
        let size_model = size_model(1000);
        let outcome = |ahead, allowed| {
            let queue = QueueState { ahead, allowed, ..queue(&size_model, 1) };
            admit(&queue, LIMITS, 1, MINUTE, MINUTE).err().map(|refusal| refusal.outcome)
        };
        assert_eq!(outcome(20, Allowed::Batches), Some(Outcome::WaitTooLong));
        assert_eq!(outcome(20, Allowed::For(Duration::from_secs(40))), None);
        assert_eq!(outcome(3, Allowed::For(Duration::from_secs(2))), Some(Outcome::WaitTooLong));
        assert_eq!(outcome(0, Allowed::For(Duration::ZERO)), Some(Outcome::WaitTooLong), "all replicas are busy");
    }

    #[test]
    fn each_bound_refuses_above_and_serves_below() {
        let unknown = SizeModel::default();
        let ask = |items, held, bytes| {
            outcome(admit(&QueueState { bytes: held, ..queue(&unknown, items) }, LIMITS, bytes, MINUTE, MINUTE))
        };
        assert_eq!((ask(99, 0, 1), ask(100, 0, 1)), (Outcome::Ok, Outcome::QueueFull));
        assert_eq!((ask(1, 900, 100), ask(1, 900, 101)), (Outcome::Ok, Outcome::QueueBytesFull));
        assert_eq!(ask(0, 0, 5000), Outcome::Ok, "an item above the bound enters an empty queue");
    }

    #[test]
    fn the_wait_that_may_be_asked_for_follows_the_batches() {
        let (quick, slow) = (size_model(10), size_model(1000));
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
        let mut size_model = size_model(1000);
        (0..100).for_each(|_| size_model.learn(4, Duration::from_millis(1)));
        let queue = QueueState { ahead: 20, ..queue(&size_model, 160) };
        let wait = predicted_wait(&queue).expect("it is known");
        assert!(wait < Duration::from_millis(100), "20 batches of 2 ms: {wait:?}");
    }

    #[test]
    fn in_overload_the_queue_is_kept_short() {
        let slow = size_model(1000);
        let ask = |items| {
            outcome(admit(
                &QueueState { allowed: Allowed::DuringOverload, ..queue(&slow, items) },
                LIMITS,
                1,
                MINUTE,
                MINUTE,
            ))
        };
        assert_eq!((ask(16), ask(24)), (Outcome::Ok, Outcome::WaitTooLong), "2.5 and 3.5 batches");
    }

    #[test]
    fn so_many_may_wait_as_are_let_in() {
        let limits = QueueLimits { max_items: usize::MAX, ..LIMITS };
        let allowed = [Allowed::Batches, Allowed::DuringOverload, Allowed::For(Duration::from_millis(2200))];
        for (milliseconds, replicas) in [(1000, 1), (1000, 3), (90, 2)] {
            let size_model = size_model(milliseconds);
            for allowed in allowed {
                let queue = |items| QueueState { replicas, allowed, ..queue(&size_model, items) };
                for items in 1..700 {
                    let most = most_waiting(&queue(items), MINUTE).expect("it is measured");
                    let enters = admit(&queue(items), limits, 1, MINUTE, MINUTE).is_ok();
                    assert_eq!(enters, items < most, "{items} of {most} wait, {allowed:?}, {replicas} replicas");
                }
            }
        }
        assert_eq!(most_waiting(&queue(&SizeModel::default(), 1), MINUTE), None);
    }

    #[test]
    fn a_deadline_that_the_queue_alone_would_pass_is_refused() {
        let slow = size_model(100);
        let remaining = Duration::from_millis(300);
        assert_eq!(outcome(admit(&queue(&slow, 32), LIMITS, 1, MINUTE, remaining)), Outcome::DeadlineUnreachable);
        assert_eq!(outcome(admit(&queue(&slow, 8), LIMITS, 1, MINUTE, remaining)), Outcome::Ok);
        let alone = QueueState { idle: true, ..queue(&slow, 0) };
        assert_eq!(outcome(admit(&alone, LIMITS, 1, MINUTE, Duration::from_millis(1))), Outcome::Ok);
    }
}
