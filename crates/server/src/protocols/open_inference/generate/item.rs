//! The body of a generate request as an item: each of its keys is an input of the model or a parameter.

use crate::items::arrays::lists;
use crate::items::arrays::parameter::check_part;
use crate::items::document::{Document, json_fault};
use crate::open_inference::request::{Parameter, Parameters, Wishes};
use crate::open_inference::signature::{Base, Form, Nested, Signature};
use crate::open_inference::tensor::{Shape, quoted, refused};
use crate::protocols::reply::value::json_string;
use crate::protocols::request::input;
use crate::protocols::request::input::{DecodedItem, Reading};
use crate::protocols::request::object::Members;
use crate::values::answer::Failure;
use crate::values::call::Part;
use crate::values::chunks::Chunks;
use crate::values::tensor::Tag;
use bytes::Bytes;
use jitney_core::config::manifest::{ArraySpec, DeploymentManifest, InputKind};
use jitney_core::tables::outcome::Outcome;
use smallvec::SmallVec;

/// The extension's own name of the one text that a model takes.
const TEXT_INPUT: &str = "text_input";

/// A request that fits its model.
#[derive(Debug)]
pub(super) struct GenerateRequest {
    pub(super) item: DecodedItem,
    /// What the client calls it; empty if it has no name.
    pub(super) id: String,
    pub(super) wishes: Wishes,
    /// The client calls the text of the model `text_input`, and its answer `text_output`.
    pub(super) says_text: bool,
}

/// Reads a body. `most` bounds the bytes that arrays in it may grow to.
pub(super) fn read(
    manifest: &DeploymentManifest,
    signature: &Signature,
    body: &[u8],
    most: usize,
) -> Result<GenerateRequest, Failure> {
    let Members(members) = if body.is_empty() { Members::default() } else { members(body)? };
    let mut keys = Keys { signature, inputs: vec![None; signature.inputs.len()], parameters: vec![], says_text: false };
    let mut id = String::new();
    for (name, raw) in &members {
        match name.as_str() {
            "parameters" if keys.place(name).is_none() => {
                let nested = serde_json::from_str(raw);
                let Members(nested) = nested.map_err(|_| wrong("parameters must be an object"))?;
                nested.iter().try_for_each(|(name, raw)| keys.add(name, raw))?;
            }
            "id" if keys.place(name).is_none() => {
                let text: Option<String> = serde_json::from_str(raw).map_err(|_| wrong("id must be a string"))?;
                id = text.unwrap_or_default();
            }
            name => keys.add(name, raw)?,
        }
    }
    let Keys { inputs, parameters, says_text, .. } = keys;
    let missing = signature.inputs.iter().zip(&inputs).find(|(slot, raw)| raw.is_none() && !slot.is_optional);
    if let Some((slot, _)) = missing {
        let what = format!("input {} is missing; {}", quoted(&slot.name), known(signature));
        return Err(refused(what));
    }
    let item = if manifest.input.kind == InputKind::Arrays {
        arrays(manifest, &inputs, most)?
    } else {
        let document = Chunks::from(Bytes::from(document(signature, &inputs)));
        input::take(manifest, Reading::As(Tag::Json), document, most)?
    };
    Ok(GenerateRequest { item, id, wishes: Wishes::of(parameters)?, says_text })
}

fn members(body: &[u8]) -> Result<Members<'_>, Failure> {
    serde_json::from_slice(body).map_err(|error| {
        let what = format!("the body cannot be read: it is not a JSON object of inputs: {}", json_fault(body, &error));
        Failure::new(Outcome::MalformedBody, what)
    })
}

fn wrong(what: impl Into<String>) -> Failure {
    Failure::new(Outcome::InvalidRequest, what)
}

fn known(signature: &Signature) -> String {
    let names: Vec<&str> = signature.inputs.iter().map(|slot| &*slot.name).collect();
    format!("the inputs are {}", names.join(", "))
}

/// What the keys of a request are.
struct Keys<'a> {
    signature: &'a Signature,
    /// The value of each input, as it stands in the document.
    inputs: Vec<Option<&'a str>>,
    parameters: Parameters,
    says_text: bool,
}

impl<'a> Keys<'a> {
    /// Which input has this name.
    fn place(&self, name: &str) -> Option<usize> {
        let place = self.signature.inputs.iter().position(|slot| *slot.name == *name);
        place.or_else(|| one_text(self.signature).filter(|_| name == TEXT_INPUT))
    }

    fn add(&mut self, name: &str, raw: &'a str) -> Result<(), Failure> {
        let Some(place) = self.place(name) else {
            // Clients write `null` for what they do not say.
            if raw != "null" {
                self.parameters.push((name.to_owned(), self.parameter(name, raw)?));
            }
            return Ok(());
        };
        let slot = &self.signature.inputs[place].name;
        self.says_text |= **slot != *name;
        if self.inputs[place].replace(raw).is_some() {
            return Err(refused(format!("input {} is there twice; send it once", quoted(slot))));
        }
        Ok(())
    }

