//! The routes of deployments: one item, and many.

use crate::engine::deployment::Deployment;
use crate::items::arrays::parameter::is_open;
use crate::protocols::openapi::components::Components;
use crate::protocols::openapi::parts;
use crate::protocols::openapi::parts::refs;
use crate::protocols::reply::outcomes;
use crate::protocols::reply::render::{EVENTS, LINES, TEXT, offers};
use crate::protocols::request::input::{accepted, accepted_many};
use jitney_core::config::manifest::{ArraySpec, InputKind, Output};
use jitney_core::tables::outcome::Outcome;
use serde_json::{Map, Value, json};

/// The item and the answer of one deployment, with references to components only.
pub(crate) struct Schemas {
    /// One item as a document.
    item: Value,
    /// One item as the fields of a form. Generators of clients need a separate class for it.
    form: Value,
    /// One answer as JSON has it.
    answer: Value,
}

impl Schemas {
    /// Those of `deployment`; the types to which they refer become components.
    pub(crate) fn new(name: &str, deployment: &Deployment, components: &mut Components) -> Schemas {
        let manifest = &deployment.manifest;
        Schemas {
            item: components.adopt_by_name(name, json!(manifest.input.schema)),
            form: form(components.adopt(name, json!(manifest.input.schema))),
            answer: components.adopt_by_name(name, answer_schema(&manifest.output)),
        }
    }

    /// One item in JSON: bytes are base64 there, whatever the schema calls them.
    fn json_item(&self, deployment: &Deployment) -> Value {
        match deployment.manifest.input.kind {
            InputKind::Bytes | InputKind::Image => json!({ "type": "string", "contentEncoding": "base64" }),
            _ => self.item.clone(),
        }
    }
}

/// `POST /{deployment}`
pub(crate) fn one(name: &str, deployment: &Deployment, schemas: &Schemas) -> Value {
    let manifest = &deployment.manifest;
    let doc = &manifest.doc;
    let good = json!({ "description": good_description(&manifest.output), "headers": parts::header_refs(parts::GOOD), "content": answers(&manifest.output, schemas) });
    json!({
        "tags": ["deployments"],
        "operationId": name,
        "summary": doc.lines().next().unwrap_or_default(),
        "description": doc,
        "parameters": refs("parameters", &["RequestId", "Timeout", "Priority"]),
        "requestBody": { "required": manifest.input.kind != InputKind::Bytes, "content": bodies(deployment, schemas) },
        "responses": responses(good, &json!({ "$ref": "#/components/schemas/Problem" })),
    })
}

/// `POST /{deployment}/batch`
pub(crate) fn many(name: &str, deployment: &Deployment, schemas: &Schemas) -> Value {
    let manifest = &deployment.manifest;
    let list = json!({ "type": "array", "items": schemas.json_item(deployment) });
    let examples = json!({ "all": { "value": manifest.examples } });
    let mut content = Map::new();
    for &media in accepted_many(&manifest.input) {
        let mut body = if media == "application/x-npy" { json!({}) } else { json!({ "schema": list }) };
        if media == "application/json" && !manifest.examples.is_empty() {
            body["examples"] = examples.clone();
        }
        content.insert(media.into(), body);
    }
    let mut answers = Map::new();
    for &media in outcomes::offers(&manifest.output.kind) {
        let schema =
            if media == "application/x-npy" { json!({}) } else { json!({ "schema": outcomes_schema(schemas) }) };
        answers.insert(media.into(), schema);
    }
    let description = "At least one item succeeded, or there was none. The outcomes are in the order of the items; `failed` counts the problems among them. As application/x-npy, which needs all to have succeeded, one array of all rows.";
    let good = json!({ "description": description, "headers": parts::header_refs(&[parts::GOOD, &[("x-jitney-failed", "Failed")]].concat()), "content": answers });
    json!({
        "tags": ["deployments"],
        "operationId": format!("{name}_batch"),
        "summary": format!("Many items for {name} in one request"),
        "description": "The items are batched with those of other requests, and fail one by one. If all fail, the answer is the problem of the first, with those of all in `outcomes`.",
        "parameters": refs("parameters", &["RequestId", "Timeout", "Priority"]),
        "requestBody": { "required": true, "content": content },
        "responses": responses(good, &json!({ "$ref": "#/components/schemas/AllFailed" })),
    })
}

