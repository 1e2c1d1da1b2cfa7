//! Answers as bytes, in the type that the client takes. JSON has no NaN and no infinities: they are written as `null`.

use super::media::Accept;
use crate::call::{Dtype, Encoding, Failure, OutputPart, Tag};
use crate::heavy::COPIED;
use crate::item::{arrays, base64, half, npy};
use crate::link::frame::OWN_BYTES;
use bytes::Bytes;
use hyper::header::HeaderValue;
use jitney_core::outcome::Outcome;
use smallvec::{SmallVec, smallvec};
use std::borrow::Cow;

pub(crate) const JSON: &str = "application/json";
pub(crate) const MSGPACK: &str = "application/msgpack";
pub(crate) const NPY: &str = "application/x-npy";
const TEXT: &str = "text/plain";
const OCTETS: &str = "application/octet-stream";

/// A rendered answer.
#[derive(Debug)]
pub(crate) struct Rendered {
    pub(crate) media: HeaderValue,
    pub(crate) body: Bytes,
}

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
    if !["text", "object", "array", "arrays"].contains(&kind) {
        return Ok(());
    }
    choose(accept, offers(kind)).map(|_| ())
}

fn unacceptable(accept: &Accept, offers: &[&str]) -> Failure {
    Failure::new(Outcome::NotAcceptable, format!("accept {} covers none of {}", accept.text(), offers.join(", ")))
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

/// An answer as a JSON value.
pub(crate) fn json(body: &mut Vec<u8>, parts: &[OutputPart]) -> Result<(), Failure> {
    if let [part] = parts
        && part.name.is_empty()
    {
        return json_value(body, part);
    }
    for (index, part) in parts.iter().enumerate() {
        body.push(if index == 0 { b'{' } else { b',' });
        json_string(body, &part.name);
        body.push(b':');
        json_value(body, part)?;
    }
    body.extend_from_slice(if parts.is_empty() { b"{}" } else { b"}" });
    Ok(())
}

/// An array of floats as base64 of little-endian float32, whatever it is made of.
pub(crate) fn base64_f32(body: &mut Vec<u8>, part: &OutputPart) -> Result<(), Failure> {
    let dtype = part.tensor.as_ref().map(|tensor| tensor.dtype);
    let data = &part.data[..];
    let floats: Cow<'_, [u8]> = match dtype {
        Some(Dtype::Float32) => Cow::Borrowed(data),
        Some(Dtype::Float64) => {
            data.as_chunks().0.iter().flat_map(|&bytes| (f64::from_le_bytes(bytes) as f32).to_le_bytes()).collect()
        }
        Some(Dtype::Float16) => {
            data.as_chunks().0.iter().flat_map(|&bytes| half::to_f32(u16::from_le_bytes(bytes)).to_le_bytes()).collect()
        }
        _ => return Err(Failure::new(Outcome::InvalidOutput, "the model returned a vector that is not of floats")),
    };
    base64::write(body, &floats);
    Ok(())
}

/// The place of the first element that JSON has no word for: NaN or an infinity.
pub(crate) fn not_finite(dtype: Dtype, data: &[u8]) -> Option<usize> {
    match dtype {
        Dtype::Float16 => {
            data.as_chunks().0.iter().position(|&bytes| !half::to_f32(u16::from_le_bytes(bytes)).is_finite())
        }
        Dtype::Float32 => data.as_chunks().0.iter().position(|&bytes| !f32::from_le_bytes(bytes).is_finite()),
        Dtype::Float64 => data.as_chunks().0.iter().position(|&bytes| !f64::from_le_bytes(bytes).is_finite()),
        _ => None,
    }
}

