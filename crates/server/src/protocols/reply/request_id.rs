//! The id of a request, and the headers that every answer has.

use crate::values::answer::Timing;
use crate::values::call_id;
use crate::values::call_id::CallId;
use crate::values::call_id::hex;
use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use std::borrow::Cow;
use std::time::Duration;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
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
        RequestId::Fresh(call_id::fresh())
    }

    /// The caller's if it is fit to be repeated in headers and logs, else a new one.
    pub(crate) fn of(headers: &HeaderMap) -> RequestId {
        match headers.get(REQUEST_ID) {
            Some(value) if call_id::is_fit(value.as_bytes()) => RequestId::Given(value.clone()),
            _ => RequestId::fresh(),
        }
    }

    /// As the engine and the worker have it.
    pub(crate) fn call_id(&self) -> CallId {
        match self {
            RequestId::Given(value) => CallId::Given(value.to_str().unwrap_or_default().into()),
            RequestId::Fresh(number) => CallId::Fresh(*number),
        }
    }

    /// As text.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        match self {
            RequestId::Given(value) => Cow::Borrowed(value.to_str().unwrap_or_default()),
            RequestId::Fresh(number) => Cow::Owned(std::str::from_utf8(&hex(*number)).unwrap_or_default().to_owned()),
        }
    }

    /// Writes the headers with the id, the times and the size of the batch, with one allocation for all values. A
    /// request that was refused before it was queued or was in a batch has zeros. `is_first_part` says that `model` of
    /// the timing ends with the first part of the answer.
    pub(crate) fn write_headers(&self, headers: &mut HeaderMap, timing: &Timing, is_first_part: bool) {
        let mut text = Vec::with_capacity(96);
        if let RequestId::Fresh(number) = self {
            text.extend_from_slice(&hex(*number));
        }
        let id_end = text.len();
        let whole = [("queue;dur=", timing.queue), (", batch;dur=", timing.batch), (", model;dur=", timing.model)];
        let until_first_part = [("queue;dur=", timing.queue), (", first-part;dur=", timing.model)];
        for &(name, length) in if is_first_part { &until_first_part[..] } else { &whole } {
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

/// Milliseconds with three decimals.
fn write_ms(text: &mut Vec<u8>, length: Duration) {
    let micros = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
    text.extend_from_slice(itoa::Buffer::new().format(micros / 1000).as_bytes());
    let rest = (micros % 1000) as u16;
    let digit = |number: u16| b'0' + (number % 10) as u8;
    text.extend_from_slice(&[b'.', digit(rest / 100), digit(rest / 10), digit(rest)]);
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
        RequestId::fresh().write_headers(&mut headers, &timing, false);
        assert_eq!(headers["server-timing"], "queue;dur=1.234, batch;dur=0.100, model;dur=5000.000");
        assert_eq!(headers["x-jitney-batch-size"], "64");
        RequestId::fresh().write_headers(&mut headers, &timing, true);
        assert_eq!(headers["server-timing"], "queue;dur=1.234, first-part;dur=5000.000");
    }
}
