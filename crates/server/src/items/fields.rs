//! The group key and the cost of an item: a few top-level fields are read, everything else is passed over.

use crate::items::arrays::parameter;
use crate::items::document::{Document, invalid};
use crate::items::skip::Skip;
use crate::values::answer::Failure;
use crate::values::call::Part;
use crate::values::chunks::Chunks;
use crate::values::tensor::Tag;
use jitney_core::config::manifest::{DeploymentManifest, InputKind, Scalar, Source, Term};
use jitney_core::queue::group_key::{GroupKey, KeyPart};
use jitney_core::tables::outcome::Outcome;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use smallvec::SmallVec;
use std::fmt;

/// Longest string that may be part of a group key, in bytes. Each item and each lane stores its key, and the queue does
/// not count these bytes. Users group by names, not by documents.
const KEY_BYTES: usize = 1024;

/// The item as far as terms can ask about it.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// A document that has to be looked into. The flag says that a string in it stands for bytes, as base64.
    Document(Document<'a>, bool),
    /// Plain text.
    Text(&'a str),
    /// So many bytes.
    Bytes(usize),
    /// Arrays, one per parameter.
    Arrays(&'a [Part]),
}

/// Whether anything must be asked about the items of this deployment.
pub fn asks(manifest: &DeploymentManifest) -> bool {
    !manifest.group_by.is_empty()
        || manifest.cost.is_some()
        || manifest.method.is_some()
        || manifest.input.arrays.iter().any(parameter::is_open)
}

/// The group key and the cost of an item that is one value. Text must be UTF-8, also where nothing is asked about it.
pub(crate) fn of_value(manifest: &DeploymentManifest, tag: Tag, data: &mut Chunks) -> Result<(GroupKey, u64), Failure> {
    let is_base64 = matches!(manifest.input.kind, InputKind::Bytes | InputKind::Image);
    let item = match tag {
        Tag::Tensor => return Err(invalid("$", "expected a value, got an array")),
        Tag::Text => Item::Text(text(data.contiguous())?),
        _ if !asks(manifest) => return Ok((GroupKey::default(), 1)),
        Tag::Bytes => Item::Bytes(data.len()),
        Tag::Json => Item::Document(Document::Json(data.contiguous()), is_base64),
        Tag::Msgpack => Item::Document(Document::Msgpack(data.contiguous()), false),
    };
    if asks(manifest) { evaluate(manifest, item) } else { Ok((GroupKey::default(), 1)) }
}

/// The group key and the cost of an item that is arrays, one per parameter.
pub(crate) fn of_arrays(manifest: &DeploymentManifest, parts: &[Part]) -> Result<(GroupKey, u64), Failure> {
    if asks(manifest) { evaluate(manifest, Item::Arrays(parts)) } else { Ok((GroupKey::default(), 1)) }
}

fn text(bytes: &[u8]) -> Result<&str, Failure> {
    std::str::from_utf8(bytes).map_err(|error| {
        let detail = format!("the text is not UTF-8: byte {} is wrong; encode it as UTF-8", error.valid_up_to());
        Failure::new(Outcome::MalformedBody, detail)
    })
}

/// The group key and the cost of one item.
pub fn evaluate(manifest: &DeploymentManifest, item: Item<'_>) -> Result<(GroupKey, u64), Failure> {
    let terms = || manifest.group_by.iter().chain(&manifest.cost);
    let mut found = Found { names: SmallVec::new(), fields: SmallVec::new(), whole: Seen::Null };
    let mut base64 = false;
    if terms().next().is_some() {
        match item {
            Item::Document(document, is_base64) => {
                base64 = is_base64;
                found.names = terms().filter_map(|term| field_of(&term.source)).collect();
                found.fields = found.names.iter().map(|_| None).collect();
                document.read(Root { found: &mut found })?;
            }
            Item::Text(text) => found.whole = Seen::text(text, false),
            Item::Bytes(length) => found.whole = Seen::Bytes(length),
            Item::Arrays(_) => {}
        }
    }
    let look = |term: &Term| match item {
        Item::Arrays(parts) => axis(manifest, term, parts),
        _ => found.value(term, base64),
    };
    let method = manifest.method.as_ref().map(|method| KeyPart::Method(method.name.as_str().into()));
    let mut key: SmallVec<[KeyPart; 1]> = method.into_iter().collect();
    for term in &manifest.group_by {
        let value = look(term)?;
        key.push(match &term.edges {
            None => KeyPart::from_scalar(&value),
            Some(edges) => KeyPart::bucket(number(&term.source, &value)?, edges),
        });
    }
    if let Item::Arrays(parts) = item {
        parameter::key_parts(&manifest.input.arrays, parts, &mut key);
    }
    let cost = match &manifest.cost {
        None => 1,
        Some(term) => cost(term, &look(term)?)?,
    };
    Ok((GroupKey(key), cost))
}

fn field_of(source: &Source) -> Option<&str> {
    match source {
        Source::Field { name, .. } => Some(name),
        Source::Length { of, .. } => of.as_deref(),
    }
}

fn path(source: &Source) -> String {
    field_of(source).map_or_else(|| "$".to_owned(), |name| format!("$.{name}"))
}

/// From here on floats skip integers, and no cost is meant.
const EXACT: f64 = 9_007_199_254_740_992.0;

fn number(source: &Source, value: &Scalar) -> Result<f64, Failure> {
    match value {
        Scalar::Int(value) => Ok(*value as f64),
        Scalar::Float(value) => Ok(*value),
        other => Err(invalid(&path(source), &format!("expected a number, got {}", kind_of(other)))),
    }
}

fn cost(term: &Term, value: &Scalar) -> Result<u64, Failure> {
    let value = match (&term.edges, value) {
        (None, value) => number(&term.source, value)?.ceil(),
        (Some(edges), value) => match KeyPart::bucket(number(&term.source, value)?, edges) {
            KeyPart::Bucket(index) => f64::from(index),
            _ => 0.0,
        },
    };
    if (0.0..EXACT).contains(&value) {
        return Ok(value as u64);
    }
    let got = if value < 0.0 { value.to_string() } else { format!("{value:e}") };
    Err(invalid(&path(&term.source), &format!("expected a cost of 0 to 2^53, got {got}")))
}

/// The first axis of an array parameter: all that can be asked about arrays.
fn axis(manifest: &DeploymentManifest, term: &Term, parts: &[Part]) -> Result<Scalar, Failure> {
    let name = field_of(&term.source);
    let index = name.map_or(Some(0), |name| manifest.input.arrays.iter().position(|spec| spec.name == name));
    let array = index.and_then(|index| parts.get(index)).and_then(|part| part.tensor.as_ref());
    match (&term.source, array.map(|array| array.shape.first())) {
        (Source::Length { .. }, Some(Some(&length))) => Ok(Scalar::Int(i64::try_from(length).unwrap_or(i64::MAX))),
        (Source::Length { .. }, Some(None)) => {
            Err(invalid(&path(&term.source), "expected an array with a first axis, got a single number"))
        }
        _ => Err(Failure::new(Outcome::Internal, "the manifest asks arrays for what they do not have")),
    }
}

/// One value, as little of it as terms need.
#[derive(Clone, Debug)]
enum Seen {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer beyond 64 signed bits.
    Huge(u64),
    Float(f64),
    Str {
        text: Option<Box<str>>,
        characters: usize,
        bytes: usize,
        padding: usize,
    },
    Bytes(usize),
    List(usize),
    Object,
}

impl Seen {
    fn text(text: &str, keep: bool) -> Seen {
        let padding = text.bytes().rev().take(2).take_while(|&byte| byte == b'=').count();
        let text_kept = (keep && text.len() <= KEY_BYTES).then(|| text.into());
        Seen::Str { text: text_kept, characters: text.chars().count(), bytes: text.len(), padding }
    }

    fn kind(&self) -> &'static str {
        match self {
            Seen::Null => "null",
            Seen::Bool(_) => "bool",
            Seen::Int(_) => "int",
            Seen::Huge(_) => "an int beyond 64 bits",
            Seen::Float(_) => "float",
            Seen::Str { .. } => "str",
            Seen::Bytes(_) => "bytes",
            Seen::List(_) => "list",
            Seen::Object => "object",
        }
    }
}

fn kind_of(value: &Scalar) -> &'static str {
    match value {
        Scalar::Null => "null",
        Scalar::Bool(_) => "bool",
        Scalar::Int(_) => "int",
        Scalar::Float(_) => "float",
        Scalar::Str(_) => "str",
    }
}

