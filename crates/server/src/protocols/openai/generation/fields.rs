//! The members of a request, of which the front reads a few and the deployment declares others.

use crate::protocols::openai::input::{not_read, wrong};
use crate::protocols::reply::value::json_string;
use crate::protocols::request::headers::quoted;
use crate::protocols::request::object::Members;
use crate::protocols::request::schema::{allows, property};
use crate::values::answer::Failure;
use jitney_core::config::manifest::serde_json_value::Value as Schema;
use serde::de::{Deserialize, Deserializer};
use serde_json::Value;

/// Members that only the front reads.
const OWN: [&str; 4] = ["model", "stream", "stream_options", "n"];
/// The newer name of `max_tokens`.
const NEWER: (&str, &str) = ("max_completion_tokens", "max_tokens");

/// Members that change what is asked, and the values with which they do not. A model that does not declare one of them would
/// answer another question.
const MEANING: &[(&str, &[&str])] = &[
    ("audio", &[]),
    ("background", &["\"auto\"", "\"opaque\""]),
    ("best_of", &["1"]),
    ("echo", &["false"]),
    ("frequency_penalty", &["0", "0.0"]),
    ("function_call", &["\"none\"", "\"auto\""]),
    ("functions", &["[]"]),
    ("logit_bias", &["{}"]),
    ("logprobs", &["false"]),
    ("max_completion_tokens", &[]),
    ("max_tokens", &[]),
    ("mask", &[]),
    ("modalities", &["[\"text\"]"]),
    ("output_compression", &["100"]),
    ("output_format", &["\"png\""]),
    ("presence_penalty", &["0", "0.0"]),
    ("response_format", &["{\"type\": \"text\"}"]),
    ("stop", &["[]"]),
    ("suffix", &["\"\""]),
    ("tool_choice", &["\"none\"", "\"auto\""]),
    ("tools", &["[]"]),
    ("top_logprobs", &["0"]),
    ("web_search_options", &[]),
];

/// The members of a document, in order, as they stand in it.
#[derive(Debug)]
pub(crate) struct Fields<'a>(Vec<(String, &'a str)>);

impl<'a> Fields<'a> {
    /// Reads a document.
    pub(crate) fn read(body: &'a [u8]) -> Result<Fields<'a>, Failure> {
        serde_json::from_slice(body).map_err(|error| not_read(body, &error))
    }

    /// A member as it stands in the document; of several the last. `null` is nothing.
    pub(crate) fn get(&self, name: &str) -> Option<&'a str> {
        let found = self.0.iter().rev().find(|(known, _)| known == name);
        found.map(|(_, raw)| *raw).filter(|raw| *raw != "null")
    }

    /// A member that is a string.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, Failure> {
        self.parsed(name, "expected a string")
    }

    /// The name of the model, which every request has.
    pub(crate) fn model(&self) -> Result<String, Failure> {
        let missing = || wrong("model", "is missing; send the name of a model, see /v1/models");
        self.text("model")?.ok_or_else(missing)
    }

    /// A member that is true or false; false if it is not there.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, Failure> {
        self.parsed(name, "expected true or false").map(Option::unwrap_or_default)
    }

    /// A member that is a whole number from `least` to `most`; `least` if it is not there.
    pub(crate) fn count(&self, name: &str, least: usize, most: usize) -> Result<usize, Failure> {
        let expected = format!("expected a whole number from {least} to {most}");
        let count = self.parsed::<usize>(name, &expected)?.unwrap_or(least);
        if (least..=most).contains(&count) {
            return Ok(count);
        }
        Err(wrong(name, &format!("{expected}, got {count}")))
    }

    /// The members of a member.
    pub(crate) fn object(&self, name: &str) -> Result<Option<Fields<'a>>, Failure> {
        let Some(raw) = self.get(name) else { return Ok(None) };
        let read = serde_json::from_str(raw);
        read.map(Some).map_err(|_| wrong(name, &format!("expected an object, got {}", quoted(raw.as_bytes()))))
    }

    fn parsed<T: for<'de> Deserialize<'de>>(&self, name: &str, expected: &str) -> Result<Option<T>, Failure> {
        let Some(raw) = self.get(name) else { return Ok(None) };
        let read = serde_json::from_str(raw);
        read.map(Some).map_err(|_| wrong(name, &format!("{expected}, got {}", quoted(raw.as_bytes()))))
    }

    /// The members that items of this schema have, each with a comma before it, without those in `except`. A member that
    /// changes what is asked and that `model` does not declare is refused.
    pub(crate) fn declared(&self, model: &str, schema: &Schema, except: &[&str]) -> Result<Vec<u8>, Failure> {
        let mut written = Vec::new();
        for (name, raw) in &self.0 {
            if OWN.contains(&&**name) || except.contains(&&**name) {
                continue;
            }
            let (newer, older) = NEWER;
            let is_renamed = name == newer && property(schema, newer).is_none();
            if name == older && self.get(newer).is_some() && property(schema, newer).is_none() {
                continue;
            }
            // It says nothing, and must not replace the older name's value.
            if is_renamed && *raw == "null" {
                continue;
            }
            let declared = if is_renamed { older } else { name };
            match property(schema, declared) {
                // Clients write `null` for what they do not say.
                Some(field) if *raw == "null" && !allows(field, "null") => {}
                Some(_) => {
                    written.push(b',');
                    json_string(&mut written, declared);
                    written.push(b':');
                    written.extend_from_slice(raw.as_bytes());
                }
                None => check_meaning(model, name, raw)?,
            }
        }
        Ok(written)
    }
}

