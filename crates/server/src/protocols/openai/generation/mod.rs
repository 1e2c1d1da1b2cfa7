//! `POST /v1/chat/completions` and `POST /v1/completions`: texts that a model writes, whole or in parts.

pub(crate) mod answer;
pub(crate) mod chunks;
pub(crate) mod fields;
pub(crate) mod items;
pub(crate) mod route;
pub(crate) mod text_route;
