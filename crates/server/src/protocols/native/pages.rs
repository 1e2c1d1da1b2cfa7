//! What the front says of itself: probes, metrics, configuration, the docs page. None of it waits for a model.

use crate::base::offload;
use crate::base::telemetry::{openmetrics, workers};
use crate::engine::deployment::Deployment;
use crate::engine::server_state::ServerState;
use crate::protocols::reply::accept::Accept;
use crate::protocols::reply::payload::Reply;
use crate::protocols::reply::payload::ReplyBody;
use crate::protocols::reply::problem::Problem;
use crate::protocols::request::headers::quoted;
use bytes::Bytes;
use futures_util::future::join_all;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use jitney_core::config::manifest::Task;
use jitney_core::scheduler::explanation::Explanation;
use jitney_core::tables::outcome::Outcome;
use serde_json::{Map, Value, json};
use std::sync::{Arc, LazyLock};

/// The weight of work that waits for the kernel or for a GPU: it is always done apart from the requests of its thread.
const BLOCKS: usize = usize::MAX;

/// A page is one document: it loads nothing. These pieces of pages stand in it between `%%`.
const PIECES: [(&str, &str); 6] = [
    ("STYLE", include_str!("pages/page.css")),
    ("CARD", include_str!("pages/card.html")),
    ("FORM", include_str!("pages/form.js")),
    ("LIVE_STYLE", include_str!("pages/live.css")),
    ("LIVE", include_str!("pages/live.js")),
    ("PLOTS", include_str!("pages/plots.js")),
];
static DOCS: LazyLock<String> = LazyLock::new(|| whole(include_str!("pages/docs.html")));
static LIVE: LazyLock<String> = LazyLock::new(|| whole(include_str!("pages/live.html")));

/// The page with its pieces.
fn whole(page: &str) -> String {
    PIECES.iter().fold(page.to_owned(), |page, (name, piece)| page.replace(&format!("%%{name}%%"), piece))
}

/// One answer of this type.
pub(crate) fn reply(media: &'static str, body: impl Into<ReplyBody>) -> Reply {
    let mut reply = Response::new(body.into());
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    // All of this changes while the server runs.
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

/// One JSON answer.
pub(crate) fn json_reply(value: &Value) -> Reply {
    reply("application/json", serde_json::to_vec_pretty(value).unwrap_or_default())
}

/// `OPTIONS *`: what may be asked of some route.
pub(crate) fn options() -> Reply {
    let mut reply = Response::new(ReplyBody::from(Bytes::new()));
    *reply.status_mut() = StatusCode::NO_CONTENT;
    reply.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST, OPTIONS"));
    reply
}

/// Whether a request is that of a browser which comes to `/`. What covers everything is a program that did not care.
pub(crate) fn is_browser_at_root(head: &Parts) -> bool {
    head.uri.path() == "/" && matches!(head.method, Method::GET | Method::HEAD) && prefers_html(&head.headers)
}

fn prefers_html(headers: &HeaderMap) -> bool {
    let accept = Accept::of(headers);
    accept.quality("text/html") > accept.quality("application/json")
}

/// `GET /`: the live page for people, the routes for programs.
pub(crate) fn index(state: &ServerState, headers: &HeaderMap) -> Reply {
    if prefers_html(headers) {
        let mut to_live = reply("text/plain", "see /live\n");
        *to_live.status_mut() = StatusCode::TEMPORARY_REDIRECT;
        to_live.headers_mut().insert(LOCATION, HeaderValue::from_static("/live"));
        return to_live;
    }
    let mut routes = Map::new();
    let deployments = state.deployments();
    for deployment in &deployments {
        let path = deployment.manifest.path();
        routes.insert(format!("POST {path}"), deployment.manifest.doc.clone().into());
        routes.insert(format!("POST {path}/batch"), "the same for many items in one request".into());
    }
    for task in deployments.iter().filter_map(|deployment| deployment.manifest.task.map(Task::kind)) {
        let what = format!("the OpenAI API, for deployments with task=\"{}\"", task.name());
        routes.insert(format!("POST {}", task.openai_route()), what.into());
        routes.insert("GET /v1/models".into(), "which models the OpenAI API has".into());
    }
    for (route, what) in [
        ("GET /livez", "200 while this process answers"),
        ("GET /readyz", "200 when models are loaded and the server takes requests, else 503 with the reasons"),
        ("GET /metrics", "metrics for Prometheus"),
        ("GET /config", "the options in force, where they came from, what was learned of batches, and the last ones"),
        ("GET /v2", "the Open Inference Protocol, over REST and gRPC: every deployment is a model of it"),
        (
            "GET /trace/ID",
            "where the time of a traced request went, as JSON of OTLP; the id of the request or of its trace",
        ),
        ("GET /openapi.json", "the API of the deployments"),
        ("GET /docs", "the same for people"),
        ("GET /live", "what the server does now, for people; /live/events has it as server-sent events"),
    ] {
        routes.insert(route.into(), what.into());
    }
    json_reply(&json!({ "server": "jitney", "version": env!("CARGO_PKG_VERSION"), "routes": routes }))
}

/// `GET /livez`
pub(crate) fn livez() -> Reply {
    reply("text/plain", "ok\n")
}

/// `GET /readyz`
pub(crate) fn readyz(state: &ServerState) -> Reply {
    let readiness = state.readiness();
    let mut body = json!({ "ready": readiness.ready, "draining": readiness.draining, "reasons": readiness.reasons });
    if !readiness.asleep.is_empty() {
        body["asleep"] = json!(readiness.asleep);
    }
    let mut answer = json_reply(&body);
    if !readiness.ready {
        say_unready(&mut answer, state);
    }
    answer
}

/// Makes this the answer to a probe of what is not ready.
pub(crate) fn say_unready(answer: &mut Reply, state: &ServerState) {
    *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(state.loading_retry_after().as_secs().max(1)));
}

