//! One exchange for all protocols: the steps between the head of a request and its answer. A protocol says three things:
//! how it reads a head, how it decodes items, how it writes their outcomes.

use crate::base::ledger::{CountedBytes, Ledger};
use crate::base::offload;
use crate::base::traces::notes::TraceNote;
use crate::engine::deployment::Deployment;
use crate::engine::deployment::ticket::Ticket;
use crate::engine::request::{Answers, RequestItems, RequestOutcomes};
use crate::engine::server_state::ServerState;
use crate::engine::{request, room};
use crate::protocols::connection::socket::Active;
use crate::protocols::connection::upload::Upload;
use crate::protocols::reply::parts::body::{OpenAnswer, Recipient};
use crate::protocols::reply::parts::form::PartsForm;
use crate::protocols::reply::payload::Reply;
use crate::protocols::reply::problem::{Problem, ProblemForm};
use crate::protocols::reply::request_id::RequestId;
use crate::protocols::request::headers;
use crate::protocols::request::media::{came_as_form, check_transfer_encoding};
use crate::protocols::request::terms::{IncomingBody, RequestTerms};
use crate::values::answer::{Answer, Failure, Timing};
use crate::values::chunks::Chunks;
use crate::values::metadata::Metadata;
use futures_util::future::Either;
use hyper::header::HeaderMap;
use hyper::http::request::Parts;
use jitney_core::request::Priority;
use jitney_core::tables::outcome::Outcome;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How a protocol reads one kind of request and writes its answer.
pub(crate) trait Dialect: Send + Sync {
    /// What the head of a request says, in addition to its terms.
    type Head: Send + Sync;
    /// What a request asks for, in addition to its items.
    type Asked: Send;
    /// An answer, written.
    type Output: Send;

    /// How problems are written.
    const FORM: ProblemForm;

    /// The deployment, if the route names it. Otherwise the body does.
    fn deployment(&self) -> Option<&Deployment>;

    /// How long a request may take whose head names no time-out.
    fn allowed(&self) -> Duration;

    /// The protocol's own time-out.
    fn timeout(&self, _headers: &HeaderMap) -> Result<Option<Duration>, Failure> {
        Ok(None)
    }

    /// Reads the head, and refuses what cannot be answered whatever the body says.
    fn read_head(&self, headers: &HeaderMap) -> Result<Self::Head, Failure>;

    /// The items of a body, which may be compressed or framed. Work that grows with the body goes through `offload::run`.
    fn decode(
        &self,
        head: &Self::Head,
        body: Chunks,
    ) -> impl Future<Output = Result<Decoded<Self::Asked>, RefusedBody>> + Send;

    /// The form in which the client takes the answer part by part; `None` if it wants the answer whole.
    fn parts(&self, _head: &Self::Head, _asked: &Self::Asked) -> Option<Box<dyn PartsForm>> {
        None
    }

    /// The failure of an item, with hints that follow from how the request was sent.
    fn explain(&self, failure: Failure) -> Failure {
        failure
    }

    /// How much work it is to write the answers, in bytes that are written anew.
    fn write_weight(&self, head: &Self::Head, asked: &Self::Asked, answers: &[Answer]) -> usize;

    /// Writes the answers.
    fn write(
        &self,
        head: &Self::Head,
        asked: Self::Asked,
        answers: Answers,
        timing: &Timing,
    ) -> Result<Written<Self::Output>, Failure>;

    /// An output as an answer of HTTP.
    fn reply(&self, output: Self::Output) -> Reply;
}

/// A request that can be computed.
pub(crate) struct Decoded<Asked> {
    pub(crate) deployment: Arc<Deployment>,
    pub(crate) items: RequestItems,
    /// The body's own time-out.
    pub(crate) timeout: Option<Duration>,
    /// The body's own class, which wins over the head's.
    pub(crate) priority: Option<Priority>,
    pub(crate) asked: Asked,
}

/// A body that cannot be computed, and the deployment that it was for if that is known.
pub(crate) struct RefusedBody {
    pub(crate) failure: Failure,
    pub(crate) deployment: Option<Arc<Deployment>>,
}

impl From<Failure> for RefusedBody {
    fn from(failure: Failure) -> Self {
        RefusedBody { failure, deployment: None }
    }
}

/// An answer, and how its request is counted.
pub(crate) struct Written<Output> {
    pub(crate) output: Output,
    pub(crate) outcome: Outcome,
}

impl<Output> Written<Output> {
    /// An answer that has what was asked for.
    pub(crate) fn ok(output: Output) -> Self {
        Written { output, outcome: Outcome::Ok }
    }
}

