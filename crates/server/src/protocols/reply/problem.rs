//! Failures as answers: what all protocols say about them, and the form that jitney's own routes give them.

use crate::protocols::connection::limits::RETRY_AFTER_MOST_S;
use crate::protocols::connection::upload::Upload;
use crate::protocols::reply::failure_log;
use crate::protocols::reply::payload::Reply;
use crate::protocols::reply::payload::ReplyBody;
use crate::protocols::reply::request_id::RequestId;
use crate::values::answer::Failure;
use crate::values::text::quoted;
use http_body::Body as _;
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use jitney_core::tables::outcome::{Outcome, Retry};
use serde::Serialize;
use std::time::Duration;

/// The reason of a failure, for programs.
pub(crate) const REASON: HeaderName = HeaderName::from_static("x-jitney-reason");
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// The body, as RFC 9457 has it, with our own members after its.
#[derive(Serialize)]
pub(crate) struct ProblemDocument<'a> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    reason: &'static str,
    detail: &'a str,
    request_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
}

impl<'a> ProblemDocument<'a> {
    /// The document that describes this failure to a client.
    pub(crate) fn of(failure: &'a Failure, request_id: &'a str) -> ProblemDocument<'a> {
        ProblemDocument {
            r#type: "about:blank",
            title: failure.outcome.title(),
            status: chosen_status(failure).unwrap_or_else(|| failure.outcome.http_status()),
            reason: failure.outcome.reason(),
            detail: &failure.detail,
            request_id,
            field: failure.field.as_deref(),
        }
    }
}

/// The status that a model's author chose, if it is one of an error and not the usual one of its outcome.
fn chosen_status(failure: &Failure) -> Option<u16> {
    let usual = failure.outcome.http_status();
    failure.status.filter(|status| (400..=599).contains(status) && *status != usual)
}

/// A failure with what only HTTP knows of it.
#[derive(Debug)]
pub(crate) struct Problem {
    failure: Failure,
    allow: Option<&'static str>,
    close: bool,
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Problem {
        Problem { failure, allow: None, close: false }
    }
}

impl Problem {
    /// A problem with nothing but its reason.
    pub(crate) fn new(outcome: Outcome, detail: impl Into<String>) -> Problem {
        Failure::new(outcome, detail).into()
    }

    /// A route that is there, and that is not asked like this; names the methods that would have worked.
    pub(crate) fn wrong_method(head: &Parts, methods: &'static str) -> Problem {
        let (method, path) = (head.method.as_str().as_bytes(), head.uri.path().as_bytes());
        let (method, path) = (quoted(method), quoted(path));
        let detail = format!("{method} is not a method of {path}; use {methods}");
        Problem { allow: Some(methods), ..Problem::new(Outcome::MethodNotAllowed, detail) }
    }

    /// The connection cannot be used again: the rest of its body will not be read.
    pub(crate) fn close(mut self) -> Problem {
        self.close = true;
        self
    }

    /// Answers without having read the body: unless there is none, the connection cannot be used again.
    pub(crate) fn instead_of(self, body: &Upload) -> Problem {
        if body.is_end_stream() { self } else { self.close() }
    }

    /// Without what only HTTP knows of it.
    pub(crate) fn into_failure(self) -> Failure {
        self.failure
    }

    /// Which row of the table.
    pub(crate) fn outcome(&self) -> Outcome {
        self.failure.outcome
    }

    /// What went wrong, without what only HTTP knows of it.
    pub(crate) fn failure(&self) -> &Failure {
        &self.failure
    }

    /// What was wrong, with which value, and what to do.
    pub(crate) fn detail(&self) -> &str {
        &self.failure.detail
    }

    /// The field of the input that caused the failure.
    pub(crate) fn field(&self) -> Option<&str> {
        self.failure.field.as_deref()
    }

    /// The status that a model's author chose, if it is one of an error.
    pub(crate) fn chosen_status(&self) -> Option<u16> {
        chosen_status(&self.failure)
    }

    /// The answer, in the form of a protocol. This function writes what all protocols have in common (`retry-after`,
    /// `x-jitney-reason`, …); `form` writes the rest. The log names the deployment.
    pub(crate) fn reply(self, deployment: Option<&str>, form: ProblemForm, id: &RequestId) -> Reply {
        let id_text = id.text();
        failure_log::tell(&id_text, deployment, &self.failure);
        let WrittenProblem { status, media, body, headers: own } = form(&self, &id_text);
        let Problem { failure, allow, close } = self;
        let outcome = failure.outcome;
        let mut reply = Response::new(ReplyBody::from(body));
        // 499 and its like are not in the registry but are well-formed.
        *reply.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = reply.headers_mut();
        headers.extend(own);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
        headers.insert(REASON, HeaderValue::from_static(outcome.reason()));
        if let Some(seconds) = failure.retry_after.and_then(whole_seconds) {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if outcome.retry() == Retry::Never {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        if outcome == Outcome::Unauthorized {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(methods) = allow {
            headers.insert(ALLOW, HeaderValue::from_static(methods));
        }
        if close {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        reply
    }
}

/// How a protocol writes a problem; with it comes the id of the request.
pub(crate) type ProblemForm = fn(&Problem, &str) -> WrittenProblem;

/// A problem in the form of one protocol; the rest of its answer is the same for all.
#[derive(Debug)]
pub(crate) struct WrittenProblem {
    pub(crate) status: u16,
    pub(crate) media: &'static str,
    pub(crate) body: Vec<u8>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

/// A problem on jitney's own routes.
pub(crate) fn document(problem: &Problem, request_id: &str) -> WrittenProblem {
    let document = ProblemDocument::of(&problem.failure, request_id);
    let body = serde_json::to_vec(&document).unwrap_or_default();
    WrittenProblem { status: document.status, media: "application/problem+json", body, headers: vec![] }
}

/// Whole seconds, never less than asked for; `None` when the client may come back at once.
fn whole_seconds(after: Duration) -> Option<u64> {
    let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
    (after >= Duration::from_secs(1)).then_some(seconds.min(RETRY_AFTER_MOST_S))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_whole_and_bounded() {
        let of = |ms| whole_seconds(Duration::from_millis(ms));
        assert_eq!((of(0), of(999)), (None, None));
        assert_eq!((of(1000), of(1001), of(2500)), (Some(1), Some(2), Some(3)));
        assert_eq!(of(10_000_000), Some(30));
    }

    #[test]
    fn every_outcome_has_an_answer() {
        for &outcome in Outcome::ALL {
            let problem = Problem::new(outcome, "what, which value, what to do");
            let reply = problem.reply(None, document, &RequestId::fresh());
            assert_eq!(reply.status().as_u16(), outcome.http_status());
            assert_eq!(reply.headers()[REASON], outcome.reason());
            assert_eq!(reply.headers().get(SHOULD_RETRY).is_some(), outcome.retry() == Retry::Never);
        }
    }

    #[test]
    fn an_author_chooses_among_error_statuses_only() {
        for (chosen, status) in [(Some(418), 418), (Some(200), 422), (Some(700), 422), (None, 422)] {
            let failure = Failure { status: chosen, ..Failure::new(Outcome::InvalidInput, "") };
            let reply = Problem::from(failure).reply(None, document, &RequestId::fresh());
            assert_eq!(reply.status().as_u16(), status);
        }
    }
}
