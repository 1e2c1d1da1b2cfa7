//! Which deployments are served.

use crate::engine::deployment::Deployment;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The deployments that are served at one moment. A catalogue never changes: a change is another catalogue in its place.
///
/// A request takes its deployment out of the catalogue once and keeps it until its answer is written. So a request that is
/// in flight ends with the version that it began with, whatever the catalogue says by then.
#[derive(Debug, Default)]
pub struct Catalogue {
    /// By name; of each name one version.
    deployments: BTreeMap<String, Arc<Deployment>>,
}

impl Catalogue {
    /// The deployment of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Deployment>> {
        self.deployments.get(name)
    }

    /// The deployments in the order of their names.
    pub fn deployments(&self) -> impl Iterator<Item = &Arc<Deployment>> {
        self.deployments.values()
    }

    /// The names in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.deployments.keys().map(String::as_str)
    }
}

impl FromIterator<Deployment> for Catalogue {
    fn from_iter<I: IntoIterator<Item = Deployment>>(deployments: I) -> Catalogue {
        let named = |deployment: Deployment| (deployment.manifest.name.clone(), Arc::new(deployment));
        Catalogue { deployments: deployments.into_iter().map(named).collect() }
    }
}
