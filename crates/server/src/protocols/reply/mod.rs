//! What an answer says: its body, its media type, and problems.

pub(crate) mod accept;
pub(crate) mod elements;
pub(crate) mod failure_log;
pub(crate) mod outcomes;
pub(crate) mod packed;
pub(crate) mod parts;
pub(crate) mod payload;
pub(crate) mod problem;
pub(crate) mod render;
pub(crate) mod request_id;
pub(crate) mod value;
