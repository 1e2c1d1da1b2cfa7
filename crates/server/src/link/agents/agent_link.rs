//! The handle by which the front speaks to an agent, and what it hears from it.

use crate::link::agents::messages::{Join, Kill, Report, Start};
use crate::link::frame::header::{Segments, small_frame};
use crate::link::frame::kind::Kind;
use crate::link::liveness::Life;
use jitney_core::time::Time;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// What happens to the connection of an agent.
#[derive(Debug)]
pub enum AgentEvent {
    /// It has joined, or joined again.
    Joined(Box<Join>, AgentLink),
    /// It says something.
    Said(Report),
    /// The connection is lost.
    Lost,
}

/// The exit code of a failure that a retry cannot fix, as in `sysexits.h`.
pub const MISCONFIGURED: i32 = 78;

/// The number of a connection. An agent that joins again has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionId(pub(crate) u64);

/// The handle by which the supervisor speaks to an agent. Its drop ends the connection.
#[derive(Debug)]
pub struct AgentLink {
    /// The number of this connection.
    pub connection: ConnectionId,
    pub(crate) outgoing: mpsc::UnboundedSender<Segments>,
    pub(crate) life: Life,
    pub(crate) reader: AbortHandle,
}

impl AgentLink {
    /// Asks it to start a worker.
    pub fn start(&self, start: &Start) {
        self.send(Kind::Start, start);
    }

    /// Asks it to kill a worker.
    pub fn kill(&self, id: &str, stacks: bool) {
        self.send(Kind::Kill, &Kill { id: id.to_owned(), stacks });
    }

    /// Asks for a sign of life.
    pub fn ping(&self) {
        let _ = self.outgoing.send(small_frame(Kind::Ping, b""));
    }

    /// The time of its last sign of life.
    pub fn heard(&self) -> Time {
        self.life.last()
    }

    /// Counts as a sign of life at this time: the front was not listening.
    pub fn excuse(&self, now: Time) {
        self.life.excuse(now);
    }

    fn send(&self, kind: Kind, message: &impl serde::Serialize) {
        // A connection whose writer has ended is lost, which the reader reports.
        let _ = self.outgoing.send(frame(kind, message));
    }
}

impl Drop for AgentLink {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// A message as a frame.
pub(crate) fn frame(kind: Kind, message: &impl serde::Serialize) -> Segments {
    small_frame(kind, &serde_json::to_vec(message).expect("a message is plain data"))
}
