//! multipart/form-data on native routes: the parts of a form become the fields of a struct, a file becomes bytes, an image
//! or an array.

use crate::items::arrays::files;
use crate::items::document::invalid;
use crate::items::transcode;
use crate::protocols::request::headers::quoted;
use crate::protocols::request::input::{DecodedItem, Reading, arrays_taken, take};
use crate::protocols::request::schema::{allows, any_property, holds_bytes, items, property};
use crate::values::answer::Failure;
use crate::values::chunks::Chunks;
use crate::values::tensor::Tag;
use crate::values::text::parser_message;
use bytes::Bytes;
use futures_util::FutureExt;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use jitney_core::config::manifest::serde_json_value::Value as Schema;
use jitney_core::config::manifest::{DeploymentManifest, InputKind};
use jitney_core::tables::outcome::Outcome;
use multer::{Multipart, parse_boundary};
use std::collections::BTreeMap;
use std::convert::Infallible;

/// Most parts of one form: a struct has far fewer fields.
const MOST_PARTS: usize = 1024;

/// One part.
struct Piece {
    name: String,
    is_file: bool,
    is_json: bool,
    data: Bytes,
}

/// The item that a form describes.
pub(crate) fn read(
    manifest: &DeploymentManifest,
    headers: &HeaderMap,
    body: Chunks,
    most: usize,
) -> Result<DecodedItem, Failure> {
    // All of it is here, so there is nothing to wait for.
    let pieces = pieces(headers, body).now_or_never();
    let pieces = pieces.unwrap_or_else(|| Err(Failure::new(Outcome::Internal, "a form that is here is not here")))?;
    match manifest.input.kind {
        InputKind::Object => {
            let document = object(&manifest.input.schema, pieces);
            take(manifest, Reading::As(Tag::Msgpack), document, most)
        }
        InputKind::Arrays => named_arrays(manifest, &pieces),
        kind => {
            let Ok([only]) = <[Piece; 1]>::try_from(pieces) else {
                return Err(invalid("$", "expected a form of one part, which is the item"));
            };
            let tag = if kind == InputKind::Text { Tag::Text } else { Tag::Bytes };
            take(manifest, Reading::As(tag), Chunks::from(only.data), most)
        }
    }
}

async fn pieces(headers: &HeaderMap, body: Chunks) -> Result<Vec<Piece>, Failure> {
    let malformed = |error: &multer::Error| {
        Failure::new(
            Outcome::MalformedBody,
            format!("the body is not a form that can be read: {}", parser_message(&error)),
        )
    };
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let boundary = parse_boundary(kind).map_err(|error| malformed(&error))?;
    let stream = futures_util::stream::iter(body.0.into_iter().map(Ok::<Bytes, Infallible>));
    let mut form = Multipart::new(stream, boundary);
    let mut pieces = Vec::new();
    while let Some(mut part) = form.next_field().await.map_err(|error| malformed(&error))? {
        if pieces.len() == MOST_PARTS {
            return Err(Failure::new(Outcome::TooLarge, format!("a form may have {MOST_PARTS} parts; send fewer")));
        }
        let Some(name) = part.name().map(str::to_owned) else {
            let detail = format!(
                "part {} of the form has no name; write content-disposition: form-data; name=\"…\"",
                pieces.len() + 1
            );
            return Err(Failure::new(Outcome::MalformedBody, detail));
        };
        let is_file = part.file_name().is_some();
        let is_json = part.content_type().is_some_and(|kind| kind.subtype() == "json");
        // The whole body was read before, so a part is one chunk of it: nothing is copied.
        let mut data = Chunks::default();
        while let Some(chunk) = part.chunk().await.map_err(|error| malformed(&error))? {
            data.0.push(chunk);
        }
        pieces.push(Piece { name, is_file, is_json, data: data.contiguous().clone() });
    }
    Ok(pieces)
}

/// Bytes from which on a file is a separate chunk of the document, and is not copied into it.
const OWN_CHUNK: usize = 16 << 10;

