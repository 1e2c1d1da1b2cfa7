//! Media types: what a body says it is, and which answers a client takes.

use super::headers::{quoted, single};
use crate::call::Failure;
use hyper::HeaderMap;
use hyper::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, TRANSFER_ENCODING};
use jitney_core::outcome::Outcome;
use smallvec::SmallVec;

/// What a body says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyType {
    /// Nothing, or the form type that curl sends with `-d` unasked: the deployment's natural type is meant.
    Unsaid,
    Json,
    Text,
    Msgpack,
    Npy,
    Octets,
    Image,
    /// multipart/form-data
    Form,
    Other,
}

/// The type of a request's body; `text` needs an encoding that is UTF-8.
pub(crate) fn body_type(headers: &HeaderMap) -> Result<BodyType, Failure> {
    let Some(value) = single(headers, &CONTENT_TYPE)? else { return Ok(BodyType::Unsaid) };
    let unsupported = |what: &str| {
        Failure::new(Outcome::UnsupportedMediaType, format!("content-type {} {what}", quoted(value.as_bytes())))
    };
    let text =
        value.to_str().map_err(|_| unsupported("is not readable text; write a media type such as application/json"))?;
    let mut pieces = text.split(';');
    let essence = pieces.next().unwrap_or_default().trim();
    if essence.is_empty() {
        return Ok(BodyType::Unsaid);
    }
    let kind = classify(essence);
    if matches!(kind, BodyType::Text | BodyType::Json) {
        for parameter in pieces {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let charset = value.trim().trim_matches('"');
            if name.trim().eq_ignore_ascii_case("charset")
                && !["utf-8", "utf8", "us-ascii"].iter().any(|known| charset.eq_ignore_ascii_case(known))
            {
                return Err(unsupported("is not UTF-8; encode the body as UTF-8"));
            }
        }
    }
    Ok(kind)
}

fn classify(essence: &str) -> BodyType {
    let is = |name: &str| essence.eq_ignore_ascii_case(name);
    let has = |prefix: &str| essence.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    let ends = |suffix: &str| {
        essence.len() > suffix.len()
            && essence.get(essence.len() - suffix.len()..).is_some_and(|end| end.eq_ignore_ascii_case(suffix))
    };
    if is("application/json") || ends("+json") {
        BodyType::Json
    } else if is("text/plain") {
        BodyType::Text
    } else if is("application/msgpack") || is("application/x-msgpack") || is("application/vnd.msgpack") {
        BodyType::Msgpack
    } else if is("application/octet-stream") {
        BodyType::Octets
    } else if is("application/x-npy") || is("application/npy") {
        BodyType::Npy
    } else if is("application/x-www-form-urlencoded") {
        BodyType::Unsaid
    } else if is("multipart/form-data") {
        BodyType::Form
    } else if has("image/") {
        BodyType::Image
    } else {
        BodyType::Other
    }
}

/// Refuses bodies that would have to be inflated: none is, so none can be a bomb.
///
/// Of transfer codings hyper refuses those whose last is not `chunked`, and undoes only that one; what stands before it
/// is left to us. A `content-length` beside a `transfer-encoding` cannot be seen here: hyper drops it before, reads the
/// body as chunked, and ends the connection after the answer, as RFC 9112 (6.3) has it.
pub(crate) fn check_encoding(headers: &HeaderMap) -> Result<(), Failure> {
    for (name, plain) in [(CONTENT_ENCODING, "identity"), (TRANSFER_ENCODING, "chunked")] {
        let value = single(headers, &name)?;
        if let Some(coded) = value.filter(|value| !value.as_bytes().eq_ignore_ascii_case(plain.as_bytes())) {
            let coded = quoted(coded.as_bytes());
            let detail = format!("{name} {coded} is not taken; send the body without compression");
            return Err(Failure::new(Outcome::UnsupportedMediaType, detail));
        }
    }
    Ok(())
}

/// What a client takes. Empty: anything.
#[derive(Debug, Default)]
pub(crate) struct Accept {
    ranges: SmallVec<[Range; 4]>,
}

#[derive(Debug)]
struct Range {
    media: Box<str>,
    /// How much of the type it names: 0 `*/*`, 1 `type/*`, 2 `type/subtype`.
    precision: u8,
    /// In thousandths.
    quality: u16,
}

impl Accept {
    /// From the headers. What cannot be parsed is taken for "anything": an answer in the default type helps more than none.
    pub(crate) fn of(headers: &HeaderMap) -> Accept {
        let mut accept = Accept::default();
        if headers.get_all(ACCEPT).iter().all(|value| value == "*/*") {
            return accept;
        }
        for value in headers.get_all(ACCEPT) {
            match parse_ranges(value) {
                Some(ranges) => accept.ranges.extend(ranges),
                None => return Accept::default(),
            }
        }
        accept
    }

