//! Streams of gRPC: how messages arrive, and `ModelStreamInfer`, which answers each message in order.

use crate::base::access_log::line::AccessLine;
use crate::base::clock;
use crate::base::ledger::{Account, CountedBytes, Ledger};
use crate::engine::deployment::ticket::{Arriving, OutcomeCounts, Ticket};
use crate::engine::room;
use crate::engine::server_state::ServerState;
use crate::open_inference::messages::inference::{ModelInferResponse, ModelStreamInferResponse};
use crate::protocols::connection::least_rate::LeastRate;
use crate::protocols::connection::upload::Upload;
use crate::protocols::exchange::{Computed, Computing};
use crate::protocols::grpc::frame;
use crate::protocols::grpc::frame::{MessagePieces, PREFIX, PlainMessage};
use crate::protocols::grpc::head::longest_allowed;
use crate::protocols::grpc::infer::{GrpcInfer, ModelAndId};
use crate::protocols::grpc::reply;
use crate::protocols::grpc::reply::Piece;
use crate::protocols::grpc::waiting::{Counted, Waiting};
use crate::protocols::reply::failure_log;
use crate::protocols::reply::payload::Reply;
use crate::protocols::reply::request_id::RequestId;
use crate::protocols::request::body;
use crate::protocols::request::compression::Coding;
use crate::protocols::request::headers as request_headers;
use crate::protocols::request::terms::RequestTerms;
use crate::values::answer::Failure;
use crate::values::chunks::Chunks;
use crate::values::metadata::Metadata;
use bytes::{Buf, Bytes, BytesMut};
use http_body::Body as _;
use hyper::StatusCode;
use hyper::body::Frame;
use hyper::header::HeaderMap;
use jitney_core::tables::outcome::Outcome;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, timeout_at};

/// Requests of one stream that are computed at once; it is then read no further.
const AT_ONCE: usize = 64;

/// How often a stream looks whether the server is ending.
const LOOK: Duration = Duration::from_millis(500);

/// What the messages of a stream may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Bytes of one, also inflated.
    pub(crate) most: u64,
    /// How long one may take to arrive.
    pub(crate) allowed: Duration,
}

/// A message before it is decompressed. It may also be uncompressed.
pub(crate) struct Packed {
    message: Chunks,
    coding: Option<Coding>,
    is_compressed: bool,
    most: u64,
    /// Where it counts when it has been inflated.
    received: Account,
    /// Counts the request until it has been decoded; `None` if messages ask for no items.
    arriving: Option<ArrivingMessage>,
}

type ArrivingMessage = Arriving<Arc<OutcomeCounts>>;

impl Packed {
    /// The message itself.
    pub(crate) async fn plain(self, state: &ServerState) -> Result<PlainMessage, Failure> {
        let Packed { message, coding, is_compressed, most, received, arriving } = self;
        let plain = frame::plain(message, is_compressed, coding, most, state, &received).await;
        arriving.into_iter().for_each(Arriving::end);
        plain
    }
}

/// The messages of a stream, bounded in size, in memory, and in the time that one of them takes.
pub(crate) struct Messages<'a> {
    state: &'a ServerState,
    body: Upload,
    coding: Option<Coding>,
    bounds: Bounds,
    buffer: BytesMut,
    held: CountedBytes,
    /// Where messages are counted; `None` if they ask for no items.
    counts: Option<Arc<OutcomeCounts>>,
    /// Counts the message that has begun to come.
    begun: Option<ArrivingMessage>,
}

impl<'a> Messages<'a> {
    pub(crate) fn new(state: &'a ServerState, body: Upload, coding: Option<Coding>, bounds: Bounds) -> Messages<'a> {
        let held = body.account().hold(0);
        Messages { state, body, coding, bounds, buffer: BytesMut::new(), held, counts: None, begun: None }
    }

    /// The same where each message is a request of items, which are counted there.
    pub(crate) fn counted_in(mut self, counts: &Arc<OutcomeCounts>) -> Messages<'a> {
        self.counts = Some(counts.clone());
        self
    }

    /// Counts the message whose first bytes are here.
    fn begin(&mut self) {
        if !self.buffer.is_empty() && self.begun.is_none() {
            self.begun = self.counts.as_ref().map(OutcomeCounts::arrive_for_task);
        }
    }

    /// Counts the message that has begun: the stream ends with this outcome. A client that leaves between two messages has
    /// cancelled nothing.
    fn end(&mut self, outcome: Outcome) {
        if let Some(begun) = self.begun.take()
            && outcome != Outcome::Cancelled
            && let Some(counts) = &self.counts
        {
            begun.end();
            drop(counts.refuse(outcome));
        }
    }

    /// The next message; `None` at the end of the stream. Its time begins anew when this is dropped and called again.
    pub(crate) async fn next(&mut self) -> Result<Option<Packed>, Failure> {
        let message = self.read_next().await;
        if let Err(failure) = &message {
            self.end(failure.outcome);
        }
        message
    }