/// A msgpack document that is being written.
#[derive(Default)]
struct Document {
    chunks: Chunks,
    /// What follows the last chunk.
    end: Vec<u8>,
}

impl Document {
    fn bytes(&mut self, data: &Bytes) {
        if data.len() < OWN_CHUNK {
            let _ = rmp::encode::write_bin(&mut self.end, data);
            return;
        }
        let _ = rmp::encode::write_bin_len(&mut self.end, data.len() as u32);
        self.chunks.0.push(Bytes::from(std::mem::take(&mut self.end)));
        self.chunks.0.push(data.clone());
    }

    fn finish(mut self) -> Chunks {
        if !self.end.is_empty() {
            self.chunks.0.push(Bytes::from(self.end));
        }
        self.chunks
    }
}

/// An object of the parts by name; several of one name are a list.
fn object(schema: &Schema, pieces: Vec<Piece>) -> Chunks {
    let mut fields: BTreeMap<String, Vec<Piece>> = BTreeMap::new();
    for piece in pieces {
        fields.entry(piece.name.clone()).or_default().push(piece);
    }
    let mut document = Document::default();
    // A Vec takes every byte, here and below.
    let _ = rmp::encode::write_map_len(&mut document.end, fields.len() as u32);
    for (name, pieces) in fields {
        let _ = rmp::encode::write_str(&mut document.end, &name);
        let field = property(schema, &name).or_else(|| any_property(schema));
        // One text is a list of one, unless it may be a text.
        // And a file is what holds its bytes, if the field may be that.
        let may_be_text = |field| allows(field, "string") && (!pieces[0].is_file || holds_bytes(field));
        let is_list = pieces.len() > 1
            || field.is_some_and(|field| allows(field, "array") && !pieces[0].is_json && !may_be_text(field));
        let inner = if is_list { field.and_then(items) } else { field };
        if is_list {
            let _ = rmp::encode::write_array_len(&mut document.end, pieces.len() as u32);
        }
        pieces.iter().for_each(|piece| value(&mut document, inner, piece));
    }
    document.finish()
}

/// A part as a value: JSON if it says so, a file as bytes unless the field is known to be text, and text as the field's
/// type has it. What does not fit is left as text for the deployment to refuse, by the name of the field.
fn value(document: &mut Document, field: Option<&Schema>, piece: &Piece) {
    let text = std::str::from_utf8(&piece.data).ok();
    // If the field is unknown, only the form decides: the content of a file must not turn the file into text.
    let is_text = field.map_or(!piece.is_file, |field| allows(field, "string") && !holds_bytes(field));
    // A JSON string that is not said to be one is text that happens to have quotes.
    let is_json = piece.is_json || !(piece.is_file || is_text || quoted_text(&piece.data));
    if is_json && transcode::json(&mut document.end, &piece.data) {
        return;
    }
    let wants_bytes = field.is_some_and(holds_bytes) || (piece.is_file && !is_text);
    match text.filter(|_| !wants_bytes) {
        Some(text) => drop(rmp::encode::write_str(&mut document.end, text)),
        None => document.bytes(&piece.data),
    }
}

fn quoted_text(data: &[u8]) -> bool {
    data.trim_ascii_start().starts_with(b"\"")
}

