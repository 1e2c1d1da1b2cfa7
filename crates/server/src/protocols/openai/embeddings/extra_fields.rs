//! The fields of a request that are not part of the OpenAI API. They belong to the deployment: each input gets them,
//! and they are checked like fields of a request to the deployment itself.

use crate::protocols::openai::input::not_read;
use crate::protocols::request::schema::property;
use crate::values::answer::Failure;
use jitney_core::config::manifest::serde_json_value::Value as Schema;
use jitney_core::config::manifest::{Input, InputKind};
use jitney_core::tables::outcome::Outcome;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// What the front reads itself. A deployment is given the first two of them, and never the others.
const OWN: [&str; 4] = ["input", "dimensions", "model", "encoding_format"];

/// All copies of these fields may take so many times what the body takes …
const COPIES: usize = 4;
/// … and always so many bytes.
const ALWAYS: usize = 1 << 18;

/// What is said of all inputs of one request, as the rest of an object that begins with the input.
#[derive(Debug)]
pub(crate) struct ExtraFields(Vec<u8>);

impl ExtraFields {
    /// Of the fields in `body` those that items have too; clients send all sorts.
    pub(crate) fn read(body: &[u8], items: &Input, dimensions: Option<u32>) -> Result<ExtraFields, Failure> {
        let mut written = Vec::new();
        if items.kind == InputKind::Text {
            return Ok(ExtraFields(written));
        }
        if let Some(dimensions) = dimensions {
            written.extend_from_slice(format!(",\"dimensions\":{dimensions}").as_bytes());
        }
        let mut reader = serde_json::Deserializer::from_slice(body);
        Fields { schema: &items.schema, written: &mut written }
            .deserialize(&mut reader)
            .map_err(|error| not_read(body, &error))?;
        written.push(b'}');
        Ok(ExtraFields(written))
    }

    /// Every input gets a copy, so that many short requests could fill the memory: `body` is what was counted of this one.
    pub(crate) fn check_room(&self, inputs: usize, body: usize) -> Result<(), Failure> {
        let (bytes, most) = (self.0.len().saturating_mul(inputs), body.saturating_mul(COPIES).max(ALWAYS));
        if bytes <= most {
            return Ok(());
        }
        let detail = format!(
            "the fields beside input go with each of the {inputs} inputs, which makes {bytes} bytes: of this body at \
             most {most}; send fewer inputs"
        );
        Err(Failure::new(Outcome::TooLarge, detail))
    }

    /// The item of one input.
    pub(crate) fn item(&self, input: &impl serde::Serialize) -> Vec<u8> {
        let mut item = b"{\"input\":".to_vec();
        // A Vec takes every byte.
        let _ = serde_json::to_writer(&mut item, input);
        item.extend_from_slice(&self.0);
        item
    }
}

/// Writes the members that are asked for behind each other, as they stand in the document.
struct Fields<'a> {
    schema: &'a Schema,
    written: &'a mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for Fields<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        while let Some(name) = access.next_key::<String>()? {
            if OWN.contains(&&*name) || property(self.schema, &name).is_none() {
                access.next_value::<IgnoredAny>()?;
                continue;
            }
            self.written.push(b',');
            serde_json::to_writer(&mut *self.written, &name).map_err(Error::custom)?;
            self.written.push(b':');
            self.written.extend_from_slice(access.next_value::<&RawValue>()?.get().as_bytes());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str, dimensions: Option<u32>) -> Result<ExtraFields, Failure> {
        let items = r#"{"kind": "object", "arrays": [], "schema": {"properties":
            {"input": {}, "model": {}, "dimensions": {}, "input_type": {}, "a\"b": {}}}}"#;
        ExtraFields::read(body.as_bytes(), &serde_json::from_str(items).unwrap(), dimensions)
    }

    #[test]
    fn every_item_has_the_fields_that_it_declares() {
        let body = r#"{"input": ["x"], "model": "m", "input\u005ftype": "passage", "dimensions": 7, "user": "me",
            "a\"b": [1, {"c": null}], "encoding_format": "float"}"#;
        let extra = read(body, Some(3)).unwrap();
        assert_eq!(
            String::from_utf8(extra.item(&"t\n")).unwrap(),
            r#"{"input":"t\n","dimensions":3,"input_type":"passage","a\"b":[1, {"c": null}]}"#
        );
        assert_eq!(read("{}", None).unwrap().item(&[1, 2]), b"{\"input\":[1,2]}");
        // As on the deployment's own route, where the last of them counts too.
        let twice = read(r#"{"input_type": 1, "input_type": 2}"#, None).unwrap();
        assert_eq!(twice.item(&""), br#"{"input":"","input_type":1,"input_type":2}"#);
    }

    #[test]
    fn a_short_request_does_not_become_a_long_one() {
        let body = format!(r#"{{"input_type": "{}"}}"#, "x".repeat(1000));
        let extra = read(&body, None).unwrap();
        assert!(extra.check_room(256, 0).is_ok(), "256 KiB are always allowed");
        let failure = extra.check_room(300, 60_000).unwrap_err();
        assert_eq!(failure.outcome, Outcome::TooLarge);
        assert!(failure.detail.contains("300 inputs"), "{}", failure.detail);
        assert!(extra.check_room(300, 80_000).is_ok(), "four times what came");
    }

    #[test]
    fn a_list_is_no_request() {
        assert_eq!(read(r#"["m", "x"]"#, None).unwrap_err().outcome, Outcome::InvalidInput);
    }
}