/// An answer as a msgpack value.
pub(crate) fn msgpack(body: &mut Vec<u8>, parts: &[OutputPart]) -> Result<(), Failure> {
    if let [part] = parts
        && part.name.is_empty()
    {
        return msgpack_value(body, part);
    }
    // A Vec takes every byte.
    let _ = rmp::encode::write_map_len(body, parts.len() as u32);
    for part in parts {
        let _ = rmp::encode::write_str(body, &part.name);
        msgpack_value(body, part)?;
    }
    Ok(())
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

/// A value as it came. A small one is a slice of what its batch gave, which would stay alive with it until a slow client
/// has taken it; so it is copied, which costs less than the write that follows. A large one has memory of its own.
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

fn own_type(part: &OutputPart) -> &str {
    part.media_type.as_deref().unwrap_or(OCTETS)
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
            Tag::Bytes => HeaderValue::from_str(media).unwrap_or(HeaderValue::from_static(OCTETS)),
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

/// About what an answer takes as text: a shortest float has up to 12 characters and a comma.
pub(crate) fn room(parts: &[OutputPart]) -> usize {
    let one = |part: &OutputPart| match &part.tensor {
        Some(array) => part.data.len() / array.dtype.size() * 13 + 16,
        None => part.data.len() * 4 / 3 + 16,
    };
    parts.iter().map(one).sum::<usize>() + 64
}

fn json_string(out: &mut Vec<u8>, text: &str) {
    // A Vec takes every byte.
    let _ = serde_json::to_writer(out, text);
}

fn utf8(part: &OutputPart) -> Result<&str, Failure> {
    std::str::from_utf8(&part.data).map_err(|_| Failure::new(Outcome::InvalidOutput, "the model's text is not UTF-8"))
}

pub(crate) fn json_value(out: &mut Vec<u8>, part: &OutputPart) -> Result<(), Failure> {
    match part.tag {
        Tag::Json => out.extend_from_slice(&part.data),
        Tag::Text => json_string(out, utf8(part)?),
        Tag::Bytes => base64::write(out, &part.data),
        Tag::Tensor => elements(out, part, &Json)?,
        Tag::Msgpack => {
            return Err(Failure::new(Outcome::InvalidOutput, "a msgpack value cannot stand in a JSON answer"));
        }
    }
    Ok(())
}

fn msgpack_value(out: &mut Vec<u8>, part: &OutputPart) -> Result<(), Failure> {
    match part.tag {
        Tag::Msgpack => out.extend_from_slice(&part.data),
        Tag::Text => drop(rmp::encode::write_str(out, utf8(part)?)),
        Tag::Bytes => drop(rmp::encode::write_bin(out, &part.data)),
        Tag::Tensor => elements(out, part, &Msgpack)?,
        Tag::Json => return Err(Failure::new(Outcome::InvalidOutput, "a JSON value cannot stand in a msgpack answer")),
    }
    Ok(())
}

/// How numbers and lists are written.
trait Format {
    fn open(&self, out: &mut Vec<u8>, length: u64);
    fn comma(&self, out: &mut Vec<u8>);
    fn close(&self, out: &mut Vec<u8>);
    fn boolean(&self, out: &mut Vec<u8>, value: bool);
    fn unsigned(&self, out: &mut Vec<u8>, value: u64);
    fn signed(&self, out: &mut Vec<u8>, value: i64);
    fn single(&self, out: &mut Vec<u8>, value: f32);
    fn double(&self, out: &mut Vec<u8>, value: f64);
}

struct Json;

impl Format for Json {
    fn open(&self, out: &mut Vec<u8>, _: u64) {
        out.push(b'[');
    }
    fn comma(&self, out: &mut Vec<u8>) {
        out.push(b',');
    }
    fn close(&self, out: &mut Vec<u8>) {
        out.push(b']');
    }
    fn boolean(&self, out: &mut Vec<u8>, value: bool) {
        out.extend_from_slice(if value { b"true" } else { b"false" });
    }
    fn unsigned(&self, out: &mut Vec<u8>, value: u64) {
        out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }
    fn signed(&self, out: &mut Vec<u8>, value: i64) {
        out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }
    fn single(&self, out: &mut Vec<u8>, value: f32) {
        if value.is_finite() {
            out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes());
        } else {
            out.extend_from_slice(b"null");
        }
    }
    fn double(&self, out: &mut Vec<u8>, value: f64) {
        if value.is_finite() {
            out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes());
        } else {
            out.extend_from_slice(b"null");
        }
    }
}

struct Msgpack;

impl Format for Msgpack {
    fn open(&self, out: &mut Vec<u8>, length: u64) {
        let _ = rmp::encode::write_array_len(out, length as u32);
    }
    fn comma(&self, _: &mut Vec<u8>) {}
    fn close(&self, _: &mut Vec<u8>) {}
    fn boolean(&self, out: &mut Vec<u8>, value: bool) {
        let _ = rmp::encode::write_bool(out, value);
    }
    fn unsigned(&self, out: &mut Vec<u8>, value: u64) {
        let _ = rmp::encode::write_uint(out, value);
    }
    fn signed(&self, out: &mut Vec<u8>, value: i64) {
        let _ = rmp::encode::write_sint(out, value);
    }
    fn single(&self, out: &mut Vec<u8>, value: f32) {
        let _ = rmp::encode::write_f32(out, value);
    }
    fn double(&self, out: &mut Vec<u8>, value: f64) {
        let _ = rmp::encode::write_f64(out, value);
    }
}

