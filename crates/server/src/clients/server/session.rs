//! What all requests of one program share: its accounts, the queue of its answers, and which requests are in flight.

use crate::base::ledger::Ledger;
use crate::clients::answer_frames::until_written;
use crate::clients::server::under_way::UnderWay;
use crate::engine::deployment::Deployment;
use crate::engine::server_state::ServerState;
use crate::link::frame::header::Segments;
use crate::link::frame::kind::Kind;
use crate::protocols::connection::backlog;
use crate::protocols::connection::backlog::ResponseBacklog;
use crate::protocols::reply::failure_log;
use crate::values::answer::Answer;
use crate::values::call_id::CallId;
use bytes::Bytes;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// The requests of one program, as its connection and their tasks see them.
pub(super) struct Session {
    pub(super) state: Arc<ServerState>,
    /// The accounts of this program.
    pub(super) ledger: Ledger,
    /// Its answers that it has not taken yet.
    pub(super) backlog: Arc<ResponseBacklog>,
    pub(super) under_way: UnderWay,
    outgoing: mpsc::UnboundedSender<Segments>,
    /// The kind of the frame that ends a request.
    pub(super) last: Kind,
    /// Whether the program is a client, which may not read what exceptions of models say. The workers of this server may.
    hides_model_text: bool,
}

impl Session {
    /// A session without requests, of a program at this address, whose frames go to `outgoing`.
    pub(super) fn new(
        state: Arc<ServerState>,
        outgoing: mpsc::UnboundedSender<Segments>,
        peer: Option<IpAddr>,
        is_own: bool,
    ) -> Session {
        let session = Session::of(state, outgoing, is_own, Kind::Answers);
        Session { ledger: session.ledger.with_peer(peer), ..session }
    }

    /// The session of a worker's link: of the calls that its model makes.
    pub(super) fn of_worker(state: Arc<ServerState>, outgoing: mpsc::UnboundedSender<Segments>) -> Session {
        Session::of(state, outgoing, true, Kind::Answered)
    }

    fn of(state: Arc<ServerState>, outgoing: mpsc::UnboundedSender<Segments>, is_own: bool, last: Kind) -> Session {
        let ledger = state.ledger.connection();
        let backlog = Arc::new(ResponseBacklog::new(ledger.untaken.clone()));
        let hides_model_text = !is_own && !state.options.show_errors;
        Session { state, ledger, backlog, under_way: UnderWay::default(), outgoing, last, hides_model_text }
    }

    /// Sends a frame that counts nowhere.
    pub(super) fn send(&self, frame: Segments) {
        // The reader notices a program that has disconnected.
        let _ = self.outgoing.send(frame);
    }

    /// Sends a frame of answers. Until it has been written, it counts as not taken, and its request keeps its place.
    pub(super) fn send_answers(&self, answers: Segments, place: Option<OwnedSemaphorePermit>) {
        let silence = self.state.options.body_timeout();
        let untaken = backlog::hold(answers.iter().map(Bytes::len).sum(), &self.backlog, silence);
        self.send(until_written(answers, (place, untaken)));
    }

    /// Logs the failures of a request, and removes from them what the program may not read.
    pub(super) fn present(&self, id: &CallId, deployment: &Deployment, answers: &mut [Answer]) {
        for failure in answers.iter_mut().filter_map(|answer| answer.result.as_mut().err()) {
            failure_log::tell(&id.text(), Some(&deployment.manifest.name), failure);
            if self.last == Kind::Answered {
                // The answer of the model that asked may pass it on.
                failure.detail = format!("{}: {}", deployment.manifest.name, failure.detail);
            }
            if self.hides_model_text {
                failure.hide_model_text();
            }
        }
    }
}
