//! The names by which clients of this API call deployments.

use crate::engine::deployment::Deployment;
use crate::engine::server_state::ServerState;
use crate::protocols::reply::problem::Problem;
use crate::protocols::request::headers::quoted;
use crate::values::answer::Failure;
use jitney_core::config::manifest::Task;
use jitney_core::tables::outcome::Outcome;
use std::sync::Arc;

/// A name by which clients of this API may call, the deployment, and what it does.
pub(crate) type Callable = (String, Arc<Deployment>, Task);

/// All names by which clients of this API may call, each deployment's own one first; a problem until all targets have been
/// imported.
pub(crate) fn callable(state: &ServerState) -> Result<Vec<Callable>, Problem> {
    let capable = capable(state)?;
    let named = capable
        .iter()
        .flat_map(|(deployment, task)| names(deployment).map(|name| (name.to_owned(), deployment.clone(), *task)));
    Ok(named.collect())
}

/// The deployment that clients of this API call so.
pub(crate) fn find(state: &ServerState, model: &str) -> Result<(Arc<Deployment>, Task), Failure> {
    let capable = capable(state).map_err(Problem::into_failure)?;
    let found = capable.into_iter().find(|(deployment, _)| names(deployment).any(|name| name == model));
    found.ok_or_else(|| no_model(state, model))
}

/// The deployments that say their task.
fn capable(state: &ServerState) -> Result<Vec<(Arc<Deployment>, Task)>, Problem> {
    let Some(catalogue) = state.catalogue() else {
        return Err(state.loading("come back in a moment").into());
    };
    let with_task = |deployment: &Arc<Deployment>| Some((deployment.clone(), deployment.manifest.task?));
    Ok(catalogue.deployments().filter_map(with_task).collect())
}

/// A deployment's own name, then its others.
fn names(deployment: &Deployment) -> impl Iterator<Item = &str> {
    let manifest = &deployment.manifest;
    std::iter::once(&manifest.name).chain(&manifest.options.openai_names).map(String::as_str)
}

/// No deployment of this name does what was asked.
fn no_model(state: &ServerState, model: &str) -> Failure {
    let names: Vec<String> = callable(state).into_iter().flatten().map(|(name, ..)| name).collect();
    let known = state.deployment(model).is_some();
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
