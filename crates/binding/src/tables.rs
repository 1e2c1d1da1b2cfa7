//! The tables of `core` and its view of configuration, so that tests can hold Python against them.

use jitney_core::config::manifest::Manifest;
use jitney_core::config::options::{DeploymentOptions, ServerOptions};
use jitney_core::config::rules::Rules;
use jitney_core::tables::metrics as table;
use jitney_core::tables::metrics::Kind;
use jitney_core::tables::outcome::{Outcome, Retry};
use jitney_server::workers::needs::Elsewhere;
use jitney_server::workers::placement::plan::Plan;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

#[pyfunction]
pub(crate) fn outcomes() -> Vec<(&'static str, &'static str, u16, u8, bool, &'static str)> {
    let row = |o: &Outcome| {
        (o.reason(), o.title(), o.http_status(), o.grpc_code(), o.retry() != Retry::Never, o.blame().label())
    };
    Outcome::ALL.iter().map(row).collect()
}

#[pyfunction]
pub(crate) fn metrics() -> Vec<(&'static str, &'static str, Vec<&'static str>, &'static str)> {
    let kind = |kind| match kind {
        Kind::Counter | Kind::Total => "counter",
        Kind::Gauge | Kind::Level => "gauge",
        Kind::Histogram(_) => "histogram",
    };
    table::ALL.iter().map(|m| (m.name, kind(m.kind), m.labels.to_vec(), m.help.trim())).collect()
}

/// Names that no deployment may have.
#[pyfunction]
pub(crate) fn reserved_names() -> Vec<&'static str> {
    jitney_server::workers::placement::routes::RESERVED.to_vec()
}

#[pyfunction]
pub(crate) fn check_options(kind: &str, options: &str) -> PyResult<()> {
    let checked = match kind {
        "deployment" => serde_json::from_str::<DeploymentOptions>(options)
            .map_err(|error| error.to_string())
            .and_then(|options| Rules::new(&options).map(drop)),
        "server" => serde_json::from_str::<ServerOptions>(options).map(drop).map_err(|error| error.to_string()),
        other => Err(format!("options are of a deployment or of a server, not of {other:?}")),
    };
    checked.map_err(PyValueError::new_err)
}

/// Checks one manifest (JSON) as a server does before it loads a model: names, routes, options.
#[pyfunction]
pub(crate) fn check_manifest(manifest: &str) -> PyResult<()> {
    serde_json::from_str::<Manifest>(manifest)
        .map_err(|error| error.to_string())
        .and_then(|manifest| Plan::new(&[manifest], 1, Elsewhere { agents: true, ray: true }).map(drop))
        .map_err(PyValueError::new_err)
}
