//! What `POST /v1/embeddings` may be sent: one text, several, one list of tokens, or several.

use crate::items::document::json_fault;
use crate::items::many;
use crate::items::many::Format;
use crate::protocols::request::media::{BodyType, body_type, check_content_encoding, content_type, wrong_type};
use crate::protocols::request::object::Object;
use crate::values::answer::Failure;
use crate::values::text::parser_message;
use bytes::Bytes;
use hyper::header::HeaderMap;
use jitney_core::tables::outcome::Outcome;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Most inputs of one request, as OpenAI has it.
pub(crate) const MOST_INPUTS: usize = 2048;

/// The fields that the API has; of others see `beside`.
#[derive(Debug, Deserialize)]
pub(crate) struct Body<'a> {
    pub(crate) model: String,
    #[serde(borrow)]
    input: &'a RawValue,
    #[serde(default)]
    pub(crate) encoding_format: Option<String>,
    #[serde(borrow, default)]
    dimensions: Option<&'a RawValue>,
}

/// One input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Text(String),
    Tokens(Vec<u32>),
}

/// Refuses a body that says that it is something else than JSON.
pub(crate) fn check_is_json(headers: &HeaderMap) -> Result<(), Failure> {
    check_content_encoding(headers)?;
    if matches!(body_type(headers)?, BodyType::Json | BodyType::Unsaid) {
        return Ok(());
    }
    Err(wrong_type(content_type(headers), &["application/json"]))
}

/// A field that is not what it should be.
pub(crate) fn wrong(field: &str, what: &str) -> Failure {
    let detail = format!("{field}: {what}");
    Failure { field: Some(field.to_owned()), ..Failure::new(Outcome::InvalidInput, detail) }
}

/// The document is not one, or not what is asked for.
pub(crate) fn not_read(body: &[u8], error: &serde_json::Error) -> Failure {
    if !error.is_data() {
        return Failure::new(
            Outcome::MalformedBody,
            format!("the body is not valid JSON: {}", json_fault(body, error)),
        );
    }
    let text = error.to_string();
    let field = ["model", "input", "encoding_format"].into_iter().find(|field| text.contains(&format!("`{field}`")));
    let detail = format!("the body is not what this route takes: {}", parser_message(error));
    Failure { field: field.map(str::to_owned), ..Failure::new(Outcome::InvalidInput, detail) }
}

impl<'a> Body<'a> {
    /// Reads the document. `inputs` reads the value of `input` later.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Body<'a>, Failure> {
        let read: Result<Object<Body>, _> = serde_json::from_slice(bytes);
        read.map(|Object(body)| body).map_err(|error| not_read(bytes, &error))
    }

    /// How long the vectors should be.
    pub(crate) fn dimensions(&self) -> Result<Option<u32>, Failure> {
        let Some(raw) = self.dimensions.map(RawValue::get).filter(|raw| *raw != "null") else { return Ok(None) };
        let parsed = raw.parse::<u32>().ok().filter(|&dimensions| dimensions > 0);
        parsed
            .map(Some)
            .ok_or_else(|| wrong("dimensions", &format!("expected a positive whole number, got {}", shown(raw))))
    }

    /// The inputs, in order.
    pub(crate) fn inputs(&self) -> Result<Vec<Input>, Failure> {
        inputs("input", self.input.get())
    }
}

/// The inputs that a field of this name has, in order: at least one, at most as many as the API allows.
pub(crate) fn inputs(field: &str, raw: &str) -> Result<Vec<Input>, Failure> {
    if raw.starts_with('"') {
        return Ok(vec![text(field, raw)?]);
    }
    if !raw.starts_with('[') {
        return Err(wrong(field, &format!("expected a string or a list, got {}", shown(raw))));
    }
    // What a list of numbers may hold is bounded by the body, not by the number of inputs.
    if raw[1..].trim_start().starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        return Ok(vec![tokens(field, raw)?]);
    }
    let items = many::split(Format::Json, &Bytes::copy_from_slice(raw.as_bytes()), MOST_INPUTS);
    let items = items.map_err(|_| wrong(field, &format!("one request may have {MOST_INPUTS} inputs")))?;
    if items.is_empty() {
        return Err(wrong(field, "the list is empty; send at least one input"));
    }
    items.iter().enumerate().map(|(index, item)| one(&format!("{field}[{index}]"), item)).collect()
}

