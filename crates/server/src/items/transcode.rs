//! JSON to msgpack without a tree in between, which would take many times the memory of the document.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Appends a JSON document as a msgpack value; false, and nothing, if it is none. It may become three times as long, when it is
/// all short numbers with a point.
pub(crate) fn json(out: &mut Vec<u8>, document: &[u8]) -> bool {
    let start = out.len();
    let mut reader = serde_json::Deserializer::from_slice(document);
    let is_read = Value(out).deserialize(&mut reader).is_ok() && reader.end().is_ok();
    if !is_read {
        out.truncate(start);
    }
    is_read
}

/// Where a value goes.
struct Value<'a>(&'a mut Vec<u8>);

impl Value<'_> {
    /// The head of a list or a map, whose length is known when it ends.
    fn open(&mut self, marker: u8) -> usize {
        self.0.push(marker);
        self.0.extend_from_slice(&[0; 4]);
        self.0.len()
    }

    fn close<E: Error>(&mut self, start: usize, length: usize) -> Result<(), E> {
        let length = u32::try_from(length).map_err(E::custom)?;
        self.0[start - 4..start].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }
}

// A Vec takes every byte.
macro_rules! write {
    ($name:ident, $kind:ty, $write:ident) => {
        fn $name<E: Error>(self, value: $kind) -> Result<(), E> {
            rmp::encode::$write(self.0, value).map_err(E::custom).map(drop)
        }
    };
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a value")
    }

    write!(visit_bool, bool, write_bool);
    write!(visit_i64, i64, write_sint);
    write!(visit_u64, u64, write_uint);
    write!(visit_f64, f64, write_f64);
    write!(visit_str, &str, write_str);

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        rmp::encode::write_nil(self.0).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut access: A) -> Result<(), A::Error> {
        let (start, mut length) = (self.open(0xdd), 0);
        while access.next_element_seed(Value(self.0))?.is_some() {
            length += 1;
        }
        self.close(start, length)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut access: A) -> Result<(), A::Error> {
        let (start, mut length) = (self.open(0xdf), 0);
        while access.next_key_seed(Value(self.0))?.is_some() {
            access.next_value_seed(Value(self.0))?;
            length += 1;
        }
        self.close(start, length)
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(text: &str) -> Option<serde_json::Value> {
        let mut out = vec![1];
        if !json(&mut out, text.as_bytes()) {
            assert_eq!(out, [1], "nothing is left of what is not JSON");
            return None;
        }
        Some(rmp_serde::from_slice(&out[1..]).unwrap())
    }

    #[test]
    fn every_kind_of_value_comes_through() {
        let text = r#"{"a": [1, -2, 3.5, true, null, "ä"], "b": {"c": [], "d": {}}, "e": 18446744073709551615}"#;
        assert_eq!(written(text), Some(serde_json::from_str(text).unwrap()));
        for text in ["", "[1", "{\"a\"}", "[1] 2", "nan"] {
            assert_eq!(written(text), None, "{text}");
        }
        assert_eq!(written(&"[".repeat(100_000)), None, "however deep");
    }

    proptest! {
        #[test]
        fn numbers_and_texts_come_through(floats in prop::collection::vec(any::<f32>(), 0..9), text in ".{0,20}", n: i64) {
            let value = serde_json::json!({ &text: floats, "n": [n, text] });
            prop_assert_eq!(written(&value.to_string()), Some(serde_json::from_str(&value.to_string()).unwrap()));
        }
    }
}
