//! The Open Inference Protocol over REST: everything below `/v2`.

use super::headers::RequestId;
use super::problem::{Problem, Said};
use super::service::Reply;
use super::socket::Active;
use crate::site::Site;
use hyper::Request;
use hyper::body::Incoming;
use jitney_core::outcome::Outcome;
use serde_json::json;

/// Answers one request of this protocol.
#[allow(clippy::unused_async, reason = "like the other doors, which wait")]
pub(crate) async fn answer(
    _site: &Site,
    request: Request<Incoming>,
    _id: &RequestId,
    _active: &Active,
) -> Result<Reply, Problem> {
    let path = super::headers::quoted(request.uri().path().as_bytes());
    Err(Problem::new(Outcome::NotFound, format!("{path} is not a route of this server")).instead_of(request.body()))
}

/// Routes that answer without a key.
pub(crate) fn is_probe(path: &str) -> bool {
    matches!(path, "/v2/health/live" | "/v2/health/ready")
}

/// A problem as `{"error": "text"}`: a string, which is what its clients print.
pub(crate) fn say(problem: &Problem) -> Said {
    let status = match problem.outcome() {
        Outcome::InvalidInput => 400,
        Outcome::WorkerLost | Outcome::Quarantined => 500,
        outcome => outcome.http_status(),
    };
    let body = serde_json::to_vec(&json!({ "error": problem.detail() })).unwrap_or_default();
    Said { status: problem.chosen_status().unwrap_or(status), media: "application/json", body, headers: vec![] }
}
