//! Whether the server should get traffic: decided by the supervisor, shown by every protocol.

use std::collections::BTreeMap;

/// Whether the server should get traffic, and why not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Ready to be called.
    pub ready: bool,
    /// One sentence per thing that is missing; empty when ready. Clients without a key may read them.
    pub reasons: Vec<String>,
    /// Deployments that have no replica because they are not used. They are ready: a request starts one.
    pub asleep: Vec<String>,
    /// Set once shutdown has begun.
    pub draining: bool,
    /// Whether each deployment has as many replicas as it needs.
    pub deployments: BTreeMap<String, bool>,
}

impl Readiness {
    /// A server that has not imported its targets yet.
    pub fn importing() -> Readiness {
        Readiness { reasons: vec!["the targets are being imported".into()], ..Readiness::default() }
    }

    /// A server that ends, for this reason, and is never ready again.
    pub fn ending(reason: &str) -> Readiness {
        Readiness { reasons: vec![reason.into()], draining: true, ..Readiness::default() }
    }

    /// Whether a deployment should get traffic.
    pub fn is_ready_for(&self, deployment: &str) -> bool {
        !self.draining && self.deployments.get(deployment) == Some(&true)
    }
}
