//! `GET /openapi.json`: the API as the manifests describe it, in `OpenAPI` 3.1.

use crate::engine::server_state::ServerState;
use crate::protocols::native::pages::json_reply;
use crate::protocols::openapi::components::Components;
use crate::protocols::openapi::native::Schemas;
use crate::protocols::openapi::{images, native, open_inference, openai, parts, texts};
use crate::protocols::reply::payload::Reply;
use serde_json::{Map, Value, json};

/// `GET /openapi.json`
pub(crate) fn page(state: &ServerState) -> Reply {
    let mut schemas = openai::schemas();
    schemas.extend(texts::schemas());
    schemas.insert("Images".into(), images::schema());
    schemas.extend(open_inference::schemas());
    schemas.insert("Problem".into(), parts::problem_schema());
    schemas.insert("AllFailed".into(), parts::all_failed_schema());
    let mut components = Components::new(schemas);
    let (deployments, mut paths) = (state.deployments(), Map::new());
    for deployment in &deployments {
        let (name, path) = (&deployment.manifest.name, deployment.manifest.path());
        let schemas = Schemas::new(name, deployment, &mut components);
        paths.insert(path.clone(), json!({ "post": native::one(name, deployment, &schemas) }));
        paths.insert(format!("{path}/batch"), json!({ "post": native::many(name, deployment, &schemas) }));
        if let Some(route) = deployment.manifest.route.as_ref().filter(|route| **route != path) {
            let id = format!("{name}_route");
            paths.insert(route.clone(), json!({ "post": native::one(&id, deployment, &schemas) }));
            paths.insert(format!("{route}/batch"), json!({ "post": native::many(&id, deployment, &schemas) }));
        }
    }
    // Without a deployment that says its task there is nothing to call there.
    if deployments.iter().any(|deployment| deployment.manifest.task.is_some()) {
        openai::routes(state, &mut paths);
        texts::routes(state, &mut paths);
        images::routes(state, &mut paths);
    }
    if !deployments.is_empty() {
        open_inference::routes(state, &mut paths);
    }
    server_pages(&mut paths, state.options.open_metrics);
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "jitney",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "One item per request, or many on /batch; items are batched by the server. JSON has no NaN and no infinities: in answers they are null, and null in a list of floats is NaN. A client that closes its side of the connection counts as disconnected.",
        },
        "paths": paths,
        "components": {
            "schemas": components.into_json(),
            "headers": parts::answer_headers(),
            "parameters": parts::parameters(),
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer", "description": "One of the server's API keys." },
                "apiKey": { "type": "apiKey", "in": "header", "name": "x-api-key", "description": "The same key, in another header." },
            },
        },
    });
    if state.keys.is_some() {
        document["security"] = json!([{ "bearer": [] }, { "apiKey": [] }]);
    }
    json_reply(&document)
}

/// What the front says of itself.
fn server_pages(paths: &mut Map<String, Value>, open_metrics: bool) {
    for (path, id, what, media, is_open) in [
        ("/livez", "livez", "200 while this process answers.", "text/plain", true),
        (
            "/readyz",
            "readyz",
            "200 when the server takes requests, else 503 with the reasons.",
            "application/json",
            true,
        ),
        ("/metrics", "metrics", "Metrics in the Prometheus text format.", "text/plain", open_metrics),
        ("/config", "config", "The options in force and where they came from.", "application/json", false),
    ] {
        let mut content = Map::new();
        content.insert(media.into(), json!({}));
        let mut responses = json!({ "200": { "description": what, "content": content } });
        if id == "readyz" {
            responses["503"] = json!({ "description": "Not yet, or not any more.", "content": content });
        }
        let mut get =
            json!({ "tags": ["server"], "operationId": format!("get_{id}"), "summary": what, "responses": responses });
        if is_open {
            get["security"] = json!([]);
        } else {
            get["responses"]["401"] = json!({ "description": "Reasons: unauthorized." });
        }
        paths.insert(path.into(), json!({ "get": get }));
    }
}