    /// How welcome a type is, 0 to 1000: the most precise range that covers it decides.
    pub(crate) fn quality(&self, media: &str) -> u16 {
        if self.ranges.is_empty() {
            return 1000;
        }
        let covering = self.ranges.iter().filter(|range| range.covers(media));
        covering.max_by_key(|range| (range.precision, range.quality)).map_or(0, |range| range.quality)
    }

    /// The most welcome of these; the first among equals.
    pub(crate) fn best<'a>(&self, offers: &[&'a str]) -> Option<&'a str> {
        let mut best = None;
        for &offer in offers {
            let quality = self.quality(offer);
            if quality > 0 && best.is_none_or(|(most, _)| quality > most) {
                best = Some((quality, offer));
            }
        }
        best.map(|(_, offer)| offer)
    }

    /// As the client wrote it, roughly; for messages.
    pub(crate) fn text(&self) -> String {
        let names: Vec<&str> = self.ranges.iter().map(|range| &*range.media).collect();
        quoted(names.join(", ").as_bytes())
    }
}

impl Range {
    fn covers(&self, media: &str) -> bool {
        match self.precision {
            0 => true,
            // `image/*`: compared with its slash.
            1 => media
                .get(..self.media.len() - 1)
                .is_some_and(|start| start.eq_ignore_ascii_case(&self.media[..self.media.len() - 1])),
            _ => media.eq_ignore_ascii_case(&self.media),
        }
    }
}

fn parse_ranges(value: &HeaderValue) -> Option<SmallVec<[Range; 4]>> {
    let mut ranges = SmallVec::new();
    for piece in value.to_str().ok()?.split(',') {
        let mut parameters = piece.split(';');
        let media = parameters.next()?.trim();
        if media.is_empty() {
            continue;
        }
        let (kind, subtype) = media.split_once('/')?;
        if kind.is_empty() || subtype.is_empty() || media.contains(char::is_whitespace) {
            return None;
        }
        let mut quality = 1000;
        for parameter in parameters {
            if let Some(("q" | "Q", weight)) =
                parameter.split_once('=').map(|(name, weight)| (name.trim(), weight.trim()))
            {
                let weight: f32 = weight.parse().ok().filter(|weight| (0.0..=1.0).contains(weight))?;
                quality = (weight * 1000.0).round() as u16;
            }
        }
        let precision = match (kind, subtype) {
            ("*", "*") => 0,
            ("*", _) => return None,
            (_, "*") => 1,
            _ => 2,
        };
        // msgpack has three names; offers use the registered one.
        let media = if classify(media) == BodyType::Msgpack { "application/msgpack" } else { media };
        ranges.push(Range { media: media.into(), precision, quality });
    }
    Some(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn accept(text: &str) -> Accept {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_str(text).unwrap());
        Accept::of(&headers)
    }

    #[test]
    fn the_most_welcome_wins() {
        const OFFERS: &[&str] = &["application/json", "application/x-npy", "application/msgpack"];
        for (text, best) in [
            ("*/*", Some("application/json")),
            ("application/*", Some("application/json")),
            ("application/x-npy", Some("application/x-npy")),
            ("application/json;q=0.5, application/x-npy", Some("application/x-npy")),
            ("application/json;q=0, */*;q=0.1", Some("application/x-npy")),
            ("application/x-msgpack", Some("application/msgpack")),
            ("APPLICATION/JSON", Some("application/json")),
            ("text/html, image/*", None),
            ("*/*;q=0", None),
            ("nonsense", Some("application/json")),
            ("application/json;q=7", Some("application/json")),
            ("", Some("application/json")),
        ] {
            assert_eq!(accept(text).best(OFFERS), best, "{text}");
        }
    }

    #[test]
    fn lines_mean_what_they_would_on_one_line() {
        let mut headers = HeaderMap::new();
        headers.append(ACCEPT, HeaderValue::from_static("*/*"));
        headers.append(ACCEPT, HeaderValue::from_static("application/x-npy"));
        assert_eq!(Accept::of(&headers).best(&["application/json"]), Some("application/json"));
    }

    #[test]
    fn content_types_are_read_without_case_and_parameters() {
        for (text, kind) in [
            ("application/json", Some(BodyType::Json)),
            ("Application/JSON; charset=UTF-8", Some(BodyType::Json)),
            ("application/ld+json", Some(BodyType::Json)),
            ("text/plain; charset=\"utf-8\"", Some(BodyType::Text)),
            ("text/plain; charset=latin1", None),
            ("image/png; charset=latin1", Some(BodyType::Image)),
            ("application/x-www-form-urlencoded", Some(BodyType::Unsaid)),
            ("multipart/form-data; boundary=x", Some(BodyType::Form)),
            ("audio/wav", Some(BodyType::Other)),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(text));
            assert_eq!(body_type(&headers).ok(), kind, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_accept_header_is_too_strange(text in "[ -~]{0,60}") {
            let _ = accept(&text).best(&["application/json", "image/png"]);
        }
    }
}
