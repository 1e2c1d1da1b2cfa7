//! `ModelStreamInfer`: a stream of requests. Each is answered by one message, or by one for each part. Whole answers have the
//! order of their requests. Parts leave when they are made.

pub(crate) mod messages;

use crate::base::clock;
use crate::base::ledger::Ledger;
use crate::engine::deployment::ticket::Ticket;
use crate::engine::room;
use crate::engine::server_state::ServerState;
use crate::protocols::connection::upload::Upload;
use crate::protocols::exchange::{Answered, Computed, Computing};
use crate::protocols::grpc::frame;
use crate::protocols::grpc::frame::{MessagePieces, PlainMessage};
use crate::protocols::grpc::head::longest_allowed;
use crate::protocols::grpc::infer::{GrpcInfer, ModelAndId, OfStream};
use crate::protocols::grpc::parts::error_message;
use crate::protocols::grpc::reply;
use crate::protocols::grpc::reply::Piece;
use crate::protocols::grpc::stream::messages::{Bounds, Messages, Packed, looks, unless_draining};
use crate::protocols::grpc::waiting::{Counted, Waiting};
use crate::protocols::reply::failure_log;
use crate::protocols::reply::parts::body::OpenAnswer;
use crate::protocols::reply::payload::Reply;
use crate::protocols::reply::payload::span::{Followers, ServerSpan};
use crate::protocols::reply::request_id::RequestId;
use crate::protocols::request::compression::Coding;
use crate::protocols::request::headers as request_headers;
use crate::protocols::request::terms::RequestTerms;
use crate::values::answer::Failure;
use crate::values::metadata::Metadata;
use bytes::Bytes;
use http_body::Body as _;
use hyper::StatusCode;
use hyper::header::HeaderMap;
use jitney_core::tables::outcome::Outcome;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout_at};

/// The path of a stream.
pub(super) const STREAM: &str = "/inference.GRPCInferenceService/ModelStreamInfer";
/// Requests of one stream that are computed at once; it is then read no further.
const AT_ONCE: usize = 64;

/// What is written in the order of the requests: a whole answer, or a failure that ends the stream. It is empty for a request
/// that is answered in parts.
type Turn = Result<Vec<Counted>, Failure>;

/// How the requests of a stream are to be answered.
#[derive(Clone)]
struct Terms {
    request: RequestTerms,
    /// The client would rather have the stream end with an error than find it in a message.
    is_strict: bool,
    /// With the stream's own id.
    metadata: Metadata,
    headers: Arc<HeaderMap>,
}

/// A stream as each of its requests knows it.
#[derive(Clone)]
struct StreamContext {
    state: Arc<ServerState>,
    ledger: Ledger,
    waiting: Waiting,
    /// What the client gets.
    pieces: mpsc::Sender<Piece>,
    /// Takes a failure that ends the stream at once.
    failed: mpsc::Sender<Failure>,
}

/// `ModelStreamInfer`.
pub(crate) fn answer(
    state: Arc<ServerState>,
    body: Upload,
    headers: &HeaderMap,
    request: RequestTerms,
    coding: Option<Coding>,
    id: &RequestId,
    ledger: Ledger,
) -> Reply {
    let is_strict = headers.get("triton_grpc_error").is_some_and(|value| value == "true");
    let metadata = request_headers::metadata(id, headers, state.keys.as_deref(), None);
    let terms = Terms { request, is_strict, metadata, headers: Arc::new(headers.clone()) };
    let (pieces, sent) = mpsc::channel(2);
    let (failed, mut failure) = mpsc::channel(1);
    let running = tokio::spawn(async move {
        let (started, turns) = mpsc::channel(AT_ONCE);
        let waiting = Waiting::new(ledger.clone());
        let context = StreamContext { state, ledger, waiting, pieces, failed };
        let all = async {
            let compute = compute_all(&context, body, coding, &terms, started);
            let (computed, ()) = tokio::join!(compute, write(&context, turns));
            computed.err()
        };
        let ended = tokio::select! {
            biased;
            failure = failure.recv() => failure,
            ended = all => ended,
        };
        // All may have ended with the failure.
        let ended = failure.try_recv().ok().or(ended);
        let trailers = ended.map_or_else(reply::ok, |failure| reply::failed(&failure));
        let _ = context.pieces.send(Piece::End(trailers)).await;
    });
    reply::stream(sent, running.abort_handle())
}

