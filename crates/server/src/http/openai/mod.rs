//! The OpenAI API: everything below `/v1`.

mod error;

use super::headers::RequestId;
use super::problem::Problem;
use super::service::Reply;
use super::socket::Active;
use crate::site::Site;
use hyper::Request;
use hyper::body::Incoming;
use jitney_core::outcome::Outcome;

pub(crate) use error::say;

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
