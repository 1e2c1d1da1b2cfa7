//! The deployments that the page shows: the methods of one model are one of them.

use crate::engine::deployment::Deployment;
use crate::engine::server_state::ServerState;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The handles of one deployment: one for each of its methods.
pub(crate) type Methods = Vec<Arc<Deployment>>;

/// The deployments that are served, each with the handles of its methods.
pub(crate) fn by_deployment(state: &ServerState) -> BTreeMap<String, Methods> {
    let mut found: BTreeMap<String, Methods> = BTreeMap::new();
    for deployment in state.deployments() {
        found.entry(deployment.manifest.deployment().to_owned()).or_default().push(deployment);
    }
    found
}
