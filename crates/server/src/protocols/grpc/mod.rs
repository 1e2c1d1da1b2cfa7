//! The Open Inference Protocol over gRPC, with health and reflection.

pub(crate) mod frame;
pub(crate) mod head;
pub(crate) mod health;
pub(crate) mod infer;
pub(crate) mod parts;
pub(crate) mod reflection;
pub(crate) mod reply;
pub(crate) mod routes;
pub(crate) mod stream;
pub(crate) mod waiting;
