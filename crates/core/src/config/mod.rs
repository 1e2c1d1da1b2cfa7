//! Options and manifests: what a deployment is.

pub mod limits;
pub mod manifest;
pub mod options;
pub mod rules;
