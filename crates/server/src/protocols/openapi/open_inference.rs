//! The routes of the Open Inference Protocol over REST.

use crate::engine::server_state::ServerState;
use crate::open_inference::datatype::Datatype;
use crate::protocols::open_inference::error::status;
use crate::protocols::openapi::parts;
use crate::protocols::openapi::parts::refs;
use serde_json::{Map, Value, json};

/// The routes below `/v2`.
pub(crate) fn routes(state: &ServerState, paths: &mut Map<String, Value>) {
    let catalogue = state.catalogue().unwrap_or_default();
    let names: Vec<&str> = catalogue.names().collect();
    let model =
        json!({ "name": "model", "in": "path", "required": true, "schema": { "type": "string", "enum": names } });
    for (path, id, what) in [
        ("/v2", "server_metadata", "Name, version and extensions of the server."),
        ("/v2/models", "model_list", "The names of all models."),
        ("/v2/models/{model}", "model_metadata", "The tensors that a model takes and gives."),
        (
            "/v2/models/{model}/config",
            "model_config",
            "The batch size and the tensors of a model, as Triton says them.",
        ),
        ("/v2/models/{model}/stats", "model_statistics", "How many requests a model answered, and their time."),
    ] {
        let mut get = json!({
            "tags": ["open inference"], "operationId": id, "summary": what,
            "responses": responses(&json!({ "description": what, "content": { "application/json": { "schema": { "type": "object" } } } })),
        });
        if path.contains("{model}") {
            get["parameters"] = json!([model]);
        }
        paths.insert(path.into(), json!({ "get": get }));
    }
    let mut parameters = vec![model];
    parameters
        .extend(refs("parameters", &["RequestId", "Timeout", "Priority"]).as_array().cloned().unwrap_or_default());
    let answer = json!({
        "description": "The outputs, a row for each row of the inputs.",
        "headers": parts::header_refs(parts::GOOD),
        "content": { "application/json": { "schema": { "$ref": "#/components/schemas/InferAnswer" } } },
    });
    let post = json!({
        "tags": ["open inference"], "operationId": "infer",
        "summary": "Named tensors in, named tensors out; the first axis is the batch.",
        "description": "Tensors may also follow the JSON as binary data (header inference-header-content-length).",
        "parameters": parameters,
        "requestBody": { "required": true, "content": { "application/json": { "schema": { "$ref": "#/components/schemas/InferRequest" } } } },
        "responses": responses(&answer),
    });
    paths.insert("/v2/models/{model}/infer".into(), json!({ "post": post }));
    generate(&parameters, paths);
}

/// The routes of Triton's generate extension.
fn generate(parameters: &[Value], paths: &mut Map<String, Value>) {
    let schema = json!({ "$ref": "#/components/schemas/GenerateAnswer" });
    let request = json!({ "application/json": { "schema": { "$ref": "#/components/schemas/GenerateRequest" } } });
    for (path, media, summary) in [
        ("generate", "application/json", "One item in, its outputs as one object."),
        ("generate_stream", "text/event-stream", "One item in, an event with outputs for each part of its answer."),
    ] {
        let mut content = Map::new();
        content.insert(media.into(), if path == "generate" { json!({ "schema": schema }) } else { json!({}) });
        let answer = json!({ "description": summary, "headers": parts::header_refs(parts::GOOD), "content": content });
        let post = json!({
            "tags": ["open inference"], "operationId": path, "summary": summary, "parameters": parameters,
            "requestBody": { "required": true, "content": request },
            "responses": responses(&answer),
        });
        paths.insert(format!("/v2/models/{{model}}/{path}"), json!({ "post": post }));
    }
}

fn responses(good: &Value) -> Value {
    let error = json!({ "$ref": "#/components/schemas/InferError" });
    let mut responses = parts::problems(|_| true, status, "application/json", &error);
    responses.insert("200".into(), good.clone());
    responses.into()
}

/// The schemas to which these routes refer.
pub(crate) fn schemas() -> Map<String, Value> {
    let datatypes = Datatype::names();
    let shape = json!({ "type": "array", "items": { "type": "integer", "minimum": 0 } });
    let parameters = json!({ "type": "object" });
    let tensor = json!({
        "type": "object",
        "required": ["name", "shape", "datatype", "data"],
        "properties": {
            "name": { "type": "string" }, "shape": shape, "datatype": { "type": "string", "enum": datatypes },
            "data": { "type": "array", "items": {}, "description": "The elements, flat or nested, in row-major order." },
            "parameters": parameters,
        },
    });
    let wanted = json!({ "type": "object", "required": ["name"], "properties": { "name": { "type": "string" }, "parameters": parameters } });
    let request = json!({
        "type": "object",
        "required": ["inputs"],
        "properties": {
            "id": { "type": "string" },
            "inputs": { "type": "array", "minItems": 1, "items": { "$ref": "#/components/schemas/InferTensor" } },
            "outputs": { "type": "array", "items": wanted },
            "parameters": parameters,
        },
    });
    let answer = json!({
        "type": "object",
        "required": ["model_name", "outputs"],
        "properties": {
            "model_name": { "type": "string" }, "model_version": { "type": "string" }, "id": { "type": "string" },
            "outputs": { "type": "array", "items": { "$ref": "#/components/schemas/InferTensor" } },
        },
    });
    let error = json!({ "type": "object", "required": ["error"], "properties": { "error": { "type": "string" } } });
    let asked = json!({
        "type": "object",
        "description": "The inputs of the model by name. text_input is a second name of the text of a model that needs nothing else.",
        "properties": {
            "id": { "type": "string" }, "text_input": { "type": "string" },
            "parameters": { "type": "object", "description": "Further inputs, and parameters." },
        },
    });
    let generated = json!({
        "type": "object",
        "description": "The outputs of the model by name; text_output if the request said text_input.",
        "required": ["model_name", "model_version"],
        "properties": { "id": { "type": "string" }, "model_name": { "type": "string" }, "model_version": { "type": "string" }, "text_output": { "type": "string" } },
    });
    let generate = [("GenerateRequest", asked), ("GenerateAnswer", generated)];
    [("InferTensor", tensor), ("InferRequest", request), ("InferAnswer", answer), ("InferError", error)]
        .into_iter()
        .chain(generate)
        .map(|(name, schema)| (name.to_owned(), schema))
        .collect()
}
