//! The span of a request over HTTP: from its head until its answer has been handed over.

use crate::base::access_log::line::{AccessLine, Ended};
use crate::base::traces::context::{TraceContext, passable};
use crate::base::traces::messages::{KeyValue, attribute};
use crate::base::traces::notes::{Description, Passed, TraceNote};
use crate::base::traces::tracer::Tracer;
use crate::base::traces::why::facts::Lengths;
use crate::engine::deployment::ticket::{Ticket, UNKNOWN};
use crate::protocols::reply::request_id::RequestId;
use crate::values::answer::Timing;
use crate::values::call_id::CallId;
use hyper::header::HeaderName;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Uri, Version};
use jitney_core::tables::outcome::Outcome;
use std::borrow::Cow;
use std::sync::Arc;

/// Bytes of a path in a span; a longer one is cut.
const LONGEST_PATH: usize = 1024;
/// The header with the span of the client.
pub(crate) const TRACE: HeaderName = HeaderName::from_static("traceparent");
const TRACE_STATE: HeaderName = HeaderName::from_static("tracestate");

/// The `tracestate` of a client, if it may be passed on. Several headers are one list.
pub(crate) fn trace_state(headers: &HeaderMap) -> Cow<'_, str> {
    let mut values = headers.get_all(TRACE_STATE).iter().filter_map(|value| value.to_str().ok());
    let first = values.next().unwrap_or_default();
    match values.next() {
        None => passable(first).into(),
        Some(second) => {
            let all: Vec<&str> = [first, second].into_iter().chain(values).collect();
            passable(&all.join(",")).to_owned().into()
        }
    }
}

/// The span of a client above a request. Of two contexts none can be trusted.
fn trace_context(headers: &HeaderMap) -> Option<TraceContext> {
    let mut values = headers.get_all(TRACE).iter();
    let (first, second) = (values.next()?, values.next());
    TraceContext::parse(first.to_str().ok().filter(|_| second.is_none())?)
}

/// A request that is traced. When this is dropped, the request has ended. If it is dropped before anything says how, its client has
/// left.
#[derive(Debug)]
pub(crate) struct ServerSpan {
    note: TraceNote,
    id: CallId,
    protocol: &'static str,
    method: Method,
    uri: Uri,
    version: Version,
    is_encrypted: bool,
    deployment: Option<Box<str>>,
    outcome: Option<Outcome>,
    status: u16,
    items: u32,
    passed: Passed,
    answer_bytes: u64,
}

impl ServerSpan {
    /// Begins it; `None` if the request is not traced.
    pub(crate) fn begin(
        tracer: &Arc<Tracer>,
        head: &Parts,
        id: &RequestId,
        protocol: &'static str,
        is_encrypted: bool,
    ) -> Option<Box<ServerSpan>> {
        let mut span = ServerSpan::new(tracer, &head.headers, id.call_id(), &head.method, &head.uri)?;
        (span.protocol, span.version, span.is_encrypted) = (protocol, head.version, is_encrypted);
        Some(span)
    }

    /// The same for a message of a gRPC stream, which is one request.
    pub(crate) fn of_message(
        tracer: &Arc<Tracer>,
        headers: &HeaderMap,
        id: &CallId,
        path: &'static str,
    ) -> Option<Box<ServerSpan>> {
        ServerSpan::new(tracer, headers, id.clone(), &Method::POST, &Uri::from_static(path))
    }

    fn new(
        tracer: &Arc<Tracer>,
        headers: &HeaderMap,
        id: CallId,
        method: &Method,
        uri: &Uri,
    ) -> Option<Box<ServerSpan>> {
        let request = tracer.begin(trace_context(headers), &trace_state(headers))?;
        Some(Box::new(ServerSpan {
            note: TraceNote::new(request),
            id,
            protocol: "grpc",
            method: method.clone(),
            uri: uri.clone(),
            version: Version::HTTP_2,
            is_encrypted: false,
            deployment: None,
            outcome: Some(Outcome::Cancelled),
            status: 0,
            items: 0,
            passed: Passed::default(),
            answer_bytes: 0,
        }))
    }

    /// What the items of the request carry.
    pub(crate) fn note(&self) -> &TraceNote {
        &self.note
    }

    /// Says how an answer without items ended, and the status of any answer.
    pub(crate) fn answered(&mut self, outcome: Option<Outcome>, status: u16) {
        (self.outcome, self.status) = (outcome, status);
    }

