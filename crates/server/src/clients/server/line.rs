//! The line of a program's request in the access log.

use crate::base::access_log::line::{AccessLine, Ended};
use crate::engine::program_values::Parts;
use crate::engine::server_state::ServerState;
use crate::values::answer::Answer;
use crate::values::call_id::CallId;
use std::sync::atomic::Ordering;

/// Begins it, if the request is among those that have a line.
pub(super) fn begin(state: &ServerState, id: &CallId, deployment: &str, items: &[Parts]) -> Option<Box<AccessLine>> {
    let mut line = state.access_log.as_ref().and_then(|log| log.begin())?;
    line.describe(&id.text(), "programs", Some(deployment));
    let bytes: usize = items.iter().flatten().map(|part| part.data.len()).sum();
    line.request_bytes().store(bytes as u64, Ordering::Relaxed);
    Some(line)
}

/// Says how it ended, as the metrics do.
pub(super) fn end(line: Option<Box<AccessLine>>, answers: &[Answer]) {
    let Some(mut line) = line else { return };
    let (outcome, timing) = Answer::summary(answers);
    line.end(Ended {
        deployment: None,
        outcome: Some(outcome),
        status: outcome.http_status(),
        items: answers.len(),
        batch_size: timing.batch_size.into(),
    });
    line.add_answer_bytes(answers.iter().map(Answer::bytes).sum());
}
