//! Traces as OpenTelemetry has them: the messages, the spans made of notes, and the way to a collector.

pub(crate) mod deliver;
pub(crate) mod exporter;
pub(crate) mod json;
pub(crate) mod messages;
pub(crate) mod spans;
pub(crate) mod store;
