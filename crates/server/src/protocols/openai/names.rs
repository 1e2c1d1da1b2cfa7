//! The names by which clients of this API call deployments.

use crate::engine::deployment::Deployment;
use crate::engine::server_state::ServerState;
use crate::protocols::reply::problem::Problem;
use crate::protocols::request::headers::quoted;
use crate::protocols::request::terms::allowed;
use crate::values::answer::Failure;
use jitney_core::config::manifest::{Task, TaskKind};
use jitney_core::tables::outcome::Outcome;
use std::sync::Arc;
use std::time::Duration;

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

/// The deployment that clients of this API call so, whatever its task is.
pub(crate) fn find(state: &ServerState, model: &str) -> Result<(Arc<Deployment>, Task), Failure> {
    named(state, model)?.ok_or_else(|| no_model(state, model, None))
}

/// The deployment that clients of this API call so, and what `of` reads of its task. The model must have said `task`.
pub(crate) fn find_for<T>(
    state: &ServerState,
    model: &str,
    task: TaskKind,
    of: impl Fn(Task) -> Option<T>,
) -> Result<(Arc<Deployment>, T), Failure> {
    let able = named(state, model)?.and_then(|(deployment, said)| Some((deployment, of(said)?)));
    able.ok_or_else(|| no_model(state, model, Some(task)))
}

/// The deployment that has a task and that clients of this API call so.
fn named(state: &ServerState, model: &str) -> Result<Option<(Arc<Deployment>, Task)>, Failure> {
    let mut capable = capable(state).map_err(Problem::into_failure)?.into_iter();
    Ok(capable.find(|(deployment, _)| names(deployment).any(|name| name == model)))
}

/// The longest that a request may take to a deployment that says `task`; `None` if there is none.
pub(crate) fn most_patient(state: &ServerState, task: TaskKind) -> Option<Duration> {
    let capable = capable(state).into_iter().flatten().filter(|(_, said)| said.kind() == task);
    capable.map(|(deployment, _)| allowed(&deployment.manifest)).max()
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

/// No deployment of this name does what was asked: `task`, or any.
fn no_model(state: &ServerState, model: &str, task: Option<TaskKind>) -> Failure {
    let callable = callable(state).into_iter().flatten();
    let capable = callable.filter(|(.., said)| task.is_none_or(|task| said.kind() == task));
    let names: Vec<String> = capable.map(|(name, ..)| name).collect();
    let known = state.deployment(model);
    let (asked, said) =
        (quoted(model.as_bytes()), task.map_or("a task".to_owned(), |task| format!("task=\"{}\"", task.name())));
    let what = match known.map(|deployment| deployment.manifest.task) {
        Some(Some(other)) => {
            format!("the model {asked} has task=\"{}\", and this route needs {said}", other.kind().name())
        }
        Some(None) => format!("the model {asked} has no task, and this route needs {said}"),
        None => format!("there is no model {asked}"),
    };
    let others = if names.is_empty() {
        format!("no deployment of this server has {said}")
    } else {
        format!("models with {said}: {}", names.join(", "))
    };
    Failure { field: Some("model".into()), ..Failure::new(Outcome::NotFound, format!("{what}; {others}")) }
}
