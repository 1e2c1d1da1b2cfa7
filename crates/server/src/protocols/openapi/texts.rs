//! The routes of the OpenAI API that answer with texts.

use crate::engine::server_state::ServerState;
use crate::protocols::openai::generation::items::MOST_CHOICES;
use crate::protocols::openai::generation::text_route::TextRoute;
use crate::protocols::openai::input::MOST_INPUTS;
use crate::protocols::openapi::openai::{models_for, responses};
use crate::protocols::openapi::parts;
use crate::protocols::openapi::parts::refs;
use serde_json::{Map, Value, json};

/// The routes for which there is a model.
pub(super) fn routes(state: &ServerState, paths: &mut Map<String, Value>) {
    for (route, id, summary) in [
        (TextRoute::Chat, "create_chat_completion", "The next message of a chat."),
        (TextRoute::Completions, "create_completion", "What comes after a text."),
    ] {
        let models = models_for(state, route.task());
        if models.is_empty() {
            continue;
        }
        let schema = json!({ "$ref": format!("#/components/schemas/{}", answer_name(route)) });
        let good = json!({
            "description": "The answer. With stream=true it comes in events: each is a chunk as JSON, the last is [DONE].",
            "headers": parts::header_refs(parts::GOOD),
            "content": { "application/json": { "schema": schema }, "text/event-stream": {} },
        });
        let post = json!({
            "tags": ["openai"], "operationId": id, "summary": summary,
            "parameters": refs("parameters", &["RequestId", "Timeout", "Priority"]),
            "requestBody": { "required": true, "content": { "application/json": { "schema": request(route, &models) } } },
            "responses": responses(good),
        });
        paths.insert(route.task().openai_route().into(), json!({ "post": post }));
    }
}

fn answer_name(route: TextRoute) -> &'static str {
    match route {
        TextRoute::Chat => "ChatCompletion",
        TextRoute::Completions => "Completion",
    }
}

fn request(route: TextRoute, models: &[String]) -> Value {
    let text = json!({ "type": "string" });
    let input = match route {
        TextRoute::Chat => json!({
            "type": "array", "minItems": 1,
            "items": { "type": "object", "required": ["role"], "properties": { "role": text } },
            "description": "As the model's own input has them.",
        }),
        TextRoute::Completions => json!({
            "anyOf": [text, { "type": "array", "minItems": 1, "maxItems": MOST_INPUTS, "items": text }],
            "description": "Lists of tokens only where the model takes them.",
        }),
    };
    let limit = |what: &str| json!({ "type": ["integer", "null"], "minimum": 1, "description": what });
    let options = json!({
        "type": ["object", "null"], "properties": { "include_usage": { "type": ["boolean", "null"] } },
        "description": "Only with stream=true.",
    });
    let mut properties = json!({
        "model": { "type": "string", "enum": models },
        route.input(): input,
        "max_tokens": limit("Most tokens of the answer."),
        "n": { "type": ["integer", "null"], "minimum": 1, "maximum": MOST_CHOICES, "description": "Answers to each input." },
        "seed": { "type": ["integer", "null"], "description": "Each further choice has the next seed." },
        "stream": { "type": ["boolean", "null"] },
        "stream_options": options,
    });
    if route == TextRoute::Chat {
        properties["max_completion_tokens"] = limit("The same as max_tokens.");
    }
    json!({
        "type": "object",
        "description": "Fields that the model's own input has go to the model. Of other fields those are refused that change what is asked, such as tools.",
        "required": ["model", route.input()],
        "properties": properties,
    })
}

/// What these routes refer to.
pub(super) fn schemas() -> impl Iterator<Item = (String, Value)> {
    let count = json!({ "type": "integer" });
    let usage = json!({
        "type": "object",
        "required": ["prompt_tokens", "completion_tokens", "total_tokens"],
        "properties": { "prompt_tokens": count, "completion_tokens": count, "total_tokens": count },
    });
    [TextRoute::Chat, TextRoute::Completions].into_iter().map(move |route| {
        let text = json!({ "type": "string" });
        let (name, said, reasons) = match route {
            TextRoute::Chat => {
                let message = json!({
                    "type": "object",
                    "required": ["role", "content", "refusal"],
                    "properties": { "role": { "const": "assistant" }, "content": text, "refusal": { "type": "null" } },
                });
                ("message", message, json!(["stop", "length", "content_filter", "tool_calls", "function_call"]))
            }
            TextRoute::Completions => ("text", text.clone(), json!(["stop", "length", "content_filter"])),
        };
        let choice = json!({
            "type": "object",
            "required": ["index", name, "logprobs", "finish_reason"],
            "properties": { "index": { "type": "integer" }, name: said, "logprobs": { "type": "null" }, "finish_reason": { "enum": reasons } },
        });
        let answer = json!({
            "type": "object",
            "required": ["id", "object", "created", "model", "choices"],
            "properties": {
                "id": text, "object": { "const": route.object(false) }, "created": { "type": "integer" }, "model": text,
                "choices": { "type": "array", "items": choice }, "usage": usage,
            },
        });
        (answer_name(route).to_owned(), answer)
    })
}
