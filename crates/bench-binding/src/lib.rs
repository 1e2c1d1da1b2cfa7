//! The load generator as Python sees it: a plan in, a report out.

use jitney_bench::motion::{Input, run};
use jitney_bench::rules::histogram::Durations;
use jitney_bench::rules::plan::Plan;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use std::ops::ControlFlow;

/// Each request allocates its head and its answer.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `jitney_bench._generator`; described in `_generator.pyi`.
#[pymodule(gil_used = false)]
mod _generator {
    #[pymodule_export]
    use super::{bench, merge_histograms};
}

/// Carries out a plan (JSON) and returns the run (JSON). `on_interval` sees each interval (JSON) as it ends; an exception
/// that it raises ends the run. Ctrl-C ends it too.
#[pyfunction]
fn bench(
    py: Python<'_>,
    plan: &str,
    inputs: Vec<(String, Vec<u8>)>,
    on_interval: &Bound<'_, PyAny>,
) -> PyResult<String> {
    let wrong = |error: &dyn std::fmt::Display| PyValueError::new_err(error.to_string());
    let plan: Plan = serde_json::from_str(plan).map_err(|error| wrong(&error))?;
    plan.check().map_err(|error| wrong(&error))?;
    if inputs.is_empty() {
        return Err(PyValueError::new_err("there is no input to send"));
    }
    let inputs: Vec<Input> = inputs.into_iter().map(|(content_type, body)| Input { content_type, body }).collect();
    let on_interval = on_interval.clone().unbind();
    let (done, raised) = py.detach(|| {
        let mut raised = None;
        let done = run(plan, &inputs, |point: Option<&_>| {
            let told = Python::attach(|py| {
                py.check_signals()?;
                point.map_or(Ok(()), |point| on_interval.call1(py, (text(point),)).map(drop))
            });
            raised = told.err();
            if raised.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        (done, raised)
    });
    match (done, raised) {
        (_, Some(raised)) => Err(raised),
        (Ok(Some(summary)), None) => Ok(text(&summary)),
        (Ok(None), None) => Err(PyOSError::new_err("the run was broken off")),
        (Err(error), None) => Err(PyOSError::new_err(error.to_string())),
    }
}

/// Merges histograms as `bench` writes them: (count, quantiles in milliseconds, curve) as JSON.
#[pyfunction]
fn merge_histograms(encoded: Vec<String>) -> PyResult<String> {
    let mut merged = Durations::default();
    for one in encoded {
        let decoded = Durations::decode(&one);
        merged.merge(&decoded.ok_or_else(|| PyValueError::new_err("this is not a histogram of jitney bench"))?);
    }
    Ok(text(&(merged.count(), merged.quantiles(), merged.curve())))
}

fn text(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("reports are plain values")
}
