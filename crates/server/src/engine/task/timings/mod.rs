//! How long an item waited and ran, in its answer and in messages.

mod spans;

use crate::engine::deployment::live::why::BatchFacts;
use crate::engine::reply::ReplySender;
use crate::engine::task::pending::Pending;
use crate::values::answer::{Answer, Failure, Timing};
use jitney_core::scheduler::action::Launch;
use jitney_core::scheduler::item::EndedItem;
use jitney_core::tables::outcome::Outcome;
use jitney_core::time::Time;
use std::time::Duration;

/// As people say it: a wait of 40 ms is not one of "0.0 s".
pub(super) fn sayable(length: Duration) -> String {
    let ms = length.as_secs_f64() * 1e3;
    match ms {
        _ if ms >= 1000.0 => format!("{:.1} s", ms / 1e3),
        _ if ms >= 10.0 => format!("{ms:.0} ms"),
        _ => format!("{ms:.1} ms"),
    }
}

pub(super) fn fail(reply: ReplySender, failure: Failure, timing: Timing) {
    reply.end(Answer { result: Err(failure), timing, tokens: None, end: None });
}

pub(super) fn timing(now: Time, ended: &EndedItem<Pending>, model: Duration) -> Timing {
    let Some(launched) = ended.launched else {
        return Timing { queue: now - ended.arrival, ..Timing::default() };
    };
    let batch = (now - launched).saturating_sub(model);
    Timing { queue: launched - ended.arrival, batch, model, batch_size: ended.batch_size }
}

pub(super) fn expired(now: Time, ended: &EndedItem<Pending>) -> Failure {
    let after = (now - ended.arrival).as_millis();
    let stage = if ended.launched.is_some() { "with a worker" } else { "waiting in the queue" };
    Failure::new(
        Outcome::DeadlineExceeded,
        format!("the deadline passed after {after} ms, while the request was {stage}"),
    )
}

/// What is known about a batch at its launch. `bytes` are those of its items.
pub(super) fn launched_batch(
    launch: &Launch,
    most_items: usize,
    bytes: impl Iterator<Item = u64> + Clone,
) -> BatchFacts {
    BatchFacts {
        items: launch.items.len(),
        most_items,
        reason: launch.reason,
        held: launch.held,
        largest_cost: launch.load.largest,
        largest_bytes: bytes.clone().max().unwrap_or_default(),
        bytes: bytes.sum(),
        replica: 0,
        factor: 1.0,
    }
}
