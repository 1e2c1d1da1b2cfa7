//! Items as clients send them: documents, arrays, the fields that a group key or a cost is made of. Nothing here knows HTTP.

pub mod arrays;
pub(crate) mod base64;
pub mod document;
pub mod fields;
pub mod half;
pub mod many;
pub(crate) mod skip;
pub(crate) mod transcode;
