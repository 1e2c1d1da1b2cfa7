//! The OpenAPI document of what is served.

pub(crate) mod components;
pub(crate) mod document;
pub(crate) mod images;
pub(crate) mod native;
pub(crate) mod open_inference;
pub(crate) mod openai;
pub(crate) mod parts;
pub(crate) mod texts;
