//! What the body of a request says it is.

use crate::protocols::reply::accept::is_msgpack;
use crate::protocols::request::headers::{quoted, single};
use crate::values::answer::Failure;
use hyper::HeaderMap;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, TRANSFER_ENCODING};
use jitney_core::tables::outcome::Outcome;

/// What a body says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyType {
    /// Nothing, or the form type that curl sends with `-d` unasked: the deployment's natural type is meant.
    Unsaid,
    Json,
    Text,
    Msgpack,
    Npy,
    Octets,
    Image,
    /// multipart/form-data
    Form,
    Other,
}

/// The type of a request's body; `text` needs an encoding that is UTF-8.
pub(crate) fn body_type(headers: &HeaderMap) -> Result<BodyType, Failure> {
    let Some(value) = single(headers, &CONTENT_TYPE)? else { return Ok(BodyType::Unsaid) };
    let unsupported = |what: &str| {
        Failure::new(Outcome::UnsupportedMediaType, format!("content-type {} {what}", quoted(value.as_bytes())))
    };
    let text =
        value.to_str().map_err(|_| unsupported("is not readable text; write a media type such as application/json"))?;
    let mut pieces = text.split(';');
    let essence = pieces.next().unwrap_or_default().trim();
    if essence.is_empty() {
        return Ok(BodyType::Unsaid);
    }
    let kind = classify(essence);
    if matches!(kind, BodyType::Text | BodyType::Json) {
        for parameter in pieces {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let charset = value.trim().trim_matches('"');
            if name.trim().eq_ignore_ascii_case("charset")
                && !["utf-8", "utf8", "us-ascii"].iter().any(|known| charset.eq_ignore_ascii_case(known))
            {
                return Err(unsupported("is not UTF-8; encode the body as UTF-8"));
            }
        }
    }
    Ok(kind)
}

fn classify(essence: &str) -> BodyType {
    let is = |name: &str| essence.eq_ignore_ascii_case(name);
    let has = |prefix: &str| essence.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    let ends = |suffix: &str| {
        essence.len() > suffix.len()
            && essence.get(essence.len() - suffix.len()..).is_some_and(|end| end.eq_ignore_ascii_case(suffix))
    };
    if is("application/json") || ends("+json") {
        BodyType::Json
    } else if is("text/plain") {
        BodyType::Text
    } else if is_msgpack(essence) {
        BodyType::Msgpack
    } else if is("application/octet-stream") {
        BodyType::Octets
    } else if is("application/x-npy") || is("application/npy") {
        BodyType::Npy
    } else if is("application/x-www-form-urlencoded") {
        BodyType::Unsaid
    } else if is("multipart/form-data") {
        BodyType::Form
    } else if has("image/") {
        BodyType::Image
    } else {
        BodyType::Other
    }
}

/// The content type of a request, exactly as the client wrote it; empty if the client sent none.
pub(crate) fn content_type(headers: &HeaderMap) -> &[u8] {
    headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes())
}

/// Refuses bodies that would have to be inflated: none is, so none can be a bomb.
pub(crate) fn check_content_encoding(headers: &HeaderMap) -> Result<(), Failure> {
    check_encoding(headers, &CONTENT_ENCODING, "identity")
}

/// Refuses all transfer codings except `chunked`. hyper undoes a final `chunked` and refuses codings that do not end
/// with it; this function refuses codings that stand before it. A request that has both `content-length` and
/// `transfer-encoding` cannot be seen here: hyper drops the `content-length`, reads the body as chunked, and ends the
/// connection after the answer, as RFC 9112 (6.3) demands.
pub(crate) fn check_transfer_encoding(headers: &HeaderMap) -> Result<(), Failure> {
    check_encoding(headers, &TRANSFER_ENCODING, "chunked")
}

fn check_encoding(headers: &HeaderMap, name: &HeaderName, plain: &str) -> Result<(), Failure> {
    let value = single(headers, name)?;
    if let Some(coded) = value.filter(|value| !value.as_bytes().eq_ignore_ascii_case(plain.as_bytes())) {
        let coded = quoted(coded.as_bytes());
        let detail = format!("{name} {coded} is not taken; send the body without compression");
        return Err(Failure::new(Outcome::UnsupportedMediaType, detail));
    }
    Ok(())
}

/// Refuses a body for its type.
pub(crate) fn wrong_type(got: &[u8], takes: &[&str]) -> Failure {
    let choice = if takes.len() > 1 { "one of " } else { "" };
    let detail = format!("content-type {} is not taken here; send {choice}{}", quoted(got), takes.join(", "));
    Failure::new(Outcome::UnsupportedMediaType, detail)
}

const FORM: &str = "application/x-www-form-urlencoded";

fn is_form(headers: &HeaderMap) -> bool {
    content_type(headers).get(..FORM.len()).is_some_and(|got| got.eq_ignore_ascii_case(FORM.as_bytes()))
}

/// Says of an image that cannot be read that it came as a form: `curl -d @FILE` says this of a file, and drops bytes of it.
pub(crate) fn image_came_as_form(headers: &HeaderMap, failure: Failure) -> Failure {
    if !is_form(headers) || failure.outcome != Outcome::InvalidInput {
        return failure;
    }
    let why = format!("the content-type is {FORM}, a form; curl sends a file unchanged with --data-binary @FILE");
    Failure { detail: format!("{}; {why}", failure.detail), ..failure }
}

/// Adds to the failure of a body that is not JSON that its content type is a form. `curl -d` sends this type by
/// default.
pub(crate) fn came_as_form(headers: &HeaderMap, failure: Failure) -> Failure {
    if !is_form(headers) || failure.outcome != Outcome::MalformedBody {
        return failure;
    }
    let why =
        format!("the content-type is {FORM}, a form, but the body was read as JSON; send JSON as application/json");
    Failure { detail: format!("{}; {why}", failure.detail), ..failure }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    #[test]
    fn content_types_are_read_without_case_and_parameters() {
        for (text, kind) in [
            ("application/json", Some(BodyType::Json)),
            ("Application/JSON; charset=UTF-8", Some(BodyType::Json)),
            ("application/ld+json", Some(BodyType::Json)),
            ("text/plain; charset=\"utf-8\"", Some(BodyType::Text)),
            ("text/plain; charset=latin1", None),
            ("image/png; charset=latin1", Some(BodyType::Image)),
            ("application/x-www-form-urlencoded", Some(BodyType::Unsaid)),
            ("multipart/form-data; boundary=x", Some(BodyType::Form)),
            ("audio/wav", Some(BodyType::Other)),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(text));
            assert_eq!(body_type(&headers).ok(), kind, "{text}");
        }
    }
}
