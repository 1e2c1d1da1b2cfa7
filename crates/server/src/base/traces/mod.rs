//! Traces: where the time of a request went, as OpenTelemetry says it. Notes are taken while a request runs, and spans are made
//! of them after its end, if it is kept.

pub(crate) mod batch;
pub(crate) mod context;
pub(crate) mod otlp;
pub(crate) mod recent;
pub(crate) mod request;
pub mod settings;
pub mod tracer;
pub(crate) mod why;
