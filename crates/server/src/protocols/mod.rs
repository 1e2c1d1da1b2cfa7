//! HTTP/1.1 and HTTP/2, and the protocols that are spoken over them: bytes to calls and answers to bytes.

pub mod connection;
pub(crate) mod exchange;
pub mod grpc;
pub mod native;
pub mod open_inference;
pub(crate) mod openai;
pub(crate) mod openapi;
pub(crate) mod reply;
pub(crate) mod request;
pub mod routing;
