//! A body as the parts of a call: which types a kind of input takes, and how each is read.

use crate::base::offload::COPIED;
use crate::items::arrays::{files, lists, npy};
use crate::items::document::{Document, check_mark, is_marked};
use crate::items::fields;
use crate::items::many;
use crate::items::many::Format;
use crate::protocols::request::media::{BodyType, wrong_type};
use crate::values::answer::Failure;
use crate::values::call::{Call, Encoding, Part};
use crate::values::chunks::Chunks;
use crate::values::tensor::Tag;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use jitney_core::config::manifest::{DeploymentManifest, Input, InputKind};
use jitney_core::queue::group_key::GroupKey;
use jitney_core::tables::outcome::Outcome;
use smallvec::{SmallVec, smallvec};

/// How a body will be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// As one part with this tag.
    As(Tag),
    /// As arrays in JSON or msgpack.
    JsonArrays,
    MsgpackArrays,
    /// As a `.npy` file.
    Npy,
    /// As a `.npy` file if it begins like one, else as nothing but elements.
    Elements,
    /// As the parts of a form: see `form`.
    Form,
}

/// A media type as messages show it, the content types that select it, and how such a body is read.
type Row = (&'static str, &'static [BodyType], Reading);

const JSON: Row = ("application/json", &[BodyType::Json], Reading::As(Tag::Json));
const NATURAL_JSON: Row = ("application/json", &[BodyType::Unsaid, BodyType::Json], Reading::As(Tag::Json));
const MSGPACK: Row = ("application/msgpack", &[BodyType::Msgpack], Reading::As(Tag::Msgpack));
const JSON_ARRAYS: Row = ("application/json", &[BodyType::Unsaid, BodyType::Json], Reading::JsonArrays);
const MSGPACK_ARRAYS: Row = ("application/msgpack", &[BodyType::Msgpack], Reading::MsgpackArrays);

const FORM: Row = ("multipart/form-data", &[BodyType::Form], Reading::Form);

/// What each kind of input takes, the natural type first: the one table of it.
fn rows(input: &Input) -> &'static [Row] {
    use BodyType::{Image, Npy, Octets, Other, Text, Unsaid};
    const BYTES: Reading = Reading::As(Tag::Bytes);
    match input.kind {
        InputKind::Text => &[NATURAL_JSON, ("text/plain", &[Text], Reading::As(Tag::Text)), MSGPACK, FORM],
        InputKind::Bytes => &[
            ("application/octet-stream", &[Unsaid, Octets], BYTES),
            ("*/*", &[Text, Npy, Image, Other], BYTES),
            JSON,
            MSGPACK,
            FORM,
        ],
        InputKind::Image => {
            &[("image/*", &[Unsaid, Image], BYTES), ("application/octet-stream", &[Octets], BYTES), JSON, MSGPACK, FORM]
        }
        InputKind::Object => &[NATURAL_JSON, MSGPACK, FORM],
        InputKind::Arrays if input.arrays.len() == 1 => &[
            JSON_ARRAYS,
            ("application/x-npy", &[Npy], Reading::Npy),
            MSGPACK_ARRAYS,
            ("application/octet-stream", &[Octets], Reading::Elements),
            FORM,
        ],
        InputKind::Arrays => &[JSON_ARRAYS, MSGPACK_ARRAYS, FORM],
    }
}

/// The media types that an input takes, the natural one first.
pub(crate) fn accepted(input: &Input) -> impl Iterator<Item = &'static str> {
    rows(input).iter().map(|(media, ..)| *media)
}

/// How a body of this type is to be read for this input.
pub(crate) fn reading(input: &Input, body: BodyType, got: &[u8]) -> Result<Reading, Failure> {
    let row = rows(input).iter().find(|(_, bodies, _)| bodies.contains(&body));
    row.map(|(.., reading)| *reading).ok_or_else(|| wrong_type(got, &accepted(input).collect::<Vec<_>>()))
}

/// How much work it is to read a body of this length, in bytes that are parsed.
pub(crate) fn weight(manifest: &DeploymentManifest, reading: Reading, length: usize) -> usize {
    match reading {
        Reading::As(Tag::Bytes) => 0,
        // The worker parses them.
        Reading::As(Tag::Json | Tag::Msgpack) if !fields::asks(manifest) => 0,
        Reading::As(Tag::Text) | Reading::Npy | Reading::Elements => length / COPIED,
        Reading::As(_) | Reading::JsonArrays | Reading::MsgpackArrays | Reading::Form => length,
    }
}

/// A body that was read as JSON because its type was not said may be meant as something else. `known` are the types
/// that there are.
pub(crate) fn unsaid(headers: &HeaderMap, known: impl Iterator<Item = &'static str>, failure: Failure) -> Failure {
    let known: Vec<&str> = known.collect();
    let was_guessed = !headers.contains_key(CONTENT_TYPE) && known.first() == Some(&"application/json");
    if failure.outcome != Outcome::MalformedBody || !was_guessed || is_marked(&failure) {
        return failure;
    }
    let why = "the request has no content-type, so its body was read as JSON; send one of";
    Failure { detail: format!("{}; {why} {}", failure.detail, known.join(", ")), ..failure }
}

/// The parts of a call, its group key and its cost.
#[derive(Debug)]
pub(crate) struct DecodedItem {
    pub(crate) parts: SmallVec<[Part; 1]>,
    pub(crate) group: GroupKey,
    pub(crate) cost: u64,
}

