//! The OpenAI API: everything below `/v1`.

use crate::engine::server_state::ServerState;
use crate::protocols::connection::upload::Upload;
use crate::protocols::exchange::Exchange;
use crate::protocols::openai::embeddings::route::Embeddings;
use crate::protocols::openai::generation::route::Generation;
use crate::protocols::openai::generation::text_route::TextRoute;
use crate::protocols::openai::images::route::Images;
use crate::protocols::openai::models;
use crate::protocols::reply::payload::Reply;
use crate::protocols::reply::problem::Problem;
use crate::protocols::request::headers::quoted;
use hyper::Method;
use hyper::http::request::Parts;
use jitney_core::tables::outcome::Outcome;

/// The routes of this protocol, without their first slash.
const ROUTES: [&str; 5] =
    ["v1/models", "v1/embeddings", "v1/chat/completions", "v1/completions", "v1/images/generations"];

/// Whether a path asks for items to be computed.
pub(crate) fn is_call(path: &str) -> bool {
    let path = path.trim_start_matches('/').trim_end_matches('/');
    ROUTES.contains(&path) && path != "v1/models"
}

/// Answers one request of this protocol.
pub(crate) async fn answer(exchange: Exchange<'_>, body: &mut Upload) -> Result<Reply, Problem> {
    let Exchange { state, head, id, .. } = exchange;
    let path = head.uri.path();
    let Some(route) = path.strip_prefix("/v1/").map(|route| route.trim_end_matches('/')) else {
        return Err(no_route(state, path).instead_of(body));
    };
    let generation = |route| Generation { state, id, route };
    let page = match route {
        _ if is_call(path) && head.method != Method::POST => Err(Problem::wrong_method(head, "POST")),
        "embeddings" => return Ok(exchange.answer(&Embeddings { state }, body).await),
        // On the heap: more than the others, and their answers take longer than an allocation.
        "chat/completions" => return Ok(Box::pin(exchange.answer(&generation(TextRoute::Chat), body)).await),
        "completions" => return Ok(Box::pin(exchange.answer(&generation(TextRoute::Completions), body)).await),
        "images/generations" => return Ok(Box::pin(exchange.answer(&Images { state }, body)).await),
        "models" => read_only(head).and_then(|()| models::list(state)),
        _ => match route.strip_prefix("models/") {
            // Of the version of KServe's protocol before the Open Inference Protocol.
            Some(model) if model.ends_with(":predict") => Err(predict_of_kserve(path, model)),
            Some(model) => read_only(head).and_then(|()| models::one(state, model)),
            None => Err(no_route(state, path)),
        },
    };
    page.map_err(|problem| problem.instead_of(body))
}

fn no_route(state: &ServerState, path: &str) -> Problem {
    let asked = quoted(path.as_bytes());
    let nearest = state.catalogue().and_then(|catalogue| catalogue.nearest(path.trim_start_matches('/'), &ROUTES));
    let hint = match nearest {
        _ if lacks_version(path) => " (let the client's base URL end with /v1)".to_owned(),
        Some(nearest) => format!("; did you mean /{nearest}?"),
        None => String::new(),
    };
    let detail = format!("{asked} is not a route of this server; there are /{}{hint}", ROUTES.join(", /"));
    Problem::new(Outcome::NotFound, detail)
}

fn predict_of_kserve(path: &str, model: &str) -> Problem {
    let asked = quoted(path.as_bytes());
    let name = quoted(model.trim_end_matches(":predict").as_bytes());
    let name = name.trim_matches('`');
    let detail =
        format!("{asked} is KServe's protocol v1; there are POST /v2/models/{name}/infer (v2) and POST /{name}");
    Problem::new(Outcome::NotFound, detail)
}

/// Whether this is what OpenAI's clients ask for when their base URL does not end with the version.
pub(crate) fn lacks_version(path: &str) -> bool {
    let path = path.strip_prefix('/').unwrap_or_default();
    // Azure's clients ask for paths below `openai/`.
    path.starts_with("openai/")
        || matches!(
            path,
            "embeddings" | "models" | "completions" | "chat/completions" | "images/generations" | "responses"
        )
        || path.strip_prefix("models/").is_some_and(|model| !model.is_empty() && model != "batch")
}

fn read_only(head: &Parts) -> Result<(), Problem> {
    let reads = head.method == Method::GET || head.method == Method::HEAD;
    if reads { Ok(()) } else { Err(Problem::wrong_method(head, "GET, HEAD")) }
}
