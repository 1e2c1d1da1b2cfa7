//! gRPC: whatever comes with a content-type of `application/grpc`.

use super::headers::RequestId;
use super::problem::{Problem, Said};
use super::service::Reply;
use super::socket::Active;
use crate::site::Site;
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue};
use jitney_core::outcome::Outcome;

/// Answers one call.
#[allow(clippy::unused_async, reason = "like the other doors, which wait")]
pub(crate) async fn answer(
    _site: &Site,
    request: Request<Incoming>,
    _id: &RequestId,
    _active: &Active,
) -> Result<Reply, Problem> {
    let path = super::headers::quoted(request.uri().path().as_bytes());
    Err(Problem::new(Outcome::MethodNotAllowed, format!("{path} is not a method of this server"))
        .instead_of(request.body()))
}

/// Methods that answer without a key.
pub(crate) fn is_probe(path: &str) -> bool {
    matches!(path, "/inference.GRPCInferenceService/ServerLive" | "/inference.GRPCInferenceService/ServerReady")
        || path.starts_with("/grpc.health.v1.Health/")
}

/// A problem as an answer that is nothing but its trailers, which then stand in the head.
pub(crate) fn say(problem: &Problem) -> Said {
    let status = HeaderValue::from(u16::from(problem.outcome().grpc_code()));
    let headers = vec![
        (HeaderName::from_static("grpc-status"), status),
        (HeaderName::from_static("grpc-message"), message(problem.detail())),
    ];
    Said { status: 200, media: "application/grpc", body: vec![], headers }
}

/// Text as gRPC writes it in a header: what is not printable ASCII, and the percent sign, as `%XX`.
pub(crate) fn message(text: &str) -> HeaderValue {
    use std::fmt::Write as _;
    let mut written = String::with_capacity(text.len());
    for byte in text.bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            written.push(char::from(byte));
        } else {
            // A String takes everything.
            let _ = write!(written, "%{byte:02X}");
        }
    }
    HeaderValue::try_from(written).unwrap_or_else(|_| HeaderValue::from_static("the message cannot be written"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_percent_encoded() {
        assert_eq!(message("100 % „ä“\n"), "100 %25 %E2%80%9E%C3%A4%E2%80%9C%0A");
    }
}
