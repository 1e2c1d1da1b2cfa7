//! What every request passes before its door answers it, whatever the protocol: where it comes from, and its key.

use super::cors::Origins;
use super::door::Door;
use super::origin;
use super::problem::Problem;
use super::service::Reply;
use crate::site::Site;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use jitney_core::outcome::Outcome;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// What the gate says of a request that it does not let through.
pub(crate) enum Stop {
    /// All is said: a browser asked whether it may ask.
    Answered(Box<Reply>),
    /// It may not come in.
    Refused(Problem),
}

/// Lets a request through or not. `own_host` as `origin::check` has it; `None` if everybody may come.
pub(crate) fn pass(site: &Site, own_host: Option<&str>, door: Door, head: &Parts) -> Result<(), Stop> {
    let origins = Origins(&site.options.cors_origin);
    if let Some(own) = own_host {
        origin::check(own, &head.uri, &head.headers, origins).map_err(Stop::Refused)?;
    }
    if let Some(reply) = origins.preflight(head) {
        return Err(Stop::Answered(Box::new(reply)));
    }
    match &site.keys {
        Some(keys) if !door.is_open(head.uri.path(), &site.options) => {
            let mut any = false;
            if presented(&head.headers).any(|key| {
                any = true;
                keys.allows(key)
            }) {
                return Ok(());
            }
            let what = if any { "the API key is not one of this server's" } else { "no API key was given" };
            let detail = format!("{what}; send one as `Authorization: Bearer KEY` or `x-api-key: KEY`");
            Err(Stop::Refused(Problem::new(Outcome::Unauthorized, detail)))
        }
        _ => Ok(()),
    }
}

/// The keys that a request carries, in either header.
fn presented(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    const SCHEME: usize = "Bearer ".len();
    let bearer = headers.get_all(AUTHORIZATION).iter().filter_map(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked(SCHEME)?;
        scheme.eq_ignore_ascii_case(b"Bearer ").then_some(key)
    });
    bearer.chain(headers.get_all(API_KEY).iter().map(HeaderValue::as_bytes)).map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_in_either_header() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            (AUTHORIZATION, "Bearer one"),
            (AUTHORIZATION, "bearer  two "),
            (AUTHORIZATION, "Basic three"),
            (AUTHORIZATION, "Bear"),
            (API_KEY, "four"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        let found: Vec<&[u8]> = presented(&headers).collect();
        assert_eq!(found, [&b"one"[..], b"two", b"four"]);
    }
}
