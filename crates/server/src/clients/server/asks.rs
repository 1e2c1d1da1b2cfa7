//! The calls that models make over the links of their workers: like those of a program, without a further connection.

use crate::base::traces::context::TraceContext;
use crate::clients::answer_frames;
use crate::clients::call_frame;
use crate::clients::call_frame::Request;
use crate::clients::greeting::Welcome;
use crate::clients::part_frames;
use crate::clients::server::line::CallFollowers;
use crate::clients::server::session::Session;
use crate::clients::server::stream::StreamRequest;
use crate::clients::server::window::Window;
use crate::engine::deployment::Deployment;
use crate::engine::program_values;
use crate::engine::room::most_items;
use crate::engine::server_state::ServerState;
use crate::engine::task::asks::{AskSession, AskTerms, Asking, NOBODY_WAITS};
use crate::link::frame::header::{FrameError, Segments};
use crate::link::frame::kind::Kind;
use crate::link::frame::reader::Frame;
use crate::values::answer::{Answer, Failure};
use crate::values::metadata::FurtherMetadata;
use futures_util::FutureExt;
use futures_util::future::Either;
use jitney_core::tables::outcome::Outcome;
use std::sync::{Arc, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Calls of one worker that are in flight, or whose answers it has not taken.
const CALLS: u32 = 16_384;

/// Calls the deployments of a server for its models.
#[derive(Debug)]
pub(crate) struct ModelCalls {
    state: Weak<ServerState>,
}

impl ModelCalls {
    /// Of this server.
    pub(crate) fn new(state: &Arc<ServerState>) -> ModelCalls {
        ModelCalls { state: Arc::downgrade(state) }
    }
}

impl Asking for ModelCalls {
    fn session(&self, uses: Arc<[String]>, answers: &mpsc::UnboundedSender<Segments>) -> Box<dyn AskSession> {
        let session = self.state.upgrade().map(|state| Arc::new(Session::of_worker(state, answers.clone())));
        Box::new(CallsOfWorker { session, uses, places: Arc::new(Semaphore::new(CALLS as usize)) })
    }

    fn welcome(&self, uses: &[String]) -> serde_json::Value {
        let Some(state) = self.state.upgrade() else { return serde_json::Value::Null };
        let those =
            state.deployments().into_iter().filter(|one| uses.iter().any(|name| name == one.manifest.deployment()));
        let manifest = |one: Arc<Deployment>| {
            (one.manifest.name.clone(), serde_json::to_value(&*one.manifest).unwrap_or_default())
        };
        let welcome = Welcome {
            deployments: those.map(manifest).collect(),
            max_body_bytes: state.options.max_body_bytes,
            max_items: most_items(&state.options) as u64,
            max_requests: CALLS,
        };
        serde_json::to_value(welcome).unwrap_or_default()
    }
}

/// The calls of one worker.
struct CallsOfWorker {
    /// `None` if the server is ending.
    session: Option<Arc<Session>>,
    uses: Arc<[String]>,
    places: Arc<Semaphore>,
}

impl std::fmt::Debug for CallsOfWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallsOfWorker").field("uses", &self.uses).finish_non_exhaustive()
    }
}

impl CallsOfWorker {
    fn call(&self, session: &Arc<Session>, request: Request, permit: OwnedSemaphorePermit, is_asked: bool) {
        let Request { id, deployment: name, mut items, terms, streams, bytes } = request;
        let found = session.state.deployment(&name);
        let Some(found) = found.filter(|found| self.uses.iter().any(|used| used == found.manifest.deployment())) else {
            let uses = self.uses.join(", ");
            let detail = format!("the model does not use a deployment {name}, but {uses}: declare it with jitney.uses");
            return refused(session, id, items.len(), &Failure::new(Outcome::NotFound, detail));
        };
        let session = session.clone();
        let under_way = session.clone();
        if let Some(item) = items.pop_if(|_| streams) {
            let window = Arc::new(Window::default());
            under_way.under_way.begin(id, 1, Some(window.clone()), |key| {
                let (deployment, followers) = (found, CallFollowers::default());
                let request = StreamRequest { id, key, deployment, terms, window, followers, place: permit, session };
                tokio::spawn(request.run(item, bytes)).abort_handle()
            });
            return;
        }
        under_way.under_way.begin(id, items.len(), None, |key| {
            let request_id = terms.id.clone();
            let deployment = found.clone();
            let is_one = is_asked && items.len() == 1;
            let one = items.pop_if(|_| is_one);
            let answering = if let Some(item) = one {
                // The engine has it when this returns.
                Either::Left(program_values::run_one(found, item, terms, ()).map(|answer| vec![answer]))
            } else {
                let session = session.clone();
                Either::Right(async move {
                    if is_asked {
                        return program_values::run_asked(&found, items, terms, bytes).await;
                    }
                    let reader = (&session.ledger, &session.state.options);
                    program_values::run_remote(&found, items, terms, bytes, reader).await
                })
            };
            let task = tokio::spawn(async move {
                let mut answers = answering.await;
                session.present(&request_id, &deployment, &mut answers);
                if session.under_way.end(key) {
                    let frame = answer_frames::answers_as(Kind::Answered, id, &answers);
                    session.send_answers(frame, Some(permit));
                }
            });
            task.abort_handle()
        });
    }
}

