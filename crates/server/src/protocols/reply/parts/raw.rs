//! Parts without a frame: text in UTF-8, or bytes such as audio, one part behind the other. There is no room for an error or for
//! the reason of the end. So a stream that fails is broken off, and its client sees that the body has no end.

use crate::protocols::reply::accept::Accept;
use crate::protocols::reply::parts::form::PartsForm;
use crate::protocols::reply::render::{EVENTS, JSON, LINES, MSGPACK, NPY, OCTETS, TEXT, or_in_parts, own_type};
use crate::values::answer::{Failure, OutputPart, StreamEnd};
use crate::values::tensor::Tag;
use jitney_core::config::manifest::Output;
use jitney_core::tables::outcome::Outcome;

/// The types of all other forms.
const OTHERS: &[&str] = &[JSON, EVENTS, LINES, MSGPACK, NPY];

/// What is known about the type of an answer before its first part.
#[derive(Clone, Debug)]
pub(crate) enum RawType {
    /// Text in UTF-8.
    Text,
    /// The first part says it, and it must be one of these.
    Of(Accept),
}

/// The type of raw parts, if it is more welcome than all other forms. `output` has parts.
pub(crate) fn chosen(output: &Output, accept: &Accept) -> Option<RawType> {
    let part = &*output.part.as_deref()?.kind;
    let least = OTHERS.iter().map(|media| accept.quality(media)).max()?;
    match (part, &*output.kind) {
        ("text", _) if accept.quality(TEXT) > least => Some(RawType::Text),
        ("bytes", "bytes") if accept.quality_of_others(OTHERS) > least => Some(RawType::Of(accept.clone())),
        _ => None,
    }
}

/// The form.
#[derive(Debug)]
pub(crate) struct Raw {
    kind: RawType,
    media: Box<str>,
    has_parts: bool,
}

impl Raw {
    pub(crate) fn new(kind: RawType) -> Raw {
        let media = match &kind {
            RawType::Text => "text/plain; charset=utf-8",
            RawType::Of(_) => OCTETS,
        };
        Raw { kind, media: media.into(), has_parts: false }
    }
}

/// The value of a part that is text or bytes.
fn raw(values: &[OutputPart]) -> Option<&OutputPart> {
    match values {
        [part] if part.name.is_empty() && matches!(part.tag, Tag::Text | Tag::Bytes) => Some(part),
        _ => None,
    }
}

impl PartsForm for Raw {
    fn begin(&mut self, first: &[OutputPart]) -> Result<(), Failure> {
        let (RawType::Of(accept), Some(part)) = (&self.kind, raw(first)) else { return Ok(()) };
        let own = own_type(part);
        if accept.quality(own) == 0 {
            let detail =
                format!("the parts have the type {own}, and accept {} does not cover it; accept {own}", accept.text());
            return Err(or_in_parts(Failure::new(Outcome::NotAcceptable, detail)));
        }
        self.media = part.media_type().unwrap_or(OCTETS).into();
        Ok(())
    }

    fn media(&self) -> &str {
        &self.media
    }

    fn part(&mut self, out: &mut Vec<u8>, _item: usize, values: &[OutputPart]) -> Result<(), Failure> {
        self.has_parts = true;
        let wrong =
            || Failure::new(Outcome::InvalidOutput, "a part is neither text nor bytes; accept text/event-stream");
        out.extend_from_slice(&raw(values).ok_or_else(wrong)?.data);
        Ok(())
    }

    /// A model may give the whole answer and no parts.
    fn end(&mut self, out: &mut Vec<u8>, _item: usize, answer: &[OutputPart], _end: &StreamEnd) -> Result<(), Failure> {
        if let (false, Some(whole)) = (self.has_parts, raw(answer)) {
            out.extend_from_slice(&whole.data);
        }
        Ok(())
    }

    fn failure(&mut self, _out: &mut Vec<u8>, _failure: &Failure, _request_id: &str) {}

    fn can_say_failures(&self) -> bool {
        false
    }

    fn comment(&self) -> &'static [u8] {
        b""
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::HeaderMap;
    use hyper::header::{ACCEPT, HeaderValue};

    fn accept(text: &'static str) -> Accept {
        Accept::of(&HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(text))]))
    }

    fn output(kind: &str, part: Option<&str>) -> Output {
        let part = part.map(|kind| Box::new(output(kind, None)));
        Output { kind: kind.to_owned(), arrays: Vec::new(), schema: serde_json::from_str("{}").unwrap(), part }
    }

    #[test]
    fn raw_parts_are_for_clients_that_name_their_type() {
        let [text, bytes] = ["text", "bytes"].map(|kind| output(kind, Some(kind)));
        for (output, accepted, is_raw) in [
            (&text, "text/plain", true),
            (&text, "text/plain, */*;q=0.5", true),
            (&text, "*/*", false),
            (&text, "application/json, text/plain, */*", false),
            (&text, "text/*", false),
            (&text, "text/event-stream, text/plain", false),
            (&text, "audio/wav", false),
            (&bytes, "application/octet-stream", true),
            (&bytes, "audio/wav", true),
            (&bytes, "audio/*, */*;q=0.5", true),
            (&bytes, "*/*", false),
            (&bytes, "application/*", false),
            (&bytes, "application/msgpack", false),
            (&bytes, "audio/wav;q=0", false),
            (&bytes, "audio/wav;q=0.5, text/event-stream", false),
            (&output("image", Some("bytes")), "image/png", false),
            (&output("text", None), "text/plain", false),
        ] {
            assert_eq!(chosen(output, &accept(accepted)).is_some(), is_raw, "{accepted} of {}", output.kind);
        }
    }

    fn part(tag: Tag, media_type: Option<&str>, data: &'static [u8]) -> OutputPart {
        let media_type = media_type.map(Box::from);
        OutputPart { name: "".into(), tag, tensor: None, media_type, data: bytes::Bytes::from_static(data) }
    }

    #[test]
    fn the_first_part_says_the_type() {
        let begun = |first: &[OutputPart]| {
            let mut form = Raw::new(RawType::Of(accept("audio/*")));
            form.begin(first).map(|()| form.media().to_owned())
        };
        assert_eq!(
            begun(&[part(Tag::Bytes, Some("audio/wav; rate=8000\nx-shade: grey"), b"R")]).unwrap(),
            "audio/wav; rate=8000"
        );
        let failure = begun(&[part(Tag::Bytes, None, b"R")]).unwrap_err();
        assert_eq!(failure.outcome, Outcome::NotAcceptable);
        assert!(failure.detail.contains("have the type application/octet-stream"), "{}", failure.detail);
    }

    #[test]
    fn an_answer_without_parts_is_sent_as_it_is() {
        let end = StreamEnd { reason: "stop".into(), usage: None };
        for (parts, expected) in [(0, "whole"), (2, "abab")] {
            let (mut form, mut out) = (Raw::new(RawType::Text), Vec::new());
            for _ in 0..parts {
                form.part(&mut out, 0, &[part(Tag::Text, None, b"ab")]).unwrap();
            }
            form.end(&mut out, 0, &[part(Tag::Text, None, b"whole")], &end).unwrap();
            assert_eq!(out, expected.as_bytes());
        }
    }
}
