//! The API key of a request.

use crate::base::keys::Keys;
use crate::engine::server_state::ServerState;
use crate::values::answer::Failure;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use jitney_core::tables::outcome::Outcome;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Refuses a request without a key of this server, if the server asks for one.
pub(crate) fn check(state: &ServerState, headers: &HeaderMap) -> Result<(), Failure> {
    let Some(keys) = &state.keys else { return Ok(()) };
    if is_known(keys, headers) {
        return Ok(());
    }
    let what = if presented(headers).next().is_some() {
        "the API key is not one of this server's"
    } else {
        "no API key was given"
    };
    let detail = format!("{what}; send one as `Authorization: Bearer KEY` or `x-api-key: KEY`");
    Err(Failure::new(Outcome::Unauthorized, detail))
}

/// Whether a request carries one of these keys.
pub(crate) fn is_known(keys: &Keys, headers: &HeaderMap) -> bool {
    presented(headers).any(|key| keys.allows(key))
}

/// The name of the key that a request carries; empty without one.
pub(crate) fn name(keys: &Keys, headers: &HeaderMap) -> Box<str> {
    presented(headers).map(|key| keys.name_of(key)).find(|name| !name.is_empty()).unwrap_or_default()
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
