//! Which types of answers a client takes.

use crate::values::text::quoted;
use hyper::HeaderMap;
use hyper::header::{ACCEPT, HeaderValue};
use smallvec::SmallVec;

/// Whether this is one of the three names of msgpack.
pub(crate) fn is_msgpack(media: &str) -> bool {
    let names = ["application/msgpack", "application/x-msgpack", "application/vnd.msgpack"];
    names.iter().any(|name| media.eq_ignore_ascii_case(name))
}

/// What a client takes. Empty: anything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accept {
    ranges: SmallVec<[Range; 4]>,
}

#[derive(Clone, Debug)]
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

    /// The highest quality of a type that the client names and that is none of these.
    pub(crate) fn quality_of_others(&self, offers: &[&str]) -> u16 {
        let is_other = |range: &&Range| range.precision > 0 && !offers.iter().any(|offer| range.covers(offer));
        self.ranges.iter().filter(is_other).map(|range| range.quality).max().unwrap_or(0)
    }

    /// Whether the client takes this type and names it in full.
    pub(crate) fn names(&self, media: &str) -> bool {
        self.ranges.iter().any(|range| range.precision == 2 && range.quality > 0 && range.covers(media))
    }

    /// Whether the client takes nothing but some of these types.
    pub(crate) fn takes_only(&self, offers: &[&str]) -> bool {
        let is_one = |range: &Range| range.precision == 2 && offers.iter().any(|offer| range.covers(offer));
        !self.ranges.is_empty() && self.ranges.iter().all(|range| range.quality == 0 || is_one(range))
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
        // Offers use the registered name.
        let media = if is_msgpack(media) { "application/msgpack" } else { media };
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

    proptest! {
        #[test]
        fn no_accept_header_is_too_strange(text in "[ -~]{0,60}") {
            let _ = accept(&text).best(&["application/json", "image/png"]);
        }
    }
}
