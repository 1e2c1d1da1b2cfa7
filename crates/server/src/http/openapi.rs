//! `GET /openapi.json`: the API as the manifests describe it, in `OpenAPI` 3.1.

use super::input::accepted;
use super::pages::json_reply;
use super::render::offers;
use super::service::Reply;
use crate::deployment::Deployment;
use crate::site::Site;
use hyper::Request;
use hyper::body::Incoming;
use jitney_core::manifest::{ArraySpec, InputKind, Output};
use jitney_core::outcome::Outcome;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// `GET /openapi.json`
pub(crate) fn page(site: &Site, _: &Request<Incoming>) -> Reply {
    let mut paths = Map::new();
    for (name, deployment) in site.deployments().into_iter().flatten() {
        paths.insert(format!("/{name}"), json!({ "post": operation(name, deployment) }));
    }
    for (path, id, what, status) in [
        ("/livez", "livez", "200 while this process answers.", "200"),
        ("/readyz", "readyz", "200 when the server takes requests, else 503 with the reasons.", "200"),
        ("/metrics", "metrics", "Metrics in the Prometheus text format.", "200"),
        ("/config", "config", "The options in force and where they came from.", "200"),
    ] {
        let get = json!({ "tags": ["server"], "operationId": format!("get_{id}"), "summary": what, "responses": { status: { "description": what } } });
        paths.insert(path.into(), json!({ "get": get }));
    }
    json_reply(&json!({
        "openapi": "3.1.0",
        "info": {
            "title": "jitney",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "One item per request; requests are batched by the server. JSON has no NaN and no infinities: in answers they are null. A client that closes its side of the connection is taken to be gone.",
        },
        "paths": paths,
        "components": { "schemas": { "Problem": problem_schema() }, "headers": answer_headers(), "parameters": parameters() },
    }))
}

fn operation(name: &str, deployment: &Deployment) -> Value {
    let manifest = &deployment.manifest;
    let doc = &manifest.doc;
    let mut responses = Map::new();
    responses.insert("200".into(), json!({ "description": "The answer to this item.", "headers": header_refs(true), "content": answers(&manifest.output) }));
    let mut by_status: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for &outcome in Outcome::ALL {
        // A caller that has gone away sees no answer.
        if !matches!(outcome, Outcome::Ok | Outcome::Cancelled | Outcome::NotFound | Outcome::MethodNotAllowed) {
            by_status.entry(outcome.http_status()).or_default().push(outcome.reason());
        }
    }
    for (status, reasons) in by_status {
        let content = json!({ "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } });
        let description = format!("Reasons: {}.", reasons.join(", "));
        responses.insert(
            status.to_string(),
            json!({ "description": description, "headers": header_refs(false), "content": content }),
        );
    }
    json!({
        "tags": ["deployments"],
        "operationId": name,
        "summary": doc.lines().next().unwrap_or_default(),
        "description": doc,
        "parameters": (["RequestId", "Timeout", "Priority"]).map(|name| json!({ "$ref": format!("#/components/parameters/{name}") })),
        "requestBody": { "required": true, "content": bodies(deployment) },
        "responses": responses,
    })
}

/// The body in every type that is taken, the natural one first.
fn bodies(deployment: &Deployment) -> Value {
    let manifest = &deployment.manifest;
    let examples = || -> Map<String, Value> {
        let numbered = manifest.examples.iter().enumerate();
        numbered.map(|(index, value)| (format!("example_{}", index + 1), json!({ "value": value }))).collect()
    };
    let mut content = Map::new();
    for media in accepted(&manifest.input) {
        let mut body = match (media, manifest.input.kind) {
            ("application/json", InputKind::Bytes | InputKind::Image) => {
                json!({ "schema": { "type": "string", "contentEncoding": "base64" } })
            }
            ("application/json" | "application/msgpack", _) => json!({ "schema": manifest.input.schema }),
            ("text/plain", _) => json!({ "schema": { "type": "string" } }),
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

fn answers(output: &Output) -> Value {
    let schema = if output.kind == "arrays" && !output.arrays.is_empty() {
        arrays_schema(&output.arrays)
    } else {
        json!(output.schema)
    };
    let mut content = Map::new();
    for &media in offers(&output.kind) {
        let body = match (media, output.kind.as_str()) {
            ("application/json", "bytes" | "image") => {
                json!({ "schema": { "type": "string", "contentEncoding": "base64" } })
            }
            ("application/json" | "application/msgpack", _) => json!({ "schema": schema }),
            ("text/plain", _) => json!({ "schema": { "type": "string" } }),
            _ => json!({}),
        };
        content.insert(media.into(), body);
    }
    content.into()
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

fn problem_schema() -> Value {
    let reasons: Vec<&str> =
        Outcome::ALL.iter().filter(|&&outcome| outcome != Outcome::Ok).map(|outcome| outcome.reason()).collect();
    json!({
        "type": "object",
        "description": "What was wrong, with which value, and what to do (RFC 9457).",
        "required": ["type", "title", "status", "reason", "detail", "request_id"],
        "properties": {
            "type": { "type": "string" },
            "title": { "type": "string", "description": "The same for every occurrence of a reason." },
            "status": { "type": "integer" },
            "reason": { "type": "string", "enum": reasons, "description": "Stable; also in the header x-jitney-reason." },
            "detail": { "type": "string" },
            "request_id": { "type": "string" },
            "field": { "type": "string", "description": "The part of the input that is to blame, such as $.width." },
        },
    })
}

fn answer_headers() -> Value {
    let header = |description: &str, kind: &str| json!({ "description": description, "schema": { "type": kind } });
    json!({
        "RequestId": header("The caller's x-request-id, or a new one.", "string"),
        "ServerTiming": header("Milliseconds in the queue, around the model, and in it.", "string"),
        "BatchSize": header("Items in the batch that this item rode in; 0 if it never rode.", "integer"),
        "Reason": header("The reason of the problem, for programs.", "string"),
        "RetryAfter": header("Whole seconds to wait before another try, at most 30.", "integer"),
        "ShouldRetry": header("false when the same request would fail again.", "string"),
    })
}

fn header_refs(good: bool) -> Value {
    let every =
        [("x-request-id", "RequestId"), ("server-timing", "ServerTiming"), ("x-jitney-batch-size", "BatchSize")];
    let bad = [("x-jitney-reason", "Reason"), ("retry-after", "RetryAfter"), ("x-should-retry", "ShouldRetry")];
    let names = every.iter().chain(if good { &[][..] } else { &bad });
    names
        .map(|(header, name)| ((*header).to_owned(), json!({ "$ref": format!("#/components/headers/{name}") })))
        .collect::<Map<_, _>>()
        .into()
}

fn parameters() -> Value {
    let header = |name: &str, description: &str, schema: Value| json!({ "name": name, "in": "header", "required": false, "description": description, "schema": schema });
    json!({
        "RequestId": header("x-request-id", "Names the request in logs; 1 to 128 visible ASCII characters.", json!({ "type": "string", "maxLength": 128 })),
        "Timeout": header("x-request-timeout-ms", "How long the caller waits; after that the item is dropped.", json!({ "type": "integer", "minimum": 1 })),
        "Priority": header("x-priority", "A head start over the next class, not a world of its own.", json!({ "type": "string", "enum": ["high", "normal", "low"], "default": "normal" })),
    })
}
