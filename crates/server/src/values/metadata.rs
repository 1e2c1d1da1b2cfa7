//! What a request says in addition to its values, for the worker to read.

/// The metadata of one request; all its items share it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The request's id, as clients and logs see it; empty if it has none.
    pub request_id: Box<str>,
    /// The trace context (`traceparent`); empty if it has none.
    pub trace: Box<str>,
    /// The name of the API key that was used; empty without one. Never the key itself.
    pub key_name: Box<str>,
    /// Headers that the deployment asked for: names in lower case, and values.
    pub headers: Vec<(Box<str>, Box<str>)>,
}