    async fn read_next(&mut self) -> Result<Option<Packed>, Failure> {
        let options = &self.state.options;
        let Bounds { most, allowed } = self.bounds;
        let silence = options.body_timeout();
        // The end of its time, and the rate at which it comes, once it has begun.
        let mut begun: Option<(Instant, LeastRate)> = None;
        loop {
            if let Some(start) = self.buffer.first_chunk() {
                let (is_compressed, length) = frame::prefix(*start)?;
                if length as u64 > most {
                    let remedy = body::remedy(most, self.state);
                    let detail = format!("a message has {length} bytes, the limit is {most}; {remedy}");
                    return Err(Failure::new(Outcome::TooLarge, detail));
                }
                if self.buffer.len() >= PREFIX + length {
                    self.buffer.advance(PREFIX);
                    let message = self.buffer.split_to(length).freeze();
                    self.held = self.body.account().hold(self.buffer.len());
                    let arriving = self.begun.take();
                    self.begin();
                    let (message, coding, received) = (message.into(), self.coding, self.body.account().clone());
                    return Ok(Some(Packed { message, coding, is_compressed, most, received, arriving }));
                }
            }
            let upload = &mut self.body;
            let frame = poll_fn(|cx| Pin::new(&mut *upload).poll_frame(cx));
            // Between messages a stream may be silent for any time.
            let frame = if self.buffer.is_empty() {
                frame.await
            } else {
                let start = || {
                    let now = Instant::now();
                    (clock::after(now, allowed), LeastRate::new(silence))
                };
                let (end, rate) = begun.get_or_insert_with(start);
                timeout_at(rate.end().min(*end), frame).await.map_err(|_| too_slow(rate, allowed, *end))?
            };
            match frame {
                None if self.buffer.is_empty() => return Ok(None),
                None => return Err(frame::malformed("the stream ends inside of it")),
                Some(Err(error)) => {
                    return Err(Failure::new(Outcome::Cancelled, format!("the stream was broken off: {error}")));
                }
                Some(Ok(frame)) => {
                    let Ok(data) = Frame::into_data(frame) else { continue };
                    begun.iter_mut().for_each(|(_, rate)| rate.add(data.len() as u64));
                    self.buffer.extend_from_slice(&data);
                    self.begin();
                    room::receive(&mut self.held, data.len(), options)?;
                }
            }
        }
    }
}

fn too_slow(rate: &LeastRate, allowed: Duration, end: Instant) -> Failure {
    let detail = if end <= rate.end() {
        format!("a message took longer than the {} s that it may take; send it faster", allowed.as_secs_f64())
    } else {
        format!("a message {}; send it faster", rate.describe())
    };
    Failure::new(Outcome::BodyTimeout, detail)
}

/// What is waited for, or the word that the server ends: a stream that waits would keep it from that.
pub(crate) async fn unless_draining<T>(
    state: &ServerState,
    looks: &mut Interval,
    waiting: impl Future<Output = T>,
) -> Result<T, Failure> {
    // Not begun anew at each look: what it has waited for counts.
    let mut waiting = pin!(waiting);
    loop {
        tokio::select! {
            result = &mut waiting => return Ok(result),
            _ = looks.tick() => if state.readiness().draining {
                return Err(Failure::new(Outcome::Draining, "the server is shutting down; open a stream to another"));
            },
        }
    }
}

/// When such a stream looks.
pub(crate) fn looks() -> Interval {
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks
}

/// One request that is being computed; dropping it cancels it.
struct RunningRequest(JoinHandle<Result<Vec<Counted>, Failure>>);

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.0.abort();
    }
}

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
    let metadata = request_headers::metadata(id, headers, state.keys.as_deref());
    let terms = Terms { request, is_strict, metadata, headers: Arc::new(headers.clone()) };
    let end = request.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let (pieces, sent) = mpsc::channel(2);
    let running = tokio::spawn(async move {
        let (started, mut computed) = mpsc::channel(AT_ONCE);
        let read = read(&state, body, coding, &terms, end, started, ledger);
        let write = async {
            while let Some(RunningRequest(running)) = computed.recv().await.as_mut() {
                let result = running
                    .await
                    .unwrap_or_else(|_| Err(Failure::new(Outcome::Internal, "the server failed on this request")));
                match result {
                    Ok(message) => {
                        for piece in message {
                            // An error means that the client has left. Then this task will be aborted.
                            let _ = pieces.send(Piece::Counted(piece)).await;
                        }
                    }
                    Err(failure) => return Some(failure),
                }
            }
            None
        };
        // The failure of a stream is sent after the answers that come before it.
        let (mut read, mut write) = (std::pin::pin!(read), std::pin::pin!(write));
        let ended = tokio::select! {
            written = &mut write => written,
            read = &mut read => write.await.or(read.err()),
        };
        ended.iter().for_each(|failure| failure_log::tell(&terms.metadata.request_id.text(), None, failure));
        let trailers = ended.map_or_else(reply::ok, |failure| reply::failed(&failure));
        let _ = pieces.send(Piece::End(trailers)).await;
    });
    reply::stream(sent, running.abort_handle())
}

