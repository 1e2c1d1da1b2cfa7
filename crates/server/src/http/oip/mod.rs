//! The Open Inference Protocol over REST: everything below `/v2`.

mod infer;
mod read;
mod write;

use super::body;
use super::headers::RequestId;
use super::problem::{Problem, Said};
use super::service::{Reply, decoded};
use super::socket::Active;
use crate::call::Timing;
use crate::http::object::Object;
use crate::http::upload::Upload;
use crate::item::json_fault;
use crate::site::Site;
use crate::tensors::describe;
use hyper::header::{HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, StatusCode};
use jitney_core::outcome::Outcome;
use serde::Serialize;
use serde_json::{Value, json};
use std::borrow::Cow;

const READ: &str = "GET, HEAD";

/// Answers one request of this protocol.
pub(crate) async fn answer(
    site: &Site,
    request: Request<Upload>,
    id: &RequestId,
    active: &Active,
) -> Result<Reply, Problem> {
    let path = request.uri().path().to_owned();
    // What is no text is the name of nothing.
    let decode = |piece| decoded(piece).unwrap_or(Cow::Borrowed("%"));
    let pieces: Vec<Cow<str>> = path.split('/').skip(2).map(decode).collect();
    let pieces: Vec<&str> = pieces.iter().map(AsRef::as_ref).filter(|piece| !piece.is_empty()).collect();
    // A model comes with or without its version, which is then checked with its name.
    let (model, version, rest) = match &pieces[..] {
        ["models", model, "versions", version, rest @ ..] => (*model, *version, rest),
        ["models", model, rest @ ..] => (*model, "", rest),
        _ => ("", "", &[][..]),
    };
    if !model.is_empty() && rest == ["infer"] {
        let found = allow(&request, &[Method::POST], "POST").and_then(|()| Ok(describe::find(site, model, version)?));
        let deployment = found.map_err(|problem| problem.instead_of(request.body()))?;
        return infer::infer(site, deployment, request, id, active).await;
    }
    let mut reply = if pieces == ["repository", "index"] {
        allow(&request, &[Method::POST], "POST").map_err(|problem| problem.instead_of(request.body()))?;
        index(site, request).await?
    } else {
        page(site, &request, &pieces, (model, version, rest)).map_err(|problem| problem.instead_of(request.body()))?
    };
    id.stamp(reply.headers_mut(), &Timing::default());
    Ok(reply)
}

fn page(
    site: &Site,
    request: &Request<Upload>,
    pieces: &[&str],
    (model, version, rest): (&str, &str, &[&str]),
) -> Result<Reply, Problem> {
    if matches!(pieces, ["repository", "models", _, "load" | "unload"]) {
        return Err(describe::no_control().into());
    }
    if matches!(pieces, ["systemsharedmemory" | "cudasharedmemory", ..]) {
        return Err(describe::no_shared_memory().into());
    }
    let is_model = !model.is_empty() && matches!(rest, [] | ["ready" | "config" | "stats"]);
    if !is_model && !matches!(pieces, [] | ["models"] | ["health", "live" | "ready"]) {
        let shown = super::headers::quoted(request.uri().path().as_bytes());
        return Err(Problem::new(
            Outcome::NotFound,
            format!("{shown} is not a route of the Open Inference Protocol here"),
        ));
    }
    allow(request, &[Method::GET, Method::HEAD], READ)?;
    // A model may have this name.
    if pieces == ["models", "stats"] && describe::find(site, model, version).is_err() {
        return Ok(json_reply(&describe::all_statistics(site, "", "")?));
    }
    match pieces {
        [] => return Ok(json_reply(&describe::server())),
        ["health", "live"] => return Ok(json_reply(&json!({ "live": true }))),
        ["health", "ready"] => return Ok(readiness(site, json!({}), site.readiness().ready)),
        ["models"] => {
            let names: Vec<&String> = site.deployments().into_iter().flatten().map(|(name, _)| name).collect();
            return Ok(json_reply(&json!({ "models": names })));
        }
        _ => {}
    }
    let deployment = describe::find(site, model, version)?;
    Ok(match rest {
        ["ready"] => readiness(site, json!({ "name": model }), describe::is_ready(site, deployment)),
        ["config"] => json_reply(&describe::config(deployment)),
        ["stats"] => json_reply(&describe::all_statistics(site, model, version)?),
        _ => json_reply(&describe::model(deployment)),
    })
}

fn allow(request: &Request<Upload>, methods: &[Method], names: &'static str) -> Result<(), Problem> {
    if methods.contains(request.method()) {
        return Ok(());
    }
    Err(Problem::wrong_method(request, names))
}

/// What a body may ask of the index. Nothing else of it is kept: a document may be far larger in memory than it was.
#[derive(Default, serde::Deserialize)]
struct Asked {
    #[serde(default)]
    ready: bool,
}

/// `POST /v2/repository/index`: a body may ask for those only that are ready.
async fn index(site: &Site, request: Request<Upload>) -> Result<Reply, Problem> {
    let mut body = body::question(request.into_body(), site, None).await?;
    let Object(Asked { ready }) = match body.contiguous() {
        body if body.is_empty() => Object::default(),
        body => serde_json::from_slice(body).map_err(|error| {
            Problem::new(
                Outcome::MalformedBody,
                format!("the body cannot be read: {}; send {{\"ready\": true}} or nothing", json_fault(body, &error)),
            )
        })?,
    };
    Ok(json_reply(&describe::index(site, ready).models))
}

fn json_reply(value: &impl Serialize) -> Reply {
    super::pages::reply("application/json", serde_json::to_vec(value).unwrap_or_default())
}

fn readiness(site: &Site, mut body: Value, ready: bool) -> Reply {
    body["ready"] = ready.into();
    let mut reply = json_reply(&body);
    if !ready {
        *reply.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from(site.loading_retry_after().as_secs().max(1)));
    }
    reply
}

/// Routes that answer without a key.
pub(crate) fn is_probe(path: &str) -> bool {
    matches!(path, "/v2/health/live" | "/v2/health/ready")
}

/// A problem as `{"error": "text"}`: a string, which is what its clients print.
pub(crate) fn say(problem: &Problem) -> Said {
    let status = match problem.outcome() {
        Outcome::InvalidInput => 400,
        Outcome::WorkerLost | Outcome::Quarantined => 500,
        outcome => outcome.http_status(),
    };
    let body = serde_json::to_vec(&json!({ "error": problem.detail() })).unwrap_or_default();
    Said { status: problem.chosen_status().unwrap_or(status), media: "application/json", body, headers: vec![] }
}
