//! From a request to whoever answers it: through the gate, to its protocol's door, and in there by path and method.

use super::cors::Origins;
use super::door::Door;
use super::gate::{self, Stop};
use super::headers::RequestId;
use super::payload::Payload;
use super::problem::Problem;
use super::socket::{Active, Activity};
use super::upload::Upload;
use super::{batch, grpc, native, oip, openai, openapi, pages};
use crate::call::Timing;
use crate::deployment::Deployment;
use crate::site::Site;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue, ORIGIN};
use hyper::{Method, Request, Response, Version};
use jitney_core::outcome::Outcome;
use std::borrow::Cow;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// The reason of a failure, for programs.
pub(crate) const REASON: HeaderName = HeaderName::from_static("x-jitney-reason");

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
        let active = self.activity.begin();
        let own_host = self.own_host.clone();
        let http2 = request.version() == Version::HTTP_2;
        let request = request.map(|body| Upload::new(body, http2));
        Box::pin(async move {
            let mut reply = answer(&site, own_host.as_deref(), request, &active).await;
            if reply.headers().contains_key(REASON) {
                site.refusing.turn().await;
            }
            if reply.headers().contains_key(CONNECTION) {
                // HTTP/2 has no such header: there only the stream ends.
                if http2 {
                    reply.headers_mut().remove(CONNECTION);
                } else {
                    active.leave_unread();
                }
            }
            reply.body_mut().hand_over(active, &site, &activity);
            Ok(reply)
        })
    }
}

const READ: &str = "GET, HEAD";

/// The answer to one request, whatever its protocol.
async fn answer(site: &Arc<Site>, own_host: Option<&str>, request: Request<Upload>, active: &Active) -> Reply {
    let id = RequestId::of(request.headers());
    let door = Door::of(&request, |name| site.deployments().is_none_or(|deployments| deployments.contains_key(name)));
    let origin = request.headers().get(ORIGIN).cloned();
    let is_head = request.method() == Method::HEAD;
    let (head, body) = request.into_parts();
    let passed = gate::pass(site, own_host, door, &head);
    let request = Request::from_parts(head, body);
    let mut reply = match passed {
        Ok(()) => dispatch(site, door, request, &id, active).await,
        Err(Stop::Answered(mut reply)) => {
            id.stamp(reply.headers_mut(), &Timing::default());
            *reply
        }
        Err(Stop::Refused(problem)) => {
            if door == Door::Native && request.method() == Method::POST {
                called(site, &request).inspect(|(deployment, _)| deployment.count(problem.outcome()));
            }
            problem.instead_of(request.body()).reply(door, &id, &Timing::default())
        }
    };
    Origins(&site.options.cors_origin).stamp(origin.as_ref(), reply.headers_mut());
    if let (true, Some(length)) = (is_head, reply.body().len()) {
        *reply.body_mut() = Payload::from(Bytes::new());
        reply.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    reply
}

/// Each protocol answers for itself. A problem that it returns takes the protocol's form here.
async fn dispatch(site: &Arc<Site>, door: Door, request: Request<Upload>, id: &RequestId, active: &Active) -> Reply {
    let result = match door {
        Door::Native => route(site, request, id, active).await,
        // On the heap: what they need should not make the future of every request larger.
        Door::OpenAi => Box::pin(openai::answer(site, request, id, active)).await,
        Door::OpenInference => Box::pin(oip::answer(site, request, id, active)).await,
        Door::Grpc => Box::pin(grpc::answer(site, request, id, active)).await,
    };
    result.unwrap_or_else(|problem| problem.reply(door, id, &Timing::default()))
}

/// jitney's own routes.
async fn route(site: &Site, request: Request<Upload>, id: &RequestId, active: &Active) -> Result<Reply, Problem> {
    match (request.method() == Method::POST).then(|| called(site, &request)).flatten() {
        Some((deployment, Shape::One)) => return Ok(native::post(site, deployment, request, id, active).await),
        Some((deployment, Shape::Many)) => {
            return Ok(Box::pin(batch::post(site, deployment, request, id, active)).await);
        }
        None => {}
    }
    let mut reply = Box::pin(page(site, &request)).await.map_err(|problem| problem.instead_of(request.body()))?;
    id.stamp(reply.headers_mut(), &Timing::default());
    Ok(reply)
}

/// How many items a route takes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    One,
    Many,
}