/// Writes whole answers in the order of their requests.
async fn write(context: &StreamContext, mut turns: mpsc::Receiver<oneshot::Receiver<Turn>>) {
    while let Some(turn) = turns.recv().await {
        match turn.await.unwrap_or_else(|_| Err(server_failed())) {
            Ok(messages) if messages.is_empty() => {}
            Ok(messages) => {
                // Fails only while this task is being aborted.
                let _ = context.pieces.send(Piece::Messages(messages)).await;
            }
            Err(failure) => {
                let _ = context.failed.try_send(failure);
                return;
            }
        }
    }
}

fn server_failed() -> Failure {
    Failure::new(Outcome::Internal, "the server failed on this request")
}

/// Computes what comes, until the stream, its time or the server ends, and then until all requests are answered.
async fn compute_all(
    context: &StreamContext,
    body: Upload,
    coding: Option<Coding>,
    terms: &Terms,
    turns: mpsc::Sender<oneshot::Receiver<Turn>>,
) -> Result<(), Failure> {
    // Dropping them cancels the requests.
    let mut running = JoinSet::new();
    let mut ended = read(context, body, coding, terms, turns, &mut running).await;
    while let Some(task) = running.join_next().await {
        ended = ended.and(of_task(task));
    }
    ended.inspect_err(|failure| failure_log::tell(&terms.metadata.request_id.text(), None, failure))
}

fn of_task(ended: Result<(), JoinError>) -> Result<(), Failure> {
    ended.map_err(|_| server_failed())
}

/// Starts what comes.
async fn read(
    context: &StreamContext,
    body: Upload,
    coding: Option<Coding>,
    terms: &Terms,
    turns: mpsc::Sender<oneshot::Receiver<Turn>>,
    running: &mut JoinSet<()>,
) -> Result<(), Failure> {
    let state = &context.state;
    let end = terms.request.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let bounds = Bounds { most: state.options.max_body_bytes, allowed: longest_allowed(state) };
    let mut messages = Messages::new(state, body, coding, bounds).counted_in(&state.unknown);
    let mut looks = looks();
    loop {
        // A place first: what is read is computed. A request in parts gives its turn away before it has ended.
        let Ok(turn) = turns.reserve().await else { return Ok(()) };
        while running.len() >= AT_ONCE
            && let Some(ended) = running.join_next().await
        {
            of_task(ended)?;
        }
        while let Some(ended) = running.try_join_next() {
            of_task(ended)?;
        }
        let late = end.unwrap_or_else(|| clock::after(Instant::now(), Duration::MAX));
        let next = async {
            context.waiting.room().await;
            messages.next().await
        };
        let message = unless_draining(state, &mut looks, timeout_at(late, next)).await.and_then(|message| {
            message.map_err(|_| Failure::new(Outcome::DeadlineExceeded, "the time of the stream is over"))
        });
        // A message that was half here ends with the stream.
        let message = message.inspect_err(|failure| messages.end(failure.outcome))?;
        let Some(message) = message? else { return Ok(()) };
        let timeout = end.map(|end| end.saturating_duration_since(Instant::now()));
        let terms = Terms { request: RequestTerms { timeout, ..terms.request }, ..terms.clone() };
        let (answered, answer) = oneshot::channel();
        running.spawn(run(context.clone(), message, terms, answered));
        turn.send(answer);
    }
}

