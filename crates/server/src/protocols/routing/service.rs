//! From a request to the function that answers it: through the gate, to its protocol, and there by path and method.

use crate::base::refusal_pacing::is_refusal;
use crate::engine::catalogue::MANY;
use crate::engine::deployment::ticket::{OutcomeCounts, Ticket};
use crate::engine::server_state::ServerState;
use crate::protocols::connection::listen::{self, Listener};
use crate::protocols::connection::services::Services;
use crate::protocols::connection::socket::{Active, Activity};
use crate::protocols::connection::upload::Upload;
use crate::protocols::exchange::Exchange;
use crate::protocols::native::live;
use crate::protocols::native::many::Many;
use crate::protocols::native::one::One;
use crate::protocols::native::pages;
use crate::protocols::openapi::document;
use crate::protocols::reply::payload::Reply;
use crate::protocols::reply::payload::ReplyBody;
use crate::protocols::reply::payload::span::Followers;
use crate::protocols::reply::problem::Problem;
use crate::protocols::routing::arrived::{Arrived, Shape, called, name, named};
use crate::protocols::routing::cors::Origins;
use crate::protocols::routing::gate;
use crate::protocols::routing::gate::GateStop;
use crate::protocols::routing::packed;
use crate::protocols::routing::protocol::Protocol;
use crate::protocols::{grpc, open_inference, openai};
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_LENGTH, HeaderValue, ORIGIN};
use hyper::http::request::Parts;
use hyper::{Method, Request, Version};
use jitney_core::tables::outcome::Outcome;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::watch;

/// The routes, for one connection.
#[derive(Debug)]
pub(crate) struct Service {
    state: Arc<ServerState>,
    /// See `origin::check`; `None` if requests may name any host.
    own_host: Option<Arc<str>>,
    activity: Arc<Activity>,
}

/// Serves all HTTP routes on these listeners, as `listen::serve` does.
pub async fn serve(listeners: Vec<Listener>, state: Arc<ServerState>, stop_accepting: watch::Receiver<bool>) {
    listen::serve(listeners, state.clone(), Routes(state), stop_accepting).await;
}

/// The routes of a server: a `Service` for each connection.
#[derive(Clone, Debug)]
struct Routes(Arc<ServerState>);

impl Services for Routes {
    type Body = ReplyBody;
    type Service = Service;

    fn of_connection(&self, own_host: Option<Arc<str>>, activity: Arc<Activity>) -> Service {
        Service { state: self.0.clone(), own_host, activity }
    }
}

impl hyper::service::Service<Request<Incoming>> for Service {
    type Response = Reply;
    type Error = Infallible;
    // Boxed: an idle connection then keeps a pointer, not the room of the largest request.
    type Future = Pin<Box<dyn Future<Output = Result<Reply, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let activity = self.activity.clone();
        let active = self.activity.begin();
        let own_host = self.own_host.clone();
        let (head, body) = request.into_parts();
        let http2 = head.version == Version::HTTP_2;
        let stream = http2.then(|| activity.opened.open(&activity.ledger.untaken));
        let mut body = Upload::new(body, http2, activity.ledger.received.clone());
        let mut arrived = Arrived::new(self.state.clone(), head, activity.ledger.peer);
        if let Some(line) = &arrived.followers.line {
            body.count_in(line.request_bytes());
        }
        Box::pin(async move {
            let mut reply = answer(&mut arrived, own_host.as_deref(), &mut body, &active).await;
            let state = &arrived.state;
            if reply.body().outcome().is_some_and(is_refusal) {
                state.refusing.turn().await;
            }
            if reply.headers().contains_key(CONNECTION) {
                // HTTP/2 has no such header: there only the stream ends.
                if http2 {
                    reply.headers_mut().remove(CONNECTION);
                } else {
                    active.leave_unread();
                }
            }
            if arrived.followers.line.is_some() || arrived.followers.span.is_some() {
                follow(std::mem::take(&mut arrived.followers), &mut reply);
            }
            reply.body_mut().hand_over(active, &arrived.state, &activity, stream);
            Ok(reply)
        })
    }
}

const READ: &str = "GET, HEAD";
/// Behind this stands the id of a request or of a trace. No deployment can be called so: its path has one part, or is a route that its author chose.
const TRACE: &str = "trace/";

/// Says how a request ended to what follows it.
fn follow(followers: Followers, reply: &mut Reply) {
    // Not every answer with a reason is counted as one of a call.
    let reason = reply.headers().get("x-jitney-reason").and_then(|reason| reason.to_str().ok());
    let (outcome, status) = (reason.and_then(Outcome::from_reason), reply.status().as_u16());
    reply.body_mut().follow_with(followers, outcome, status);
}

