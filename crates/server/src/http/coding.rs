//! Compression of bodies, in both directions. What comes in is inflated up to the limit of a body, and not a byte beyond.

use super::headers::{quoted, single};
use super::held::Held;
use crate::call::{Chunks, Failure};
use crate::site::Site;
use bytes::Bytes;
use flate2::Compression;
use flate2::bufread::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use hyper::HeaderMap;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use jitney_core::metrics;
use jitney_core::outcome::Outcome;
use std::io::{Read, Write};
use std::time::Duration;

/// Inflated bytes between two looks at the limits.
const STEP: u64 = 64 * 1024;

/// How bytes are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    /// What HTTP calls deflate is zlib's format.
    Deflate,
}

impl Coding {
    /// That of this name, if it is one that is taken.
    pub(crate) fn parse(name: &[u8]) -> Option<Coding> {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        if is(b"gzip") || is(b"x-gzip") { Some(Coding::Gzip) } else { is(b"deflate").then_some(Coding::Deflate) }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Coding::Gzip => "gzip",
            Coding::Deflate => "deflate",
        }
    }
}

/// How a body is compressed.
pub(crate) fn of_body(headers: &HeaderMap) -> Result<Option<Coding>, Failure> {
    let Some(value) = single(headers, &CONTENT_ENCODING)? else { return Ok(None) };
    let name = value.as_bytes().trim_ascii();
    if name.is_empty() || name.eq_ignore_ascii_case(b"identity") {
        return Ok(None);
    }
    Coding::parse(name).map(Some).ok_or_else(|| {
        let detail = format!("content-encoding {} is not taken; use gzip, deflate or none", quoted(value.as_bytes()));
        Failure::new(Outcome::UnsupportedMediaType, detail)
    })
}

/// How the client would like the answer to be compressed: the first of what it likes best.
pub(crate) fn of_answer(headers: &HeaderMap) -> Option<Coding> {
    let mut best: Option<(f32, Coding)> = None;
    for value in headers.get_all(ACCEPT_ENCODING) {
        for piece in value.to_str().unwrap_or_default().split(',') {
            let (name, weight) = piece.split_once(';').unwrap_or((piece, "q=1"));
            let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.parse().ok()).unwrap_or(1.0);
            if let Some(coding) = Coding::parse(name.trim().as_bytes())
                && weight > best.map_or(0.0, |(most, _)| most)
            {
                best = Some((weight, coding));
            }
        }
    }
    best.map(|(_, coding)| coding)
}

/// What so many compressed bytes may become at the most, for whoever must know how much work they are.
pub(crate) fn most_inflated(packed: usize) -> usize {
    /// The best ratio that deflate reaches, of zeros.
    const RATIO: usize = 1032;
    packed.saturating_mul(RATIO)
}

/// The body as it was before it was compressed.
pub(crate) fn inflate(coding: Coding, mut body: Chunks, site: &Site) -> Result<Bytes, Failure> {
    let packed = body.contiguous().clone();
    let (inflated, rest) = match coding {
        Coding::Gzip => {
            let mut decoder = GzDecoder::new(&packed[..]);
            (read(&mut decoder, coding, site)?, decoder.into_inner())
        }
        Coding::Deflate => {
            let mut decoder = ZlibDecoder::new(&packed[..]);
            (read(&mut decoder, coding, site)?, decoder.into_inner())
        }
    };
    // gzip may go on with another member, which may hold nothing: half a million of them are ten megabytes that no limit
    // of what comes out would stop.
    if !rest.is_empty() {
        let detail = format!(
            "{} bytes follow the end of the body's {} data; compress it in one piece",
            rest.len(),
            coding.name()
        );
        return Err(Failure::new(Outcome::MalformedBody, detail));
    }
    Ok(inflated)
}