fn one(place: &str, item: &[u8]) -> Result<Input, Failure> {
    let raw = std::str::from_utf8(item).unwrap_or_default();
    match item.first() {
        Some(b'"') => text(place, raw),
        Some(b'[') => tokens(place, raw),
        _ => Err(wrong(place, &format!("expected a string or a list of tokens, got {}", shown(raw)))),
    }
}

fn text(place: &str, raw: &str) -> Result<Input, Failure> {
    serde_json::from_str(raw)
        .map(Input::Text)
        .map_err(|error| wrong(place, &format!("not a string: {}", parser_message(&error))))
}

fn tokens(place: &str, raw: &str) -> Result<Input, Failure> {
    let found: Vec<u32> = serde_json::from_str(raw)
        .map_err(|_| wrong(place, "expected tokens, which are whole numbers from 0 to 4294967295"))?;
    if found.is_empty() {
        return Err(wrong(place, "the list of tokens is empty; send at least one"));
    }
    Ok(Input::Tokens(found))
}

fn shown(raw: &str) -> String {
    crate::protocols::request::headers::quoted(raw.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn inputs(input: &str) -> Result<Vec<Input>, String> {
        let body = format!("{{\"model\": \"m\", \"input\": {input}, \"unknown\": 1}}");
        Body::read(body.as_bytes()).and_then(|body| body.inputs()).map_err(|failure| failure.detail)
    }

    fn texts(texts: &[&str]) -> Vec<Input> {
        texts.iter().map(|&text| Input::Text(text.to_owned())).collect()
    }

    #[test]
    fn every_form_of_input_is_read() {
        for (input, expected) in [
            ("\"a\\nb\"", texts(&["a\nb"])),
            ("[\"a\", \"\", \"\\u00e4\"]", texts(&["a", "", "ä"])),
            ("[1, 2]", vec![Input::Tokens(vec![1, 2])]),
            ("[ [1], [2, 3] ]", vec![Input::Tokens(vec![1]), Input::Tokens(vec![2, 3])]),
        ] {
            assert_eq!(inputs(input), Ok(expected), "{input}");
        }
        let tokens = format!("[{}1]", "1,".repeat(5000));
        assert_eq!(inputs(&tokens).unwrap().len(), 1);
    }

    #[test]
    fn a_list_is_no_request() {
        let failure = Body::read(br#"["words", "hi", null, null]"#).unwrap_err();
        assert_eq!(failure.outcome, Outcome::InvalidInput);
        assert!(failure.detail.contains("expected an object"), "{}", failure.detail);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        for (input, says) in [
            ("[]", "input: the list is empty"),
            ("[[]]", "input[0]: the list of tokens is empty"),
            ("[\"a\", 7]", "input[1]: expected a string"),
            ("[7, \"a\"]", "input: expected tokens"),
            ("[-1]", "input: expected tokens"),
            ("[[1.5]]", "input[0]: expected tokens"),
            ("{}", "input: expected a string or a list, got `{}`"),
            ("null", "input: expected a string or a list"),
            ("[null]", "input[0]: expected a string"),
        ] {
            let detail = inputs(input).unwrap_err();
            assert!(detail.starts_with(says), "{input}: {detail}");
        }
        assert!(inputs(&format!("[{}\"x\"]", "\"x\",".repeat(MOST_INPUTS))).unwrap_err().contains("2048 inputs"));
        assert_eq!(inputs(&format!("[{}\"x\"]", "\"x\",".repeat(MOST_INPUTS - 1))).unwrap().len(), MOST_INPUTS);
    }

    proptest! {
        #[test]
        fn texts_come_through_unchanged(given in prop::collection::vec(".*", 1..20)) {
            let expected = given.iter().cloned().map(Input::Text).collect::<Vec<_>>();
            prop_assert_eq!(inputs(&serde_json::to_string(&given).unwrap()), Ok(expected));
        }

        #[test]
        fn no_body_is_too_strange(body in "[ -~]{0,80}|[{}\\[\\]\",:0-9a-z]{0,60}", input in "[{}\\[\\]\",:0-9a-z \\\\-]{0,60}") {
            let _ = Body::read(body.as_bytes()).map(|body| (body.inputs().is_ok(), body.dimensions().is_ok()));
            let _ = inputs(&input);
        }
    }
}
