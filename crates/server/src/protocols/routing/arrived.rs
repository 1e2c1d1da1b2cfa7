//! A request before its answer: which protocol it speaks, which deployment its path names, and how it ends if its client
//! leaves at once.

use crate::engine::catalogue::MANY;
use crate::engine::deployment::Deployment;
use crate::engine::server_state::ServerState;
use crate::protocols::reply::payload::span::{Followers, ServerSpan};
use crate::protocols::reply::request_id::RequestId;
use crate::protocols::routing::protocol::Protocol;
use crate::protocols::{grpc, open_inference};
use crate::values::text::decoded;
use hyper::http::request::Parts;
use jitney_core::tables::outcome::Outcome;
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

/// A request whose head has been read. If its client leaves before anything asks for the answer, nothing else knows of
/// it: then this counts it as cancelled, and says in the access log which request it was.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) state: Arc<ServerState>,
    pub(super) head: Parts,
    /// Its line in the access log and its span, if it has these, until the answer takes them.
    pub(super) followers: Followers,
    has_begun: bool,
}

impl Arrived {
    /// Of a client at this address.
    pub(super) fn new(state: Arc<ServerState>, head: Parts, client: Option<IpAddr>) -> Arrived {
        let line = state.access_log.as_ref().and_then(|log| log.begin(client));
        Arrived { state, head, followers: Followers { line, span: None }, has_begun: false }
    }

    /// Finds out what it is. From here on its answer counts it.
    pub(super) fn begin(&mut self) -> (Protocol, RequestId) {
        self.has_begun = true;
        let Arrived { state, head, followers, .. } = self;
        let id = RequestId::of(&head.headers);
        let protocol = Protocol::of(
            head,
            |name| state.catalogue().is_none_or(|catalogue| catalogue.get(name).is_some()),
            |path| state.catalogue().is_some_and(|catalogue| catalogue.is_own_path(path)),
        );
        if let Some(line) = &mut followers.line {
            let deployment = named(state, head, protocol);
            line.describe(&id.text(), protocol.name(), deployment.as_ref().map(|found| &*found.manifest.name));
            line.set_route(head.method.as_str(), head.uri.path());
        }
        // In a gRPC stream each message is one request.
        let is_request = |path: &str| protocol.is_call(&head.method, path) && !grpc::routes::is_stream(path);
        if let Some(traces) = state.traces.as_ref().filter(|_| is_request(head.uri.path())) {
            let is_encrypted = state.options.tls_cert.is_some();
            followers.span = ServerSpan::begin(traces, head, &id, protocol.name(), is_encrypted);
        }
        (protocol, id)
    }
}

impl Drop for Arrived {
    fn drop(&mut self) {
        if self.has_begun {
            return;
        }
        let (protocol, _) = self.begin();
        let Arrived { state, head, .. } = self;
        if protocol.is_call(&head.method, head.uri.path()) {
            let deployment = named(state, head, protocol);
            drop(state.counts(deployment.as_deref()).refuse(Outcome::Cancelled));
        }
    }
}

/// How many items a route takes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    One,
    Many,
}

/// The deployment that a path names, and which of its routes.
pub(super) fn called(state: &ServerState, head: &Parts) -> Option<(Arc<Deployment>, Shape)> {
    let name = name(head)?;
    match name.strip_suffix(MANY) {
        Some(name) => Some((state.called_at(name)?, Shape::Many)),
        None => Some((state.called_at(&name)?, Shape::One)),
    }
}

/// The deployment that the path of a call names.
pub(super) fn named(state: &ServerState, head: &Parts, protocol: Protocol) -> Option<Arc<Deployment>> {
    match protocol {
        Protocol::Native => called(state, head).map(|(deployment, _)| deployment),
        Protocol::OpenInference => open_inference::routes::deployment(state, head.uri.path()),
        // Their messages name it.
        Protocol::OpenAi | Protocol::Grpc => None,
    }
}

/// The path without its slash.
pub(super) fn name(head: &Parts) -> Option<Cow<'_, str>> {
    let path = head.uri.path();
    decoded(path.strip_prefix('/').unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::telemetry::Telemetry;
    use hyper::{Method, Request};
    use jitney_core::config::options::ServerOptions;

    #[test]
    fn a_call_is_counted_if_its_answer_was_never_begun() {
        let state = Arc::new(ServerState::new(ServerOptions::for_test(), Arc::new(Telemetry::new())));
        let arrived = |method: Method, path: &str| {
            let request = Request::builder().method(method).uri(path).body(()).unwrap();
            Arrived::new(state.clone(), request.into_parts().0, None)
        };
        let mut begun = arrived(Method::POST, "/a");
        begun.begin();
        drop(begun);
        drop(arrived(Method::GET, "/a"));
        drop(arrived(Method::POST, "/livez"));
        let cancelled = |count| format!("{{deployment=\"(unknown)\",outcome=\"cancelled\"}} {count}\n");
        assert!(state.telemetry.text().contains(&cancelled(0)), "{}", state.telemetry.text());
        drop(arrived(Method::POST, "/a"));
        drop(arrived(Method::POST, "/v2/models/a/infer"));
        assert!(state.telemetry.text().contains(&cancelled(2)), "{}", state.telemetry.text());
    }
}
