//! Problems as clients of the Open Inference Protocol read them.

use crate::protocols::reply::problem::{Problem, WrittenProblem};
use jitney_core::tables::outcome::Outcome;
use serde_json::json;

/// The HTTP status of an outcome in this protocol, whose clients know fewer statuses than HTTP has.
pub(crate) fn status(outcome: Outcome) -> u16 {
    match outcome {
        Outcome::InvalidInput => 400,
        Outcome::WorkerLost | Outcome::Quarantined => 500,
        outcome => outcome.http_status(),
    }
}

/// A problem as `{"error": "text"}`: a string, which is what its clients print.
pub(crate) fn form(problem: &Problem, _request_id: &str) -> WrittenProblem {
    let status = status(problem.outcome());
    let body = serde_json::to_vec(&json!({ "error": problem.detail() })).unwrap_or_default();
    WrittenProblem {
        status: problem.chosen_status().unwrap_or(status),
        media: "application/json",
        body,
        headers: vec![],
    }
}
