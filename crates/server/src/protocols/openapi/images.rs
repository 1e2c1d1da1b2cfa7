//! The route of the OpenAI API that answers with images.

use crate::engine::server_state::ServerState;
use crate::protocols::openai::images::route::{MOST_IMAGES, MOST_PREVIEWS};
use crate::protocols::openapi::openai::{models_for, responses};
use crate::protocols::openapi::parts;
use crate::protocols::openapi::parts::refs;
use jitney_core::config::manifest::TaskKind;
use serde_json::{Map, Value, json};

/// The route, if there is a model for it.
pub(super) fn routes(state: &ServerState, paths: &mut Map<String, Value>) {
    let models = models_for(state, TaskKind::Image);
    if models.is_empty() {
        return;
    }
    let good = json!({
        "description": "The images. With stream=true there is one, in the events image_generation.partial_image (previews) and image_generation.completed.",
        "headers": parts::header_refs(parts::GOOD),
        "content": {
            "application/json": { "schema": { "$ref": "#/components/schemas/Images" } },
            "text/event-stream": {},
        },
    });
    let post = json!({
        "tags": ["openai"], "operationId": "create_image", "summary": "Images of a text.",
        "parameters": refs("parameters", &["RequestId", "Timeout", "Priority"]),
        "requestBody": { "required": true, "content": { "application/json": { "schema": request(&models) } } },
        "responses": responses(good),
    });
    paths.insert(TaskKind::Image.openai_route().into(), json!({ "post": post }));
}

fn request(models: &[String]) -> Value {
    json!({
        "type": "object",
        "description": "Fields that the model's own input has go to the model. Of other fields those are refused that change what is asked.",
        "required": ["model", "prompt"],
        "properties": {
            "model": { "type": "string", "enum": models },
            "prompt": { "type": "string" },
            "n": { "type": ["integer", "null"], "minimum": 1, "maximum": MOST_IMAGES, "description": "1 with stream=true." },
            "size": { "type": ["string", "null"], "pattern": "^(auto|[1-9][0-9]{0,4}x[1-9][0-9]{0,4})$", "description": "Only where the model has sizes." },
            "response_format": { "enum": ["b64_json", null] },
            "stream": { "type": ["boolean", "null"] },
            "partial_images": { "type": ["integer", "null"], "minimum": 0, "maximum": MOST_PREVIEWS, "description": "Previews, where the model makes them." },
        },
    })
}

/// The answer in one piece.
pub(super) fn schema() -> Value {
    let count = json!({ "type": "integer" });
    let image = json!({
        "type": "object", "required": ["b64_json"],
        "properties": { "b64_json": { "type": "string", "contentEncoding": "base64" } },
    });
    json!({
        "type": "object",
        "required": ["created", "data", "output_format"],
        "properties": {
            "created": count, "data": { "type": "array", "items": image },
            "output_format": { "type": "string" }, "size": { "type": "string" },
            "usage": {
                "type": "object",
                "required": ["input_tokens", "input_tokens_details", "output_tokens", "total_tokens"],
                "properties": {
                    "input_tokens": count, "output_tokens": count, "total_tokens": count,
                    "input_tokens_details": {
                        "type": "object", "required": ["text_tokens", "image_tokens"],
                        "properties": { "text_tokens": count, "image_tokens": count },
                    },
                },
            },
        },
    })
}
