//! The Open Inference Protocol over REST: everything below `/v2`.

use crate::engine::deployment::Deployment;
use crate::engine::server_state::ServerState;
use crate::items::document::json_fault;
use crate::protocols::connection::upload::Upload;
use crate::protocols::exchange::Exchange;
use crate::protocols::native::pages::say_unready;
use crate::protocols::open_inference::describe;
use crate::protocols::open_inference::generate::Generate;
use crate::protocols::open_inference::infer::RestInfer;
use crate::protocols::reply::payload::Reply;
use crate::protocols::reply::problem::Problem;
use crate::protocols::request::body;
use crate::protocols::request::object::Object;
use crate::values::text::decoded;
use hyper::Method;
use hyper::http::request::Parts;
use jitney_core::tables::outcome::Outcome;
use serde::Serialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::sync::Arc;

const READ: &str = "GET, HEAD";
/// What can be asked of a model that computes items.
const CALLS: [&str; 3] = ["infer", "generate", "generate_stream"];

/// Answers one request of this protocol.
pub(crate) async fn answer(exchange: Exchange<'_>, body: &mut Upload) -> Result<Reply, Problem> {
    let Exchange { state, head, active, .. } = exchange;
    // A segment that is not UTF-8 becomes `%`, which no model is called.
    let decode = |piece| decoded(piece).unwrap_or(Cow::Borrowed("%"));
    let pieces: Vec<Cow<str>> = head.uri.path().split('/').skip(2).map(decode).collect();
    let pieces: Vec<&str> = pieces.iter().map(AsRef::as_ref).filter(|piece| !piece.is_empty()).collect();
    // A model comes with or without its version, which is then checked with its name.
    let (model, version, rest) = match &pieces[..] {
        ["models", model, "versions", version, rest @ ..] => (*model, *version, rest),
        ["models", model, rest @ ..] => (*model, "", rest),
        _ => ("", "", &[][..]),
    };
    if let ([call], false) = (rest, model.is_empty())
        && CALLS.contains(call)
    {
        let found = allow(head, &[Method::POST], "POST").and_then(|()| Ok(describe::find(state, model, version)?));
        let deployment = found.map_err(|problem| problem.instead_of(body))?;
        if *call == "infer" {
            let infer = RestInfer { state, received: &active.ledger().received, deployment };
            return Ok(exchange.answer(&infer, body).await);
        }
        let generate = Generate { state, deployment, is_streamed: *call == "generate_stream" };
        return Ok(Box::pin(exchange.answer(&generate, body)).await);
    }
    if pieces == ["repository", "index"] {
        allow(head, &[Method::POST], "POST").map_err(|problem| problem.instead_of(body))?;
        return index(state, body).await;
    }
    page(state, head, &pieces, (model, version, rest)).map_err(|problem| problem.instead_of(body))
}

fn page(
    state: &ServerState,
    head: &Parts,
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
        let shown = crate::protocols::request::headers::quoted(head.uri.path().as_bytes());
        let there = "there are /v2, /v2/models, /v2/models/NAME and below it infer, generate and generate_stream";
        let detail = format!("{shown} is not a route of the Open Inference Protocol; {there}");
        return Err(Problem::new(Outcome::NotFound, detail));
    }
    allow(head, &[Method::GET, Method::HEAD], READ)?;
    // A model may have this name.
    if pieces == ["models", "stats"] && describe::find(state, model, version).is_err() {
        return Ok(json_reply(&describe::all_statistics(state, "", "")?));
    }
    match pieces {
        [] => return Ok(json_reply(&describe::server())),
        ["health", "live"] => return Ok(json_reply(&json!({ "live": true }))),
        ["health", "ready"] => return Ok(readiness(state, json!({}), state.readiness().ready)),
        ["models"] => {
            let catalogue = state.catalogue().unwrap_or_default();
            return Ok(json_reply(&json!({ "models": catalogue.names().collect::<Vec<_>>() })));
        }
        _ => {}
    }
    let deployment = describe::find(state, model, version)?;
    Ok(match rest {
        ["ready"] => readiness(state, json!({ "name": model }), describe::is_ready(state, &deployment)),
        ["config"] => json_reply(&describe::config(&deployment)),
        ["stats"] => json_reply(&describe::all_statistics(state, model, version)?),
        _ => json_reply(&describe::model(&deployment)),
    })
}

fn allow(head: &Parts, methods: &[Method], names: &'static str) -> Result<(), Problem> {
    if methods.contains(&head.method) {
        return Ok(());
    }
    Err(Problem::wrong_method(head, names))
}

/// What a body may ask of the index. Nothing else of it is kept: a document may be far larger in memory than it was.
#[derive(Default, serde::Deserialize)]
struct Asked {
    #[serde(default)]
    ready: bool,
}

/// `POST /v2/repository/index`: a body may ask for those only that are ready.
async fn index(state: &ServerState, body: &mut Upload) -> Result<Reply, Problem> {
    let mut body = body::question(body, state, None).await?;
    let Object(Asked { ready }) = match body.contiguous() {
        body if body.is_empty() => Object::default(),
        body => serde_json::from_slice(body).map_err(|error| {
            Problem::new(
                Outcome::MalformedBody,
                format!("the body cannot be read: {}; send {{\"ready\": true}} or nothing", json_fault(body, &error)),
            )
        })?,
    };
    Ok(json_reply(&describe::index(state, ready).models))
}

fn json_reply(value: &impl Serialize) -> Reply {
    crate::protocols::native::pages::reply("application/json", serde_json::to_vec(value).unwrap_or_default())
}

fn readiness(state: &ServerState, mut body: Value, ready: bool) -> Reply {
    body["ready"] = ready.into();
    let mut reply = json_reply(&body);
    if !ready {
        say_unready(&mut reply, state);
    }
    reply
}

/// The deployment that this path of a call names.
pub(crate) fn deployment(state: &ServerState, path: &str) -> Option<Arc<Deployment>> {
    let pieces: Vec<&str> = path.split('/').skip(2).filter(|piece| !piece.is_empty()).collect();
    let (model, version) = match &pieces[..] {
        ["models", model, call] if CALLS.contains(call) => (model, ""),
        ["models", model, "versions", version, call] if CALLS.contains(call) => (model, *version),
        _ => return None,
    };
    describe::find(state, &decoded(model)?, &decoded(version)?).ok()
}

/// Routes that compute items.
pub(crate) fn is_call(path: &str) -> bool {
    path.trim_end_matches('/').rsplit('/').next().is_some_and(|last| CALLS.contains(&last))
}

/// Routes that answer without a key.
pub(crate) fn is_probe(path: &str) -> bool {
    matches!(path, "/v2/health/live" | "/v2/health/ready")
}
