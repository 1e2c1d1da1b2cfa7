//! What a request says in addition to its values, for the worker to read.

use crate::base::traces::notes::TraceNote;
use crate::values::call_id::CallId;
use std::sync::Arc;

/// The metadata of one request; all its items share it. Most requests have an id and nothing else: that needs no memory of
/// its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The request's id, as clients and logs see it.
    pub request_id: CallId,
    /// `None` if there is nothing else.
    pub further: Option<Arc<FurtherMetadata>>,
}

/// What a request may say in addition to its id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FurtherMetadata {
    /// The trace context (`traceparent`), and behind a line feed its `tracestate` if there is one; empty if it has none.
    pub trace: Box<str>,
    /// Of a request that this server traces: then the models get a context made from this and not `trace`.
    pub note: Option<TraceNote>,
    /// The name of the API key that was used; empty without one. Never the key itself.
    pub key_name: Box<str>,
    /// Headers that the deployment asked for: names in lower case, and values.
    pub headers: Vec<(Box<str>, Box<str>)>,
}

impl Metadata {
    /// The metadata of the call of a program whose span has this trace context.
    pub fn of_trace(request_id: CallId, trace: &str) -> Metadata {
        Metadata::new(request_id, FurtherMetadata { trace: trace.into(), ..FurtherMetadata::default() })
    }

    /// The metadata of a request that says nothing but its id.
    pub fn of_id(request_id: CallId) -> Metadata {
        Metadata { request_id, further: None }
    }

    /// The same for a request that this server traces.
    pub(crate) fn with_note(&self, note: TraceNote) -> Metadata {
        let further = self.further.as_deref().cloned().unwrap_or_default();
        Metadata::new(self.request_id.clone(), FurtherMetadata { note: Some(note), ..further })
    }

    /// The metadata of a request: its id, and what else it says.
    pub fn new(request_id: CallId, further: FurtherMetadata) -> Metadata {
        let is_empty = further == FurtherMetadata::default();
        Metadata { request_id, further: if is_empty { None } else { Some(Arc::new(further)) } }
    }
}
