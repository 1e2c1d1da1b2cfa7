//! The OpenAI API: everything below `/v1`.

mod beside;
mod embeddings;
mod error;
mod input;
mod models;

use super::headers::{RequestId, quoted};
use super::problem::Problem;
use super::service::Reply;
use super::socket::Active;
use crate::call::{Failure, Timing};
use crate::deployment::Deployment;
use crate::http::upload::Upload;
use crate::site::Site;
use hyper::{Method, Request};
use jitney_core::manifest::Task;
use jitney_core::outcome::Outcome;

pub(crate) use error::{say, status};
pub(crate) use input::MOST_INPUTS;

/// Answers one request of this protocol.
pub(crate) async fn answer(
    site: &Site,
    request: Request<Upload>,
    id: &RequestId,
    active: &Active,
) -> Result<Reply, Problem> {
    let path = request.uri().path();
    let Some(route) = path.strip_prefix("/v1/").map(|route| route.trim_end_matches('/')) else {
        return Err(no_route(path).instead_of(request.body()));
    };
    let page = match route {
        "embeddings" if request.method() == Method::POST => {
            return Ok(embeddings::answer(site, request, id, active).await);
        }
        "embeddings" => Err(Problem::wrong_method(&request, "POST")),
        "models" => read_only(&request).and_then(|()| models::list(site)),
        _ => match route.strip_prefix("models/") {
            // Of the version of KServe's protocol before the Open Inference Protocol.
            Some(model) if model.ends_with(":predict") => Err(predict_of_kserve(path, model)),
            Some(model) => read_only(&request).and_then(|()| models::one(site, model)),
            None => Err(no_route(path)),
        },
    };
    let mut reply = page.map_err(|problem| problem.instead_of(request.body()))?;
    id.stamp(reply.headers_mut(), &Timing::default());
    Ok(reply)
}

fn no_route(path: &str) -> Problem {
    let asked = quoted(path.as_bytes());
    let hint = if lacks_version(path) { " (let the client's base URL end with /v1)" } else { "" };
    let detail = format!("{asked} is not a route of this server; there are /v1/models and /v1/embeddings{hint}");
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
    // Azure's have routes of their own.
    path.starts_with("openai/")
        || matches!(path, "embeddings" | "models" | "completions" | "chat/completions" | "responses")
        || path.strip_prefix("models/").is_some_and(|model| !model.is_empty() && model != "batch")
}

fn read_only(request: &Request<Upload>) -> Result<(), Problem> {
    let reads = request.method() == Method::GET || request.method() == Method::HEAD;
    if reads { Ok(()) } else { Err(Problem::wrong_method(request, "GET, HEAD")) }
}

/// By these names clients of this API may call, each deployment's own one first; a problem until all targets have been imported.
fn callable(site: &Site) -> Result<impl Iterator<Item = (&str, &Deployment, Task)>, Problem> {
    let Some(deployments) = site.deployments() else {
        return Err(site.loading("come back in a moment").into());
    };
    let capable =
        deployments.iter().filter_map(|(name, deployment)| Some((name, deployment, deployment.manifest.task?)));
    Ok(capable.flat_map(|(name, deployment, task)| {
        let further = deployment.manifest.options.openai_names.iter();
        std::iter::once(name).chain(further).map(move |name| (name.as_str(), deployment, task))
    }))
}

/// The deployment that clients of this API call so.
fn find<'a>(site: &'a Site, model: &str) -> Result<(&'a str, &'a Deployment, Task), Failure> {
    let mut callable = callable(site).map_err(Problem::into_failure)?;
    callable.find(|(name, ..)| *name == model).ok_or_else(|| no_model(site, model))
}

/// No deployment of this name does what was asked.
fn no_model(site: &Site, model: &str) -> Failure {
    let names: Vec<&str> = callable(site).into_iter().flatten().map(|(name, ..)| name).collect();
    let known = site.deployments().is_some_and(|deployments| deployments.contains_key(model));
    let asked = quoted(model.as_bytes());
    let what = if known {
        format!("the model {asked} has not said that it does embeddings (task=\"embedding\")")
    } else {
        format!("there is no model {asked}")
    };
    let others = if names.is_empty() {
        "no deployment here says task=\"embedding\"".to_owned()
    } else {
        format!("models: {}", names.join(", "))
    };
    Failure { field: Some("model".into()), ..Failure::new(Outcome::NotFound, format!("{what}; {others}")) }
}
