//! `GET /v1/models` and `GET /v1/models/{id}`.

use super::{callable, find};
use crate::http::pages::json_reply;
use crate::http::problem::Problem;
use crate::http::service::{Reply, decoded};
use crate::site::Site;
use serde_json::{Value, json};
use std::time::UNIX_EPOCH;

pub(super) fn list(site: &Site) -> Result<Reply, Problem> {
    let models: Vec<Value> = callable(site)?.map(|(name, ..)| model(site, name)).collect();
    Ok(json_reply(&json!({ "object": "list", "data": models })))
}

pub(super) fn one(site: &Site, asked: &str) -> Result<Reply, Problem> {
    let asked = decoded(asked).unwrap_or_default();
    let (name, ..) = find(site, &asked)?;
    Ok(json_reply(&model(site, name)))
}

fn model(site: &Site, name: &str) -> Value {
    let created = site.created.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    json!({ "id": name, "object": "model", "created": created, "owned_by": "jitney" })
}