/// The answer to one request, whatever its protocol.
async fn answer(arrived: &mut Arrived, own_host: Option<&str>, body: &mut Upload, active: &Active) -> Reply {
    let (protocol, id) = arrived.begin();
    let Arrived { state, head, followers, .. } = &*arrived;
    let note = followers.span.as_ref().map(|span| span.note());
    let exchange = Exchange { state, head, id: &id, note, active };
    let mut reply = if let Err(stop) = gate::pass(state, own_host, protocol, head) {
        stopped(exchange, protocol, stop, body)
    } else {
        dispatch(exchange, protocol, body).await
    };
    state.http_requests.count(protocol.name(), reply.status());
    if packed::may_be(&reply, &head.headers, state.options.compress_from_bytes) {
        Box::pin(packed::pack(&mut reply, &head.headers)).await;
    }
    // The one place for all protocols: an answer that is made elsewhere comes through here too.
    let (timing, first_part) = (reply.body().timing(), reply.body().first_part());
    id.write_headers(reply.headers_mut(), &first_part.unwrap_or(timing), first_part.is_some());
    Origins(&state.options.cors_origin).let_read(head.headers.get(ORIGIN), reply.headers_mut());
    if let (true, Some(length)) = (head.method == Method::HEAD, reply.body().len()) {
        *reply.body_mut() = ReplyBody::from(Bytes::new());
        reply.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    reply
}

/// The answer to a request that did not pass the gate.
fn stopped(exchange: Exchange<'_>, protocol: Protocol, stop: GateStop, body: &Upload) -> Reply {
    let problem = match stop {
        GateStop::Answered(reply) => return *reply,
        GateStop::Refused(problem) => problem,
    };
    let deployment = named(exchange.state, exchange.head, protocol);
    refusal(exchange, protocol, problem.instead_of(body), exchange.state.counts(deployment.as_deref()))
}

/// Each protocol answers for itself. A problem that it returns takes the protocol's form here.
async fn dispatch(exchange: Exchange<'_>, protocol: Protocol, body: &mut Upload) -> Reply {
    let result = match protocol {
        Protocol::Native => route(exchange, body).await,
        // On the heap: what they need should not make the future of every request larger.
        Protocol::OpenAi => Box::pin(openai::routes::answer(exchange, body)).await,
        Protocol::OpenInference => Box::pin(open_inference::routes::answer(exchange, body)).await,
        Protocol::Grpc => Box::pin(grpc::routes::answer(exchange, body)).await,
    };
    // The exchange counts what it begins. It did not begin this one: its deployment is not there, or not known yet.
    result.unwrap_or_else(|problem| refusal(exchange, protocol, problem, &exchange.state.unknown))
}

/// A problem as an answer, counted if it was a call.
fn refusal(exchange: Exchange<'_>, protocol: Protocol, problem: Problem, counts: &Arc<OutcomeCounts>) -> Reply {
    let Parts { method, uri, .. } = exchange.head;
    let ticket = protocol.is_call(method, uri.path()).then(|| counts.refuse(problem.outcome()));
    let name = ticket.as_ref().and_then(Ticket::deployment);
    let mut reply = problem.reply(name, protocol.form(), exchange.id);
    ticket.into_iter().for_each(|ticket| reply.body_mut().count_with(ticket));
    reply
}

/// jitney's own routes.
async fn route(exchange: Exchange<'_>, body: &mut Upload) -> Result<Reply, Problem> {
    let Exchange { state, head, id, .. } = exchange;
    let headers = &head.headers;
    match called(state, head) {
        Some((deployment, Shape::One)) if head.method == Method::POST => {
            let has_chunks = head.version > Version::HTTP_10;
            Ok(exchange.answer(&One { state, deployment, headers, has_chunks }, body).await)
        }
        Some((deployment, Shape::Many)) if head.method == Method::POST => {
            Ok(Box::pin(exchange.answer(&Many { state, deployment, headers, id }, body)).await)
        }
        _ => Box::pin(page(state, head)).await.map_err(|problem| problem.instead_of(body)),
    }
}

/// Everything but calls.
async fn page(state: &ServerState, head: &Parts) -> Result<Reply, Problem> {
    let Some(name) = name(head) else {
        return Err(not_a_page(state, head, head.uri.path().trim_start_matches('/')));
    };
    let is_read = head.method == Method::GET || head.method == Method::HEAD;
    let reply = match &*name {
        // `OPTIONS *` asks about the server as a whole. Monitors use it to check that the server is up.
        "*" if head.method == Method::OPTIONS => pages::options(),
        "" | "livez" | "readyz" | "metrics" | "config" | "docs" | "live" | "live/events" | "openapi.json"
            if !is_read =>
        {
            return Err(Problem::wrong_method(head, READ));
        }
        "" => pages::index(state, &head.headers),
        "livez" => pages::livez(),
        "readyz" => pages::readyz(state),
        "metrics" => pages::metrics(state, &head.headers).await,
        "config" => pages::config(state).await,
        "docs" => pages::docs(),
        "live" => pages::live(),
        "live/events" => live::events::events(state, &head.headers).await,
        "openapi.json" => document::page(state),
        name if is_read && name.starts_with(TRACE) => return pages::trace(state, &name[TRACE.len()..]).await,
        name => return Err(not_a_page(state, head, name)),
    };
    Ok(reply)
}

fn not_a_page(state: &ServerState, head: &Parts, name: &str) -> Problem {
    let Some(catalogue) = state.catalogue() else {
        return state.loading("/readyz says when they are there").into();
    };
    if catalogue.at(name.strip_suffix(MANY).unwrap_or(name)).is_some() {
        return Problem::wrong_method(head, "POST");
    }
    let known: Vec<&str> = catalogue.names().collect();
    let hint = match catalogue.nearest(name, &[]) {
        _ if is_probe(name) => "did you mean /livez or /readyz? ".to_owned(),
        Some(nearest) => format!("did you mean /{nearest}? "),
        None => String::new(),
    };
    let asked = crate::protocols::request::headers::quoted(name.as_bytes());
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

#[cfg(test)]
mod tests {
    use super::is_probe;

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
}
