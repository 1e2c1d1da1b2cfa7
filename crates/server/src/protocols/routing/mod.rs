//! From a request to the protocol that answers it: origin, key, path.

mod arrived;
pub(crate) mod cors;
pub(crate) mod gate;
pub(crate) mod origin;
pub(crate) mod packed;
pub(crate) mod protocol;
pub mod service;
