//! The routes of the OpenAI API, as far as some deployment does them.

use crate::engine::server_state::ServerState;
use crate::protocols::openai::error::status;
use crate::protocols::openai::input::MOST_INPUTS;
use crate::protocols::openapi::parts;
use crate::protocols::openapi::parts::refs;
use jitney_core::config::manifest::{Task, TaskKind};
use serde_json::{Map, Value, json};

/// The routes below `/v1`.
pub(crate) fn routes(state: &ServerState, paths: &mut Map<String, Value>) {
    let good = |schema: &str, what: &str| {
        json!({
            "description": what,
            "headers": parts::header_refs(parts::GOOD),
            "content": { "application/json": { "schema": { "$ref": format!("#/components/schemas/{schema}") } } },
        })
    };
    let list = responses(good("ModelList", "The models that this API can call."));
    paths.insert(
        "/v1/models".into(),
        json!({ "get": {
        "tags": ["openai"], "operationId": "list_models", "summary": "The deployments that have a task.",
        "responses": list,
    } }),
    );
    let one = responses(good("Model", "One of them."));
    paths.insert(
        "/v1/models/{model}".into(),
        json!({ "get": {
        "tags": ["openai"], "operationId": "get_model", "summary": "One of them.",
        "parameters": [{ "name": "model", "in": "path", "required": true, "schema": { "type": "string" } }],
        "responses": one,
    } }),
    );
    let models = models_for(state, TaskKind::Embedding);
    if models.is_empty() {
        return;
    }
    let created = responses(good("EmbeddingList", "One vector for each input, in order."));
    paths.insert(
        TaskKind::Embedding.openai_route().into(),
        json!({ "post": {
        "tags": ["openai"], "operationId": "create_embeddings", "summary": "Vectors of texts or tokens.",
        "parameters": refs("parameters", &["RequestId", "Timeout", "Priority"]),
        "requestBody": { "required": true, "content": { "application/json": { "schema": request(&models) } } },
        "responses": created,
    } }),
    );
}

/// The deployments that have this task.
pub(super) fn models_for(state: &ServerState, task: TaskKind) -> Vec<String> {
    let deployments = state.deployments();
    let capable = deployments.iter().filter(|deployment| deployment.manifest.task.map(Task::kind) == Some(task));
    capable.map(|deployment| deployment.manifest.name.clone()).collect()
}

pub(super) fn responses(good: Value) -> Value {
    let error = json!({ "$ref": "#/components/schemas/OpenAiError" });
    let mut responses = parts::problems(|_| true, status, "application/json", &error);
    responses.insert("200".into(), good);
    responses.into()
}

fn request(models: &[String]) -> Value {
    let tokens =
        json!({ "type": "array", "minItems": 1, "items": { "type": "integer", "minimum": 0, "maximum": u32::MAX } });
    let many = |items: &Value| json!({ "type": "array", "minItems": 1, "maxItems": MOST_INPUTS, "items": items });
    let text = json!({ "type": "string" });
    json!({
        "type": "object",
        "description": "Further fields of the model's own input go with each item of input; unknown fields are ignored.",
        "required": ["model", "input"],
        "properties": {
            "model": { "type": "string", "enum": models },
            "input": { "description": "Tokens only where the model takes them.", "anyOf": [text, many(&text), tokens, many(&tokens)] },
            "encoding_format": { "enum": ["float", "base64", null], "description": "base64 is that of little-endian float32." },
            "dimensions": { "type": ["integer", "null"], "minimum": 1, "maximum": u32::MAX, "description": "Only where the model takes it." },
        },
    })
}

/// What these routes refer to.
pub(crate) fn schemas() -> Map<String, Value> {
    let model = json!({
        "type": "object",
        "required": ["id", "object", "created", "owned_by"],
        "properties": { "id": { "type": "string" }, "object": { "const": "model" }, "created": { "type": "integer" }, "owned_by": { "type": "string" } },
    });
    let models = json!({
        "type": "object",
        "required": ["object", "data"],
        "properties": { "object": { "const": "list" }, "data": { "type": "array", "items": { "$ref": "#/components/schemas/Model" } } },
    });
    let vector =
        json!([{ "type": "array", "items": { "type": "number" } }, { "type": "string", "contentEncoding": "base64" }]);
    let embedding = json!({
        "type": "object",
        "required": ["object", "index", "embedding"],
        "properties": { "object": { "const": "embedding" }, "index": { "type": "integer" }, "embedding": { "anyOf": vector } },
    });
    let usage = json!({
        "type": "object",
        "required": ["prompt_tokens", "total_tokens"],
        "properties": { "prompt_tokens": { "type": "integer" }, "total_tokens": { "type": "integer" } },
    });
    let embeddings = json!({
        "type": "object",
        "required": ["object", "data", "model", "usage"],
        "properties": { "object": { "const": "list" }, "data": { "type": "array", "items": embedding }, "model": { "type": "string" }, "usage": usage },
    });
    let error = json!({
        "type": "object",
        "required": ["error"],
        "properties": { "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": { "message": { "type": "string" }, "type": { "type": "string" }, "param": { "type": ["string", "null"] }, "code": { "type": ["string", "null"] } },
        } },
    });
    [("Model", model), ("ModelList", models), ("EmbeddingList", embeddings), ("OpenAiError", error)]
        .map(|(name, schema)| (name.to_owned(), schema))
        .into_iter()
        .collect()
}
