//! Answers that are compressed, because their client takes that and because it is worth the work.

use crate::base::offload;
use crate::protocols::reply::payload::Reply;
use crate::protocols::request::compression;
use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderValue, VARY};

/// Pages such as `/metrics` are compressed from this size on. A shorter one fits into a packet.
const PAGE_BYTES: usize = 1024;
/// Compressing a byte takes about as long as parsing or writing so many bytes of JSON.
const WORK: usize = 2;

/// Whether an answer may be compressed at all: a cheap look that most answers do not pass. A stream never does.
/// `least` is `compress_from_bytes`.
pub(crate) fn may_be(reply: &Reply, headers: &HeaderMap, least: u64) -> bool {
    reply.body().len().is_some_and(|bytes| bytes >= least_of(reply, least)) && headers.contains_key(ACCEPT_ENCODING)
}

/// The size from which on this answer is compressed.
fn least_of(reply: &Reply, least: u64) -> usize {
    match (reply.body().outcome(), usize::try_from(least)) {
        (None, _) => PAGE_BYTES,
        (Some(_), Ok(least @ 1..)) => least,
        (Some(_), _) => usize::MAX,
    }
}

/// Compresses an answer if it is text, and if its client takes that. Long ones are compressed where that delays no other request.
pub(crate) async fn pack(reply: &mut Reply, headers: &HeaderMap) {
    if !is_text(reply.headers()) || is_final(reply.headers()) {
        return;
    }
    let Some(data) = reply.body().whole().cloned() else { return };
    // A cache must not give the compressed answer to another client.
    reply.headers_mut().append(VARY, HeaderValue::from_static("accept-encoding"));
    let Some(coding) = compression::of_answer(headers) else { return };
    let packed = offload::run(data.len().saturating_mul(WORK), || compression::compress(coding, &data)).await;
    if packed.len() < data.len() {
        reply.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
        reply.body_mut().replace(Bytes::from(packed));
        weaken_tag(reply.headers_mut());
    }
}

/// Whether a model has said that these bytes must arrive unchanged.
fn is_final(headers: &HeaderMap) -> bool {
    const DIGESTS: [&str; 4] = ["content-md5", "content-digest", "repr-digest", "digest"];
    let is_fixed = |value: &HeaderValue| {
        value.as_bytes().split(|&byte| byte == b',').any(|one| one.trim_ascii().eq_ignore_ascii_case(b"no-transform"))
    };
    headers.contains_key(CONTENT_ENCODING)
        || DIGESTS.iter().any(|name| headers.contains_key(*name))
        || headers.get_all(CACHE_CONTROL).iter().any(is_fixed)
}

/// A strong tag stands for the same bytes, and those have changed.
fn weaken_tag(headers: &mut HeaderMap) {
    let tag = headers.get(ETAG).filter(|tag| tag.as_bytes().starts_with(b"\""));
    let weak = tag.and_then(|tag| HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()).ok());
    weak.into_iter().for_each(|weak| drop(headers.insert(ETAG, weak)));
}

/// Whether this is text or JSON: images are compressed already, and numbers as bytes gain little.
fn is_text(headers: &HeaderMap) -> bool {
    let media = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let media = media.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
    let is_json = media == b"application/json" || media.ends_with(b"+json");
    is_json || media.starts_with(b"text/") || media == b"application/openmetrics-text"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocols::native::pages;
    use std::io::Read;

    fn asking(coding: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(coding))])
    }

    async fn packed(mut reply: Reply, coding: &'static str) -> Reply {
        let headers = asking(coding);
        if may_be(&reply, &headers, 0) {
            pack(&mut reply, &headers).await;
        }
        reply
    }

    #[tokio::test]
    async fn bytes_that_must_not_change_stay_and_tags_become_weak() {
        let page = |name: &'static str, value: &'static str| {
            let mut reply = pages::reply("text/plain", "words ".repeat(1000).into_bytes());
            reply.headers_mut().insert(name, HeaderValue::from_static(value));
            reply
        };
        for (name, value) in [("cache-control", "private, No-Transform"), ("content-md5", "x"), ("repr-digest", "x")] {
            let sent = packed(page(name, value), "gzip").await;
            assert!(!sent.headers().contains_key(CONTENT_ENCODING), "{name}");
        }
        for (tag, weak) in [("\"one\"", "W/\"one\""), ("W/\"one\"", "W/\"one\"")] {
            assert_eq!(packed(page("etag", tag), "gzip").await.headers()[ETAG], weak);
        }
        assert!(!packed(page("x", "y"), "gzip;Q=0").await.headers().contains_key(CONTENT_ENCODING));
    }

    #[tokio::test]
    async fn a_page_comes_back_as_it_was() {
        let text = "jitney_requests_total 1\n".repeat(1000);
        let reply = packed(pages::reply("text/plain; version=0.0.4", text.clone().into_bytes()), "gzip").await;
        assert_eq!(reply.headers()[CONTENT_ENCODING], "gzip");
        assert_eq!(reply.headers()[VARY], "accept-encoding");
        let packed = reply.body().whole().unwrap();
        assert!(packed.len() < text.len() / 20, "{}", packed.len());
        let mut inflated = String::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut inflated).unwrap();
        assert_eq!(inflated, text);
    }

    #[tokio::test]
    async fn what_gains_nothing_is_left_alone() {
        let long = || vec![b'a'; 10_000];
        for (media, body, coding) in [
            ("text/plain", vec![b'a'; PAGE_BYTES - 1], "gzip"),
            ("text/plain", long(), "br"),
            ("text/plain", long(), "gzip;q=0"),
            ("image/png", long(), "gzip"),
            ("application/grpc", long(), "gzip"),
            ("application/octet-stream", long(), "gzip"),
        ] {
            let length = body.len();
            let reply = packed(pages::reply(media, body), coding).await;
            assert_eq!(reply.headers().get(CONTENT_ENCODING), None, "{media} {coding}");
            assert_eq!(reply.body().len(), Some(length), "{media} {coding}");
        }
        let mut reply = pages::reply("application/json", long());
        reply.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("zstd"));
        assert_eq!(packed(reply, "gzip").await.body().len(), Some(10_000), "its author has compressed it");
    }
}
