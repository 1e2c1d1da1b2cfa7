//! Traces: where the time of a request went, as OpenTelemetry says it. Notes are taken while a request runs, and spans are made
//! of them after its end, if it is kept.

pub(crate) mod context;
pub(crate) mod messages;
pub(crate) mod notes;
pub(crate) mod otlp;
pub(crate) mod recent;
pub mod settings;
pub mod tracer;
pub(crate) mod why;