fn outcomes_schema(schemas: &Schemas) -> Value {
    let media_type = json!({ "type": "string", "description": "The type of a value that is bytes. Missing: application/octet-stream." });
    let headers = json!({ "type": "object", "description": "What the model's author gives to this answer.", "additionalProperties": { "type": "string" } });
    let value = json!({ "type": "object", "required": ["value"], "properties": { "value": schemas.answer, "media_type": media_type, "headers": headers }, "additionalProperties": false });
    let problem = json!({ "type": "object", "required": ["problem"], "properties": { "problem": { "$ref": "#/components/schemas/Problem" } }, "additionalProperties": false });
    json!({
        "type": "object",
        "required": ["outcomes", "failed"],
        "properties": {
            "outcomes": { "type": "array", "items": { "oneOf": [value, problem] } },
            "failed": { "type": "integer", "minimum": 0 },
        },
    })
}

/// What every native route may answer: the good answer, and each status with its reasons.
fn responses(good: Value, problem: &Value) -> Value {
    let said = |outcome: Outcome| !matches!(outcome, Outcome::NotFound | Outcome::MethodNotAllowed);
    let mut responses = parts::problems(said, Outcome::http_status, "application/problem+json", problem);
    responses.insert("200".into(), good);
    responses.into()
}

/// The body in every type that is taken, the natural one first.
fn bodies(deployment: &Deployment, schemas: &Schemas) -> Value {
    let manifest = &deployment.manifest;
    let examples = || -> Map<String, Value> {
        let numbered = manifest.examples.iter().enumerate();
        numbered.map(|(index, value)| (format!("example_{}", index + 1), json!({ "value": value }))).collect()
    };
    let mut content = Map::new();
    let is_open = manifest.input.arrays.iter().any(is_open);
    // Nothing but elements do not say their shape.
    for media in accepted(&manifest.input).filter(|media| !is_open || *media != "application/octet-stream") {
        let mut body = match (media, manifest.input.kind) {
            ("application/json", _) => json!({ "schema": schemas.json_item(deployment) }),
            ("application/msgpack", _) => json!({ "schema": schemas.item }),
            ("multipart/form-data", InputKind::Object) => json!({ "schema": schemas.form }),
            ("text/plain", _) => json!({ "schema": { "type": "string" } }),
            ("multipart/form-data", InputKind::Arrays) => json!({ "schema": files(&manifest.input.arrays) }),
            ("multipart/form-data", _) => {
                // Whatever its part is called; a page needs some name to show a field for it.
                let file = match manifest.input.kind {
                    InputKind::Text => json!({ "type": "string" }),
                    _ => json!({ "type": "string", "format": "binary" }),
                };
                let name = if manifest.input.name.is_empty() { "input" } else { &manifest.input.name };
                json!({ "schema": {
                    "type": "object", "properties": { name: file }, "additionalProperties": file,
                    "minProperties": 1, "maxProperties": 1,
                } })
            }
            // Raw bytes have no schema in 3.1.
            _ => json!({}),
        };
        if media == "application/json" && !manifest.examples.is_empty() {
            body["examples"] = examples().into();
        }
        content.insert(media.into(), body);
    }
    content.into()
}

fn good_description(output: &Output) -> String {
    let Some(part) = &output.part else { return "The answer to this item.".to_owned() };
    let raw = match (&*part.kind, &*output.kind) {
        ("text", _) => ", in text/plain",
        ("bytes", "bytes") => ", in application/octet-stream or the media type of the parts",
        _ => "",
    };
    format!(
        "The answer to this item, whole in application/json. In text/event-stream, in application/x-ndjson{raw}, if `accept` \
         names it, each part of the answer when it is made."
    )
}

