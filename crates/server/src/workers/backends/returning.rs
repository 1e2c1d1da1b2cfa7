//! Workers that come back with their models and are in no slot yet: those that agents have named and that have not connected,
//! and those that have connected before it is known what the server serves.

use crate::link::agents::messages::Running;
use crate::link::front::hello::Returned;
use jitney_core::request::ReplicaId;
use jitney_core::supervisor::worker_life::{LEASE, REJOINS_WITHIN};
use jitney_core::time::Time;
use std::collections::BTreeMap;

#[derive(Debug)]
struct Named {
    /// What it has imported.
    target: String,
    since: Time,
}

/// Workers of an earlier front, or of slots that were given to others.
#[derive(Debug, Default)]
pub(crate) struct Returning {
    named: BTreeMap<String, Named>,
    waiting: Vec<(ReplicaId, Returned)>,
}

impl Returning {
    /// An agent has a worker that is in no slot.
    pub(crate) fn name(&mut self, running: &Running, now: Time) {
        if self.waiting.iter().all(|(_, returned)| returned.id != running.id) {
            let named = || Named { target: running.target.clone(), since: now };
            self.named.entry(running.id.clone()).or_insert_with(named);
        }
    }

    /// The worker of this name has connected, or has ended.
    pub(crate) fn forget(&mut self, id: &str) {
        self.named.remove(id);
        self.waiting.retain(|(_, returned)| returned.id != id);
    }

    /// How many workers of a target may connect at any moment.
    pub(crate) fn expected(&self, target: &str, now: Time) -> usize {
        let may_come = |named: &&Named| named.target == target && now - named.since < REJOINS_WITHIN;
        self.named.values().filter(may_come).count()
    }

    /// Workers that have not connected although their lease is over: something holds them up.
    pub(crate) fn overdue(&mut self, now: Time) -> Vec<String> {
        let is_over = |named: &Named| now - named.since >= LEASE;
        let over = self.named.iter().filter(|(_, named)| is_over(named)).map(|(id, _)| id.clone()).collect();
        self.named.retain(|_, named| !is_over(named));
        over
    }

    /// A worker has connected before it is known what the server serves.
    pub(crate) fn wait(&mut self, worker: ReplicaId, returned: Returned) {
        self.waiting.push((worker, returned));
    }

    /// The workers that wait.
    pub(crate) fn take_waiting(&mut self) -> Vec<(ReplicaId, Returned)> {
        std::mem::take(&mut self.waiting)
    }

    /// The link with this number is lost.
    pub(crate) fn lost(&mut self, worker: ReplicaId) {
        self.waiting.retain(|(waiting, _)| *waiting != worker);
    }

    /// Workers that wait take a front that is silent for lost.
    pub(crate) fn ping(&self) {
        self.waiting.iter().for_each(|(_, returned)| returned.link.ping());
    }

    /// The server ends, and the workers that wait with it.
    pub(crate) fn end(&mut self) {
        self.take_waiting().iter().for_each(|(_, returned)| returned.link.shutdown());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_worker_is_expected_for_a_while_and_its_lease_ends() {
        let mut returning = Returning::default();
        let running = |id: &str| Running { id: id.into(), place: 0, target: "m.py".into() };
        returning.name(&running("w1"), Time(0));
        returning.name(&running("w2"), Time(0));
        returning.name(&running("w1"), Time(0) + LEASE);
        assert_eq!((returning.expected("m.py", Time(0)), returning.expected("n.py", Time(0))), (2, 0));
        returning.forget("w2");
        assert_eq!(returning.expected("m.py", Time(0)), 1);
        assert_eq!(returning.expected("m.py", Time(0) + REJOINS_WITHIN), 0);
        assert!(returning.overdue(Time(0) + REJOINS_WITHIN).is_empty());
        assert_eq!(returning.overdue(Time(0) + LEASE), ["w1"], "it was named again meanwhile");
        assert!(returning.overdue(Time(0) + LEASE).is_empty());
    }
}
