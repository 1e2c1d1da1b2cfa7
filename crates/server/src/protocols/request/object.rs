//! An object of a document, and nothing else: what is derived for a struct would also read a list, by position.

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use std::marker::PhantomData;

/// A value that is read from an object.
#[derive(Debug, Default)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object<T>, D::Error> {
        deserializer.deserialize_map(Fields(PhantomData)).map(Object)
    }
}

struct Fields<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(access))
    }
}

/// Members of one object: each takes more memory than it took in the body.
pub(crate) const MOST_MEMBERS: usize = 1000;

/// The members of an object, in order, each value as it stands in the document.
#[derive(Debug, Default)]
pub(crate) struct Members<'a>(pub(crate) Vec<(String, &'a str)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members<'a>, D::Error> {
        deserializer.deserialize_map(Raw).map(Members)
    }
}

struct Raw;

impl<'de> Visitor<'de> for Raw {
    type Value = Vec<(String, &'de str)>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(name) = access.next_key::<String>()? {
            if members.len() == MOST_MEMBERS {
                return Err(A::Error::custom(format!("a request may have {MOST_MEMBERS} fields")));
            }
            members.push((name, access.next_value::<&RawValue>()?.get()));
        }
        Ok(members)
    }
}
