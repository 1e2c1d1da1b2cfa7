//! OpenAI's API for embeddings.

pub(crate) mod embeddings;
pub(crate) mod error;
pub(crate) mod extra_fields;
pub(crate) mod input;
pub(crate) mod models;
pub(crate) mod names;
pub(crate) mod routes;
