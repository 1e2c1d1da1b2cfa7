//! What a program and a server say to each other before the first call.

use std::collections::BTreeMap;

/// What a program says first.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Dial {
    /// If the server asks for one.
    pub(crate) key: Option<String>,
}

/// What the program may call.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Welcome {
    /// Manifests by name, as JSON.
    pub(crate) deployments: BTreeMap<String, serde_json::Value>,
    /// A request of more bytes would end the connection.
    pub(crate) max_body_bytes: u64,
    /// A request of more items would end the connection, too.
    pub(crate) max_items: u64,
    /// With more requests at once the server would read no further.
    pub(crate) max_requests: u32,
}

/// Why the program may not call.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Refused {
    /// For a person.
    pub(crate) why: String,
    /// The reason may pass by itself: the program dials again and reports no error yet.
    #[serde(default)]
    pub(crate) is_temporary: bool,
}