    fn parameter(&self, name: &str, raw: &str) -> Result<Parameter, Failure> {
        let known = || known(self.signature);
        serde_json::from_str(raw).map_err(|_| {
            let what = format!("parameter {} must be a string, a number or a boolean; {}", quoted(name), known());
            wrong(what)
        })
    }
}

/// The one input that a request must have, if it is a text.
fn one_text(signature: &Signature) -> Option<usize> {
    let mut required = (0..).zip(&signature.inputs).filter(|(_, slot)| !slot.is_optional);
    let (place, slot) = required.next()?;
    let is_text = match &slot.form {
        Form::Text => true,
        Form::Value(Nested { base: Base::Text, axes }) => axes.is_empty(),
        _ => false,
    };
    (is_text && required.next().is_none()).then_some(place)
}

/// The item as JSON: the value of its one input, or an object of its fields.
fn document(signature: &Signature, inputs: &[Option<&str>]) -> Vec<u8> {
    if !signature.takes_fields {
        return inputs.iter().flatten().next().map_or(b"null".to_vec(), |raw| raw.as_bytes().to_vec());
    }
    let mut document = Vec::new();
    for (slot, raw) in signature.inputs.iter().zip(inputs) {
        let Some(raw) = raw else { continue };
        document.push(if document.is_empty() { b'{' } else { b',' });
        json_string(&mut document, &slot.name);
        document.push(b':');
        document.extend_from_slice(raw.as_bytes());
    }
    document.extend_from_slice(if document.is_empty() { b"{}" } else { b"}" });
    document
}

fn arrays(manifest: &DeploymentManifest, inputs: &[Option<&str>], most: usize) -> Result<DecodedItem, Failure> {
    let mut room = most;
    let mut parts = SmallVec::new();
    for (spec, raw) in manifest.input.arrays.iter().zip(inputs) {
        let part = array(spec, raw.unwrap_or("null"), room).map_err(|failure| {
            let what = failure.detail.strip_prefix("$: ").unwrap_or(&failure.detail);
            Failure { detail: format!("input {}: {what}", quoted(&spec.name)), ..failure }
        })?;
        room -= part.data.len().min(room);
        parts.push(part);
    }
    input::arrays_taken(manifest, parts)
}

/// An array from nested lists, or from one list of all its elements.
fn array(spec: &ArraySpec, raw: &str, room: usize) -> Result<Part, Failure> {
    let any_shape = ArraySpec { shape: None, ..spec.clone() };
    let parts = lists::from_document(std::slice::from_ref(&any_shape), Document::Json(raw.as_bytes()), room)?;
    let missing = || Failure::new(Outcome::Internal, "an array is missing");
    let mut part = parts.into_iter().next().ok_or_else(missing)?;
    if let (Some(axes), Some(array)) = (&spec.shape, &mut part.tensor) {
        array.shape = shaped(axes, std::mem::take(&mut array.shape));
    }
    check_part(spec, "$", &part)?;
    Ok(part)
}

