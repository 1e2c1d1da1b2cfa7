//! The workers of an agent, by the names that the front gave them.

use crate::link::agents::messages::{Ended, Kill, Room, Running, Start};
use crate::link::front::worker_event::WorkerEvent;
use crate::workers::backends::backend::{Backend, WorkerSpec};
use crate::workers::backends::process::{Printing, Processes};
use jitney_channel::Pin;
use jitney_core::request::ReplicaId;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Ends of workers that are reported again to a front that is joined again.
const MOST_ENDED: usize = 256;
/// The variables by which libraries find devices.
const VISIBLE: [&str; 2] = ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"];

/// Workers that run, and the latest that have ended.
#[derive(Debug)]
pub(super) struct Children {
    processes: Processes,
    /// What happens to them.
    pub(super) events: UnboundedReceiver<WorkerEvent>,
    rooms: Vec<Room>,
    /// How they know the front: as their agent does.
    pin: Pin,
    next: u32,
    running: BTreeMap<ReplicaId, Running>,
    ended: VecDeque<Ended>,
}

impl Children {
    /// Starts the thread that starts workers, with this interpreter.
    pub(super) fn new(python: String, folder: PathBuf, rooms: Vec<Room>, pin: Pin) -> std::io::Result<Children> {
        let (reports, events) = unbounded_channel();
        let processes = Processes::start(python, folder, reports, Printing::Front)?;
        Ok(Children { processes, events, rooms, pin, next: 0, running: BTreeMap::new(), ended: VecDeque::new() })
    }

    /// Starts a worker in a place. A worker that is still there is killed: the front has given the place to the new one. A worker
    /// that cannot be started has ended at once, for this reason.
    pub(super) fn start(&mut self, start: Start) -> Result<(), Ended> {
        let id = start.spec["id"].as_str().unwrap_or_default().to_owned();
        self.start_in(start).map_err(|how| Ended { id, how, was_killed: false })
    }

    fn start_in(&mut self, start: Start) -> Result<(), String> {
        let most = self.rooms.len();
        let room = self.rooms.get(start.place);
        let room = room.ok_or_else(|| format!("its agent has {most} places, and no place {}", start.place))?;
        let spec: WorkerSpec = serde_json::from_value(start.spec)
            .map_err(|error| format!("its agent cannot read what it is to be: {error}"))?;
        let running = Running { id: spec.id.clone(), place: start.place, target: spec.target.clone() };
        let numbers: Vec<&str> =
            room.devices.iter().filter_map(|device| device.split_once(':')).map(|(_, n)| n).collect();
        let mut spec = spec;
        spec.address = format!("{}#{}", spec.address, self.pin);
        if !numbers.is_empty() {
            spec.variables = VISIBLE.map(|name| (name.to_owned(), numbers.join(","))).to_vec();
        }
        let before: Vec<ReplicaId> =
            self.running.iter().filter(|(_, other)| other.place == start.place).map(|(number, _)| *number).collect();
        before.into_iter().for_each(|number| self.processes.kill(number));
        let number = ReplicaId(self.next);
        self.next += 1;
        self.running.insert(number, running);
        self.processes.start(number, spec);
        Ok(())
    }

    /// Kills a worker, if it still runs.
    pub(super) fn kill(&self, kill: &Kill) {
        let Some((number, _)) = self.running.iter().find(|(_, running)| running.id == kill.id) else { return };
        if kill.stacks { self.processes.kill_with_stacks(*number) } else { self.processes.kill(*number) }
    }

    /// Kills all of them.
    pub(super) fn kill_all(&self) {
        self.running.keys().for_each(|number| self.processes.kill(*number));
    }

    /// The name of a worker.
    pub(super) fn id(&self, worker: ReplicaId) -> String {
        self.running.get(&worker).map(|running| running.id.clone()).unwrap_or_default()
    }

    /// A worker has ended.
    pub(super) fn end(&mut self, worker: ReplicaId, how: String, was_killed: bool) -> Ended {
        let id = self.running.remove(&worker).map(|running| running.id).unwrap_or_default();
        let ended = Ended { id, how, was_killed };
        if self.ended.len() == MOST_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back(ended.clone());
        ended
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    pub(super) fn rooms(&self) -> &[Room] {
        &self.rooms
    }

    /// The workers, one for each place at most. A worker that was killed and has not ended yet is not named: the front has given its
    /// place to the next one.
    pub(super) fn running(&self) -> Vec<Running> {
        let newest: BTreeMap<usize, &Running> = self.running.values().map(|running| (running.place, running)).collect();
        newest.into_values().cloned().collect()
    }

    pub(super) fn ended(&self) -> Vec<Ended> {
        self.ended.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jitney_channel::Secret;

    fn children(folder: &std::path::Path, program: &str) -> Children {
        let rooms = vec![Room::default(), Room::default()];
        let pin = Pin::of_front(&Secret::new(&"a".repeat(32)).unwrap());
        Children::new(program.into(), folder.into(), rooms, pin).unwrap()
    }

    fn start(place: usize, id: &str) -> Start {
        let spec = WorkerSpec { id: id.into(), target: "m.py".into(), ..WorkerSpec::for_test(ReplicaId(0)) };
        Start { place, spec: serde_json::to_value(spec).unwrap() }
    }

    #[tokio::test]
    async fn the_newest_worker_of_a_place_is_the_one_that_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut children = children(folder.path(), "/no/such/program");
        for (place, id) in [(0, "old"), (1, "other"), (0, "new")] {
            children.start(start(place, id)).unwrap();
        }
        let named: Vec<_> = children.running().into_iter().map(|running| (running.place, running.id)).collect();
        assert_eq!(named, [(0, "new".into()), (1, "other".into())]);
    }

    #[test]
    fn a_worker_that_cannot_be_started_has_ended_for_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let mut children = children(folder.path(), "/no/such/program");
        let ended = children.start(start(7, "w1")).unwrap_err();
        assert_eq!((&*ended.id, ended.was_killed), ("w1", false));
        assert!(ended.how.contains("no place 7"), "{}", ended.how);
        let unreadable = Start { place: 0, spec: serde_json::json!({ "id": "w2" }) };
        assert_eq!(children.start(unreadable).unwrap_err().id, "w2");
        assert!(children.is_empty());
    }
}
