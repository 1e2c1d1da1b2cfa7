//! What the supervisor hears, from whoever sees it happen.

use crate::link::frame::Kind;
use crate::link::front::Link;
use bytes::Bytes;
use jitney_core::request::ReplicaId;
use jitney_core::scheduler::Loss;

/// What the supervisor is told.
#[derive(Debug)]
pub enum Report {
    /// A worker's process runs.
    Spawned(ReplicaId, Option<u32>),
    /// A worker's link is up.
    Connected(ReplicaId, Link),
    /// A worker said something about itself (JSON).
    Said(ReplicaId, Kind, Bytes),
    /// A worker answered its first batch.
    Served(ReplicaId),
    /// A worker's link is down.
    LinkLost(ReplicaId),
    /// A worker's batch runs for too long.
    Hung(ReplicaId),
    /// A suspect begins to run alone in a worker, or has run.
    Trial(ReplicaId, bool),
    /// A worker's process has ended, in this way.
    Exited(ReplicaId, String, Loss),
    /// The files of the targets have changed.
    Renew,
}

impl Report {
    /// Which worker it is about; `None` if it is about all.
    pub fn worker(&self) -> Option<ReplicaId> {
        match self {
            Report::Spawned(worker, _)
            | Report::Connected(worker, _)
            | Report::Said(worker, _, _)
            | Report::Served(worker)
            | Report::LinkLost(worker)
            | Report::Hung(worker)
            | Report::Trial(worker, _)
            | Report::Exited(worker, _, _) => Some(*worker),
            Report::Renew => None,
        }
    }
}