/// An answer that has been written and not been sent.
pub(crate) struct Computed<Output> {
    pub(crate) output: Output,
    pub(crate) ticket: Ticket,
}

/// How a request is answered.
pub(crate) enum Answered<Output> {
    Whole(Computed<Output>),
    /// Each part is sent when it is made.
    InParts(Box<OpenAnswer>),
}

/// One request of HTTP without its body, as the routes of all protocols have it.
#[derive(Clone, Copy)]
pub(crate) struct Exchange<'r> {
    pub(crate) state: &'r Arc<ServerState>,
    pub(crate) head: &'r Parts,
    pub(crate) id: &'r RequestId,
    /// `None` if it is not traced.
    pub(crate) note: Option<&'r TraceNote>,
    pub(crate) active: &'r Active,
}

impl<'r> Exchange<'r> {
    /// Its headers.
    pub(crate) fn headers(&self) -> &'r HeaderMap {
        &self.head.headers
    }

    /// Answers the request.
    pub(crate) async fn answer<D: Dialect>(&self, dialect: &D, body: &mut Upload) -> Reply {
        let (problem, ticket) = match self.compute(dialect, body).await {
            Ok(Answered::Whole(Computed { output, ticket })) => {
                let mut reply = dialect.reply(output);
                reply.body_mut().count_with(ticket);
                return reply;
            }
            // On the heap: whole answers are the most frequent.
            Ok(Answered::InParts(answer)) => match Box::pin(answer.reply()).await {
                Ok(reply) => return reply,
                Err((failure, ticket)) => (dialect.explain(failure).into(), ticket),
            },
            Err(refused) => refused,
        };
        let mut reply = problem.reply(ticket.deployment(), D::FORM, self.id);
        reply.body_mut().count_with(ticket);
        reply
    }

    /// Answers a request. The cheapest checks come first: the head, the declared length, the body, and then its
    /// content.
    async fn compute<D: Dialect>(
        &self,
        dialect: &D,
        body: &mut Upload,
    ) -> Result<Answered<D::Output>, (Problem, Ticket)> {
        let refused = |problem: Problem| {
            let ticket = self.state.counts(dialect.deployment()).refuse(problem.outcome());
            (problem, ticket)
        };
        let began = Instant::now();
        let arriving = self.state.counts(dialect.deployment()).arrive();
        let body = IncomingBody { state: self.state, upload: body, allowed: dialect.allowed() };
        let (mut terms, head) = match self.read_head(dialect) {
            Ok(read) => read,
            Err(failure) => {
                // On the heap: it is seldom, and larger than all else.
                let problem = Box::pin(body.refuse(failure)).await;
                arriving.end();
                return Err(refused(problem));
            }
        };
        let received = body.receive(&mut terms).await;
        arriving.end();
        let (body, received) = received.map_err(refused)?;
        let metadata = headers::metadata(self.id, self.headers(), self.state.keys.as_deref(), self.note);
        let (state, active) = (self.state, self.active);
        let computing = Computing {
            state,
            ledger: active.ledger(),
            active: Some(active),
            metadata,
            headers: self.headers(),
            began,
        };
        let answered = computing.answer(dialect, &head, body, received, terms).await;
        answered.map_err(|(failure, ticket)| (failure.into(), ticket))
    }

    /// What the head of a request says; refuses it while there is no room for its answer.
    pub(crate) fn read_head<D: Dialect>(&self, dialect: &D) -> Result<(RequestTerms, D::Head), Failure> {
        let headers = self.headers();
        room::check(self.active.ledger(), &self.state.options)?;
        check_transfer_encoding(headers)?;
        let terms = RequestTerms::new(headers, dialect.timeout(headers)?)?;
        Ok((terms, dialect.read_head(headers)?))
    }
}

/// The facts that are known about a request when its body, or its message in a stream, has arrived.
pub(crate) struct Computing<'r> {
    pub(crate) state: &'r ServerState,
    /// The accounts of its connection.
    pub(crate) ledger: &'r Ledger,
    /// `None` in a stream.
    pub(crate) active: Option<&'r Active>,
    /// What the worker reads of its request, except for headers.
    pub(crate) metadata: Metadata,
    /// All headers of its request.
    pub(crate) headers: &'r HeaderMap,
    /// When its head, or in a stream its message, had arrived.
    pub(crate) began: Instant,
}

