//! OpenAI's API: embeddings, chats, completions and images.

pub(crate) mod embeddings;
pub(crate) mod error;
pub(crate) mod generation;
pub(crate) mod images;
pub(crate) mod input;
pub(crate) mod model_route;
pub(crate) mod models;
pub(crate) mod names;
pub(crate) mod routes;