/// What follows the name of a deployment in the route for many items; no name has a slash.
const MANY: &str = "/batch";

/// The deployment that a path names, and which of its routes.
fn called<'a>(site: &'a Site, request: &Request<Upload>) -> Option<(&'a Deployment, Shape)> {
    let (deployments, name) = (site.deployments()?, name(request)?);
    match name.strip_suffix(MANY) {
        Some(name) => Some((deployments.get(name)?, Shape::Many)),
        None => Some((deployments.get(&*name)?, Shape::One)),
    }
}

/// The path without its slash.
fn name(request: &Request<Upload>) -> Option<Cow<'_, str>> {
    let path = request.uri().path();
    decoded(path.strip_prefix('/').unwrap_or(path))
}

/// A path, or a piece of one, without its `%XX`; `None` if it is not text.
pub(crate) fn decoded(path: &str) -> Option<Cow<'_, str>> {
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
async fn page(site: &Site, request: &Request<Upload>) -> Result<Reply, Problem> {
    let Some(name) = name(request) else {
        return Err(not_a_page(site, request, request.uri().path().trim_start_matches('/')));
    };
    let is_read = request.method() == Method::GET || request.method() == Method::HEAD;
    let reply = match &*name {
        // Asked of the server as a whole, by those who look whether it is there.
        "*" if request.method() == Method::OPTIONS => pages::options(),
        "" | "livez" | "readyz" | "metrics" | "config" | "docs" | "openapi.json" if !is_read => {
            return Err(Problem::wrong_method(request, READ));
        }
        "" => pages::index(site, request),
        "livez" => pages::livez(),
        "readyz" => pages::readyz(site),
        "metrics" => pages::metrics(site).await,
        "config" => pages::config(site).await,
        "docs" => pages::docs(),
        "openapi.json" => openapi::page(site),
        name => return Err(not_a_page(site, request, name)),
    };
    Ok(reply)
}

fn not_a_page(site: &Site, request: &Request<Upload>, name: &str) -> Problem {
    let Some(deployments) = site.deployments() else {
        return site.loading("/readyz says when they are there").into();
    };
    if deployments.contains_key(name.strip_suffix(MANY).unwrap_or(name)) {
        return Problem::wrong_method(request, "POST");
    }
    let known: Vec<&str> = deployments.keys().map(String::as_str).collect();
    let nearest = known
        .iter()
        .map(|known| (distance(known, name), known))
        .filter(|(distance, _)| *distance <= 2 + name.len() / 4)
        .min();
    let hint = match nearest {
        _ if is_probe(name) => "did you mean /livez or /readyz? ".to_owned(),
        Some((_, nearest)) => format!("did you mean /{nearest}? "),
        None => String::new(),
    };
    let asked = super::headers::quoted(name.as_bytes());
    Problem::new(Outcome::NotFound, format!("no deployment or route {asked}; {hint}deployments: {}", known.join(", ")))
}

/// Whether this is what other servers call the routes that say whether they live and are ready.
fn is_probe(name: &str) -> bool {
    const WORDS: [&str; 12] = [
        "health",
        "healthz",
        "healthcheck",
        "healthy",
        "ping",
        "alive",
        "live",
        "livez",
        "liveness",
        "ready",
        "readyz",
        "readiness",
    ];
    name.split('/').any(|word| WORDS.contains(&&*word.replace(['-', '_'], "").to_ascii_lowercase()))
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
    use super::{distance, is_probe};

    #[test]
    fn probes_of_other_servers_are_known() {
        for name in [
            "health",
            "healthz",
            "ping",
            "ready",
            "health/live",
            "api/health",
            "health_check",
            "Health",
            "-/ready",
            "livez/",
        ] {
            assert!(is_probe(name), "{name}");
        }
        assert!(!is_probe("shopping") && !is_probe("health_risk") && !is_probe(""));
    }

    #[test]
    fn names_are_compared_by_edits() {
        assert_eq!(distance("embedder", "embedder"), 0);
        assert_eq!(distance("embedder", "Embeder"), 1);
        assert_eq!(distance("embedder", ""), 8);
        assert_eq!(distance("a", &"b".repeat(65)), usize::MAX);
    }
}