/// The shape of a flat list among these axes: the last open one takes what the others leave, and these have length 1. Other
/// lists, and those that do not fit, keep their shape.
fn shaped(axes: &[Option<u64>], got: Shape) -> Shape {
    let known: u64 = axes.iter().flatten().fold(1, |all, &axis| all.saturating_mul(axis));
    let count: u64 = got.iter().product();
    if got.len() > 1 || got.len() == axes.len() || known == 0 || !count.is_multiple_of(known) {
        return got;
    }
    let last = axes.iter().rposition(Option::is_none);
    if last.is_none() && count != known {
        return got;
    }
    let length =
        |(place, axis): (usize, &Option<u64>)| axis.unwrap_or(if Some(place) == last { count / known } else { 1 });
    axes.iter().enumerate().map(length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open_inference::tests::manifest;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn text(name: &str) -> Value {
        json!({ "kind": "text", "name": name, "arrays": [], "schema": { "type": "string" } })
    }

    fn prompts() -> Value {
        let schema = json!({
            "type": "object", "required": ["prompt"],
            "properties": { "prompt": { "type": "string" }, "max_tokens": { "type": "integer" }, "stop": {} },
        });
        json!({ "kind": "object", "arrays": [], "schema": schema })
    }

    fn arrays(shape: &Value) -> Value {
        let array = |name: &str| json!({ "name": name, "dtype": "uint8", "shape": shape });
        json!({ "kind": "arrays", "arrays": [array("a"), array("b")], "schema": true })
    }

    fn of(input: &Value, body: &str) -> Result<GenerateRequest, Failure> {
        let output = json!({ "kind": "text", "arrays": [], "schema": true });
        let manifest = manifest(input.clone(), output, json!({}));
        read(&manifest, &Signature::of(&manifest), body.as_bytes(), 1000)
    }

    fn item(input: &Value, body: &str) -> String {
        let item = of(input, body).unwrap_or_else(|failure| panic!("{}", failure.detail)).item;
        let parts = item.parts.iter().map(|part| String::from_utf8(part.data.0.concat()).unwrap());
        parts.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn keys_are_inputs_wherever_they_stand() {
        assert_eq!(item(&text("said"), r#"{"said": "a\n", "stream": true}"#), r#""a\n""#);
        let body =
            r#"{"stop": ["."], "prompt": "a", "parameters": {"max_tokens": 5, "temperature": 0.5, "top_k": null}}"#;
        assert_eq!(item(&prompts(), body), r#"{"prompt":"a","max_tokens":5,"stop":["."]}"#);
        let asked = of(&prompts(), r#"{"prompt": "a", "id": "7", "parameters": {"priority": 1}}"#).unwrap();
        assert_eq!((&*asked.id, asked.wishes.priority.is_some(), asked.says_text), ("7", true, false));
    }

    #[test]
    fn the_one_text_of_a_model_has_a_second_name() {
        let asked = of(&prompts(), r#"{"text_input": "a"}"#).unwrap();
        assert!(asked.says_text);
        assert_eq!(item(&prompts(), r#"{"text_input": "a"}"#), r#"{"prompt":"a"}"#);
        assert_eq!(item(&text("said"), r#"{"text_input": "a"}"#), r#""a""#);
        assert!(!of(&text("text_input"), r#"{"text_input": "a"}"#).unwrap().says_text);
        assert!(of(&arrays(&json!([1])), r#"{"text_input": "a"}"#).unwrap_err().detail.contains("`a` is missing"));
    }

    #[test]
    fn arrays_come_as_one_list_or_as_nested_ones() {
        for (shape, a, b) in [
            (json!([2, 2]), "[[65,66],[67,68]]", "[69,70,71,72]"),
            (json!([null, 2]), "[65,66,67,68]", "[[69,70],[71,72]]"),
            (json!([null, null]), "[65,66,67,68]", "[69,70,71,72]"),
            (json!([4]), "[65,66,67,68]", "[69,70,71,72]"),
        ] {
            assert_eq!(item(&arrays(&shape), &format!(r#"{{"a": {a}, "b": {b}}}"#)), "ABCD EFGH", "{shape}");
        }
        assert_eq!(item(&arrays(&json!([1, 1])), r#"{"a": 65, "b": [66]}"#), "A B");
        assert_eq!(&*shaped(&[None, Some(2), None], Shape::from_slice(&[6])), [1, 2, 3]);
        let failure = of(&arrays(&json!([2, 2])), r#"{"a": [1, 2, 3], "b": []}"#).unwrap_err();
        assert!(
            failure.detail.contains("input `a`: expected uint8 of shape (2, 2), got uint8 of shape (3)"),
            "{}",
            failure.detail
        );
    }

    #[test]
    fn what_cannot_be_computed_is_named() {
        for (body, says) in [
            ("", "input `prompt` is missing; the inputs are prompt, max_tokens, stop"),
            ("[]", "not a JSON object"),
            (r#"{"prompt": "a", "prompt": "b"}"#, "input `prompt` is there twice"),
            (r#"{"prompt": "a", "text_input": "b"}"#, "input `prompt` is there twice"),
            (r#"{"prompt": "a", "parameters": {"prompt": "b"}}"#, "input `prompt` is there twice"),
            (r#"{"prompt": "a", "stops": ["b"]}"#, "parameter `stops` must be a string"),
            (r#"{"prompt": "a", "parameters": 7}"#, "parameters must be an object"),
            (r#"{"prompt": "a", "id": 7}"#, "id must be a string"),
            (r#"{"prompt": "a", "sequence_id": 7}"#, "sequence_id"),
        ] {
            let Err(failure) = of(&prompts(), body) else { panic!("{body}") };
            assert!(failure.detail.contains(says), "{body}: {}", failure.detail);
        }
    }

    proptest! {
        #[test]
        fn no_body_is_too_strange(body in "[ -~]{0,80}|[{}\\[\\]\",:0-9a-z]{0,60}") {
            for input in [prompts(), text("a"), arrays(&json!([null, 2]))] {
                let _ = of(&input, &body);
            }
        }

        #[test]
        fn a_flat_list_keeps_its_elements(axes in prop::collection::vec(prop::option::of(0u64..4), 0..4), count in 0u64..40) {
            let shape = shaped(&axes, Shape::from_slice(&[count]));
            prop_assert_eq!(shape.iter().product::<u64>(), count);
        }
    }
}
