//! Skips a value that the server does not read. It counts the depth everywhere, so that the parser's limit holds;
//! serde's own type does not.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::fmt;

pub(crate) struct Skip;

impl<'de> Deserialize<'de> for Skip {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Skip, D::Error> {
        deserializer.deserialize_any(Skip)
    }
}

impl<'de> Visitor<'de> for Skip {
    type Value = Skip;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("any value")
    }
    fn visit_bool<E: Error>(self, _: bool) -> Result<Skip, E> {
        Ok(Skip)
    }
    fn visit_i64<E: Error>(self, _: i64) -> Result<Skip, E> {
        Ok(Skip)
    }
    fn visit_u64<E: Error>(self, _: u64) -> Result<Skip, E> {
        Ok(Skip)
    }
    fn visit_f64<E: Error>(self, _: f64) -> Result<Skip, E> {
        Ok(Skip)
    }
    fn visit_str<E: Error>(self, _: &str) -> Result<Skip, E> {
        Ok(Skip)
    }
    fn visit_bytes<E: Error>(self, _: &[u8]) -> Result<Skip, E> {
        Ok(Skip)
    }
    fn visit_unit<E: Error>(self) -> Result<Skip, E> {
        Ok(Skip)
    }
    fn visit_none<E: Error>(self) -> Result<Skip, E> {
        Ok(Skip)
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Skip, D::Error> {
        deserializer.deserialize_any(Skip)
    }
    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Skip, D::Error> {
        deserializer.deserialize_any(Skip)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Skip, A::Error> {
        while access.next_element::<Skip>()?.is_some() {}
        Ok(Skip)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Skip, A::Error> {
        while access.next_entry::<Skip, Skip>()?.is_some() {}
        Ok(Skip)
    }
}
