//! What a request says: its headers, its body, and the items in it.

pub(crate) mod api_key;
pub(crate) mod body;
pub(crate) mod compression;
pub(crate) mod form;
pub(crate) mod headers;
pub(crate) mod input;
pub(crate) mod media;
pub(crate) mod object;
pub(crate) mod schema;
pub(crate) mod terms;
