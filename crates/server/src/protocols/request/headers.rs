//! The headers of jitney's own in requests.

use crate::base::keys::Keys;
use crate::base::traces::notes::TraceNote;
use crate::protocols::reply::payload::span::{TRACE, trace_state};
use crate::protocols::reply::request_id::RequestId;
use crate::protocols::request::api_key;
use crate::values::answer::Failure;
use crate::values::metadata::{FurtherMetadata, Metadata};
pub(crate) use crate::values::text::quoted;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use jitney_core::request::Priority;
use jitney_core::tables::outcome::Outcome;
use std::time::Duration;

const TIMEOUT: HeaderName = HeaderName::from_static("x-request-timeout-ms");
const PRIORITY: HeaderName = HeaderName::from_static("x-priority");

/// The longest `traceparent` that is passed on; version 0 of it has 55 bytes.
const TRACE_BYTES: usize = 128;

/// What a worker reads of a request, except for headers that its deployment asks for. A trace context that is not one is left
/// out. `note` is there if this server traces the request: then its spans are between those of the client and of the model.
pub(crate) fn metadata(id: &RequestId, headers: &HeaderMap, keys: Option<&Keys>, note: Option<&TraceNote>) -> Metadata {
    let trace = if note.is_none() { trace_text(headers) } else { Box::default() };
    let key_name = keys.map(|keys| api_key::name(keys, headers)).unwrap_or_default();
    let further = FurtherMetadata { trace, key_name, headers: Vec::new(), note: note.cloned() };
    Metadata::new(id.call_id(), further)
}

/// The trace context of a client as models get it, unread.
fn trace_text(headers: &HeaderMap) -> Box<str> {
    let Some(parent) = headers.get(TRACE).and_then(|value| value.to_str().ok()) else { return Box::default() };
    if parent.len() > TRACE_BYTES {
        return Box::default();
    }
    match &*trace_state(headers) {
        "" => parent.into(),
        state => format!("{parent}\n{state}").into(),
    }
}

/// The metadata of a request, together with those of its headers that have these names. Values of one name are joined,
/// as proxies do.
pub(crate) fn with_headers(metadata: &Metadata, headers: &HeaderMap, names: &[String]) -> Metadata {
    if names.is_empty() {
        return metadata.clone();
    }
    let mut found = Vec::new();
    for name in names {
        let values: Vec<&str> = headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
        if !values.is_empty() {
            found.push((name.as_str().into(), values.join(", ").into()));
        }
    }
    let further = metadata.further.as_deref().cloned().unwrap_or_default();
    Metadata::new(metadata.request_id.clone(), FurtherMetadata { headers: found, ..further })
}

/// The value of a header that may be there once: of two, another reader might believe the other.
pub(crate) fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, Failure> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        let detail = format!("header {name} is there more than once; send it once");
        return Err(Failure::new(Outcome::InvalidRequest, detail));
    }
    Ok(first)
}

/// How long the caller wants to wait.
pub(crate) fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, Failure> {
    let Some(value) = single(headers, &TIMEOUT)? else { return Ok(None) };
    let milliseconds = value.to_str().ok().and_then(|text| text.trim().parse::<u64>().ok()).filter(|&ms| ms > 0);
    milliseconds
        .map(|ms| Some(Duration::from_millis(ms)))
        .ok_or_else(|| wrong(&TIMEOUT, value, "a positive whole number of milliseconds, such as 2500"))
}

/// The caller's class.
pub(crate) fn priority(headers: &HeaderMap) -> Result<Priority, Failure> {
    let Some(value) = single(headers, &PRIORITY)? else { return Ok(Priority::Normal) };
    let class = value.to_str().ok().and_then(|name| Priority::parse(&name.trim().to_ascii_lowercase()));
    class.ok_or_else(|| wrong(&PRIORITY, value, "high, normal or low"))
}

fn wrong(name: &HeaderName, value: &HeaderValue, expected: &str) -> Failure {
    Failure::new(
        Outcome::InvalidRequest,
        format!("header {name}: expected {expected}, got {}", quoted(value.as_bytes())),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::call_id::CallId;

    #[test]
    fn a_header_that_is_there_twice_is_named() {
        let mut headers = HeaderMap::new();
        for (name, value) in [(&TIMEOUT, "100"), (&PRIORITY, "high")] {
            headers.append(name, HeaderValue::from_static(value));
            assert!(single(&headers, name).unwrap().is_some_and(|given| given == value));
            // The same value again is no better: which of them is checked depends on who looks.
            headers.append(name, HeaderValue::from_static(value));
            assert!(single(&headers, name).unwrap_err().detail.contains(name.as_str()));
        }
        assert!(timeout(&headers).is_err() && priority(&headers).is_err());
    }

    #[test]
    fn wrong_values_are_named() {
        let mut headers = HeaderMap::new();
        for bad in ["0", "-1", "1.5", "soon", ""] {
            headers.insert("x-request-timeout-ms", HeaderValue::from_static(bad));
            assert!(timeout(&headers).unwrap_err().detail.contains(&format!("`{bad}`")));
        }
        headers.insert("x-priority", HeaderValue::from_static("urgent"));
        assert!(priority(&headers).unwrap_err().detail.contains("high, normal or low, got `urgent`"));
        headers.insert("x-priority", HeaderValue::from_static("High"));
        assert_eq!(priority(&headers).unwrap(), Priority::High);
    }

    #[test]
    fn the_worker_reads_the_id_and_the_trace_of_a_request() {
        let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let of = |trace: &str| {
            let headers = HeaderMap::from_iter([(TRACE, HeaderValue::from_str(trace).unwrap())]);
            metadata(&RequestId::Given(HeaderValue::from_static("mine")), &headers, None, None)
        };
        let found = of(trace);
        assert_eq!((&*found.request_id.text(), &*found.further.unwrap().trace), ("mine", trace));
        assert_eq!(of(&"0".repeat(TRACE_BYTES + 1)).further, None);
    }

    #[test]
    fn the_worker_reads_the_headers_that_its_deployment_names() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("x-tenant", "a"), ("x-tenant", "b"), ("x-other", "c")] {
            headers.append(name, HeaderValue::from_static(value));
        }
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.into()).collect();
            with_headers(&Metadata::of_id(CallId::Given("r".into())), &headers, &names)
        };
        let found = of(&["x-tenant", "x-missing"]);
        assert_eq!(
            (&*found.request_id.text(), &found.further.unwrap().headers[..]),
            ("r", &[("x-tenant".into(), "a, b".into())][..])
        );
        assert!(of(&[]).further.is_none());
    }
}
