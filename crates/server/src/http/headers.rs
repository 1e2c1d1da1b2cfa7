//! The headers of jitney's own: what a request may ask for in them, what an answer says in them.

use super::limits::REQUEST_ID_BYTES;
pub(crate) use crate::call::quoted;
use crate::call::{Failure, Timing};
use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use jitney_core::outcome::Outcome;
use jitney_core::request::Priority;
use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TIMEOUT: HeaderName = HeaderName::from_static("x-request-timeout-ms");
const PRIORITY: HeaderName = HeaderName::from_static("x-priority");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const BATCH_SIZE: HeaderName = HeaderName::from_static("x-jitney-batch-size");

/// Who a request is, for people who read logs.
#[derive(Clone, Debug)]
pub(crate) enum RequestId {
    /// The caller's own.
    Given(HeaderValue),
    /// Ours, as a number until somebody reads it.
    Fresh(u64),
}

impl RequestId {
    /// A new one: different from every other of this process, and hard to confuse with those of another.
    pub(crate) fn fresh() -> RequestId {
        static START: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one("request"));
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // An odd factor and xor-shifts map different counts to different ids.
        let mixed = (NEXT.fetch_add(1, Ordering::Relaxed) ^ *START).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        RequestId::Fresh(mixed ^ (mixed >> 32))
    }

    /// The caller's if it is fit to be repeated in headers and logs, else a new one.
    pub(crate) fn of(headers: &HeaderMap) -> RequestId {
        match headers.get(REQUEST_ID) {
            Some(value)
                if (1..=REQUEST_ID_BYTES).contains(&value.len())
                    && value.as_bytes().iter().all(u8::is_ascii_graphic) =>
            {
                RequestId::Given(value.clone())
            }
            _ => RequestId::fresh(),
        }
    }

    /// As text.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        match self {
            RequestId::Given(value) => Cow::Borrowed(value.to_str().unwrap_or_default()),
            RequestId::Fresh(number) => Cow::Owned(String::from_utf8_lossy(&hex(*number)).into_owned()),
        }
    }

    /// Writes the id, where the time went and how many rode along: one allocation for all values. What was refused before
    /// it waited or rode says so with zeros.
    pub(crate) fn stamp(&self, headers: &mut HeaderMap, timing: &Timing) {
        let mut text = Vec::with_capacity(96);
        if let RequestId::Fresh(number) = self {
            text.extend_from_slice(&hex(*number));
        }
        let id_end = text.len();
        for (name, length) in
            [("queue;dur=", timing.queue), (", batch;dur=", timing.batch), (", model;dur=", timing.model)]
        {
            text.extend_from_slice(name.as_bytes());
            write_ms(&mut text, length);
        }
        let timing_end = text.len();
        text.extend_from_slice(itoa::Buffer::new().format(timing.batch_size).as_bytes());
        let text = Bytes::from(text);
        let value =
            |from: usize, to: usize| HeaderValue::from_maybe_shared(text.slice(from..to)).expect("digits and letters");
        headers.insert(
            REQUEST_ID,
            match self {
                RequestId::Given(given) => given.clone(),
                RequestId::Fresh(_) => value(0, id_end),
            },
        );
        headers.insert(SERVER_TIMING, value(id_end, timing_end));
        headers.insert(BATCH_SIZE, value(timing_end, text.len()));
    }
}

fn hex(number: u64) -> [u8; 16] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    std::array::from_fn(|place| DIGITS[(number >> (60 - 4 * place)) as usize & 15])
}

/// Milliseconds with three decimals.
fn write_ms(text: &mut Vec<u8>, length: Duration) {
    let micros = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
    text.extend_from_slice(itoa::Buffer::new().format(micros / 1000).as_bytes());
    let rest = (micros % 1000) as u16;
    let digit = |number: u16| b'0' + (number % 10) as u8;
    text.extend_from_slice(&[b'.', digit(rest / 100), digit(rest / 10), digit(rest)]);
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
    use std::collections::HashSet;

    #[test]
    fn fresh_ids_differ_and_have_sixteen_digits() {
        let ids: HashSet<String> = (0..10_000).map(|_| RequestId::fresh().text().into_owned()).collect();
        assert_eq!(ids.len(), 10_000);
        assert!(ids.iter().all(|id| id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit())));
    }

    #[test]
    fn an_unfit_id_is_replaced() {
        let long = "x".repeat(129);
        for (given, kept) in
            [("abc-1", true), ("a b", false), ("\u{e9}", false), (&long[..128], true), (&long, false), ("", false)]
        {
            let mut headers = HeaderMap::new();
            headers.insert("x-request-id", HeaderValue::from_bytes(given.as_bytes()).unwrap());
            assert_eq!(RequestId::of(&headers).text() == given, kept, "{given}");
        }
    }

    #[test]
    fn times_have_three_decimals() {
        let mut headers = HeaderMap::new();
        let timing = Timing {
            queue: Duration::from_micros(1234),
            batch: Duration::from_nanos(100_900),
            model: Duration::from_secs(5),
            batch_size: 64,
        };
        RequestId::fresh().stamp(&mut headers, &timing);
        assert_eq!(headers["server-timing"], "queue;dur=1.234, batch;dur=0.100, model;dur=5000.000");
        assert_eq!(headers["x-jitney-batch-size"], "64");
    }

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
}
