//! The secret and what is derived from it: keys, pins, tokens.

pub(crate) mod address;
pub(crate) mod keys;
pub(crate) mod secret;
pub(crate) mod tls;
pub(crate) mod tokens;
