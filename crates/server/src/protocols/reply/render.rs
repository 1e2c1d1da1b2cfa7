//! Answers as bytes, in the type that the client takes.

use crate::base::offload::COPIED;
use crate::items::arrays::npy;
use crate::link::frame::reader::OWN_BYTES;
use crate::protocols::reply::accept::Accept;
use crate::protocols::reply::value::{json, json_value, msgpack, msgpack_value};
use crate::values::answer::{Failure, OutputPart};
use crate::values::call::Encoding;
use crate::values::tensor::{Dtype, Tag};
use bytes::Bytes;
use hyper::header::HeaderValue;
use jitney_core::tables::outcome::Outcome;
use smallvec::{SmallVec, smallvec};

pub(crate) const JSON: &str = "application/json";
pub(crate) const MSGPACK: &str = "application/msgpack";
pub(crate) const NPY: &str = "application/x-npy";
pub(crate) const TEXT: &str = "text/plain";
pub(crate) const OCTETS: &str = "application/octet-stream";
pub(crate) const EVENTS: &str = "text/event-stream";
pub(crate) const LINES: &str = "application/x-ndjson";

/// A rendered answer.
#[derive(Debug)]
pub(crate) struct Rendered {
    pub(crate) media: HeaderValue,
    pub(crate) body: Bytes,
}

/// What answers in parts are written as.
const STREAMS: &[&str] = &[EVENTS, LINES];
const OF_TEXT: &[&str] = &[JSON, TEXT, MSGPACK];
const OF_ARRAY: &[&str] = &[JSON, NPY, MSGPACK];
const OF_DOCUMENT: &[&str] = &[JSON, MSGPACK];

/// What an answer of this kind can be written as, the natural type first.
pub(crate) fn offers(kind: &str) -> &'static [&'static str] {
    match kind {
        "text" => OF_TEXT,
        "array" => OF_ARRAY,
        "bytes" => &[OCTETS, JSON, MSGPACK],
        "image" => &["image/*", JSON, MSGPACK],
        _ => OF_DOCUMENT,
    }
}

/// Refuses what no answer of this kind could ever satisfy, before anything is computed for it.
pub(crate) fn check_accept(kind: &str, accept: &Accept) -> Result<(), Failure> {
    // Only the model knows the media type of bytes and images, and what else it may return.
    if !["text", "object", "array", "arrays"].contains(&kind) && !accept.takes_only(STREAMS) {
        return Ok(());
    }
    choose(accept, offers(kind)).map(|_| ())
}

/// Adds the other forms that a model in parts has.
pub(crate) fn or_in_parts(refused: Failure) -> Failure {
    let detail = format!("{}; the parts also come as {}", refused.detail, STREAMS.join(" or "));
    Failure { detail, ..refused }
}

fn unacceptable(accept: &Accept, offers: &[&str]) -> Failure {
    let streams: Vec<&str> = STREAMS.iter().copied().filter(|media| accept.names(media)).collect();
    let detail = match streams[..] {
        [] => format!("accept {} covers none of {}", accept.text(), offers.join(", ")),
        _ => format!("this route answers whole, and not as {}; accept {}", streams.join(" or "), offers.join(" or ")),
    };
    Failure::new(Outcome::NotAcceptable, detail)
}

/// The answer in the most welcome type. `alone`: no other answer came with it from the worker.
pub(crate) fn answer(parts: &[OutputPart], accept: &Accept, alone: bool) -> Result<Rendered, Failure> {
    match parts {
        [part] if part.name.is_empty() => single(part, accept, alone),
        parts => {
            let mut body = Vec::with_capacity(room(parts));
            let offers: &[&str] =
                if parts.iter().any(|part| part.tag == Tag::Msgpack) { &[MSGPACK] } else { OF_DOCUMENT };
            if choose(accept, offers)? == MSGPACK {
                msgpack(&mut body, parts)?;
                return Ok(rendered(MSGPACK, body));
            }
            json(&mut body, parts)?;
            Ok(rendered(JSON, body))
        }
    }
}

