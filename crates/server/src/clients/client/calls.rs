//! What a program knows of its server, and its calls in flight.

use crate::clients::call_frame::Caller;
use crate::clients::client::incoming::Incoming;
use crate::clients::client::outgoing::{LinkWriter, Outgoing};
use crate::clients::gathering::Gathering;
use crate::clients::greeting::Welcome;
use crate::clients::part_frames;
use crate::engine::program_values::ParentItems;
use crate::link::frame::header::{FrameError, Segments, small_frame};
use crate::link::frame::kind::Kind;
use crate::link::results_frame::ItemResult;
use crate::values::answer::{Answer, Failure};
use jitney_core::request::ItemId;
use jitney_core::tables::outcome::Outcome;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::Instant;

/// A server that lives answers a call at its deadline. One that is later than this is not waited for.
pub(super) const LATE: Duration = Duration::from_secs(1);

/// Where to dial, and with which key.
#[derive(Clone)]
pub struct Address {
    /// `unix:PATH` or `tcp:HOST:PORT`.
    pub address: String,
    /// If the server asks for one.
    pub key: Option<String>,
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Address").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The state of the connection.
#[derive(Clone, Debug)]
pub(super) enum Standing {
    /// There is none, for this reason; it is dialled again.
    Dialling(String),
    /// There is one, to a server of these deployments.
    Connected(Arc<Welcome>),
    /// The server does not admit this program, or is not a jitney server. It is dialled again all the same.
    Refused(String),
}

/// What the calls of a program and its connection share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) address: Address,
    pub(super) caller: Caller,
    pub(super) standing: watch::Sender<Standing>,
    pub(super) calls: Mutex<Calls>,
    pub(super) next: AtomicU64,
    /// The welcome of the first connection: this program's models are made of it.
    pub(super) first: OnceLock<Arc<Welcome>>,
}

/// The connection that there is.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) outgoing: Outgoing,
    /// One for each request that the server takes at once: with more it would not even read pings.
    pub(super) places: Arc<Semaphore>,
    /// Deployments that take or return something else than at first.
    pub(super) changed: FxHashSet<String>,
}

impl Line {
    /// What writes to the link of this worker, if this is a line of one.
    pub(super) fn link_writer(&self) -> Option<&Arc<LinkWriter>> {
        if let Outgoing::Link(writer) = &self.outgoing { Some(writer) } else { None }
    }
}

/// A place among the requests of one connection.
#[derive(Debug)]
pub(super) struct Place {
    permit: OwnedSemaphorePermit,
}

impl Place {
    /// Whether it is a place of this connection, and not of one that was lost meanwhile.
    fn is_of(&self, line: &Line) -> bool {
        Arc::ptr_eq(self.permit.semaphore(), &line.places)
    }
}

#[derive(Debug, Default)]
pub(super) struct Calls {
    /// `None` while there is no connection.
    pub(super) line: Option<Line>,
    in_flight: FxHashMap<u64, PendingCall>,
}

/// The answer that a call waits for.
#[derive(Debug)]
pub(super) enum AwaitedAnswer {
    /// All answers at once.
    Whole(oneshot::Sender<Vec<Answer>>, Gathering),
    /// One answer, part by part.
    Parts(Box<Incoming>),
}

impl AwaitedAnswer {
    /// Takes entries of the items of the call.
    fn add(&mut self, entries: Vec<ItemResult>) -> Result<(), FrameError> {
        match self {
            AwaitedAnswer::Whole(_, answers) => answers.add(entries),
            AwaitedAnswer::Parts(incoming) => incoming.add(entries),
        }
    }

    /// The call has ended with the entries that came. The caller may have been dropped.
    fn finish(self) {
        match self {
            AwaitedAnswer::Whole(reply, answers) => drop(reply.send(answers.finish())),
            AwaitedAnswer::Parts(incoming) => incoming.finish(),
        }
    }

    /// The call has ended with this failure.
    fn fail(self, failure: Failure) {
        match self {
            AwaitedAnswer::Whole(reply, answers) => drop(reply.send(vec![Answer::failed(failure); answers.len()])),
            AwaitedAnswer::Parts(incoming) => incoming.fail(failure),
        }
    }
}

/// A call that the server has, or that is on its way there.
#[derive(Debug)]
struct PendingCall {
    answer: AwaitedAnswer,
    /// The items of this worker for which it was made.
    parents: SmallVec<[ItemId; 1]>,
    /// When it is not waited for any longer; `None` if the deployment decides.
    end: Option<Instant>,
}

/// A call that is to be sent.
#[derive(Debug)]
pub(super) struct OutgoingCall<'a> {
    pub(super) id: u64,
    pub(super) deployment: &'a str,
    /// The items of this worker for which it is made.
    pub(super) parents: SmallVec<[ItemId; 1]>,
    /// When it is not waited for any longer; `None` if the deployment decides.
    pub(super) end: Option<Instant>,
}

/// What became of a call that was to be sent.
#[derive(Debug)]
pub(super) enum Sent {
    /// It is on its way.
    Waits,
    /// There is another connection than the place is of.
    OtherLine,
    /// There is no connection.
    NoLine,
    /// The deployment takes or returns something else since the server was started again.
    Changed,
}

impl Shared {
    pub(super) fn new(address: Address, caller: Caller) -> Shared {
        Shared {
            address,
            caller,
            standing: watch::Sender::new(Standing::Dialling("nothing has answered yet".into())),
            calls: Mutex::default(),
            next: AtomicU64::new(1),
            first: OnceLock::new(),
        }
    }

