//! Whether the server is ready, published after each event.

use crate::workers::readiness::{Replicas, readiness};
use crate::workers::supervisor::state::Supervisor;
use std::collections::BTreeMap;

impl Supervisor {
    /// Publishes whether the server is ready, unless it ends.
    pub(super) fn publish(&mut self) {
        let mut deployments: BTreeMap<String, Replicas> = BTreeMap::new();
        for (name, served) in &self.engines.served {
            deployments.insert(name.clone(), Replicas { min_ready: served.min_ready, ..Replicas::default() });
        }
        for slot in &self.slots {
            let Some(replicas) = slot.assignment.as_ref().and_then(|a| deployments.get_mut(&a.deployment)) else {
                continue;
            };
            replicas.planned += 1;
            replicas.up += usize::from(slot.is_serving());
            replicas.failure = replicas.failure.or(slot.failure.as_ref().map(|failure| failure.cause));
        }
        self.was_ready |= !deployments.is_empty() && deployments.values().all(|one| one.up == one.planned);
        let old = self.state.readiness();
        let new = readiness(&deployments, self.was_ready);
        if *old != new && !old.draining {
            self.state.set_readiness(new);
        }
    }
}
