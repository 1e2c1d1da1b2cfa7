//! The OpenAI API: everything below `/v1`.

mod embeddings;
mod error;
mod input;
mod models;

use super::headers::RequestId;
use super::problem::Problem;
use super::service::Reply;
use super::socket::Active;
use crate::call::{Failure, Timing};
use crate::deployment::Deployment;
use crate::site::Site;
use hyper::body::Incoming;
use hyper::{Method, Request};
use jitney_core::manifest::Task;
use jitney_core::outcome::Outcome;

pub(crate) use error::{say, status};
pub(crate) use input::MOST_INPUTS;

/// Answers one request of this protocol.
pub(crate) async fn answer(
    site: &Site,
    request: Request<Incoming>,
    id: &RequestId,
    active: &Active,
) -> Result<Reply, Problem> {
    let path = request.uri().path();
    let route = path.strip_prefix("/v1/").unwrap_or_default().trim_end_matches('/');
    let page = match route {
        "embeddings" if request.method() == Method::POST => {
            return Ok(embeddings::answer(site, request, id, active).await);
        }
        "embeddings" => Err(wrong_method(&request, "POST")),
        "models" => read_only(&request).and_then(|()| models::list(site)),
        _ => match route.strip_prefix("models/") {
            Some(model) => read_only(&request).and_then(|()| models::one(site, model)),
            None => Err(no_route(path)),
        },
    };
    let mut reply = page.map_err(|problem| problem.instead_of(request.body()))?;
    id.stamp(reply.headers_mut(), &Timing::default());
    Ok(reply)
}

fn no_route(path: &str) -> Problem {
    let asked = super::headers::quoted(path.as_bytes());
    let detail = format!("{asked} is not a route of this server; there are /v1/models and /v1/embeddings");
    Problem::new(Outcome::NotFound, detail)
}

fn read_only(request: &Request<Incoming>) -> Result<(), Problem> {
    let reads = request.method() == Method::GET || request.method() == Method::HEAD;
    if reads { Ok(()) } else { Err(wrong_method(request, "GET, HEAD")) }
}

fn wrong_method(request: &Request<Incoming>, allowed: &'static str) -> Problem {
    let method = super::headers::quoted(request.method().as_str().as_bytes());
    let detail = format!("{method} is not a method of this route; use {allowed}");
    Problem::new(Outcome::MethodNotAllowed, detail).allow(allowed)
}

/// The deployments that this API can call; a problem until all targets have been imported.
fn callable(site: &Site) -> Result<impl Iterator<Item = (&str, &Deployment, Task)>, Problem> {
    let Some(deployments) = site.deployments() else {
        let failure = Failure::new(Outcome::Loading, "the targets are still being imported; come back in a moment");
        return Err(Failure { retry_after: Some(site.loading_retry_after()), ..failure }.into());
    };
    Ok(deployments.iter().filter_map(|(name, deployment)| Some((name.as_str(), deployment, deployment.manifest.task?))))
}

/// No deployment of this name does what was asked.
fn no_model(site: &Site, model: &str) -> Failure {
    let names: Vec<&str> = callable(site).into_iter().flatten().map(|(name, ..)| name).collect();
    let known = site.deployments().is_some_and(|deployments| deployments.contains_key(model));
    let asked = super::headers::quoted(model.as_bytes());
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
