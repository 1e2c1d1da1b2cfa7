//! Which replicas should exist: from the manifests of the targets to a plan, and from a plan to changes of the workers.

pub(crate) mod changes;
pub(crate) mod elastic;
mod graph;
pub(crate) mod manifest_diff;
pub mod plan;
pub mod routes;
pub mod warm_up;