/// One `.npy` file for each array, by name; a deployment of one array takes whatever the part is called.
fn named_arrays(manifest: &DeploymentManifest, pieces: &[Piece]) -> Result<DecodedItem, Failure> {
    let specs = &manifest.input.arrays;
    let names = || specs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>().join(", ");
    if pieces.len() != specs.len() {
        let what = format!("expected a form of {} .npy files ({}), got {} parts", specs.len(), names(), pieces.len());
        return Err(invalid("$", &what));
    }
    let find = |name: &str| {
        let piece = pieces.iter().find(|piece| specs.len() == 1 || piece.name == name);
        piece.ok_or_else(|| {
            let got: Vec<String> = pieces.iter().map(|piece| quoted(piece.name.as_bytes())).collect();
            invalid(&format!("$.{name}"), &format!("missing; the form has {}", got.join(", ")))
        })
    };
    let part = |spec| files::from_npy(spec, Chunks::from(find(&spec.name)?.data.clone()));
    arrays_taken(manifest, specs.iter().map(part).collect::<Result<_, Failure>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The length of bytes.
    struct Length(usize);

    impl<'de> serde::Deserialize<'de> for Length {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Length, D::Error> {
            <&[u8]>::deserialize(deserializer).map(|bytes| Length(bytes.len()))
        }
    }

    /// What becomes of a part called `x`, as it would be read from msgpack: text, or the length of bytes.
    fn read(schema: &serde_json::Value, file: bool, data: &'static [u8]) -> serde_json::Value {
        let schema: Schema = serde_json::from_value(schema.clone()).unwrap();
        let piece = Piece { name: "x".into(), is_file: file, is_json: false, data: Bytes::from_static(data) };
        let mut document = object(&schema, vec![piece]);
        let document = document.contiguous();
        // A map of one entry, then the name.
        let value = &document[document.iter().position(|&byte| byte == b'x').unwrap() + 1..];
        match value[0] {
            0xc4 => json!({ "bytes": value[1] }),
            _ => rmp_serde::from_slice(value).unwrap(),
        }
    }

    #[test]
    fn a_large_file_is_not_copied() {
        let file =
            |name: &str, data: Vec<u8>| Piece { name: name.into(), is_file: true, is_json: false, data: data.into() };
        let schema: Schema = serde_json::from_value(json!({ "type": "object" })).unwrap();
        let pieces = vec![file("a", vec![1; OWN_CHUNK]), file("b", vec![2; 3]), file("c", vec![3; 1 << 20])];
        let (first, last) = (pieces[0].data.as_ptr(), pieces[2].data.as_ptr());
        let mut document = object(&schema, pieces);
        assert_eq!(document.0.iter().filter(|chunk| [first, last].contains(&chunk.as_ptr())).count(), 2);
        let read: BTreeMap<String, Length> = rmp_serde::from_slice(document.contiguous()).unwrap();
        let lengths: Vec<usize> = read.values().map(|read| read.0).collect();
        assert_eq!(lengths, [OWN_CHUNK, 3, 1 << 20]);
    }

    #[test]
    fn a_file_does_not_change_its_type_with_its_content() {
        let of = |field: serde_json::Value| json!({ "properties": { "x": field } });
        let (text, count) = (of(json!({ "type": "string" })), of(json!({ "type": "integer" })));
        let union = json!({ "anyOf": [{ "$ref": "#/$defs/A" }, { "$ref": "#/$defs/B" }], "$defs": {} });
        for unknown in [json!({ "type": "object" }), json!({ "additionalProperties": {} }), union, of(json!({}))] {
            for content in [&b"text"[..], b"3", b"[1]", b"\xff"] {
                assert_eq!(read(&unknown, true, content), json!({ "bytes": content.len() }), "{unknown}");
            }
        }
        let array = of(json!({ "anyOf": [{ "type": "array" }, { "type": "string", "contentEncoding": "base64" }] }));
        assert_eq!(read(&array, true, b"[1]"), json!({ "bytes": 3 }));
        assert_eq!(read(&array, false, b"[1]"), json!([1]));
        assert_eq!(read(&json!({ "type": "object" }), false, b"3"), json!("3"));
        assert_eq!(read(&text, true, b"3"), json!("3"));
        assert_eq!(read(&json!({ "additionalProperties": { "type": "string" } }), true, b"3"), json!("3"));
        assert_eq!(read(&json!({ "additionalProperties": { "type": "integer" } }), false, b"3"), json!(3));
        assert_eq!((read(&count, false, b"3"), read(&count, true, b"3")), (json!(3), json!({ "bytes": 1 })));
    }
}
