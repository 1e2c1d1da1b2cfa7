//! `POST /v1/embeddings`: texts or tokens in, vectors out.

pub(crate) mod extra_fields;
pub(crate) mod route;
