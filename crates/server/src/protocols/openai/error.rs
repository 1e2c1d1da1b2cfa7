//! Problems as OpenAI's clients read them. All four keys are always there: clients look into each.

use crate::protocols::reply::problem::{Problem, WrittenProblem};
use crate::values::answer::Failure;
use jitney_core::tables::outcome::Outcome;
use serde::Serialize;

#[derive(Serialize)]
struct ErrorDocument<'a> {
    error: Inner<'a>,
}

#[derive(Serialize)]
struct Inner<'a> {
    message: &'a str,
    r#type: &'static str,
    /// The field of the request that is the cause.
    param: Option<&'a str>,
    code: &'static str,
}

/// A problem as `{"error": {…}}`.
pub(crate) fn form(problem: &Problem, _request_id: &str) -> WrittenProblem {
    let outcome = problem.outcome();
    let status = problem.chosen_status().unwrap_or_else(|| status(outcome));
    let param = problem.field().map(|field| field.strip_prefix("$.").unwrap_or(field));
    let error = Inner { message: problem.detail(), r#type: kind(status), param, code: code(problem) };
    let body = serde_json::to_vec(&ErrorDocument { error }).unwrap_or_default();
    WrittenProblem { status, media: "application/json", body, headers: vec![] }
}

/// Appends a failure as a server-sent event: behind parts there is no status that could say it.
pub(super) fn write_event(out: &mut Vec<u8>, failure: &Failure, request_id: &str) {
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(&form(&Problem::from(failure.clone()), request_id).body);
    out.extend_from_slice(b"\n\n");
}

/// The status of an outcome in this protocol, in which an input that parses and does not fit is a bad request like any
/// other.
pub(crate) fn status(outcome: Outcome) -> u16 {
    if outcome == Outcome::InvalidInput { 400 } else { outcome.http_status() }
}

/// What OpenAI calls this family of errors.
fn kind(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 | 421 => "permission_error",
        429 => "rate_limit_error",
        ..500 => "invalid_request_error",
        _ => "server_error",
    }
}

/// OpenAI's own code where it has one that clients know, else our reason.
fn code(problem: &Problem) -> &'static str {
    match problem.outcome() {
        Outcome::Unauthorized => "invalid_api_key",
        Outcome::NotFound if problem.field() == Some("model") => "model_not_found",
        outcome => outcome.reason(),
    }
}