/// A model may make spans below that of `predict`: what it asks hangs below the span that it names.
fn below_own_span(
    inherited: Option<Arc<FurtherMetadata>>,
    given: Option<Arc<FurtherMetadata>>,
) -> Option<Arc<FurtherMetadata>> {
    let (Some(all), Some(own)) = (&inherited, given) else { return inherited };
    let Some(note) = &all.note else { return inherited };
    let own = own.trace.split('\n').next().and_then(TraceContext::parse);
    let Some(own) = own.filter(|own| own.trace == note.request.context.trace) else { return inherited };
    let note = Some(note.below(own.span));
    Some(Arc::new(FurtherMetadata { note, ..FurtherMetadata::clone(all) }))
}

impl AskSession for CallsOfWorker {
    fn ask(&mut self, frame: &Frame, table: &[u8], terms: AskTerms) -> Result<(), FrameError> {
        let Some(session) = self.session.clone() else { return Ok(()) };
        let max_items = most_items(&session.state.options);
        let mut request = call_frame::read_request(table, &frame.payload, max_items)?;
        let AskTerms { inherited, timeout } = terms;
        let given = &mut request.terms;
        let has_own_timeout = given.timeout.is_some();
        given.timeout = given.timeout.into_iter().chain(timeout).min();
        let is_asked = inherited.is_some();
        if let Some((mut inherited, priority)) = inherited {
            inherited.asked.may_stream &= !has_own_timeout;
            inherited.further = below_own_span(inherited.further, given.further.take());
            (given.inherited, given.priority) = (Some(inherited), priority);
        }
        let Ok(permit) = self.places.clone().try_acquire_owned() else {
            let detail = format!("the model has {CALLS} calls of other models open");
            refused(&session, request.id, request.items.len(), &Failure::new(Outcome::QueueFull, detail));
            return Ok(());
        };
        self.call(&session, request, permit, is_asked);
        Ok(())
    }

    fn refuse(&mut self, table: &[u8], failure: Failure) -> Result<(), FrameError> {
        let Some(session) = &self.session else { return Ok(()) };
        let request = call_frame::read_skipped(table, most_items(&session.state.options))?;
        refused(session, request.id, request.items, &failure);
        Ok(())
    }

    fn take(&mut self, frame: &Frame) -> Result<(), FrameError> {
        let Some(session) = &self.session else { return Ok(()) };
        if frame.kind == Kind::PartsTaken {
            let (number, bytes) = part_frames::read_taken(&frame.table)?;
            session.under_way.taken(number, bytes);
            return Ok(());
        }
        let number =
            frame.table.as_ref().try_into().map_err(|_| FrameError::Table("the number of an ask has 8 bytes"))?;
        session.under_way.cancel(u64::from_le_bytes(number));
        Ok(())
    }

    fn withdraw(&mut self, number: u64) {
        let Some(session) = &self.session else { return };
        // A thread of the model may wait for it.
        session.under_way.withdraw(number, |items, sent| {
            let failure = Failure::new(Outcome::Cancelled, NOBODY_WAITS);
            match sent {
                Some(sent) => {
                    let end = Answer::failed(failure);
                    session.send(part_frames::parts(session.last, number, sent, &[], Some(&end)));
                }
                None => refused(session, number, items, &failure),
            }
        });
    }

    fn is_open(&self, number: u64) -> bool {
        self.session.as_ref().is_some_and(|session| session.under_way.has_number(number))
    }
}

impl Drop for CallsOfWorker {
    fn drop(&mut self) {
        self.session.iter().for_each(|session| session.under_way.cancel_all());
    }
}

fn refused(session: &Session, id: u64, items: usize, failure: &Failure) {
    let answers = vec![Answer::failed(failure.clone()); items];
    session.send(answer_frames::answers_as(Kind::Answered, id, &answers));
}