impl DecodedItem {
    /// As the engine takes it; its terms are those of its request.
    pub(crate) fn call(self, encoding: Encoding) -> Call {
        let DecodedItem { parts, group, cost } = self;
        Call { group, cost, ..Call::new(parts, encoding) }
    }
}

/// Reads a body. `most` bounds what arrays in it may grow to.
pub(crate) fn take(
    manifest: &DeploymentManifest,
    reading: Reading,
    mut body: Chunks,
    most: usize,
) -> Result<DecodedItem, Failure> {
    let specs = &manifest.input.arrays;
    let parts: SmallVec<[Part; 1]> = match reading {
        Reading::As(tag) => {
            if body.is_empty() && matches!(tag, Tag::Json | Tag::Msgpack) {
                return Err(Failure::new(Outcome::MalformedBody, "the body is empty; send one item"));
            }
            if tag == Tag::Json {
                body.0.first().map_or(Ok(()), |first| check_mark(first))?;
            }
            let asked = fields::of_value(manifest, tag, &mut body);
            let (group, cost) = asked.map_err(|failure| hinted(failure, manifest.input.kind, tag, &body))?;
            return Ok(DecodedItem { parts: smallvec![Part { tag, tensor: None, data: body }], group, cost });
        }
        Reading::JsonArrays => lists::from_document(specs, Document::Json(body.contiguous()), most)?,
        Reading::MsgpackArrays => lists::from_document(specs, Document::Msgpack(body.contiguous()), most)?,
        Reading::Npy => smallvec![files::from_npy(&specs[0], body)?],
        Reading::Elements if body.0.first().is_some_and(|first| first.starts_with(npy::MAGIC)) => {
            smallvec![files::from_npy(&specs[0], body)?]
        }
        Reading::Elements => smallvec![files::from_raw(&specs[0], body)?],
        Reading::Form => return Err(Failure::new(Outcome::Internal, "a form is read by its parts")),
    };
    arrays_taken(manifest, parts)
}

/// How the items of one body are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ManyReading {
    /// As the values of a list.
    List(Format),
    /// As the rows of a `.npy` file.
    Rows,
}

/// The media types that hold the items of one request.
pub(crate) fn accepted_many(input: &Input) -> &'static [&'static str] {
    const ALL: &[&str] = &["application/json", "application/msgpack", "application/x-npy"];
    if input.kind == InputKind::Arrays && input.arrays.len() == 1 { ALL } else { &ALL[..2] }
}

/// How a body of this type is to be read as items for this input.
pub(crate) fn reading_many(input: &Input, body: BodyType, got: &[u8]) -> Result<ManyReading, Failure> {
    let takes = accepted_many(input);
    match body {
        BodyType::Unsaid | BodyType::Json => Ok(ManyReading::List(Format::Json)),
        BodyType::Msgpack => Ok(ManyReading::List(Format::Msgpack)),
        BodyType::Npy if takes.contains(&"application/x-npy") => Ok(ManyReading::Rows),
        _ => Err(wrong_type(got, takes)),
    }
}

/// Reads the items of a body; what is wrong with one of them is that one's failure. `most` bounds what arrays in all of
/// them may grow to, `most_items` their number.
pub(crate) fn take_many(
    manifest: &DeploymentManifest,
    reading: ManyReading,
    mut body: Chunks,
    most: usize,
    most_items: usize,
) -> Result<Vec<Result<DecodedItem, Failure>>, Failure> {
    let format = match reading {
        ManyReading::List(format) => format,
        ManyReading::Rows => {
            let rows = files::rows_from_npy(&manifest.input.arrays[0], body, most_items)?;
            return Ok(rows.into_iter().map(|row| arrays_taken(manifest, smallvec![row])).collect());
        }
    };
    let is_arrays = manifest.input.kind == InputKind::Arrays;
    let reading = match format {
        Format::Json if is_arrays => Reading::JsonArrays,
        Format::Json => Reading::As(Tag::Json),
        Format::Msgpack if is_arrays => Reading::MsgpackArrays,
        Format::Msgpack => Reading::As(Tag::Msgpack),
    };
    let mut room = most;
    let read = |item: bytes::Bytes| {
        let taken = take(manifest, reading, Chunks::from(item), room)?;
        if is_arrays {
            room -= taken.parts.iter().map(|part| part.data.len()).sum::<usize>().min(room);
        }
        Ok(taken)
    };
    Ok(many::split(format, body.contiguous(), most_items)?.into_iter().map(read).collect())
}

/// Arrays, with what is asked about them.
pub(crate) fn arrays_taken(manifest: &DeploymentManifest, parts: SmallVec<[Part; 1]>) -> Result<DecodedItem, Failure> {
    let (group, cost) = fields::of_arrays(manifest, &parts)?;
    Ok(DecodedItem { parts, group, cost })
}

/// Adds what a body that is not JSON may be. The worker gives the same hints for bodies that only the worker reads.
fn hinted(failure: Failure, kind: InputKind, tag: Tag, body: &Chunks) -> Failure {
    let start = body.0.first().map_or(&[][..], |first| first.trim_ascii_start());
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.-%".contains(byte);
    let after = start.iter().position(|byte| !is_name(byte));
    let hint = match kind {
        InputKind::Text if !start.starts_with(b"\"") => "for plain text send content-type: text/plain",
        _ if after.is_some_and(|at| at > 0 && start[at] == b'=') => {
            "this looks like a form, key=value: send JSON or multipart/form-data"
        }
        _ => return failure,
    };
    if tag != Tag::Json || failure.outcome != Outcome::MalformedBody {
        return failure;
    }
    Failure { detail: format!("{} ({hint})", failure.detail), ..failure }
}
