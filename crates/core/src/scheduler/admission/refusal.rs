//! The answer to a request that may not enter.

use crate::tables::outcome::Outcome;
use std::time::Duration;

/// The longest `Retry-After`: some clients do not retry at all if it is much longer.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(30);
/// Why a request may not enter, and when to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The outcome of the request.
    pub outcome: Outcome,
    /// The wait that was predicted, if one could be.
    pub predicted_wait: Option<Duration>,
    /// After which time to try again, in whole seconds from 1 to 30; `None` where that would not help.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// A refusal whose reason may have ended in a second.
    pub fn soon(outcome: Outcome) -> Refusal {
        Refusal { retry_after: Some(Duration::from_secs(1)), ..Refusal::never(outcome) }
    }

    /// A refusal whose reason should have ended after `excess`, rounded up to whole seconds.
    pub fn after(outcome: Outcome, predicted_wait: Option<Duration>, excess: Duration) -> Refusal {
        let seconds = Duration::from_secs(excess.as_secs_f64().ceil().max(1.0) as u64);
        Refusal { outcome, predicted_wait, retry_after: Some(seconds.min(LONGEST_RETRY_AFTER)) }
    }

    /// A refusal for which trying again would not help.
    pub fn never(outcome: Outcome) -> Refusal {
        Refusal { outcome, predicted_wait: None, retry_after: None }
    }
}