/// How much work that is, in bytes that are written anew.
pub(crate) fn weight(parts: &[OutputPart], accept: &Accept) -> usize {
    let bytes = parts.iter().map(|part| part.data.len()).sum();
    match parts {
        // Small answers, which are most, weigh little whatever they are.
        [part] if bytes >= OWN_BYTES && part.name.is_empty() => match choose(accept, &of_single(part)) {
            Ok(media) if passes(part, media) => 0,
            Ok(NPY) => bytes / COPIED,
            _ => bytes,
        },
        _ => bytes,
    }
}

/// What structs come back as.
pub(crate) fn encoding(accept: &Accept) -> Encoding {
    if accept.quality(MSGPACK) > accept.quality(JSON) { Encoding::Msgpack } else { Encoding::Json }
}

pub(crate) fn choose<'a>(accept: &Accept, offers: &[&'a str]) -> Result<&'a str, Failure> {
    accept.best(offers).ok_or_else(|| unacceptable(accept, offers))
}

fn rendered(media: &'static str, body: impl Into<Bytes>) -> Rendered {
    Rendered { media: HeaderValue::from_static(media), body: body.into() }
}

/// The bytes of a value, unchanged. A small value is a slice of the results of its batch, which would stay in memory
/// until a slow client has taken the answer. So it is copied, which costs less than the write that follows. A large
/// value has separate memory.
fn as_it_came(part: &OutputPart, alone: bool) -> Bytes {
    let is_own = alone || part.data.len() >= OWN_BYTES;
    if is_own { part.data.clone() } else { Bytes::copy_from_slice(&part.data) }
}

/// What a single value can be written as.
fn of_single(part: &OutputPart) -> SmallVec<[&str; 3]> {
    SmallVec::from_slice(match part.tag {
        Tag::Json => &[JSON],
        Tag::Msgpack => &[MSGPACK],
        Tag::Text => OF_TEXT,
        Tag::Bytes => return smallvec![own_type(part), JSON, MSGPACK],
        Tag::Tensor => OF_ARRAY,
    })
}

/// The type of bytes, without parameters such as a charset, which `accept` has not.
pub(crate) fn own_type(part: &OutputPart) -> &str {
    part.media_type().and_then(|media| media.split(';').next()).map_or(OCTETS, str::trim_end)
}

/// Whether a value of this media type is what the worker gave.
fn passes(part: &OutputPart, media: &str) -> bool {
    match part.tag {
        Tag::Json | Tag::Msgpack => true,
        Tag::Text => media == TEXT,
        Tag::Bytes => media == own_type(part),
        Tag::Tensor => false,
    }
}

fn single(part: &OutputPart, accept: &Accept, alone: bool) -> Result<Rendered, Failure> {
    let media = choose(accept, &of_single(part))?;
    if passes(part, media) {
        let media = match part.tag {
            Tag::Bytes => {
                HeaderValue::from_str(part.media_type().unwrap_or(OCTETS)).unwrap_or(HeaderValue::from_static(OCTETS))
            }
            Tag::Text => HeaderValue::from_static("text/plain; charset=utf-8"),
            Tag::Msgpack => HeaderValue::from_static(MSGPACK),
            Tag::Json | Tag::Tensor => HeaderValue::from_static(JSON),
        };
        return Ok(Rendered { media, body: as_it_came(part, alone) });
    }
    match (part.tag, media) {
        (Tag::Tensor, NPY) => {
            let mut body = part.tensor.as_ref().map(npy::header).unwrap_or_default();
            body.extend_from_slice(&part.data);
            Ok(rendered(NPY, body))
        }
        (_, MSGPACK) => {
            let mut body = Vec::with_capacity(room(std::slice::from_ref(part)));
            msgpack_value(&mut body, part)?;
            Ok(rendered(MSGPACK, body))
        }
        _ => {
            let mut body = Vec::with_capacity(room(std::slice::from_ref(part)));
            json_value(&mut body, part)?;
            Ok(rendered(JSON, body))
        }
    }
}

/// About what an answer takes as text.
pub(crate) fn room(parts: &[OutputPart]) -> usize {
    let one = |part: &OutputPart| match &part.tensor {
        Some(array) => part.data.len() / array.dtype.size() * characters(array.dtype) + 16,
        None => part.data.len() * 4 / 3 + 16,
    };
    parts.iter().map(one).sum::<usize>() + 64
}