/// What was found of what was looked for.
struct Found<'m> {
    names: SmallVec<[&'m str; 4]>,
    /// The value of each of `names`. Of duplicate fields the last one counts, as in the decoders of the workers.
    fields: SmallVec<[Option<Seen>; 4]>,
    whole: Seen,
}

impl Found<'_> {
    fn field(&self, name: &str) -> Result<Option<&Seen>, Failure> {
        if !matches!(self.whole, Seen::Object) {
            return Err(invalid("$", &format!("expected object, got {}", self.whole.kind())));
        }
        Ok(self.names.iter().position(|&known| known == name).and_then(|index| self.fields[index].as_ref()))
    }

    fn value(&self, term: &Term, base64: bool) -> Result<Scalar, Failure> {
        match &term.source {
            Source::Field { name, types, default, literals } => match (self.field(name)?, default) {
                (Some(seen), _) => scalar(&term.source, seen, types, literals),
                (None, Some(default)) => Ok(default.clone()),
                (None, None) => Err(invalid(&path(&term.source), "is missing")),
            },
            Source::Length { of, unit } => {
                let seen = match of {
                    None => &self.whole,
                    Some(name) => self.field(name)?.ok_or_else(|| invalid(&path(&term.source), "is missing"))?,
                };
                let length = length(seen, unit, base64 && of.is_none());
                let length = length.ok_or_else(|| {
                    let expected = if unit == "axis" { "list" } else { "str" };
                    invalid(&path(&term.source), &format!("expected {expected}, got {}", seen.kind()))
                })?;
                Ok(Scalar::Int(i64::try_from(length).unwrap_or(i64::MAX)))
            }
        }
    }
}

