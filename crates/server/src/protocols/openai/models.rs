//! `GET /v1/models` and `GET /v1/models/{id}`.

use crate::engine::server_state::ServerState;
use crate::protocols::native::pages::json_reply;
use crate::protocols::openai::model_route::unix_seconds;
use crate::protocols::openai::names::{callable, find};
use crate::protocols::reply::payload::Reply;
use crate::protocols::reply::problem::Problem;
use crate::values::text::decoded;
use serde_json::{Value, json};

pub(crate) fn list(state: &ServerState) -> Result<Reply, Problem> {
    let models: Vec<Value> = callable(state)?.iter().map(|(name, ..)| model(state, name)).collect();
    Ok(json_reply(&json!({ "object": "list", "data": models })))
}

pub(crate) fn one(state: &ServerState, asked: &str) -> Result<Reply, Problem> {
    let asked = decoded(asked).unwrap_or_default();
    find(state, &asked)?;
    Ok(json_reply(&model(state, &asked)))
}

fn model(state: &ServerState, name: &str) -> Value {
    let created = unix_seconds(state.created);
    json!({ "id": name, "object": "model", "created": created, "owned_by": "jitney" })
}
