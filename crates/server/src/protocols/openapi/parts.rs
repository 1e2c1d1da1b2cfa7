//! What several routes refer to: headers, parameters, schemas, and how problems are described.

use jitney_core::tables::outcome::Outcome;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

pub(crate) fn problem_schema() -> Value {
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
            "field": { "type": "string", "description": "The part of the input that is wrong, such as $.width." },
        },
    })
}

pub(crate) fn answer_headers() -> Value {
    let header = |description: &str, kind: &str| json!({ "description": description, "schema": { "type": kind } });
    json!({
        "RequestId": header("The caller's x-request-id, or a new one.", "string"),
        "ServerTiming": header("Milliseconds in the queue, around the model, and in it.", "string"),
        "BatchSize": header("Number of items in the batch of this item; 0 if the item was in no batch.", "integer"),
        "Failed": header("How many items of the request failed.", "integer"),
        "Reason": header("The reason of the problem, for programs.", "string"),
        "RetryAfter": header("Whole seconds to wait before another try, at most 30.", "integer"),
        "ShouldRetry": header("false when the same request would fail again.", "string"),
    })
}

/// Headers of every answer.
pub(crate) const GOOD: &[(&str, &str)] =
    &[("x-request-id", "RequestId"), ("server-timing", "ServerTiming"), ("x-jitney-batch-size", "BatchSize")];
const BAD: &[(&str, &str)] =
    &[("x-jitney-reason", "Reason"), ("retry-after", "RetryAfter"), ("x-should-retry", "ShouldRetry")];

pub(crate) fn header_refs(names: &[(&str, &str)]) -> Value {
    let reference =
        |&(header, name): &(&str, &str)| (header.to_owned(), json!({ "$ref": format!("#/components/headers/{name}") }));
    names.iter().map(reference).collect::<Map<_, _>>().into()
}

/// References to components of one kind.
pub(crate) fn refs(kind: &str, names: &[&str]) -> Value {
    names.iter().map(|name| json!({ "$ref": format!("#/components/{kind}/{name}") })).collect()
}

/// Every status of the outcomes that a route may have, with their reasons.
pub(crate) fn problems(
    said: impl Fn(Outcome) -> bool,
    status: impl Fn(Outcome) -> u16,
    media: &str,
    schema: &Value,
) -> Map<String, Value> {
    let mut by_status: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for &outcome in Outcome::ALL {
        // A client that has disconnected sees no answer.
        if said(outcome) && !matches!(outcome, Outcome::Ok | Outcome::Cancelled) {
            by_status.entry(status(outcome)).or_default().push(outcome.reason());
        }
    }
    let headers = header_refs(&[GOOD, BAD].concat());
    let response = |(status, reasons): (u16, Vec<&str>)| {
        let description = format!("Reasons: {}.", reasons.join(", "));
        let mut content = Map::new();
        content.insert(media.into(), json!({ "schema": schema }));
        (status.to_string(), json!({ "description": description, "headers": headers, "content": content }))
    };
    by_status.into_iter().map(response).collect()
}

pub(crate) fn parameters() -> Value {
    let header = |name: &str, description: &str, schema: Value| json!({ "name": name, "in": "header", "required": false, "description": description, "schema": schema });
    json!({
        "RequestId": header("x-request-id", "Names the request in logs. Of 1 to 128 visible ASCII characters; another one is replaced.", json!({ "type": "string" })),
        "Timeout": header("x-request-timeout-ms", "How long the caller waits; after that the item is dropped.", json!({ "type": "integer", "minimum": 1, "maximum": u64::MAX })),
        "Priority": header("x-priority", "The class of the request. Each class has a head start in the queue over the next class.", json!({ "type": "string", "enum": ["high", "normal", "low"], "default": "normal" })),
    })
}

/// A problem in which those of all items stand.
pub(crate) fn all_failed_schema() -> Value {
    let failed = json!({ "type": "object", "required": ["problem"], "properties": { "problem": { "$ref": "#/components/schemas/Problem" } } });
    let more = json!({ "type": "object", "properties": { "outcomes": { "type": "array", "items": failed }, "failed": { "type": "integer" } } });
    json!({ "description": "If every item failed, `outcomes` has the problem of each.", "allOf": [{ "$ref": "#/components/schemas/Problem" }, more] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocols::routing::cors::EXPOSED;

    #[test]
    fn pages_of_other_origins_may_read_every_header_of_the_document() {
        for (name, _) in GOOD.iter().chain(BAD) {
            assert!(EXPOSED.split(", ").any(|exposed| exposed == *name), "{name} is not in EXPOSED");
        }
    }
}