fn length(seen: &Seen, unit: &str, base64: bool) -> Option<usize> {
    match (seen, unit) {
        (Seen::Str { bytes, padding, .. }, "bytes") if base64 => Some((bytes - padding) * 3 / 4),
        (Seen::Str { bytes, .. }, "bytes") => Some(*bytes),
        (Seen::Str { characters, .. }, "characters") => Some(*characters),
        (Seen::Bytes(length), "bytes") | (Seen::List(length), "axis") => Some(*length),
        _ => None,
    }
}

fn scalar(source: &Source, seen: &Seen, types: &[String], literals: &[Scalar]) -> Result<Scalar, Failure> {
    let takes = |name: &str| types.is_empty() || types.iter().any(|known| known == name);
    let value = match seen {
        Seen::Null if takes("none") => Scalar::Null,
        Seen::Bool(value) if takes("bool") => Scalar::Bool(*value),
        Seen::Int(value) if takes("int") || takes("float") => Scalar::Int(*value),
        // It may have been an integer, rounded when it was read: then two that differ would be one key.
        Seen::Float(value) if takes("int") && value.abs() >= EXACT && value.fract() == 0.0 => {
            let what =
                format!("expected an int of at most 64 bits, since items are grouped by it, got about {value:e}");
            return Err(invalid(&path(source), &what));
        }
        Seen::Float(value) if takes("float") || takes("int") && value.fract() == 0.0 => Scalar::Float(*value),
        Seen::Huge(value) if takes("float") && !takes("int") => Scalar::Float(*value as f64),
        Seen::Str { text: Some(text), .. } if takes("str") => Scalar::Str(text.to_string()),
        Seen::Str { text: None, bytes, .. } if takes("str") => {
            let what =
                format!("expected a string of at most {KEY_BYTES} bytes, since items are grouped by it, got {bytes}");
            return Err(invalid(&path(source), &what));
        }
        other => return Err(invalid(&path(source), &format!("expected {}, got {}", types.join(" or "), other.kind()))),
    };
    if !literals.is_empty()
        && !literals.iter().any(|literal| KeyPart::from_scalar(literal) == KeyPart::from_scalar(&value))
    {
        let known: Vec<String> = literals.iter().map(shown).collect();
        return Err(invalid(&path(source), &format!("expected one of {}, got {}", known.join(", "), shown(&value))));
    }
    Ok(value)
}