impl Computing<'_> {
    /// Decodes a body, and answers it whole or in parts. `received` is what the body counts for until it has been decoded.
    /// The ticket of a failure counts it, and has the timing of what was computed for it.
    pub(crate) async fn answer<D: Dialect>(
        &self,
        dialect: &D,
        head: &D::Head,
        body: Chunks,
        received: Option<CountedBytes>,
        terms: RequestTerms,
    ) -> Result<Answered<D::Output>, (Failure, Ticket)> {
        let counts = self.state.counts(dialect.deployment());
        let arriving = counts.arrive();
        let is_empty = body.is_empty();
        let decoded = dialect.decode(head, body).await;
        arriving.end();
        drop(received);
        let (deployment, asked);
        // In a block: what is not needed while the request waits takes no room in its future.
        let running = {
            let decoded = decoded.map_err(|refused| {
                let RefusedBody { failure, deployment } = refused;
                let failure = if is_empty { failure } else { came_as_form(self.headers, failure) };
                let counts = deployment.as_deref().map_or(counts, |deployment| &deployment.outcomes);
                let ticket = counts.refuse(failure.outcome);
                (failure, ticket)
            })?;
            let mut items = decoded.items;
            (deployment, asked) = (decoded.deployment, decoded.asked);
            let has_own_timeout = terms.is_given || decoded.timeout.is_some();
            terms.apply(&mut items, &deployment, decoded.timeout, decoded.priority);
            let names = &deployment.manifest.options.context_headers;
            let metadata = headers::with_headers(&self.metadata, self.headers, names);
            items.calls_mut().for_each(|call| call.metadata = Some(metadata.clone()));
            if let Some(active) = self.active {
                active.body_is_read();
            }
            deployment.exchanged.received(items.decoded - self.began);
            if let Some(form) = dialect.parts(head, &asked) {
                let parts = self.in_parts(&deployment, items, has_own_timeout, form);
                return parts.map(Answered::InParts).map_err(|refused| *refused);
            }
            request::run(&*deployment, items, Some(self.ledger))
        };
        let RequestOutcomes { answers, mut ticket } = running.await;
        // Kept until the answer has been written: then its connection counts it.
        let mut _untaken = None;
        let writing = match self.presentable(answers) {
            Ok((answers, untaken)) => {
                _untaken = Some(untaken);
                Either::Left(write(dialect, head, asked, answers, ticket.timing))
            }
            Err(failure) => Either::Right(ready(Err(failure))),
        };
        let written = writing.await;
        ticket.answered.into_iter().for_each(|(at, _)| deployment.exchanged.rendered(at.elapsed()));
        match written {
            Ok(Written { output, outcome }) => {
                ticket.set_outcome(outcome);
                Ok(Answered::Whole(Computed { output, ticket }))
            }
            Err(failure) => {
                ticket.set_outcome(failure.outcome);
                Err((failure, ticket))
            }
        }
    }

    fn in_parts(
        &self,
        deployment: &Arc<Deployment>,
        mut items: RequestItems,
        has_own_timeout: bool,
        form: Box<dyn PartsForm>,
    ) -> Result<Box<OpenAnswer>, Box<(Failure, Ticket)>> {
        if !has_own_timeout {
            // What a slow body has left of the deployment's time-out is not the client's: the first part ends it.
            items.calls_mut().for_each(|call| call.timeout = None);
        }
        let options = &self.state.options;
        let (most_unread, silence) = (options.max_receiving_bytes, options.body_timeout());
        let parts = request::open_parts(deployment, items, self.ledger, most_unread, silence)?;
        let request_id = self.metadata.request_id.text().into_owned();
        let recipient = Recipient { request_id, shows_errors: options.show_errors };
        Ok(Box::new(OpenAnswer { parts, form, recipient }))
    }

    /// Answers as this client may see them, if it still takes answers: that may have changed while they were computed.
    fn presentable(&self, answers: Result<Answers, Failure>) -> Result<(Answers, CountedBytes), Failure> {
        let mut answers = answers?;
        if !self.state.options.show_errors {
            answers.iter_mut().filter_map(|answer| answer.result.as_mut().err()).for_each(Failure::hide_model_text);
        }
        let bytes = answers.iter().map(Answer::bytes).sum();
        let untaken = room::hold_answers(self.ledger, bytes, &self.state.options)?;
        Ok((answers, untaken))
    }
}

/// Writes answers, where it delays no other request.
fn write<D: Dialect>(
    dialect: &D,
    head: &D::Head,
    asked: D::Asked,
    answers: Answers,
    timing: Timing,
) -> impl Future<Output = Result<Written<D::Output>, Failure>> + Send {
    let weight = dialect.write_weight(head, &asked, &answers);
    offload::run(weight, move || dialect.write(head, asked, answers, &timing))
}
