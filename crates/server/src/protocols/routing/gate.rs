//! What every request passes before its protocol answers it, whatever the protocol: where it comes from, and its key.

use crate::engine::server_state::ServerState;
use crate::protocols::native::pages;
use crate::protocols::reply::payload::Reply;
use crate::protocols::reply::problem::Problem;
use crate::protocols::request::api_key;
use crate::protocols::routing::cors::Origins;
use crate::protocols::routing::origin;
use crate::protocols::routing::protocol::Protocol;
use hyper::http::request::Parts;

/// What the gate says of a request that it does not let through.
pub(crate) enum GateStop {
    /// All is said: a browser asked whether it may ask.
    Answered(Box<Reply>),
    /// It may not come in.
    Refused(Problem),
}

/// Lets a request through, or stops it. `own_host` is that of `origin::check`; `None` if all hosts are allowed.
pub(crate) fn pass(
    state: &ServerState,
    own_host: Option<&str>,
    protocol: Protocol,
    head: &Parts,
) -> Result<(), GateStop> {
    let origins = Origins(&state.options.cors_origin);
    origin::check_host(head.version, &head.headers).map_err(GateStop::Refused)?;
    if let Some(own) = own_host {
        origin::check(own, &head.uri, &head.headers, origins).map_err(GateStop::Refused)?;
    }
    if let Some(reply) = origins.preflight(head) {
        return Err(GateStop::Answered(Box::new(reply)));
    }
    // A browser is led from `/` to the live page, which asks for the key.
    let is_led_on = protocol == Protocol::Native && pages::is_browser_at_root(head);
    if is_led_on || protocol.is_open(head.uri.path(), &state.options) {
        return Ok(());
    }
    api_key::check(state, &head.headers).map_err(|failure| GateStop::Refused(failure.into()))
}