/// Starts what comes, until the stream, its time or the server ends.
async fn read(
    state: &Arc<ServerState>,
    body: Upload,
    coding: Option<Coding>,
    terms: &Terms,
    end: Option<Instant>,
    started: mpsc::Sender<RunningRequest>,
    ledger: Ledger,
) -> Result<(), Failure> {
    let bounds = Bounds { most: state.options.max_body_bytes, allowed: longest_allowed(state) };
    let mut messages = Messages::new(state, body, coding, bounds).counted_in(&state.unknown);
    let mut looks = looks();
    let waiting = Waiting::new(ledger.clone());
    loop {
        // A place first: what is read is computed.
        let Ok(place) = started.reserve().await else { return Ok(()) };
        let late = end.unwrap_or_else(|| clock::after(Instant::now(), Duration::MAX));
        let next = async {
            waiting.room().await;
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
        let (state, ledger, waiting) = (state.clone(), ledger.clone(), waiting.clone());
        let asked = waiting.ask(message.message.len());
        let running = async move {
            let _asked = asked;
            // Counted where it is computed: it may be long before those before it have been taken.
            compute(state, ledger, message, terms).await.map(|pieces| waiting.add(pieces))
        };
        place.send(RunningRequest(tokio::spawn(running)));
    }
}

/// Says in the access log how a message was answered. The status of the stream has been sent before.
fn end_line(line: Option<Box<AccessLine>>, ticket: &Ticket, pieces: &[Bytes]) {
    if let Some(mut line) = line {
        line.end(ticket.ended(StatusCode::OK.as_u16()));
        line.add_answer_bytes(pieces.iter().map(Bytes::len).sum());
    }
}

/// The answer to one request, as a message of the stream.
async fn compute(
    state: Arc<ServerState>,
    ledger: Ledger,
    message: Packed,
    terms: Terms,
) -> Result<MessagePieces, Failure> {
    let mut line = state.access_log.as_ref().and_then(|log| log.begin());
    if let Some(line) = &mut line {
        line.describe(&terms.metadata.request_id.text(), "grpc", None);
        line.set_route("POST", "/inference.GRPCInferenceService/ModelStreamInfer");
        line.request_bytes().store(message.message.len() as u64, Ordering::Relaxed);
    }
    let plain = message.plain(&state).await;
    let PlainMessage { message, received } = match plain {
        Ok(plain) => plain,
        Err(failure) => {
            end_line(line, &state.unknown.refuse(failure.outcome), &[]);
            return Err(failure);
        }
    };
    let model_and_id = OnceLock::new();
    let infer = GrpcInfer { state: &state, received: &ledger.received, of_stream: Some(&model_and_id) };
    let (failure, ticket) = match room::check(&ledger, &state.options) {
        Ok(()) => {
            let (metadata, headers) = (terms.metadata.clone(), &*terms.headers);
            let computing = Computing { state: &state, ledger: &ledger, active: None, metadata, headers };
            // The message itself is freed when it has been decoded.
            match computing.compute(&infer, &None, message, received, terms.request).await {
                Ok(Computed { output, ticket }) => {
                    end_line(line, &ticket, &output);
                    return Ok(output);
                }
                Err(refused) => refused,
            }
        }
        Err(failure) => {
            let ticket = state.unknown.refuse(failure.outcome);
            model_and_id.get_or_init(|| ModelAndId::of_message(message));
            (failure, ticket)
        }
    };
    end_line(line, &ticket, &[]);
    if terms.is_strict {
        return Err(failure);
    }
    failure_log::tell(&terms.metadata.request_id.text(), ticket.deployment(), &failure);
    drop(ticket);
    let ModelAndId { model: model_name, id } = model_and_id.into_inner().unwrap_or_default();
    let whose = ModelInferResponse { model_name, id, ..ModelInferResponse::default() };
    let response = ModelStreamInferResponse { error_message: failure.detail, infer_response: Some(whose) };
    frame::message(&response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::deployment::{Deployment, Inbound};
    use crate::open_inference::messages::inference::ModelInferRequest;
    use crate::open_inference::messages::inference::model_infer_request::InferInputTensor;
    use crate::open_inference::tests::manifest;
    use crate::values::call_id::CallId;
    use bytes::Bytes;
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
        let answer = tokio::spawn(compute(state.clone(), state.ledger.connection(), packed, terms));
        let Some(Inbound::Submit(_, reply)) = engine.recv().await else { panic!("an item") };
        assert!(message.is_unique(), "the stream keeps the message");
        drop(reply);
        let pieces = answer.await.unwrap().unwrap().concat();
        let response = ModelStreamInferResponse::decode(&pieces[PREFIX..]).unwrap();
        let whose = response.infer_response.unwrap();
        assert_eq!((whose.model_name.as_str(), whose.id.len()), ("m", 2_000_000));
        assert!(!response.error_message.is_empty());
    }
}
