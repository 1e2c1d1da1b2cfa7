//! Where the frames of calls leave: the queue of a connection, or the link of a worker.

use crate::engine::program_values::ParentItems;
use crate::link::frame::header::Segments;
use crate::link::worker::link::WorkerLink;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;

/// Takes the frames of calls.
#[derive(Clone, Debug)]
pub(super) enum Outgoing {
    /// A task writes them to the connection.
    Queue(mpsc::UnboundedSender<Segments>),
    /// The thread that sends them writes them to the link of its worker.
    Link(Arc<LinkWriter>),
}

impl Outgoing {
    /// Whether calls for these items may go this way.
    pub(super) fn is_of(&self, parents: &ParentItems) -> bool {
        match self {
            Outgoing::Queue(_) => true,
            Outgoing::Link(writer) => parents.link.is_none_or(|link| link == writer.number()),
        }
    }

    /// Sends a frame; false if the connection has ended.
    pub(super) fn send(&self, frame: Segments) -> bool {
        match self {
            Outgoing::Queue(queue) => queue.send(frame).is_ok(),
            Outgoing::Link(writer) => writer.send(frame),
        }
    }
}

/// Writes frames to one link of a worker, and to none that follows: each at once, or all that an event loop has made in one turn together.
#[derive(Debug)]
pub(crate) struct LinkWriter {
    link: WorkerLink,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    frames: Vec<Segments>,
    /// Frames wait for `flush`.
    is_held: bool,
}

impl LinkWriter {
    /// To the link with this number.
    pub(super) fn new(link: &WorkerLink, number: u64) -> LinkWriter {
        LinkWriter { link: link.over(number), waiting: Mutex::default() }
    }

    /// The number of its link.
    pub(super) fn number(&self) -> u64 {
        self.link.number()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frames wait from now on until `flush`.
    pub(super) fn hold(&self) {
        self.waiting().is_held = true;
    }

    /// Writes what waits; false if the link has ended.
    pub(super) fn flush(&self) -> bool {
        let mut waiting = self.waiting();
        waiting.is_held = false;
        let frames = std::mem::take(&mut waiting.frames);
        // Written under the lock: frames leave in the order in which they came.
        frames.is_empty() || self.link.send(&frames).is_ok()
    }

    fn send(&self, frame: Segments) -> bool {
        let mut waiting = self.waiting();
        if waiting.is_held {
            waiting.frames.push(frame);
            return true;
        }
        self.link.send(&[frame]).is_ok()
    }
}