    pub(super) fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The manifests of the server's deployments by name, as JSON; empty while there is no connection.
    pub(super) fn manifests(&self) -> String {
        match &*self.standing.borrow() {
            Standing::Connected(welcome) => serde_json::to_string(&welcome.deployments).unwrap_or_default(),
            _ => "{}".to_owned(),
        }
    }

    /// Waits for a place among the requests of the connection; `None` if there is none, if it is lost, or if it is not the link
    /// of these items.
    pub(super) async fn place(&self, parents: &ParentItems) -> Option<Place> {
        let places = self.calls().line.as_ref().filter(|line| line.outgoing.is_of(parents))?.places.clone();
        Some(Place { permit: places.acquire_owned().await.ok()? })
    }

    /// Sends the frame of a request over the connection that its place is of. `awaited` is called if it can be sent.
    pub(super) fn send(
        &self,
        call: OutgoingCall<'_>,
        place: &Place,
        frame: Segments,
        awaited: impl FnOnce() -> Option<AwaitedAnswer>,
    ) -> Sent {
        let OutgoingCall { id, deployment, parents, end } = call;
        let mut calls = self.calls();
        let Some(line) = &calls.line else { return Sent::NoLine };
        if !place.is_of(line) {
            return Sent::OtherLine;
        }
        if line.changed.contains(deployment) {
            return Sent::Changed;
        }
        let Some(answer) = awaited().filter(|_| line.outgoing.send(frame)) else { return Sent::NoLine };
        calls.in_flight.insert(id, PendingCall { answer, parents, end });
        Sent::Waits
    }

    /// Takes entries of the items of a request; `is_last` if they end it.
    pub(super) fn answered(&self, id: u64, entries: Vec<ItemResult>, is_last: bool) -> io::Result<()> {
        let mut calls = self.calls();
        // No entry: no caller waits any more.
        let Some(waiting) = calls.in_flight.get_mut(&id) else { return Ok(()) };
        waiting.answer.add(entries)?;
        if is_last && let Some(PendingCall { answer, .. }) = calls.in_flight.remove(&id) {
            drop(calls);
            answer.finish();
        }
        Ok(())
    }

    /// Says that the caller has taken so many bytes of the parts of its answer.
    pub(super) fn took(&self, id: u64, bytes: u64) {
        let calls = self.calls();
        if let Some(line) = calls.line.as_ref().filter(|_| calls.in_flight.contains_key(&id)) {
            line.outgoing.send(part_frames::taken(id, bytes));
        }
    }

    /// Cancels a call, if it has no answer yet.
    pub(super) fn cancel(&self, id: u64) {
        let mut calls = self.calls();
        if calls.in_flight.remove(&id).is_some()
            && let Some(line) = &calls.line
        {
            line.outgoing.send(self.hangup(id));
        }
    }

    /// The connection is lost: calls in flight fail, and calls that wait for a place too.
    pub(super) fn lose(&self) {
        let lost = std::mem::take(&mut *self.calls());
        self.fail(lost);
    }

    /// If `is_meant` holds for the connection that there is, it is lost, and `next` is there in its place.
    pub(super) fn replace(&self, is_meant: impl FnOnce(&Line) -> bool, next: Line) {
        let mut calls = self.calls();
        if calls.line.as_ref().is_some_and(is_meant) {
            let lost = std::mem::replace(&mut *calls, Calls { line: Some(next), ..Calls::default() });
            drop(calls);
            self.fail(lost);
        }
    }

    /// The items for which calls were made that have no answer yet.
    pub(super) fn asking(&self) -> Vec<ItemId> {
        self.calls().in_flight.values().flat_map(|call| call.parents.iter().copied()).collect()
    }

    fn fail(&self, lost: Calls) {
        lost.line.iter().for_each(|line| line.places.close());
        for waiting in lost.in_flight.into_values() {
            let detail = format!("the server at {} was lost while it had this call", self.address.address);
            waiting.answer.fail(Failure::new(Outcome::Disconnected, detail));
        }
    }

    /// Fails calls whose deadline has passed without an answer: the server may be stopped, or out of reach.
    pub(super) fn expire(&self) {
        let now = Instant::now();
        let mut calls = self.calls();
        let Calls { line, in_flight } = &mut *calls;
        for (id, waiting) in in_flight.extract_if(|_, waiting| waiting.end.is_some_and(|end| end < now)) {
            let detail = format!("the deadline passed, and the server at {} has not answered", self.address.address);
            let failure = Failure::new(Outcome::DeadlineExceeded, detail);
            waiting.answer.fail(failure);
            if let Some(line) = line {
                line.outgoing.send(self.hangup(id));
            }
        }
    }

    /// The frame that cancels a call.
    fn hangup(&self, id: u64) -> Segments {
        let kind = if self.caller == Caller::Worker { Kind::Withdraw } else { Kind::Hangup };
        small_frame(kind, &id.to_le_bytes())
    }

    /// The failure of a call while there is no connection.
    pub(super) fn lost(&self) -> Failure {
        let why = match &*self.standing.borrow() {
            Standing::Dialling(why) | Standing::Refused(why) => format!(": {why}"),
            Standing::Connected(_) => String::new(),
        };
        let address = &self.address.address;
        Failure::new(Outcome::Disconnected, format!("the server at {address} is not reached{why}"))
    }
}