fn shown(value: &Scalar) -> String {
    match value {
        Scalar::Null => "null".into(),
        Scalar::Bool(value) => value.to_string(),
        Scalar::Int(value) => value.to_string(),
        Scalar::Float(value) => value.to_string(),
        Scalar::Str(value) => format!("{:?}", value.chars().take(80).collect::<String>()),
    }
}

/// The document itself: its kind or length, and its fields if it is an object.
struct Root<'f, 'm> {
    found: &'f mut Found<'m>,
}

impl<'de> DeserializeSeed<'de> for Root<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let Found { names, fields, whole } = self.found;
        *whole = deserializer.deserialize_any(Look { names, fields })?;
        Ok(())
    }
}

/// Looks at one value; at its fields only if names are given.
struct Look<'f, 'm> {
    names: &'f [&'m str],
    fields: &'f mut [Option<Seen>],
}

impl<'de> DeserializeSeed<'de> for Look<'_, '_> {
    type Value = Seen;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Seen, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Look<'_, '_> {
    type Value = Seen;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("any value")
    }
    fn visit_bool<E: Error>(self, value: bool) -> Result<Seen, E> {
        Ok(Seen::Bool(value))
    }
    fn visit_i64<E: Error>(self, value: i64) -> Result<Seen, E> {
        Ok(Seen::Int(value))
    }
    fn visit_u64<E: Error>(self, value: u64) -> Result<Seen, E> {
        Ok(i64::try_from(value).map_or(Seen::Huge(value), Seen::Int))
    }
    fn visit_f64<E: Error>(self, value: f64) -> Result<Seen, E> {
        Ok(Seen::Float(value))
    }
    fn visit_str<E: Error>(self, value: &str) -> Result<Seen, E> {
        // A whole item that is a string is only ever measured; a field may be compared.
        Ok(Seen::text(value, self.names.is_empty()))
    }
    fn visit_bytes<E: Error>(self, value: &[u8]) -> Result<Seen, E> {
        Ok(Seen::Bytes(value.len()))
    }
    fn visit_unit<E: Error>(self) -> Result<Seen, E> {
        Ok(Seen::Null)
    }
    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Seen, D::Error> {
        deserializer.deserialize_any(Skip).map(|_| Seen::Object)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Seen, A::Error> {
        let mut length = 0;
        while access.next_element::<Skip>()?.is_some() {
            length += 1;
        }
        Ok(Seen::List(length))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Seen, A::Error> {
        while let Some(index) = access.next_key_seed(Name { names: self.names })? {
            let Some(index) = index else {
                access.next_value::<Skip>()?;
                continue;
            };
            let seen = access.next_value_seed(Look { names: &[], fields: &mut [] })?;
            // Two terms may look at the same field.
            for (name, field) in self.names.iter().zip(self.fields.iter_mut()) {
                if *name == self.names[index] {
                    *field = Some(seen.clone());
                }
            }
        }
        Ok(Seen::Object)
    }
}

/// Which of the names a key is.
struct Name<'f, 'm> {
    names: &'f [&'m str],
}

impl<'de> DeserializeSeed<'de> for Name<'_, '_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Name<'_, '_> {
    type Value = Option<usize>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a key")
    }
    fn visit_str<E: Error>(self, key: &str) -> Result<Option<usize>, E> {
        Ok(self.names.iter().position(|&name| name == key))
    }
    // msgpack allows keys of any kind; a field's name is always a string.
    fn visit_bool<E: Error>(self, _: bool) -> Result<Option<usize>, E> {
        Ok(None)
    }
    fn visit_i64<E: Error>(self, _: i64) -> Result<Option<usize>, E> {
        Ok(None)
    }
    fn visit_u64<E: Error>(self, _: u64) -> Result<Option<usize>, E> {
        Ok(None)
    }
    fn visit_f64<E: Error>(self, _: f64) -> Result<Option<usize>, E> {
        Ok(None)
    }
    fn visit_bytes<E: Error>(self, _: &[u8]) -> Result<Option<usize>, E> {
        Ok(None)
    }
    fn visit_unit<E: Error>(self) -> Result<Option<usize>, E> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
