//! From a request's path and method to whoever answers it.

use super::headers::RequestId;
use super::problem::Problem;
use super::socket::{Active, Activity};
use super::{native, openapi, origin, pages, untaken};
use crate::call::{Failure, Timing};
use crate::site::Site;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, Version};
use jitney_core::outcome::Outcome;
use std::borrow::Cow;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// The reason of a failure, for programs.
pub(crate) const REASON: HeaderName = HeaderName::from_static("x-jitney-reason");

/// Every answer is one piece of known length.
#[derive(Debug)]
pub(crate) struct Payload {
    data: Option<Bytes>,
    /// A request is active until its answer has been handed over.
    active: Option<Active>,
}

impl<T: Into<Bytes>> From<T> for Payload {
    fn from(data: T) -> Payload {
        let data = data.into();
        Payload { data: (!data.is_empty()).then_some(data), active: None }
    }
}

impl Payload {
    pub(crate) fn len(&self) -> usize {
        self.data.as_ref().map_or(0, Bytes::len)
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.data.take().map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len() as u64)
    }
}

/// What every route gives.
pub(crate) type Reply = Response<Payload>;

/// The routes, for one connection.
#[derive(Debug)]
pub(crate) struct Service {
    site: Arc<Site>,
    /// See `origin::check`; `None` if everybody may come.
    own_host: Option<Arc<str>>,
    activity: Arc<Activity>,
}

impl Service {
    /// For one connection.
    pub(crate) fn new(site: Arc<Site>, own_host: Option<Arc<str>>, activity: Arc<Activity>) -> Service {
        Service { site, own_host, activity }
    }
}

impl hyper::service::Service<Request<Incoming>> for Service {
    type Response = Reply;
    type Error = Infallible;
    // Boxed: an idle connection then keeps a pointer, not the room of the largest request.
    type Future = Pin<Box<dyn Future<Output = Result<Reply, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (site, activity) = (self.site.clone(), self.activity.clone());
        let mut active = self.activity.begin();
        let own_host = self.own_host.clone();
        let http2 = request.version() == Version::HTTP_2;
        Box::pin(async move {
            let mut reply = route(&site, own_host.as_deref(), request, &active).await;
            let silence = Duration::try_from_secs_f64(site.options.body_timeout_s).unwrap_or(Duration::MAX);
            if reply.headers().contains_key(CONNECTION) {
                // HTTP/2 has no such header: there only the stream ends.
                if http2 {
                    reply.headers_mut().remove(CONNECTION);
                } else {
                    active.leave_unread();
                }
            }
            active.reply();
            let body = reply.body_mut();
            body.data = body.data.take().map(|data| untaken::counted(data, &site.untaken, &activity, silence));
            body.active = Some(active);
            Ok(reply)
        })
    }
}

const READ: &str = "GET, HEAD";

async fn route(site: &Site, own_host: Option<&str>, request: Request<Incoming>, active: &Active) -> Reply {
    let id = RequestId::of(request.headers());
    let method = request.method().clone();
    let called = || site.deployments().and_then(|deployments| deployments.get(&*name(&request)?));
    let deployment = (method == Method::POST).then(called).flatten();
    if let Some(Err(problem)) = own_host.map(|own| origin::check(own, request.uri(), request.headers())) {
        if let Some(deployment) = deployment {
            deployment.count(problem.outcome());
        }
        return refuse(problem, &request, &id);
    }
    if let Some(deployment) = deployment {
        return native::post(site, deployment, request, &id, active).await;
    }
    let mut reply = match page(site, &request) {
        Ok(mut reply) => {
            id.stamp(reply.headers_mut(), &Timing::default());
            reply
        }
        Err(problem) => refuse(problem, &request, &id),
    };
    if method == Method::HEAD {
        let length = HeaderValue::from(reply.body().len());
        *reply.body_mut() = Payload::from(Bytes::new());
        reply.headers_mut().insert(CONTENT_LENGTH, length);
    }
    reply
}