fn read(decoder: &mut impl Read, coding: Coding, site: &Site) -> Result<Bytes, Failure> {
    let (most, most_held) = (site.options.max_body_bytes, site.options.max_receiving_bytes);
    let mut held = Held::new(site.telemetry.gauge(metrics::RECEIVING_BYTES, &[]));
    let mut inflated = Vec::new();
    loop {
        let read = decoder.take(STEP).read_to_end(&mut inflated).map_err(|error| {
            let detail = format!("the body is not {} that can be read: {error}", coding.name());
            Failure::new(Outcome::MalformedBody, detail)
        })?;
        if read == 0 {
            return Ok(inflated.into());
        }
        if inflated.len() as u64 > most {
            let detail = format!(
                "inflated, the body has more than the {most} bytes that it may; send less, or raise max_body_bytes"
            );
            return Err(Failure::new(Outcome::TooLarge, detail));
        }
        if !held.grow(read, most_held) {
            let detail = format!(
                "bodies that are being received already hold the {most_held} bytes that they may; come back in a second"
            );
            let retry_after = Some(Duration::from_secs(1));
            return Err(Failure { retry_after, ..Failure::new(Outcome::QueueBytesFull, detail) });
        }
    }
}

/// Compressed for a network that is slower than this machine's cores.
pub(crate) fn compress(coding: Coding, data: &[u8]) -> Vec<u8> {
    let packed = match coding {
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(data).and_then(|()| encoder.finish())
        }
        Coding::Deflate => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(data).and_then(|()| encoder.finish())
        }
    };
    // A Vec takes every byte.
    packed.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;
    use proptest::prelude::*;

    #[test]
    fn a_bomb_is_refused_before_it_has_gone_off() {
        let site = Site::of_a_test(100_000);
        for coding in [Coding::Gzip, Coding::Deflate] {
            let bomb = compress(coding, &vec![0; 50_000_000]);
            assert!(bomb.len() < 300_000);
            let failure = inflate(coding, Bytes::from(bomb).into(), &site).unwrap_err();
            assert_eq!(failure.outcome, Outcome::TooLarge);
        }
        assert_eq!(site.telemetry.gauge(metrics::RECEIVING_BYTES, &[]).get(), 0);
    }

    #[test]
    fn nothing_may_follow_what_was_compressed() {
        let site = Site::of_a_test(100_000);
        for coding in [Coding::Gzip, Coding::Deflate] {
            let (whole, nothing) = (compress(coding, b"body"), compress(coding, b""));
            assert_eq!(&inflate(coding, Bytes::from(whole.clone()).into(), &site).unwrap()[..], b"body");
            assert!(inflate(coding, Bytes::from(nothing.clone()).into(), &site).unwrap().is_empty());
            for rest in [vec![0], nothing.repeat(100_000)] {
                let failure = inflate(coding, Bytes::from([&whole[..], &rest].concat()).into(), &site).unwrap_err();
                assert_eq!(failure.outcome, Outcome::MalformedBody);
                assert!(failure.detail.starts_with(&format!("{} bytes follow", rest.len())), "{}", failure.detail);
            }
        }
    }

    #[test]
    fn the_client_says_what_it_likes_best() {
        for (text, best) in [
            ("gzip, deflate", Some(Coding::Gzip)),
            ("deflate;q=0.9, gzip;q=0.1", Some(Coding::Deflate)),
            ("gzip;q=0", None),
            ("br, *", None),
            ("identity", None),
            ("", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(text));
            assert_eq!(of_answer(&headers), best, "{text}");
        }
    }

    proptest! {
        #[test]
        fn bodies_survive(data in prop::collection::vec(any::<u8>(), 0..300)) {
            let site = Site::of_a_test(300);
            for coding in [Coding::Gzip, Coding::Deflate] {
                prop_assert_eq!(&inflate(coding, Bytes::from(compress(coding, &data)).into(), &site).unwrap()[..], &data[..]);
                let _ = inflate(coding, Bytes::from(data.clone()).into(), &site);
            }
        }
    }
}
