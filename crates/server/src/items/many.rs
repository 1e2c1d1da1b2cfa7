//! The items of one document: a JSON or msgpack list is cut where its values end, and nothing is copied.

use crate::items::document::{Document, invalid, malformed};
use crate::values::answer::Failure;
use bytes::Bytes;
use jitney_core::tables::outcome::Outcome;
use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// How the values of a list are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON
    Json,
    /// msgpack
    Msgpack,
}

impl Format {
    /// One value of this format.
    pub fn document(self, bytes: &[u8]) -> Document<'_> {
        match self {
            Format::Json => Document::Json(bytes),
            Format::Msgpack => Document::Msgpack(bytes),
        }
    }
}

/// The values of a list, as slices of `whole`; what stands in them is not looked into. At most `most` are taken.
pub fn split(format: Format, whole: &Bytes, most: usize) -> Result<Vec<Bytes>, Failure> {
    match format {
        Format::Json => split_json(whole, most),
        Format::Msgpack => split_msgpack(whole, most),
    }
}

/// More items than one request may have.
pub fn too_many(most: usize) -> Failure {
    let detail = format!("one request may have {most} items; send the others in another, or raise max_body_bytes");
    Failure::new(Outcome::TooLarge, detail)
}

fn not_a_list() -> Failure {
    invalid("$", "expected a list of items, got something else; the body of /batch is a list")
}

fn split_json(whole: &Bytes, most: usize) -> Result<Vec<Bytes>, Failure> {
    // Said by its first character: the parser would only call it malformed.
    let start = whole.trim_ascii_start();
    let is_value = matches!(start.first(), Some(b'{' | b'"' | b'-' | b'0'..=b'9'));
    let is_word = [&b"true"[..], b"false", b"null"].iter().any(|word| start.starts_with(word));
    if is_value || is_word {
        return Err(not_a_list());
    }
    let mut found = Found { whole, most, items: Vec::new(), overflowed: false };
    let read = Document::Json(whole).read(&mut found);
    if found.overflowed {
        return Err(too_many(most));
    }
    read.map(|()| found.items)
}

struct Found<'a> {
    whole: &'a Bytes,
    most: usize,
    items: Vec<Bytes>,
    overflowed: bool,
}

impl<'de> DeserializeSeed<'de> for &mut Found<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for &mut Found<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a list of items")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        while let Some(item) = access.next_element::<&'de RawValue>()? {
            if self.items.len() == self.most {
                self.overflowed = true;
                return Err(A::Error::custom("too many"));
            }
            self.items.push(self.whole.slice_ref(item.get().as_bytes()));
        }
        Ok(())
    }
}

fn split_msgpack(whole: &Bytes, most: usize) -> Result<Vec<Bytes>, Failure> {
    let truncated = || malformed("msgpack", &"it ends inside a value");
    let (length, mut at) = match *whole.first().ok_or_else(truncated)? {
        marker @ 0x90..=0x9f => (u64::from(marker & 0x0f), 1),
        0xdc => (number(whole, 1, 2).ok_or_else(truncated)?, 3),
        0xdd => (number(whole, 1, 4).ok_or_else(truncated)?, 5),
        _ => return Err(not_a_list()),
    };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    // Each value has a byte at least: what is announced cannot make us reserve more than came.
    if length > whole.len() - at {
        return Err(truncated());
    }
    if length > most {
        return Err(too_many(most));
    }
    let mut items = Vec::with_capacity(length);
    for _ in 0..length {
        let end = skip(whole, at).ok_or_else(truncated)?;
        items.push(whole.slice(at..end));
        at = end;
    }
    if at < whole.len() {
        return Err(malformed("msgpack", &format_args!("{} bytes follow the list", whole.len() - at)));
    }
    Ok(items)
}

/// A big-endian number of so many bytes.
fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let digits = bytes.get(at..at.checked_add(width)?)?;
    Some(digits.iter().fold(0, |number, &digit| number << 8 | u64::from(digit)))
}

