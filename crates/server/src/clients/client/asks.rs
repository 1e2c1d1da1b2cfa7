//! The calls that a model makes over the link of its worker.

use crate::clients::answer_frames;
use crate::clients::call_frame::Caller;
use crate::clients::client::calls::{Address, Line, Shared, Standing};
use crate::clients::client::entrance::RemoteEntrance;
use crate::clients::client::outgoing::{LinkWriter, Outgoing};
use crate::clients::greeting::Welcome;
use crate::link::frame::kind::Kind;
use crate::link::frame::reader::Frame;
use crate::link::worker::answers::AnswerListener;
use crate::link::worker::link::WorkerLink;
use jitney_core::request::ItemId;
use rustc_hash::FxHashSet;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Semaphore;

/// The calls of one worker.
#[derive(Debug)]
pub struct WorkerCalls {
    shared: Arc<Shared>,
    lines: Lines,
}

impl WorkerCalls {
    /// Calls over this link, of the deployments that the front has named (JSON).
    pub fn new(link: &WorkerLink, welcome: &str) -> io::Result<WorkerCalls> {
        let welcome: Welcome = serde_json::from_str(welcome)?;
        let address = Address { address: "the other end of this worker's link".into(), key: None };
        let shared = Arc::new(Shared::new(address, Caller::Worker));
        let lines = Lines { link: link.clone(), places: welcome.max_requests as usize };
        shared.calls().line = Some(lines.line(link.number()));
        shared.standing.send_replace(Standing::Connected(Arc::new(welcome)));
        link.listen(Answered { shared: shared.clone(), lines: lines.clone() });
        Ok(WorkerCalls { shared, lines })
    }

    /// The manifests of the deployments that may be called by name, as JSON.
    pub fn manifests(&self) -> String {
        self.shared.manifests()
    }

    /// The way in to a deployment.
    pub fn entrance(&self, name: &str) -> RemoteEntrance {
        RemoteEntrance { deployment: name.into(), shared: self.shared.clone() }
    }

    /// Calls wait from now on until `flush`: those of one turn of an event loop leave in one write.
    pub fn hold(&self) {
        self.writer().into_iter().for_each(|writer| writer.hold());
    }

    /// Sends the calls that wait. They fail if the link is lost: then calls may be made again once the next one is there.
    pub fn flush(&self) {
        let Some(writer) = self.writer() else { return };
        if !writer.flush() {
            let is_this = |line: &Line| line.link_writer().is_some_and(|present| Arc::ptr_eq(present, &writer));
            self.shared.replace(is_this, self.lines.line(writer.number()));
        }
    }

    fn writer(&self) -> Option<Arc<LinkWriter>> {
        self.shared.calls().line.as_ref()?.link_writer().cloned()
    }

    /// Receives answers until `is_done`, or until the given instant, which it may miss by a second.
    pub fn receive_until(&self, until: Instant, is_done: impl Fn() -> bool) {
        self.lines.link.receive_until(until, is_done);
    }
}

/// Makes a line for each link that the worker has, one after the other.
#[derive(Clone, Debug)]
struct Lines {
    link: WorkerLink,
    /// Calls that may be open at once.
    places: usize,
}

impl Lines {
    /// The line of the link with this number. Until that link is there, calls over it fail.
    fn line(&self, number: u64) -> Line {
        let outgoing = Outgoing::Link(Arc::new(LinkWriter::new(&self.link, number)));
        Line { outgoing, places: Arc::new(Semaphore::new(self.places)), changed: FxHashSet::default() }
    }
}

struct Answered {
    shared: Arc<Shared>,
    lines: Lines,
}

impl AnswerListener for Answered {
    fn answered(&self, frame: &Frame) -> io::Result<()> {
        let (id, entries) = answer_frames::read(frame)?;
        self.shared.answered(id, entries, frame.kind == Kind::Answered)
    }

    fn lost(&self, next: Option<u64>) {
        let (shared, lines) = (self.shared.clone(), self.lines.clone());
        // The thread that noticed it may be one that sends a call, and holds the lock of the calls.
        std::thread::spawn(move || {
            let Some(next) = next else { return shared.lose() };
            // This thread may be late, and that of a later loss may have been here.
            let is_before = |line: &Line| line.link_writer().is_some_and(|writer| writer.number() < next);
            shared.replace(is_before, lines.line(next));
        });
    }

    fn asking(&self) -> Vec<ItemId> {
        self.shared.asking()
    }
}

#[cfg(test)]
mod tests;
