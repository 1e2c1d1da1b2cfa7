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
use rustc_hash::FxHashSet;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Semaphore;

/// The calls of one worker.
#[derive(Debug)]
pub struct WorkerCalls {
    shared: Arc<Shared>,
    writer: Arc<LinkWriter>,
    link: WorkerLink,
}

impl WorkerCalls {
    /// Calls over this link, of the deployments that the front has named (JSON).
    pub fn new(link: &WorkerLink, welcome: &str) -> io::Result<WorkerCalls> {
        let welcome: Welcome = serde_json::from_str(welcome)?;
        let address = Address { address: "the other end of this worker's link".into(), key: None };
        let shared = Arc::new(Shared::new(address, Caller::Worker));
        let writer = Arc::new(LinkWriter::new(link.clone()));
        let answered =
            Answered { shared: shared.clone(), writer: writer.clone(), places: welcome.max_requests as usize };
        answered.open();
        shared.standing.send_replace(Standing::Connected(Arc::new(welcome)));
        link.listen(answered);
        Ok(WorkerCalls { shared, writer, link: link.clone() })
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
        self.writer.hold();
    }

    /// Sends the calls that wait.
    pub fn flush(&self) {
        if !self.writer.flush() {
            self.shared.lose();
        }
    }

    /// Receives answers until `is_done`, or until the given instant, which it may miss by a second.
    pub fn receive_until(&self, until: Instant, is_done: impl Fn() -> bool) {
        self.link.receive_until(until, is_done);
    }
}

#[derive(Clone)]
struct Answered {
    shared: Arc<Shared>,
    writer: Arc<LinkWriter>,
    places: usize,
}

impl Answered {
    fn open(&self) {
        let (places, outgoing) = (Arc::new(Semaphore::new(self.places)), Outgoing::Link(self.writer.clone()));
        self.shared.calls().line = Some(Line { outgoing, places, changed: FxHashSet::default() });
    }
}

impl AnswerListener for Answered {
    fn answered(&self, frame: &Frame) -> io::Result<()> {
        let (id, entries) = answer_frames::read(frame)?;
        self.shared.answered(id, entries, frame.kind == Kind::Answered)
    }

    fn lost(&self) {
        // The thread that noticed it may be one that sends a call, and holds the lock of the calls.
        let answered = self.clone();
        std::thread::spawn(move || {
            answered.shared.lose();
            answered.open();
        });
    }
}
