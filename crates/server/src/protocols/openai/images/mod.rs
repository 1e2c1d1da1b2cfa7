//! `POST /v1/images/generations`: images that a model makes of texts, whole or with previews.

pub(crate) mod answer;
pub(crate) mod events;
pub(crate) mod route;
pub(crate) mod size;
