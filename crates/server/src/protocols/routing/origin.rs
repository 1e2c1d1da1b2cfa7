//! Whom a server that listens on loopback only serves. A browser on the same machine reaches it too, and any page can make
//! it: by posting to it, or by giving its own name our address. Such requests name another host, or come from one.

use crate::protocols::reply::problem::Problem;
use crate::protocols::request::headers::quoted;
use crate::protocols::routing::cors::Origins;
use hyper::header::{HOST, HeaderMap, HeaderValue, ORIGIN};
use hyper::http::{Uri, Version};
use jitney_core::tables::outcome::Outcome;
use std::net::IpAddr;

/// Refuses a request that names several hosts, and a request of HTTP/1.1 that names none (RFC 9112, 3.2). A proxy in
/// front of the server may have read another host than the server would.
pub(crate) fn check_host(version: Version, headers: &HeaderMap) -> Result<(), Problem> {
    let detail = match headers.get_all(HOST).iter().count() {
        0 if version == Version::HTTP_11 => "the request has no Host header; send one, such as `Host: localhost`",
        0 | 1 => return Ok(()),
        _ => "the request has several Host headers; send one",
    };
    Err(Problem::new(Outcome::InvalidRequest, detail))
}

/// Refuses what was meant for another host, or comes from a page of another that was not allowed by name. `own` is the
/// host that was bound.
pub(crate) fn check(own: &str, uri: &Uri, headers: &HeaderMap, allowed: Origins<'_>) -> Result<(), Problem> {
    // A request without a host does not come from a browser. A host that is an IP address is safe: no other page can
    // give its name to that address.
    let hosts = headers.get_all(HOST).iter().map(HeaderValue::as_bytes);
    for host in hosts.chain(uri.authority().map(|authority| authority.as_str().as_bytes())) {
        let name = name(host);
        if name != Some(own) && !name.is_some_and(|name| is_local(name) || address(name).is_some()) {
            return refuse(format!(
                "the request is meant for the host {}, and this server listens for this machine only; use localhost or \
                 127.0.0.1; a proxy must rewrite the header (nginx: `proxy_set_header Host localhost;`), or start the \
                 server with --allow-unauthenticated",
                quoted(host)
            ));
        }
    }
    for origin in headers.get_all(ORIGIN).iter().filter(|origin| !allowed.allow(origin)) {
        let name = origin.to_str().ok().and_then(|origin| name(origin.split_once("://")?.1.as_bytes()));
        if name != Some(own)
            && !name.is_some_and(|name| is_local(name) || address(name).is_some_and(|ip| ip.is_loopback()))
        {
            return refuse(format!(
                "the request comes from a page of {}, and this server answers pages of this machine only; allow that \
                 page's origin with --cors-origin; a proxy that answers for it must rewrite the header (nginx: \
                 `proxy_set_header Origin \"\";`)",
                quoted(origin.as_bytes())
            ));
        }
    }
    Ok(())
}

fn refuse(detail: String) -> Result<(), Problem> {
    Err(Problem::new(Outcome::ForeignHost, detail))
}

/// Without its port.
fn name(host: &[u8]) -> Option<&str> {
    let host = std::str::from_utf8(host).ok()?;
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => Some(name),
        _ => Some(host),
    }
}

fn is_local(name: &str) -> bool {
    const LOCAL: &str = "localhost";
    let name = name.strip_suffix('.').unwrap_or(name);
    let Some(start) = name.len().checked_sub(LOCAL.len()) else { return false };
    let end = name.as_bytes()[start..].eq_ignore_ascii_case(LOCAL.as_bytes());
    end && (start == 0 || name.as_bytes()[start - 1] == b'.')
}

fn address(name: &str) -> Option<IpAddr> {
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    bare.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(host: Option<&str>, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in [(HOST, host), (ORIGIN, origin)] {
            headers.extend(value.map(|value| (name, HeaderValue::from_str(value).unwrap())));
        }
        check("box.local", &Uri::from_static("/text"), &headers, Origins(&[])).is_ok()
    }

    #[test]
    fn names_of_this_machine_are_served() {
        for host in [
            "localhost",
            "LocalHost:8000",
            "localhost.",
            "a.localhost:1",
            "127.0.0.1:8000",
            "[::1]:80",
            "10.1.2.3",
            "box.local:8000",
            "box.local",
        ] {
            assert!(passes(Some(host), None), "{host}");
        }
        assert!(passes(None, None));
        for host in [
            "",
            "x",
            "evil.example:8000",
            "notlocalhost",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "box",
            "a@x",
        ] {
            assert!(!passes(Some(host), None), "{host}");
        }
        assert!(
            check("box.local", &Uri::from_static("http://evil.example/"), &HeaderMap::new(), Origins(&[])).is_err()
        );
        assert!(
            check("box.local", &Uri::from_static("http://127.0.0.1:8000/"), &HeaderMap::new(), Origins(&[])).is_ok()
        );
    }

    #[test]
    fn pages_of_this_machine_may_send() {
        for origin in ["http://localhost:3000", "http://127.0.0.1:8000", "http://[::1]", "https://box.local:8000"] {
            assert!(passes(Some("127.0.0.1:8000"), Some(origin)), "{origin}");
        }
        for origin in
            ["null", "", "https://evil.example", "http://10.1.2.3", "http://localhost.evil.example:80", "file://"]
        {
            assert!(!passes(Some("127.0.0.1:8000"), Some(origin)), "{origin}");
        }
    }

    #[test]
    fn the_refusal_of_a_page_names_the_option_that_allows_it() {
        let allowed = ["https://app.example".to_owned()];
        let headers = HeaderMap::from_iter([(ORIGIN, HeaderValue::from_static("https://app.example"))]);
        let check = |allowed| check("localhost", &Uri::from_static("/text"), &headers, Origins(allowed));
        let problem = check(&[]).unwrap_err();
        let refused = problem.detail();
        assert!(refused.contains("--cors-origin") && !refused.contains("--allow-unauthenticated"), "{refused}");
        assert!(check(&allowed).is_ok());
    }
}
