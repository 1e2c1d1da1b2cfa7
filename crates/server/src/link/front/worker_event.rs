//! What happens to a worker. Its link, its engine and its process report it to the supervisor, in one queue.

use crate::link::frame::kind::Kind;
use crate::link::front::link::Link;
use bytes::Bytes;
use jitney_core::replicas::loss_history::Loss;
use jitney_core::request::ReplicaId;

/// One thing that happened to a worker, or to all of them.
#[derive(Debug)]
pub enum WorkerEvent {
    /// A worker's process runs.
    Started(ReplicaId),
    /// A worker's link is up.
    Connected(ReplicaId, Link),
    /// A worker sent a message about itself (JSON): its manifest, its progress, that it is ready or that it has failed.
    Message(ReplicaId, Kind, Bytes),
    /// A worker answered its first item.
    Served(ReplicaId),
    /// A worker's link is down.
    LinkLost(ReplicaId),
    /// A worker's batch runs for too long; the ids of its requests, of those that have one.
    Hung(ReplicaId, Vec<Box<str>>),
    /// Where the threads of a worker are that is about to be killed, as it has written it.
    Stacks(ReplicaId, String),
    /// A suspect begins to run alone in a worker, or has run.
    Trial(ReplicaId, bool),
    /// A worker's process has ended, in this way.
    Exited(ReplicaId, String, Loss),
    /// The files of the targets have changed.
    FilesChanged,
}

impl WorkerEvent {
    /// Which worker it is about; `None` if it is about all.
    pub fn worker(&self) -> Option<ReplicaId> {
        match self {
            WorkerEvent::Started(worker)
            | WorkerEvent::Connected(worker, _)
            | WorkerEvent::Message(worker, _, _)
            | WorkerEvent::Served(worker)
            | WorkerEvent::LinkLost(worker)
            | WorkerEvent::Hung(worker, _)
            | WorkerEvent::Stacks(worker, _)
            | WorkerEvent::Trial(worker, _)
            | WorkerEvent::Exited(worker, _, _) => Some(*worker),
            WorkerEvent::FilesChanged => None,
        }
    }
}