fn check_meaning(model: &str, name: &str, raw: &str) -> Result<(), Failure> {
    let Some((_, neutral)) = MEANING.iter().find(|(known, _)| *known == name) else { return Ok(()) };
    let value: Value = serde_json::from_str(raw).unwrap_or_default();
    if value.is_null() || neutral.iter().any(|known| serde_json::from_str(known).ok().as_ref() == Some(&value)) {
        return Ok(());
    }
    let model = quoted(model.as_bytes());
    let what = format!("the model {model} does not take it, got {}; leave it out", quoted(raw.as_bytes()));
    Err(wrong(name, &what))
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fields<'a>, D::Error> {
        Members::deserialize(deserializer).map(|Members(members)| Fields(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocols::request::object::MOST_MEMBERS;
    use proptest::prelude::*;

    fn schema() -> Schema {
        let text = r#"{"properties": {"messages": {}, "max_tokens": {"type": "integer"}, "stop": {"anyOf": [{"type":
            "string"}, {"type": "null"}]}, "tools": {}, "own": {}}}"#;
        serde_json::from_str(text).unwrap()
    }

    fn declared(body: &str) -> Result<String, Failure> {
        let fields = Fields::read(body.as_bytes())?;
        fields.declared("m", &schema(), &["messages"]).map(|written| String::from_utf8(written).unwrap())
    }

    #[test]
    fn an_item_has_the_members_that_it_declares() {
        let body = r#"{"model": "m", "messages": [], "stream": true, "n": 2, "own": {"a": 1}, "user": "me", "tools": [7],
            "max_tokens": null, "stop": null, "stream_options": {}, "temperature": 0.5}"#;
        assert_eq!(declared(body).unwrap(), r#","own":{"a": 1},"tools":[7],"stop":null"#);
    }

    #[test]
    fn the_newer_name_of_a_limit_wins() {
        assert_eq!(declared(r#"{"max_completion_tokens": 5, "max_tokens": 7}"#).unwrap(), r#","max_tokens":5"#);
        assert_eq!(declared(r#"{"max_tokens": 7, "max_completion_tokens": null}"#).unwrap(), r#","max_tokens":7"#);
        let schema = r#"{"properties": {"max_tokens": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}"#;
        let schema: Schema = serde_json::from_str(schema).unwrap();
        let body = br#"{"max_tokens": 7, "max_completion_tokens": null}"#;
        let written = Fields::read(body).unwrap().declared("m", &schema, &[]).unwrap();
        assert_eq!(written, br#","max_tokens":7"#, "a model that takes null must not get it");
    }

    #[test]
    fn what_changes_the_question_is_refused_where_nobody_reads_it() {
        for (body, field) in [
            (r#"{"response_format": {"type": "json_object"}}"#, "response_format"),
            (r#"{"logprobs": true}"#, "logprobs"),
            (r#"{"logit_bias": {"5": 1}}"#, "logit_bias"),
            (r#"{"presence_penalty": 0.1}"#, "presence_penalty"),
            (r#"{"best_of": 2}"#, "best_of"),
        ] {
            let failure = declared(body).unwrap_err();
            assert_eq!(failure.field.as_deref(), Some(field), "{}", failure.detail);
            assert!(failure.detail.contains("`m` does not take it"), "{}", failure.detail);
        }
        let harmless = r#"{"response_format":  {"type":"text"}, "logprobs": false, "logit_bias": {}, "tool_choice": "auto",
            "presence_penalty": 0, "frequency_penalty": 0.0, "best_of": 1, "echo": false, "functions": null, "user": "me",
            "modalities": ["text"], "reasoning_effort": "low"}"#;
        assert_eq!(declared(harmless).unwrap(), "");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_value() {
        let fields =
            Fields::read(br#"{"n": 0, "stream": "yes", "model": 7, "stream_options": [1], "m": 1.5}"#).unwrap();
        for (failure, says) in [
            (fields.count("n", 1, 128).unwrap_err(), "n: expected a whole number from 1 to 128, got 0"),
            (fields.count("m", 1, 128).unwrap_err(), "m: expected a whole number from 1 to 128, got `1.5`"),
            (fields.flag("stream").unwrap_err(), "stream: expected true or false, got `\"yes\"`"),
            (fields.text("model").unwrap_err(), "model: expected a string, got `7`"),
            (fields.object("stream_options").unwrap_err(), "stream_options: expected an object, got `[1]`"),
        ] {
            assert_eq!(failure.detail, says);
        }
        assert!(Fields::read(b"[]").unwrap_err().detail.contains("expected an object"));
        let many: Vec<String> = (0..=MOST_MEMBERS).map(|number| format!("\"{number}\": 1")).collect();
        assert!(Fields::read(format!("{{{}}}", many.join(",")).as_bytes()).unwrap_err().detail.contains("1000 fields"));
    }

    proptest! {
        #[test]
        fn no_body_is_too_strange(body in "[ -~]{0,80}|[{}\\[\\]\",:0-9a-z]{0,60}") {
            let _ = declared(&body);
        }
    }
}
