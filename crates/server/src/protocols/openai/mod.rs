//! OpenAI's API: embeddings, chats and completions.

pub(crate) mod embeddings;
pub(crate) mod error;
pub(crate) mod extra_fields;
pub(crate) mod generation;
pub(crate) mod input;
pub(crate) mod models;
pub(crate) mod names;
pub(crate) mod routes;
