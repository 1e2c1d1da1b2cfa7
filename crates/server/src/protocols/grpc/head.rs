//! What the head of a gRPC call says.

use crate::engine::server_state::ServerState;
use crate::protocols::request::headers;
use crate::protocols::request::media::content_type;
use crate::protocols::request::terms::allowed;
use crate::values::answer::Failure;
use hyper::Version;
use hyper::header::{HeaderMap, HeaderName};
use jitney_core::tables::outcome::Outcome;
use std::time::Duration;

const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
/// The name of the protocol's service.
pub(crate) const SERVICE: &str = "inference.GRPCInferenceService";
/// How long a request may take to arrive if it is not for a model.
pub(crate) const NOBODY: Duration = Duration::from_secs(10);

/// Refuses requests that are not gRPC over HTTP/2 with protobuf messages.
pub(crate) fn check(version: Version, headers: &HeaderMap) -> Result<(), Failure> {
    if version != Version::HTTP_2 {
        return Err(Failure::new(Outcome::InvalidRequest, "gRPC needs HTTP/2; this connection speaks HTTP/1"));
    }
    let kind = content_type(headers);
    if !matches!(kind, b"application/grpc" | b"application/grpc+proto") {
        let detail = format!("content-type {} is not taken; send application/grpc", headers::quoted(kind));
        return Err(Failure::new(Outcome::UnsupportedMediaType, detail));
    }
    Ok(())
}

/// How long a message may take to arrive: only when it is here does it name its model.
pub(crate) fn longest_allowed(state: &ServerState) -> Duration {
    let models = state.deployments();
    models.iter().map(|deployment| allowed(&deployment.manifest)).max().unwrap_or(NOBODY)
}

/// gRPC's own header: at most eight digits, and a unit.
pub(crate) fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, Failure> {
    let Some(value) = headers::single(headers, &TIMEOUT)? else { return Ok(None) };
    let parsed = value.to_str().ok().and_then(|text| {
        let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        let is_number = (1..=8).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number: u64 = digits.parse().ok().filter(|_| is_number)?;
        Some(match unit {
            "H" => Duration::from_secs(number * 3600),
            "M" => Duration::from_secs(number * 60),
            "S" => Duration::from_secs(number),
            "m" => Duration::from_millis(number),
            "u" => Duration::from_micros(number),
            "n" => Duration::from_nanos(number),
            _ => return None,
        })
    });
    parsed.map(Some).ok_or_else(|| {
        let got = headers::quoted(value.as_bytes());
        let detail = format!("header grpc-timeout must be up to 8 digits and one of H, M, S, m, u, n, got {got}");
        Failure::new(Outcome::InvalidRequest, detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    #[test]
    fn deadlines_have_units() {
        let of = |text| {
            let headers = HeaderMap::from_iter([(TIMEOUT, HeaderValue::from_static(text))]);
            timeout(&headers).map(Option::unwrap_or_default).map_err(|failure| failure.detail)
        };
        assert_eq!(of("2S"), Ok(Duration::from_secs(2)));
        assert_eq!(of("99999999m"), Ok(Duration::from_millis(99_999_999)));
        assert_eq!((of("1H"), of("5u")), (Ok(Duration::from_secs(3600)), Ok(Duration::from_micros(5))));
        for wrong in ["", "S", "1", "1s", "-1S", "123456789S", "1.5S"] {
            assert!(of(wrong).unwrap_err().contains(&format!("`{wrong}`")), "{wrong}");
        }
    }
}