/// Where the value that begins at `at` ends; `None` if the bytes end first. Counts what is still to come instead of
/// following it down, so that depth costs nothing.
fn skip(bytes: &[u8], mut at: usize) -> Option<usize> {
    let mut values: u64 = 1;
    while values > 0 {
        // A value has a byte at least: a larger number is a lie.
        if values > (bytes.len() - at) as u64 {
            return None;
        }
        let marker = *bytes.get(at)?;
        at += 1;
        values -= 1;
        let (inside, length) = match marker {
            0x80..=0x8f => (2 * u64::from(marker & 0x0f), 0),
            0x90..=0x9f => (u64::from(marker & 0x0f), 0),
            0xa0..=0xbf => (0, u64::from(marker & 0x1f)),
            0xc4..=0xc6 | 0xc7..=0xc9 | 0xd9..=0xdb => {
                let width = match marker {
                    0xc4 | 0xc7 | 0xd9 => 1,
                    0xc5 | 0xc8 | 0xda => 2,
                    _ => 4,
                };
                let length = number(bytes, at, width)?;
                at += width;
                // An extension has one byte for its type, in addition to its data.
                (0, length + u64::from(matches!(marker, 0xc7..=0xc9)))
            }
            0xdc..=0xdf => {
                let width = if matches!(marker, 0xdc | 0xde) { 2 } else { 4 };
                let length = number(bytes, at, width)?;
                at += width;
                (length * if marker >= 0xde { 2 } else { 1 }, 0)
            }
            0xcc | 0xd0 => (0, 1),
            0xcd | 0xd1 | 0xd4 => (0, 2),
            0xd5 => (0, 3),
            0xca | 0xce | 0xd2 => (0, 4),
            0xd6 => (0, 5),
            0xcb | 0xcf | 0xd3 => (0, 8),
            0xd7 => (0, 9),
            0xd8 => (0, 17),
            // Small integers, nil, booleans; and 0xc1, which nothing is and the decoder refuses.
            _ => (0, 0),
        };
        values += inside;
        at = at.checked_add(usize::try_from(length).ok()?).filter(|&at| at <= bytes.len())?;
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn texts(format: Format, body: &[u8]) -> Result<Vec<Bytes>, Failure> {
        split(format, &Bytes::copy_from_slice(body), 1000)
    }

    #[test]
    fn a_list_is_cut_where_its_values_end() {
        let items = texts(Format::Json, b" [1, {\"a\": [2, \"]\"]},\n\"x\" , null] ").unwrap();
        assert_eq!(items, [&b"1"[..], b"{\"a\": [2, \"]\"]}", b"\"x\"", b"null"]);
        let items = texts(Format::Msgpack, b"\x93\x01\x81\xa1a\x92\x02\x03\xc4\x02ab").unwrap();
        assert_eq!(items, [&b"\x01"[..], b"\x81\xa1a\x92\x02\x03", b"\xc4\x02ab"]);
        assert_eq!(texts(Format::Json, b"[]").unwrap().len() + texts(Format::Msgpack, b"\x90").unwrap().len(), 0);
    }

    #[test]
    fn what_is_no_list_is_told_so() {
        for body in ["{}", "\"x\"", "7", "null", " true"] {
            let failure = texts(Format::Json, body.as_bytes()).unwrap_err();
            assert_eq!(failure.outcome, Outcome::InvalidInput, "{body}");
            assert!(failure.detail.contains("a list"), "{}", failure.detail);
        }
        assert_eq!(texts(Format::Msgpack, b"\x80").unwrap_err().outcome, Outcome::InvalidInput);
        for body in [&b""[..], b"[1", b"[1,]", b"[1] 2", b"]", b"[tru]"] {
            assert_eq!(texts(Format::Json, body).unwrap_err().outcome, Outcome::MalformedBody, "{body:?}");
        }
        for body in
            [&b""[..], b"\x92\x01", b"\x91\xa5abc", b"\x90\x01", b"\xdd\xff\xff\xff\xff", b"\x91\xdf\xff\xff\xff\xff"]
        {
            assert_eq!(texts(Format::Msgpack, body).unwrap_err().outcome, Outcome::MalformedBody, "{body:?}");
        }
    }

    #[test]
    fn more_items_than_one_request_may_have_are_refused() {
        for (format, body) in [(Format::Json, &b"[1,2,3]"[..]), (Format::Msgpack, b"\x93\x01\x02\x03")] {
            let body = Bytes::from_static(body);
            assert_eq!(split(format, &body, 3).unwrap().len(), 3);
            assert_eq!(split(format, &body, 2).unwrap_err().outcome, Outcome::TooLarge);
        }
    }

    #[test]
    fn depth_costs_no_stack() {
        let deep = [&b"\x91"[..], &vec![0x91; 1 << 20], b"\x01"].concat();
        assert_eq!(texts(Format::Msgpack, &deep).unwrap().len(), 1);
        let deep = ["[", &"[".repeat(1 << 20), &"]".repeat(1 << 20), "]"].concat();
        assert_eq!(texts(Format::Json, deep.as_bytes()).map_or(1, |items| items.len()), 1);
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,40}".prop_map(Value::from),
            prop::collection::vec(any::<u8>(), 0..20).prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 20, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..18).prop_map(Value::from),
                prop::collection::vec((".{0,8}", inner), 0..8)
                    .prop_map(|fields| fields.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn every_value_comes_out_as_it_went_in(values in prop::collection::vec(value(), 0..8)) {
            let json = Bytes::from(serde_json::to_vec(&values).unwrap());
            let items = split(Format::Json, &json, 1000).unwrap();
            let read: Vec<Value> = items.iter().map(|item| serde_json::from_slice(item).unwrap()).collect();
            prop_assert_eq!(&read, &serde_json::from_slice::<Vec<Value>>(&json).unwrap());
            let msgpack = Bytes::from(rmp_serde::to_vec(&values).unwrap());
            let items = split(Format::Msgpack, &msgpack, 1000).unwrap();
            prop_assert_eq!(items.len(), values.len());
            for (item, value) in items.iter().zip(&values) {
                prop_assert_eq!(&item[..], rmp_serde::to_vec(value).unwrap());
            }
        }
    }
}
