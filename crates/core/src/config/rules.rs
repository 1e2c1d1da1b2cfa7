//! The rules of one deployment: its options, checked and in the units that the scheduler works with.

use crate::config::limits::{BatchLimits, QueueLimits};
use crate::config::options::DeploymentOptions;
use std::time::Duration;

/// The batch policy that an operator chose. `policy::choice` makes the policy itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyChoice {
    /// A batch leaves when that is expected to pay.
    Auto,
    /// A batch leaves as soon as a replica is free.
    Eager,
    /// A batch leaves when its lane is full, or when the oldest item of the lane has waited for this long.
    Fixed(Duration),
}

/// The rules of one deployment, from its options.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// What bounds a batch.
    pub batch: BatchLimits,
    /// What bounds the queue.
    pub queue: QueueLimits,
    /// Head start of a class.
    pub boost: Duration,
    /// The deadline of an item that names none.
    pub request_timeout: Duration,
    /// The deadline from the first part of its answer on of an item that names none, counted from its arrival.
    pub stream_timeout: Duration,
    /// A batch that runs longer is a hang; with answers that come in parts, one that sends no part for longer. A worker whose items
    /// run side by side hangs when it reports nothing for longer.
    pub batch_timeout: Duration,
    /// Whether a started item may run again.
    pub retry: bool,
    /// Whether a replica holds an open set: items join and leave it one by one, and no policy decides when.
    pub joins: bool,
    /// Whether the items of an open set run side by side: each takes its own time, and there are no steps.
    pub side_by_side: bool,
    /// When a batch leaves.
    pub policy: PolicyChoice,
    /// As many answers as possible within this; late ones are refused.
    pub target: Option<Duration>,
    /// How long a request may be made to wait; without it a number of batches.
    pub max_wait: Option<Duration>,
}

impl From<&DeploymentOptions> for BatchLimits {
    fn from(options: &DeploymentOptions) -> BatchLimits {
        let is_one_by_one = !options.batched && !options.concurrent;
        let most = if is_one_by_one { options.max_batch_size.min(1) } else { options.max_batch_size };
        BatchLimits { max_items: most as usize, max_cost: options.max_batch_cost.unwrap_or(u64::MAX) }
    }
}

impl Rules {
    /// Reads the options; the error names the option and the value.
    pub fn new(options: &DeploymentOptions) -> Result<Rules, String> {
        let seconds = |name: &str, value: f64| {
            Duration::try_from_secs_f64(value)
                .map_err(|_| format!("{name}: {value} is not a length of time in seconds"))
        };
        let policy = match options.policy.as_str() {
            "auto" => PolicyChoice::Auto,
            "eager" => PolicyChoice::Eager,
            "fixed" => PolicyChoice::Fixed(seconds("max_batch_delay_ms", options.max_batch_delay_ms / 1e3)?),
            other => return Err(format!("policy: no policy is called {other:?}; choose auto, eager or fixed")),
        };
        let target = options.latency_target_ms.map(|ms| seconds("latency_target_ms", ms / 1e3)).transpose()?;
        if target.is_some_and(|target| target.is_zero()) {
            return Err("latency_target_ms: 0 ms is not enough time to answer; give more, or no target".into());
        }
        let max_wait = options.max_wait_s.map(|wait| seconds("max_wait_s", wait)).transpose()?;
        if let (Some(_), Some(wait)) = (target, options.max_wait_s) {
            return Err(format!(
                "max_wait_s: {wait} and latency_target_ms both say who is refused; leave one of them out"
            ));
        }
        if options.max_batch_size == 0 {
            return Err("max_batch_size: 0 items fit in no batch; give at least 1".into());
        }
        Ok(Rules {
            batch: BatchLimits::from(options),
            queue: QueueLimits { max_items: options.max_queued_items as usize, max_bytes: options.max_queued_bytes },
            boost: seconds("priority_boost_s", options.priority_boost_s)?,
            request_timeout: seconds("request_timeout_s", options.request_timeout_s)?,
            stream_timeout: seconds("stream_timeout_s", options.stream_timeout_s)?,
            batch_timeout: seconds("batch_timeout_s", options.batch_timeout_s)?,
            retry: options.retry,
            joins: options.steps || options.concurrent,
            side_by_side: options.concurrent,
            policy,
            target,
            max_wait,
        })
    }
}