/// `GET /metrics`, in the Prometheus text format unless the scraper prefers `OpenMetrics`.
pub(crate) async fn metrics(state: &ServerState, headers: &HeaderMap) -> Reply {
    // Estimates of arrivals fade with time, so each engine computes its metrics now.
    let deployments = state.deployments();
    join_all(deployments.iter().map(|deployment| deployment.show_learned())).await;
    let seen = state.workers.seen().await;
    let text = offload::run(BLOCKS, || workers::text(&state.telemetry, &state.workers, &seen)).await;
    let accept = Accept::of(headers);
    if accept.quality("application/openmetrics-text") > accept.quality("text/plain") {
        let exemplars = state.telemetry.exemplars().by_sample();
        return reply(openmetrics::MEDIA, openmetrics::from_prometheus(&text, &exemplars).into_bytes());
    }
    reply("text/plain; version=0.0.4; charset=utf-8", text.into_bytes())
}

/// What every engine has learned and decided. All are asked at once: together they take as long as the slowest.
async fn explain_all(state: &ServerState) -> Vec<(Arc<Deployment>, Option<Explanation>)> {
    let asked = state.deployments().into_iter().map(|deployment| async {
        let explanation = deployment.explain().await;
        (deployment, explanation)
    });
    join_all(asked).await
}

/// `GET /config`
pub(crate) async fn config(state: &ServerState) -> Reply {
    let mut deployments = Map::new();
    for (deployment, batches) in explain_all(state).await {
        let manifest = &deployment.manifest;
        let summary = json!({
            "doc": manifest.doc,
            "route": manifest.route,
            "options": manifest.options,
            "option_sources": manifest.option_sources,
            "init": manifest.init,
            "input": { "kind": manifest.input.kind, "arrays": manifest.input.arrays },
            "output": { "kind": manifest.output.kind, "arrays": manifest.output.arrays },
            "task": manifest.task,
            "group_by": manifest.group_by,
            "cost": manifest.cost,
            "uses": manifest.uses,
            "batches": batches,
        });
        deployments.insert(manifest.name.clone(), summary);
    }
    json_reply(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "server": state.options,
        "server_sources": state.option_sources,
        "deployments": deployments,
    }))
}

/// `GET /trace/ID`
pub(crate) async fn trace(state: &ServerState, id: &str) -> Result<Reply, Problem> {
    let asked = quoted(id.as_bytes());
    let Some(traces) = &state.traces else {
        let detail = "this server keeps no traces: start it with --trace-slow-ms, or set OTEL_TRACES_SAMPLER or \
                      OTEL_EXPORTER_OTLP_ENDPOINT";
        return Err(Problem::new(Outcome::NotFound, detail));
    };
    let Some(found) = traces.find(id) else {
        let detail = format!(
            "no trace of a request {asked}, and no trace {asked}, is among the last 1,000 that were kept; slow and failed \
             requests are kept"
        );
        return Err(Problem::new(Outcome::NotFound, detail));
    };
    Ok(offload::run(found.bytes(), || json_reply(&found.document())).await)
}

/// `GET /docs`
pub(crate) fn docs() -> Reply {
    html(&DOCS)
}

/// `GET /live`
pub(crate) fn live() -> Reply {
    html(&LIVE)
}

/// The live page, for programs that serve it themselves.
pub fn live_page() -> &'static str {
    &LIVE
}

fn html(text: &'static str) -> Reply {
    let mut page = reply("text/html; charset=utf-8", text);
    // The page needs nothing from elsewhere, and nothing from elsewhere may run in it.
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    page.headers_mut().insert("content-security-policy", HeaderValue::from_static(policy));
    page
}