/// About how many characters an element takes, with its comma: a shortest float has up to 12 of them.
fn characters(dtype: Dtype) -> usize {
    match dtype {
        Dtype::Uint8 => 4,
        Dtype::Int8 => 5,
        Dtype::Bool | Dtype::Uint16 => 6,
        Dtype::Int16 => 7,
        _ => 13,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::tensor::TensorType;
    use hyper::HeaderMap;
    use smallvec::SmallVec;

    #[test]
    fn small_elements_reserve_what_they_take_at_most() {
        for (dtype, element, longest) in
            [(Dtype::Bool, 1, "false"), (Dtype::Uint8, 255, "255"), (Dtype::Int8, 0x80, "-128")]
        {
            let image = array("", dtype, &[1 << 20], &vec![element; 1 << 20]);
            let reserved = room(std::slice::from_ref(&image));
            assert!(reserved <= (longest.len() + 1) << 20 | 0xff, "{dtype:?}: {reserved} bytes");
            let mut body = Vec::new();
            json_value(&mut body, &image).unwrap();
            assert!(body.len() <= reserved, "{dtype:?}: {} bytes, {reserved} were reserved", body.len());
        }
    }

    fn part(name: &str, tag: Tag, data: &[u8]) -> OutputPart {
        OutputPart { name: name.into(), tag, tensor: None, media_type: None, data: Bytes::copy_from_slice(data) }
    }

    fn array(name: &str, dtype: Dtype, shape: &[u64], data: &[u8]) -> OutputPart {
        OutputPart {
            tensor: Some(TensorType { dtype, shape: SmallVec::from_slice(shape) }),
            ..part(name, Tag::Tensor, data)
        }
    }

    fn accept(text: &'static str) -> Accept {
        let mut headers = HeaderMap::new();
        headers.insert("accept", HeaderValue::from_static(text));
        Accept::of(&headers)
    }

    fn text(parts: &[OutputPart], accepted: &'static str) -> String {
        String::from_utf8_lossy(&answer(parts, &accept(accepted), true).unwrap().body).into_owned()
    }

    #[test]
    fn what_is_only_passed_on_weighs_nothing() {
        let data = vec![b'1'; 1 << 20];
        let weigh = |part: OutputPart, accepted| weight(&[part], &accept(accepted));
        for (tag, accepted, expected) in [
            (Tag::Bytes, "*/*", 0),
            (Tag::Bytes, JSON, data.len()),
            (Tag::Json, "*/*", 0),
            (Tag::Msgpack, MSGPACK, 0),
            (Tag::Text, TEXT, 0),
            (Tag::Text, JSON, data.len()),
        ] {
            assert_eq!(weigh(part("", tag, &data), accepted), expected, "{tag:?} as {accepted}");
        }
        let array = || array("", Dtype::Uint8, &[1 << 20], &data);
        assert_eq!((weigh(array(), NPY), weigh(array(), JSON)), (data.len() / COPIED, data.len()));
        assert_eq!(weight(&[part("a", Tag::Json, &data)], &accept("*/*")), data.len(), "a document is made of it");
    }

    #[test]
    fn arrays_are_nested_lists() {
        let floats: Vec<u8> =
            [0.1f32, -2.0, f32::NAN, 1e-7, f32::INFINITY, 16_777_216.0].iter().flat_map(|f| f.to_le_bytes()).collect();
        let json = text(&[array("", Dtype::Float32, &[2, 3], &floats)], "*/*");
        let value: Vec<Vec<Option<f32>>> = serde_json::from_str(&json).unwrap();
        assert_eq!(value, [[Some(0.1), Some(-2.0), None], [Some(1e-7), None, Some(16_777_216.0)]]);
        assert_eq!(text(&[array("", Dtype::Bool, &[2], &[0, 1])], "*/*"), "[false,true]");
        assert_eq!(text(&[array("", Dtype::Int8, &[], &[255])], "*/*"), "-1");
        assert_eq!(text(&[array("", Dtype::Float16, &[1], &[0x00, 0x3c])], "*/*"), "[1.0]");
        assert_eq!(text(&[array("", Dtype::Uint8, &[2, 0], &[])], "*/*"), "[[],[]]");
    }

    #[test]
    fn lists_without_end_are_not_begun() {
        for shape in [&[1, 1 << 40, 0][..], &[1; 33]] {
            let array = array("", Dtype::Uint8, shape, &vec![0; shape.iter().product::<u64>() as usize]);
            for media in ["application/json", "application/msgpack"] {
                let failure = answer(std::slice::from_ref(&array), &accept(media), true).unwrap_err();
                assert_eq!(failure.outcome, Outcome::InvalidOutput, "{}", failure.detail);
            }
            assert!(answer(&[array], &accept("application/x-npy"), true).is_ok(), "its bytes are what they are");
        }
    }

    #[test]
    fn several_arrays_are_an_object() {
        let parts = [array("a", Dtype::Uint8, &[2], &[1, 2]), array("b\"", Dtype::Int8, &[1], &[255])];
        assert_eq!(text(&parts, "*/*"), r#"{"a":[1,2],"b\"":[-1]}"#);
        assert_eq!(
            answer(&parts, &accept("application/msgpack"), true).unwrap().body,
            b"\x82\xa1a\x92\x01\x02\xa2b\"\x91\xff"[..]
        );
        assert_eq!(answer(&parts, &accept("application/x-npy"), true).unwrap_err().outcome, Outcome::NotAcceptable);
    }

    #[test]
    fn other_values_come_in_the_type_that_is_welcome() {
        assert_eq!(text(&[part("", Tag::Text, b"a\"b")], "*/*"), r#""a\"b""#);
        assert_eq!(text(&[part("", Tag::Text, b"a\"b")], "text/plain"), "a\"b");
        let image = OutputPart { media_type: Some("image/png".into()), ..part("", Tag::Bytes, b"abcd") };
        let png = answer(std::slice::from_ref(&image), &accept("image/*"), true).unwrap();
        assert_eq!((png.media, png.body), (HeaderValue::from_static("image/png"), Bytes::from_static(b"abcd")));
        assert_eq!(text(std::slice::from_ref(&image), "application/json"), "\"YWJjZA==\"");
        assert_eq!(answer(&[image], &accept("image/jpeg"), true).unwrap_err().outcome, Outcome::NotAcceptable);
    }

    #[test]
    fn an_answer_does_not_keep_those_of_its_batch() {
        let part = part("", Tag::Bytes, b"abcd");
        for alone in [true, false] {
            let body = answer(std::slice::from_ref(&part), &accept("*/*"), alone).unwrap().body;
            assert_eq!((body == part.data, body.as_ptr() == part.data.as_ptr()), (true, alone));
        }
    }

    #[test]
    fn what_can_never_match_is_refused_early() {
        assert!(check_accept("text", &accept("image/png")).is_err());
        assert!(check_accept("array", &accept("application/x-npy")).is_ok());
        assert!(check_accept("arrays", &accept("application/x-npy")).is_err());
        assert!(check_accept("image", &accept("image/png")).is_ok());
    }

    #[test]
    fn a_client_that_wants_a_stream_of_a_whole_answer_reads_what_to_accept() {
        for (kind, offers) in [
            ("text", "application/json or text/plain or application/msgpack"),
            ("image", "image/* or application/json or application/msgpack"),
        ] {
            let failure = check_accept(kind, &accept("text/event-stream")).unwrap_err();
            let says = format!("this route answers whole, and not as text/event-stream; accept {offers}");
            assert_eq!(failure.detail, says);
            assert!(check_accept(kind, &accept("text/event-stream, */*;q=0.1")).is_ok());
        }
        let failure = check_accept("object", &accept("text/*")).unwrap_err();
        assert!(failure.detail.contains("covers none of application/json"), "{}", failure.detail);
        let also = "application/msgpack; the parts also come as text/event-stream or application/x-ndjson";
        let failure = or_in_parts(failure);
        assert!(failure.detail.ends_with(also), "{}", failure.detail);
    }
}
