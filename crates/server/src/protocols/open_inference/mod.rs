//! The Open Inference Protocol over REST.

pub mod describe;
pub(crate) mod error;
pub(crate) mod generate;
pub(crate) mod infer;
pub(crate) mod read;
pub(crate) mod routes;
pub(crate) mod write;