fn elements<F: Format>(out: &mut Vec<u8>, part: &OutputPart, format: &F) -> Result<(), Failure> {
    let array = part.tensor.as_ref().filter(|array| array.byte_len() == Some(part.data.len() as u64));
    let array = array.ok_or_else(|| Failure::new(Outcome::Internal, "the bytes of an array do not match its shape"))?;
    arrays::check_shape(&array.shape).map_err(|what| {
        Failure::new(Outcome::InvalidOutput, format!("the model's array cannot be written as lists: {what}"))
    })?;
    let (shape, data) = (&array.shape[..], &part.data[..]);
    match array.dtype {
        Dtype::Bool => nest(out, shape, data, format, |out, [byte]: [u8; 1]| format.boolean(out, byte != 0)),
        Dtype::Uint8 => nest(out, shape, data, format, |out, [byte]: [u8; 1]| format.unsigned(out, byte.into())),
        Dtype::Uint16 => {
            nest(out, shape, data, format, |out, bytes| format.unsigned(out, u16::from_le_bytes(bytes).into()));
        }
        Dtype::Uint32 => {
            nest(out, shape, data, format, |out, bytes| format.unsigned(out, u32::from_le_bytes(bytes).into()));
        }
        Dtype::Uint64 => nest(out, shape, data, format, |out, bytes| format.unsigned(out, u64::from_le_bytes(bytes))),
        Dtype::Int8 => nest(out, shape, data, format, |out, bytes| format.signed(out, i8::from_le_bytes(bytes).into())),
        Dtype::Int16 => {
            nest(out, shape, data, format, |out, bytes| format.signed(out, i16::from_le_bytes(bytes).into()));
        }
        Dtype::Int32 => {
            nest(out, shape, data, format, |out, bytes| format.signed(out, i32::from_le_bytes(bytes).into()));
        }
        Dtype::Int64 => nest(out, shape, data, format, |out, bytes| format.signed(out, i64::from_le_bytes(bytes))),
        Dtype::Float16 => {
            nest(out, shape, data, format, |out, bytes| format.single(out, half::to_f32(u16::from_le_bytes(bytes))));
        }
        Dtype::Float32 => nest(out, shape, data, format, |out, bytes| format.single(out, f32::from_le_bytes(bytes))),
        Dtype::Float64 => nest(out, shape, data, format, |out, bytes| format.double(out, f64::from_le_bytes(bytes))),
    }
    Ok(())
}

/// Elements of N bytes as nested lists.
fn nest<F: Format, const N: usize>(
    out: &mut Vec<u8>,
    shape: &[u64],
    data: &[u8],
    format: &F,
    write: impl Fn(&mut Vec<u8>, [u8; N]) + Copy,
) {
    let Some((&axis, inner)) = shape.split_first() else {
        if let Some(&element) = data.as_chunks::<N>().0.first() {
            write(out, element);
        }
        return;
    };
    format.open(out, axis);
    if inner.is_empty() {
        for (index, &element) in data.as_chunks::<N>().0.iter().enumerate() {
            if index > 0 {
                format.comma(out);
            }
            write(out, element);
        }
    } else {
        let stride = data.len() / usize::try_from(axis).unwrap_or(usize::MAX).max(1);
        for index in 0..axis as usize {
            if index > 0 {
                format.comma(out);
            }
            nest(out, inner, &data[index * stride..(index + 1) * stride], format, write);
        }
    }
    format.close(out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::TensorType;
    use hyper::HeaderMap;
    use smallvec::SmallVec;

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
    fn what_is_not_finite_is_found() {
        let of = |dtype, bytes: &[&[u8]]| not_finite(dtype, &bytes.concat());
        assert_eq!(of(Dtype::Float64, &[&1f64.to_le_bytes(), &f64::NAN.to_le_bytes()]), Some(1));
        assert_eq!(of(Dtype::Float32, &[&f32::NEG_INFINITY.to_le_bytes()]), Some(0));
        assert_eq!(of(Dtype::Float16, &[&[0, 0x3c], &[0, 0x7c]]), Some(1));
        assert_eq!(of(Dtype::Float32, &[&f32::MAX.to_le_bytes()]), None);
        assert_eq!(of(Dtype::Int32, &[&[0xff; 4]]), None);
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
}