/// Answers one request.
async fn run(context: StreamContext, message: Packed, terms: Terms, turn: oneshot::Sender<Turn>) {
    let _asked = context.waiting.ask(message.message.len());
    // Whole answers are counted where they are computed: it may be long before those before them have been taken. Sending them
    // fails only if the stream has ended.
    match compute(&context.state, &context.ledger, message, &terms).await {
        Ok(Response::Whole(pieces)) => drop(turn.send(Ok(context.waiting.add(pieces)))),
        Ok(Response::InParts(parts)) => {
            drop(turn.send(Ok(vec![])));
            if let Err(failure) = parts.send(&context).await {
                let _ = context.failed.try_send(failure);
            }
        }
        Err(failure) => drop(turn.send(Err(failure))),
    }
}

/// Says in the access log how a message was answered. The status of the stream has been sent before.
fn end_line(followers: &mut Followers, ticket: &Ticket) {
    followers.end(ticket, StatusCode::OK.as_u16());
}

/// The answer to one request of a stream.
enum Response {
    Whole(MessagePieces),
    InParts(ResponseParts),
}

/// An answer of a message for each part.
struct ResponseParts {
    answer: Box<OpenAnswer>,
    followers: Followers,
    /// Has the failure that ends the stream, if there is one.
    failure: Option<Arc<OnceLock<Failure>>>,
}

impl ResponseParts {
    /// Sends each part when it is made; a failure ends the stream.
    async fn send(self, context: &StreamContext) -> Result<(), Failure> {
        let ResponseParts { answer, mut followers, failure } = self;
        let (mut body, ending) = answer.body(None);
        while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            // An answer that takes long has nothing to say in between.
            let Some(data) = frame.into_data().ok().filter(|data| !data.is_empty()) else { continue };
            followers.add_answer_bytes(data.len());
            let messages = context.waiting.add(MessagePieces::from_iter([data]));
            if context.pieces.send(Piece::Messages(messages)).await.is_err() {
                return Ok(());
            }
        }
        ending.take().iter().for_each(|ticket| end_line(&mut followers, ticket));
        failure.and_then(|failure| failure.get().cloned()).map_or(Ok(()), Err)
    }
}

/// What follows one message, and its metadata: each message is one request, with its own line and its own span.
fn follow(state: &ServerState, ledger: &Ledger, terms: &Terms) -> (Followers, Metadata) {
    let line = state.access_log.as_ref().and_then(|log| log.begin(ledger.peer));
    let of_message = |traces| ServerSpan::of_message(traces, &terms.headers, &terms.metadata.request_id, STREAM);
    let span = state.traces.as_ref().and_then(of_message);
    let metadata = match &span {
        Some(span) => terms.metadata.with_note(span.note().clone()),
        None => terms.metadata.clone(),
    };
    (Followers { line, span }, metadata)
}

