//! How the workers that imported the targets become the replicas of a plan.

use crate::link::agents::messages::Room;
use crate::workers::needs::{Needs, RayNeeds};
use crate::workers::placement::plan::Assignment;

/// A worker that was started to import a target and has no replica number yet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Unassigned {
    /// Its slot.
    pub(crate) slot: usize,
    /// Its target.
    pub(crate) target: usize,
    /// The share of the cores with which it imports its target on this machine; `None` on another one, whose places have a
    /// fixed share.
    pub(crate) cpu_threads: Option<u32>,
    /// Its place, on another machine.
    pub(crate) place: Option<OccupiedPlace>,
}

/// What a worker on another machine has taken.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OccupiedPlace {
    /// What it has.
    pub(crate) room: Room,
    /// The engine that started its agent; empty if none has.
    pub(crate) engine: String,
}

impl OccupiedPlace {
    /// Whether it is a place for this replica. A Ray cluster makes each place for what its replica needs.
    fn fits(&self, needs: &Needs) -> bool {
        let is_as_made = self.engine.is_empty() || needs.ray == RayNeeds::of_import();
        needs.fit_engine(&self.engine) && needs.fit(&self.room) && is_as_made
    }
}

impl Unassigned {
    /// Whether its worker can become this replica where it is. What it needs must be known before its first import.
    fn fits(&self, assignment: &Assignment) -> bool {
        match &self.place {
            Some(place) => place.fits(&assignment.needs),
            None => {
                assignment.needs.may_be_local()
                    && self.cpu_threads.is_none_or(|threads| threads == assignment.cpu_threads)
            }
        }
    }
}

/// What to do with one slot.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// The worker in this slot becomes this replica.
    Assign(usize, Assignment),
    /// Another worker in this slot becomes this replica: its share of the cores must be known before the first import.
    Restart(usize, Assignment),
    /// A worker of this target in a new slot becomes this replica.
    Add(usize, Assignment),
    /// The worker in this slot is one too many.
    Remove(usize),
}

/// The changes that make exactly the replicas of a plan, of which there is a list for each target.
pub(crate) fn changes(workers: &[Unassigned], replicas: Vec<Vec<Assignment>>) -> Vec<Change> {
    let mut changes = Vec::new();
    for (target, replicas) in replicas.into_iter().enumerate() {
        let mut workers = workers.iter().filter(|worker| worker.target == target);
        for assignment in replicas {
            changes.push(match workers.next() {
                Some(worker) if worker.fits(&assignment) => Change::Assign(worker.slot, assignment),
                Some(worker) => Change::Restart(worker.slot, assignment),
                None => Change::Add(target, assignment),
            });
        }
        changes.extend(workers.map(|worker| Change::Remove(worker.slot)));
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workers::needs::{RAY, Where};

    fn replica(replica: u32, cpu_threads: u32) -> Assignment {
        Assignment {
            deployment: "a".into(),
            replica,
            device: None,
            cpu_threads,
            most_items: None,
            needs: Needs::default(),
        }
    }

    fn worker(slot: usize, target: usize, cpu_threads: u32) -> Unassigned {
        Unassigned { slot, target, cpu_threads: Some(cpu_threads), place: None }
    }

    #[test]
    fn a_worker_with_the_right_share_of_the_cores_becomes_the_first_replica() {
        assert_eq!(changes(&[worker(0, 0, 4)], vec![vec![replica(0, 4)]]), [Change::Assign(0, replica(0, 4))]);
        let two = vec![vec![replica(0, 2), replica(1, 2)]];
        assert_eq!(
            changes(&[worker(0, 0, 4)], two.clone()),
            [Change::Restart(0, replica(0, 2)), Change::Add(0, replica(1, 2))]
        );
        assert_eq!(
            changes(&[worker(0, 0, 2), worker(1, 0, 2)], two),
            [Change::Assign(0, replica(0, 2)), Change::Assign(1, replica(1, 2))]
        );
    }

    #[test]
    fn a_worker_in_a_ray_cluster_becomes_a_replica_only_if_its_place_was_made_for_such_a_one() {
        let place = Some(OccupiedPlace { room: Room { devices: Vec::new(), cores: 1 }, engine: RAY.into() });
        let scout = Unassigned { slot: 0, target: 0, cpu_threads: None, place };
        let needs = |ray| Needs { place: Where::Engine(RAY), cores: 1, ray, ..Needs::default() };
        let plain = Assignment { needs: needs(RayNeeds::of_import()), ..replica(0, 1) };
        let environment = RayNeeds { runtime_env: Some("{}".into()), ..RayNeeds::of_import() };
        let other = Assignment { needs: needs(environment), ..replica(0, 1) };
        let change = |replica: &Assignment| changes(std::slice::from_ref(&scout), vec![vec![replica.clone()]]);
        assert_eq!(change(&plain), [Change::Assign(0, plain.clone())]);
        assert_eq!(change(&other), [Change::Restart(0, other.clone())]);
    }

    #[test]
    fn targets_keep_their_workers_and_those_that_are_too_many_go() {
        let workers = [worker(0, 0, 2), worker(1, 0, 2), worker(2, 1, 2)];
        assert_eq!(
            changes(&workers, vec![vec![replica(0, 2)], vec![replica(0, 2)]]),
            [Change::Assign(0, replica(0, 2)), Change::Remove(1), Change::Assign(2, replica(0, 2))]
        );
    }
}
