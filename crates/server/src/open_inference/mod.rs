//! Requests and answers as named tensors: the Open Inference Protocol without its transports.

pub mod datatype;
pub(crate) mod documents;
pub mod infer;
pub mod join;
pub mod messages;
pub mod request;
pub mod signature;
pub mod split;
pub mod strings;
pub mod tensor;
#[cfg(test)]
pub(crate) mod tests;