/// The answer to one message. A failure ends the stream.
async fn compute(state: &ServerState, ledger: &Ledger, message: Packed, terms: &Terms) -> Result<Response, Failure> {
    let request_id = terms.metadata.request_id.text();
    let (mut followers, metadata) = follow(state, ledger, terms);
    if let Some(line) = &mut followers.line {
        line.describe(&request_id, "grpc", None);
        line.set_route("POST", STREAM);
        line.request_bytes().store(message.message.len() as u64, Ordering::Relaxed);
    }
    let PlainMessage { message, received } = match message.plain(state).await {
        Ok(plain) => plain,
        Err(failure) => {
            failure_log::tell(&request_id, None, &failure);
            end_line(&mut followers, &state.unknown.refuse(failure.outcome));
            return Err(failure);
        }
    };
    let of_stream = OfStream { whose: OnceLock::new(), failure: terms.is_strict.then(Arc::default) };
    let infer = GrpcInfer { state, received: &ledger.received, of_stream: Some(&of_stream) };
    let (failure, ticket) = match room::check(ledger, &state.options) {
        Ok(()) => {
            let headers = &*terms.headers;
            let began = Instant::now();
            let computing = Computing { state, ledger, active: None, metadata, headers, began };
            // The message itself is freed when it has been decoded.
            match computing.answer(&infer, &None, message, received, terms.request).await {
                Ok(Answered::Whole(Computed { output, ticket })) => {
                    end_line(&mut followers, &ticket);
                    followers.add_answer_bytes(output.iter().map(Bytes::len).sum());
                    return Ok(Response::Whole(output));
                }
                Ok(Answered::InParts(answer)) => {
                    return Ok(Response::InParts(ResponseParts { answer, followers, failure: of_stream.failure }));
                }
                Err(refused) => refused,
            }
        }
        Err(failure) => {
            let ticket = state.unknown.refuse(failure.outcome);
            of_stream.whose.get_or_init(|| ModelAndId::of_message(message));
            (failure, ticket)
        }
    };
    end_line(&mut followers, &ticket);
    failure_log::tell(&request_id, ticket.deployment(), &failure);
    if terms.is_strict {
        return Err(failure);
    }
    drop(ticket);
    let ModelAndId { model, id } = of_stream.whose.into_inner().unwrap_or_default();
    frame::message(&error_message(model, id, failure.detail)).map(Response::Whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ledger::Account;
    use crate::engine::deployment::{Deployment, Inbound};
    use crate::open_inference::messages::inference::model_infer_request::InferInputTensor;
    use crate::open_inference::messages::inference::{ModelInferRequest, ModelStreamInferResponse};
    use crate::open_inference::tests::manifest;
    use crate::protocols::grpc::frame::PREFIX;
    use crate::values::call_id::CallId;
    use jitney_core::request::Priority;
    use prost::Message;
    use serde_json::json;

    /// While a request of a stream waits for the model, its message has been freed, and an error still names its model and its id.
    #[tokio::test]
    async fn a_request_that_waits_keeps_no_message() {
        let state = Arc::new(ServerState::for_test(64 << 20));
        let input =
            json!({ "kind": "arrays", "arrays": [{ "name": "a", "dtype": "uint8", "shape": [2] }], "schema": true });
        let (inbound, mut engine) = mpsc::unbounded_channel();
        let manifest = Arc::new(manifest(input.clone(), input, json!({})));
        state.serve([Deployment::new(manifest, inbound, &state.telemetry)].into_iter().collect());
        let input = InferInputTensor {
            name: "a".into(),
            datatype: "UINT8".into(),
            shape: vec![1, 2],
            ..InferInputTensor::default()
        };
        let message = ModelInferRequest {
            model_name: "m".into(),
            id: "mine".repeat(500_000),
            inputs: vec![input],
            raw_input_contents: vec![Bytes::from_static(b"ab")],
            ..ModelInferRequest::default()
        };
        let message = Bytes::from(message.encode_to_vec());
        let packed = Packed {
            message: message.clone().into(),
            coding: None,
            is_compressed: false,
            most: 64 << 20,
            received: Account::default(),
            arriving: None,
        };
        let request = RequestTerms { timeout: None, is_given: false, priority: Priority::Normal };
        let terms =
            Terms { request, is_strict: false, metadata: Metadata::of_id(CallId::default()), headers: Arc::default() };
        let ledger = state.ledger.connection();
        let answer = tokio::spawn(async move { compute(&state, &ledger, packed, &terms).await });
        let Some(Inbound::Submit(_, reply)) = engine.recv().await else { panic!("an item") };
        assert!(message.is_unique(), "the stream keeps the message");
        drop(reply);
        let Ok(Response::Whole(pieces)) = answer.await.unwrap() else { panic!("a message") };
        let response = ModelStreamInferResponse::decode(&pieces.concat()[PREFIX..]).unwrap();
        let whose = response.infer_response.unwrap();
        assert_eq!((whose.model_name.as_str(), whose.id.len()), ("m", 2_000_000));
        assert!(!response.error_message.is_empty());
    }
}
