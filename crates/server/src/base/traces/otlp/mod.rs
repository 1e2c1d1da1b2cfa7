//! Traces as OpenTelemetry has them: the spans made of notes, their JSON, and the way to a collector.

pub(crate) mod deliver;
pub(crate) mod exporter;
pub(crate) mod json;
pub(crate) mod spans;
pub(crate) mod store;
