//! The line of a program's request in the access log.

use crate::base::access_log::line::{AccessLine, Ended};
use crate::engine::program_values::Parts;
use crate::engine::server_state::ServerState;
use crate::values::answer::{Answer, Timing};
use crate::values::call_id::CallId;
use jitney_core::tables::outcome::Outcome;
use std::sync::atomic::Ordering;

/// Begins it, if the request is among those that have a line.
pub(super) fn begin(state: &ServerState, id: &CallId, deployment: &str, items: &[Parts]) -> Option<Box<AccessLine>> {
    let mut line = state.access_log.as_ref().and_then(|log| log.begin())?;
    line.describe(&id.text(), "programs", Some(deployment));
    let bytes: usize = items.iter().flatten().map(|part| part.data.len()).sum();
    line.request_bytes().store(bytes as u64, Ordering::Relaxed);
    Some(line)
}

/// Says how it ended. As in the metrics, a request of several items succeeded if one of them did.
pub(super) fn end(line: Option<Box<AccessLine>>, answers: &[Answer]) {
    let Some(mut line) = line else { return };
    let outcomes = || answers.iter().map(Answer::outcome);
    let outcome = outcomes().find(|&outcome| outcome == Outcome::Ok).or(outcomes().next()).unwrap_or(Outcome::Ok);
    let slowest = answers.iter().map(|answer| answer.timing).max_by_key(Timing::total).unwrap_or_default();
    line.end(Ended {
        deployment: None,
        outcome: Some(outcome),
        status: outcome.http_status(),
        items: answers.len(),
        batch_size: slowest.batch_size.into(),
    });
    let parts = answers.iter().filter_map(|answer| answer.result.as_ref().ok()).flatten();
    line.add_answer_bytes(parts.map(|part| part.data.len()).sum());
}
