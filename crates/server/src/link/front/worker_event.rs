//! What happens to a worker. Its link, its engine and its process report it to the supervisor, in one queue.

use crate::link::agents::agent_link::{AgentEvent, ConnectionId};
use crate::link::frame::kind::Kind;
use crate::link::front::hello::Returned;
use crate::link::front::link::Link;
use crate::link::front::output_room::OutputTaken;
use bytes::Bytes;
use jitney_core::replicas::loss_history::Loss;
use jitney_core::request::ReplicaId;
use std::sync::Arc;

/// One thing that happened to a worker, or to all of them.
#[derive(Debug)]
pub enum WorkerEvent {
    /// A worker's process runs.
    Started(ReplicaId),
    /// A worker's link is up.
    Connected(ReplicaId, Link),
    /// A worker has come back with its model, over a new link. By this number its link reports from now on.
    Returned(ReplicaId, Box<Returned>),
    /// A worker sent a message about itself (JSON): its manifest, its progress, that it is ready or that it has failed, what
    /// its model counted.
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
    /// A worker has become slow: its batches take this many times as long as those of the median replica.
    Slow(ReplicaId, f64),
    /// A worker's process has ended, in this way.
    Exited(ReplicaId, String, Loss),
    /// The files of the targets have changed.
    FilesChanged,
    /// What the agent of this name says over this connection, or that the connection is lost.
    Agent(Arc<str>, ConnectionId, AgentEvent),
    /// A worker printed whole lines, to its standard output or to standard error. Agents send them to the front.
    Printed(ReplicaId, bool, Vec<u8>, OutputTaken),
}

impl WorkerEvent {
    /// Which worker it is about; `None` if it is about all.
    pub fn worker(&self) -> Option<ReplicaId> {
        match self {
            WorkerEvent::Started(worker)
            | WorkerEvent::Connected(worker, _)
            | WorkerEvent::Returned(worker, _)
            | WorkerEvent::Message(worker, _, _)
            | WorkerEvent::Served(worker)
            | WorkerEvent::LinkLost(worker)
            | WorkerEvent::Hung(worker, _)
            | WorkerEvent::Stacks(worker, _)
            | WorkerEvent::Trial(worker, _)
            | WorkerEvent::Slow(worker, _)
            | WorkerEvent::Printed(worker, _, _, _)
            | WorkerEvent::Exited(worker, _, _) => Some(*worker),
            WorkerEvent::FilesChanged | WorkerEvent::Agent(..) => None,
        }
    }
}