fn answers(output: &Output, schemas: &Schemas) -> Value {
    let mut content = Map::new();
    if let Some(part) = &output.part {
        let raw = (part.kind == "text").then_some(TEXT);
        content.extend([EVENTS, LINES].into_iter().chain(raw).map(|media| (media.to_owned(), json!({}))));
    }
    for &media in offers(&output.kind) {
        let body = match (media, output.kind.as_str()) {
            ("application/msgpack", "bytes" | "image") => json!({ "schema": output.schema }),
            ("application/json" | "application/msgpack", _) => json!({ "schema": schemas.answer }),
            ("text/plain", _) => json!({ "schema": { "type": "string" } }),
            _ => json!({}),
        };
        content.insert(media.into(), body);
    }
    content.into()
}

/// The schema of an item as that of a form: its fields that are base64 in JSON are files there.
fn form(mut item: Value) -> Value {
    if let Some(Value::Object(fields)) = item.get_mut("properties") {
        fields.values_mut().for_each(as_file);
    }
    item
}

fn as_file(field: &mut Value) {
    let Value::Object(schema) = field else { return };
    if schema.remove("contentEncoding").is_some() {
        schema.remove("contentMediaType");
        schema.insert("format".into(), "binary".into());
    }
    schema.get_mut("items").into_iter().for_each(as_file);
    let choices = ["anyOf", "oneOf"].iter().find(|name| schema.contains_key(**name));
    if let Some(Value::Array(choices)) = choices.and_then(|name| schema.get_mut(*name)) {
        choices.iter_mut().for_each(as_file);
    }
}

/// A form of one `.npy` file for each array.
fn files(arrays: &[ArraySpec]) -> Value {
    let file = || json!({ "type": "string", "contentMediaType": "application/x-npy" });
    let properties: Map<_, _> = arrays.iter().map(|array| (array.name.clone(), file())).collect();
    json!({ "type": "object", "required": properties.keys().collect::<Vec<_>>(), "properties": properties })
}

/// One answer as JSON has it.
fn answer_schema(output: &Output) -> Value {
    match output.kind.as_str() {
        "bytes" | "image" => json!({ "type": "string", "contentEncoding": "base64" }),
        "arrays" if !output.arrays.is_empty() => arrays_schema(&output.arrays),
        _ => json!(output.schema),
    }
}

/// What an object of named arrays looks like; numbers inside are described in words.
fn arrays_schema(arrays: &[ArraySpec]) -> Value {
    let mut properties = Map::new();
    for array in arrays {
        let shape = array.shape.as_ref().map_or_else(
            || "any".to_owned(),
            |axes| {
                axes.iter()
                    .map(|axis| axis.map_or_else(|| "any".to_owned(), |axis| axis.to_string()))
                    .collect::<Vec<_>>()
                    .join(", ")
            },
        );
        properties.insert(
            array.name.clone(),
            json!({ "description": format!("{} of shape ({shape}), as nested lists", array.dtype) }),
        );
    }
    json!({ "type": "object", "properties": properties, "required": properties.keys().collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_in_parts_names_the_types_of_its_streams() {
        let output = |kind: &str, part: Option<Box<Output>>| Output {
            kind: kind.to_owned(),
            arrays: Vec::new(),
            schema: serde_json::from_str("{}").unwrap(),
            part,
        };
        let schemas = Schemas { item: json!({}), form: json!({}), answer: json!({}) };
        let named = |output: &Output| {
            let content = answers(output, &schemas);
            [EVENTS, LINES, TEXT].map(|media| content.get(media).is_some())
        };
        let in_parts = |kind| output("object", Some(Box::new(output(kind, None))));
        assert_eq!(named(&output("object", None)), [false; 3]);
        assert_eq!(named(&in_parts("object")), [true, true, false]);
        assert_eq!(named(&in_parts("text")), [true; 3]);
        assert!(good_description(&in_parts("text")).contains("in text/plain, if"));
    }

    #[test]
    fn what_is_base64_in_json_is_a_file_in_a_form() {
        let base64 = json!({ "type": "string", "contentEncoding": "base64", "contentMediaType": "image/*" });
        let file = json!({ "type": "string", "format": "binary" });
        let item = |one: &Value| {
            json!({ "type": "object", "properties": {
                "photo": one, "photos": { "type": "array", "items": one }, "mask": { "anyOf": [one, { "type": "null" }] },
                "prompt": { "type": "string" },
            } })
        };
        assert_eq!(form(item(&base64)), item(&file));
    }
}
