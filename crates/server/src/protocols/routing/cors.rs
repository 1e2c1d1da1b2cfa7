//! Pages of other origins: whom browsers may let read our answers, by `cors_origin`.

use crate::protocols::reply::payload::Reply;
use crate::protocols::reply::payload::ReplyBody;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderValue, ORIGIN, VARY,
};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};

/// How long a browser may remember the answer to a preflight request, in seconds. Chrome allows no more.
const MAX_AGE: &str = "7200";
const METHODS: &str = "GET, HEAD, POST, OPTIONS";
const HEADERS: &str = "authorization, content-type, x-api-key, x-priority, x-request-id, x-request-timeout-ms";
/// Headers of answers that pages of allowed origins may read.
pub(crate) const EXPOSED: &str = "inference-header-content-length, \
    retry-after, server-timing, x-jitney-batch-size, x-jitney-failed, x-jitney-reason, x-request-id, x-should-retry";

/// The origins that were allowed; empty if there are none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origins<'a>(pub(crate) &'a [String]);

impl Origins<'_> {
    /// Whether pages of this origin may call.
    pub(crate) fn allow(self, origin: &HeaderValue) -> bool {
        let matches = |allowed: &String| allowed == "*" || allowed.as_bytes().eq_ignore_ascii_case(origin.as_bytes());
        self.0.iter().any(matches)
    }

    /// The answer to a preflight request of a browser, which carries no key; `None` for all other requests.
    pub(crate) fn preflight(self, head: &Parts) -> Option<Reply> {
        let origin = head.headers.get(ORIGIN)?;
        let asks = head.method == Method::OPTIONS && head.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        if !asks || !self.allow(origin) {
            return None;
        }
        let mut reply = Response::new(ReplyBody::from(""));
        *reply.status_mut() = StatusCode::NO_CONTENT;
        let headers = reply.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
        // Clients send further headers (`x-stainless-os`, …). All headers are allowed.
        let wanted = head.headers.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned();
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.unwrap_or(HeaderValue::from_static(HEADERS)));
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
        headers.append(VARY, HeaderValue::from_static("access-control-request-headers"));
        Some(reply)
    }

    /// Lets the page that asked read this answer, if it may.
    pub(crate) fn let_read(self, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
        if self.0.is_empty() {
            return;
        }
        // A cache must not give one origin's answer to another.
        headers.append(VARY, HeaderValue::from_static("origin"));
        if let Some(origin) = origin.filter(|origin| self.allow(origin)) {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
        }
    }
}
