//! The trace context of the code that calls, from OpenTelemetry, if the program uses that.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

/// `sys.modules`.
static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();

/// The context of the current span: its `traceparent`, and behind a line feed its `tracestate` if it has one. `None` if the program
/// has not imported OpenTelemetry, or is in no span.
pub(crate) fn current(py: Python<'_>) -> Option<String> {
    let modules = MODULES.get_or_try_init(py, || {
        let modules = py.import("sys")?.getattr("modules")?;
        Ok::<_, PyErr>(modules.cast_into::<PyDict>()?.unbind())
    });
    let api = modules.ok()?.bind(py).get_item("opentelemetry.trace").ok()??;
    // What is broken in there is no reason to refuse a call.
    read(&api).ok().flatten()
}

fn read(api: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let context = api.call_method0("get_current_span")?.call_method0("get_span_context")?;
    let trace: u128 = context.getattr("trace_id")?.extract()?;
    let span: u64 = context.getattr("span_id")?.extract()?;
    if trace == 0 || span == 0 {
        return Ok(None);
    }
    let flags: u8 = context.getattr("trace_flags")?.extract()?;
    let state: String = context.getattr("trace_state")?.call_method0("to_header")?.extract()?;
    let separator = if state.is_empty() { "" } else { "\n" };
    Ok(Some(format!("00-{trace:032x}-{span:016x}-{flags:02x}{separator}{state}")))
}