/// An answer instead of reading the body.
fn refuse(problem: Problem, request: &Request<Incoming>, id: &RequestId) -> Reply {
    let problem = if request.body().is_end_stream() { problem } else { problem.close() };
    problem.reply(id, &Timing::default())
}

/// The path without its slash, decoded; `None` if it is not text.
fn name(request: &Request<Incoming>) -> Option<Cow<'_, str>> {
    let path = request.uri().path();
    let path = path.strip_prefix('/').unwrap_or(path);
    if !path.contains('%') {
        return Some(Cow::Borrowed(path));
    }
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digit = |place: usize| after.get(place).and_then(|&digit| char::from(digit).to_digit(16));
        if let (b'%', Some(high), Some(low)) = (byte, digit(0), digit(1)) {
            decoded.push((high * 16 + low) as u8);
            rest = &after[2..];
        } else {
            decoded.push(byte);
            rest = after;
        }
    }
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

/// Everything but calls.
fn page(site: &Site, request: &Request<Incoming>) -> Result<Reply, Problem> {
    let Some(name) = name(request) else {
        return Err(not_a_page(site, request.method(), request.uri().path().trim_start_matches('/')));
    };
    let page: fn(&Site, &Request<Incoming>) -> Reply = match &*name {
        "" => pages::index,
        "livez" => pages::livez,
        "readyz" => pages::readyz,
        "metrics" => pages::metrics,
        "config" => pages::config,
        "docs" => pages::docs,
        "openapi.json" => openapi::page,
        name => return Err(not_a_page(site, request.method(), name)),
    };
    if request.method() == Method::GET || request.method() == Method::HEAD {
        Ok(page(site, request))
    } else {
        Err(wrong_method(request.method(), &name, READ))
    }
}

fn wrong_method(method: &Method, name: &str, allowed: &'static str) -> Problem {
    let method = super::headers::quoted(method.as_str().as_bytes());
    Problem::new(Outcome::MethodNotAllowed, format!("{method} is not a method of /{name}; use {allowed}"))
        .allow(allowed)
}

fn not_a_page(site: &Site, method: &Method, name: &str) -> Problem {
    let Some(deployments) = site.deployments() else {
        let detail = "the targets are still being imported; /readyz says when they are there";
        return Problem::from(Failure {
            retry_after: Some(site.loading_retry_after()),
            ..Failure::new(Outcome::Loading, detail)
        });
    };
    if deployments.contains_key(name) {
        return wrong_method(method, name, "POST");
    }
    let known: Vec<&str> = deployments.keys().map(String::as_str).collect();
    let nearest = known
        .iter()
        .map(|known| (distance(known, name), known))
        .filter(|(distance, _)| *distance <= 2 + name.len() / 4)
        .min();
    let hint = nearest.map_or_else(String::new, |(_, nearest)| format!("did you mean /{nearest}? "));
    let asked = super::headers::quoted(name.as_bytes());
    Problem::new(Outcome::NotFound, format!("no deployment or route {asked}; {hint}deployments: {}", known.join(", ")))
}

/// Edits from one name to the other; long strangers are not measured.
fn distance(known: &str, asked: &str) -> usize {
    const LONGEST: usize = 64;
    if asked.len() > LONGEST {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=asked.len()).collect();
    for (line, a) in known.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for (column, b) in asked.bytes().enumerate() {
            let cost = diagonal + usize::from(!a.eq_ignore_ascii_case(&b));
            diagonal = row[column + 1];
            row[column + 1] = cost.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[asked.len()]
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn names_are_compared_by_edits() {
        assert_eq!(distance("embedder", "embedder"), 0);
        assert_eq!(distance("embedder", "Embeder"), 1);
        assert_eq!(distance("embedder", ""), 8);
        assert_eq!(distance("a", &"b".repeat(65)), usize::MAX);
    }
}
