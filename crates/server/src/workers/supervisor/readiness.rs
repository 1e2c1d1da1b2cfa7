//! Whether the server is ready, published after each event.

use crate::base::telemetry::workers::WorkerSeen;
use crate::workers::readiness::{Replicas, readiness};
use crate::workers::slot::Slot;
use crate::workers::supervisor::state::Supervisor;
use std::collections::BTreeMap;

impl Supervisor {
    /// The replicas now.
    pub(super) fn seen(&self) -> Vec<WorkerSeen> {
        let seen = |slot: &Slot| {
            let assignment = slot.assignment.as_ref()?;
            Some(WorkerSeen {
                deployment: assignment.deployment.clone(),
                replica: assignment.replica,
                state: slot.state(),
                is_surplus: slot.is_surplus,
                pid: if slot.at.is_none() { self.backend.pid(slot.worker) } else { None },
                host: slot.at.as_ref().map(|at| at.host.clone()),
                device: assignment.device.clone(),
                starts: slot.starts,
                load: slot.load,
                losses: slot.losses,
                failure: slot.failure.as_ref().map(|failure| failure.text.clone()).or_else(|| slot.last_loss.clone()),
            })
        };
        self.slots.iter().filter_map(seen).collect()
    }

    /// Publishes whether the server is ready, unless it ends.
    pub(super) fn publish(&mut self) {
        let mut deployments: BTreeMap<String, Replicas> = BTreeMap::new();
        for (name, served) in &self.engines.served {
            deployments.insert(name.clone(), Replicas { min_ready: served.min_ready, ..Replicas::default() });
        }
        let now = self.clock.now();
        for slot in self.slots.iter() {
            let Some(replicas) = slot.assignment.as_ref().and_then(|a| deployments.get_mut(&a.deployment)) else {
                continue;
            };
            if slot.is_surplus {
                continue; // It finishes what it has, and nothing is missing when it ends.
            }
            replicas.planned += 1;
            replicas.up += usize::from(slot.is_serving());
            if let Some(why) = slot.waits_for.as_ref().filter(|_| slot.life.is_vacant()) {
                let (_, count) = replicas.waits_for.get_or_insert_with(|| (why.clone(), 0));
                *count += 1;
            }
            if let (true, Some(at)) = (slot.life.is_away(), &slot.at) {
                let (host, longest) = (&at.host, slot.away_s(now));
                let why = format!("waits for a worker of {host} that cannot be reached, for {longest} s more");
                replicas.waits_for.get_or_insert((why, 1));
                continue;
            }
            replicas.failure = replicas.failure.or(slot.failure.as_ref().map(|failure| failure.cause));
        }
        for (name, elastic) in &self.elastic {
            if let Some(replicas) = deployments.get_mut(name) {
                replicas.sleeps = elastic.sleeps(replicas.up) && replicas.failure.is_none();
                // At first one must be up, which shows that the model can be loaded.
                let fewest = elastic.fewest as usize;
                replicas.planned = if self.was_ready { fewest } else { fewest.max(1) };
            }
        }
        self.was_ready |= !deployments.is_empty() && deployments.values().all(|one| one.up >= one.planned);
        let old = self.state.readiness();
        let import_waits_for = self.slots.first().and_then(|slot| slot.waits_for.as_deref());
        let new = readiness(&deployments, &self.engines.composed, self.was_ready, import_waits_for);
        if *old != new && !old.draining {
            self.state.set_readiness(new);
        }
    }
}