    /// Says how the request ended that has this ticket.
    pub(crate) fn end(&mut self, ticket: &Ticket, status: u16) {
        self.status = status;
        self.deployment = ticket.deployment().map(Into::into);
        self.outcome = Some(ticket.outcome());
        self.items = ticket.items();
        let Timing { queue, batch, model, .. } = ticket.timing;
        let lengths = Lengths { queue, link: batch, predict: model };
        let (answered, counted) = ticket.answered.unzip();
        self.passed = Passed { lengths, answered, counted };
    }

    /// Counts bytes of its answer.
    pub(crate) fn add_answer_bytes(&mut self, bytes: usize) {
        self.answer_bytes += bytes as u64;
    }

    fn describe(&self) -> Description {
        let path = self.uri.path();
        // The routes of deployments that are there are few; others are as many as clients think of.
        let name = match (self.protocol, &self.deployment) {
            ("grpc", _) => path.trim_start_matches('/').to_owned(),
            (_, Some(_)) => format!("{} {path}", self.method),
            (_, None) => self.method.to_string(),
        };
        Description {
            request_id: self.id.text().as_ref().into(),
            whose: self.deployment.as_deref().unwrap_or_else(|| short(path)).to_owned(),
            name,
            attributes: self.attributes(path),
            is_error: self.outcome.is_some_and(|outcome| outcome.http_status() >= 500) || self.status >= 500,
        }
    }

    fn attributes(&self, path: &str) -> Vec<KeyValue> {
        let version = if self.version == Version::HTTP_2 { "2" } else { "1.1" };
        let mut attributes = vec![
            attribute("url.path", short(path)),
            attribute("url.scheme", if self.is_encrypted { "https" } else { "http" }),
            attribute("network.protocol.version", version),
            attribute("jitney.protocol", self.protocol),
            attribute("jitney.request.items", u64::from(self.items)),
            attribute("http.response.body.size", self.answer_bytes),
        ];
        if self.protocol == "grpc" {
            attributes.push(attribute("rpc.system", "grpc"));
            if let Some((service, method)) = path.trim_start_matches('/').split_once('/') {
                attributes.push(attribute("rpc.service", service));
                attributes.push(attribute("rpc.method", method));
            }
        } else {
            attributes.push(attribute("http.request.method", self.method.as_str()));
        }
        if self.status != 0 {
            attributes.push(attribute("http.response.status_code", u64::from(self.status)));
        }
        if let Some(deployment) = self.deployment.as_deref() {
            attributes.push(attribute("jitney.deployment", deployment));
            if self.protocol != "grpc" {
                attributes.push(attribute("http.route", path));
            }
            attributes.extend(gen_ai(self.protocol, path, deployment));
        }
        attributes
    }
}

/// The first bytes of a path.
fn short(path: &str) -> &str {
    path.get(..LONGEST_PATH).unwrap_or(path)
}

/// What the conventions for generative models say of the routes of `OpenAI`, as of their version 1.40.
fn gen_ai(protocol: &str, path: &str, deployment: &str) -> Vec<KeyValue> {
    let operation = match path {
        _ if protocol != "openai" => return Vec::new(),
        path if path.ends_with("/embeddings") => "embeddings",
        path if path.ends_with("/chat/completions") => "chat",
        path if path.ends_with("/completions") => "text_completion",
        _ => "generate_content",
    };
    vec![
        attribute("gen_ai.operation.name", operation),
        attribute("gen_ai.request.model", deployment),
        attribute("gen_ai.response.model", deployment),
    ]
}

impl Drop for ServerSpan {
    fn drop(&mut self) {
        let deployment = self.deployment.as_deref().unwrap_or(UNKNOWN);
        self.note.request.end(deployment, self.outcome, self.passed, || self.describe());
    }
}

/// What follows a request until its answer has been handed over: its line in the access log and its span, if it has these.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    pub(crate) line: Option<Box<AccessLine>>,
    pub(crate) span: Option<Box<ServerSpan>>,
}

impl Followers {
    /// Says how the request with this ticket ended.
    pub(crate) fn end(&mut self, ticket: &Ticket, status: u16) {
        self.line.iter_mut().for_each(|line| line.end(ticket.ended(status)));
        self.span.iter_mut().for_each(|span| span.end(ticket, status));
    }

    /// Says how a request without a ticket ended.
    pub(crate) fn end_page(&mut self, page: Ended<'_>) {
        self.line.iter_mut().for_each(|line| line.end(page));
        self.span.iter_mut().for_each(|span| span.answered(page.outcome, page.status));
    }

    /// Counts bytes of the answer.
    pub(crate) fn add_answer_bytes(&mut self, bytes: usize) {
        self.line.iter_mut().for_each(|line| line.add_answer_bytes(bytes));
        self.span.iter_mut().for_each(|span| span.add_answer_bytes(bytes));
    }
}
