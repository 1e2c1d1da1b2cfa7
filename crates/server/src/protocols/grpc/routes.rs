//! gRPC: whatever comes with a content-type of `application/grpc`. The methods of the Open Inference Protocol, gRPC's own
//! protocol for health, and reflection.

use crate::engine::server_state::ServerState;
use crate::open_inference::messages::inference as message;
use crate::protocols::connection::limits::QUESTION_BYTES;
use crate::protocols::connection::upload::Upload;
use crate::protocols::exchange::Exchange;
use crate::protocols::grpc::head::SERVICE;
use crate::protocols::grpc::infer::GrpcInfer;
use crate::protocols::grpc::{frame, head, health, reflection, reply, stream};
use crate::protocols::open_inference::describe;
use crate::protocols::reply::payload::Reply;
use crate::protocols::reply::problem::Problem;
use crate::protocols::request::body;
use crate::protocols::request::compression::Coding;
use crate::protocols::request::headers;
use crate::protocols::request::media::check_transfer_encoding;
use crate::protocols::request::terms::RequestTerms;
use crate::values::answer::Failure;
use hyper::header::HeaderMap;
use jitney_core::tables::outcome::Outcome;
use prost::Message;
use std::time::Duration;

/// Answers one call.
pub(crate) async fn answer(exchange: Exchange<'_>, body: &mut Upload) -> Result<Reply, Problem> {
    let Exchange { state, head, id, active, .. } = exchange;
    if let Err(failure) = head::check(head.version, &head.headers) {
        return Err(Problem::from(failure).instead_of(body));
    }
    let path = head.uri.path();
    let (service, method) = path.strip_prefix('/').and_then(|path| path.rsplit_once('/')).unwrap_or_default();
    let infer = GrpcInfer { state, received: &active.ledger().received, of_stream: None };
    match (service, method) {
        (SERVICE, "ModelInfer") => return Ok(exchange.answer(&infer, body).await),
        (SERVICE, "ModelStreamInfer") => {
            let (terms, coding) = match exchange.read_head(&infer) {
                Ok(read) => read,
                Err(failure) => return Err(Problem::from(failure).instead_of(body)),
            };
            return Ok(stream::answer(
                state.clone(),
                body.take(),
                &head.headers,
                terms,
                coding,
                id,
                active.ledger().clone(),
            ));
        }
        _ => {}
    }
    let call = match Question::new(state, &head.headers) {
        Ok(question) => question,
        Err(failure) => return Err(Problem::from(failure).instead_of(body)),
    };
    match (service, method) {
        (SERVICE, method) => call.describe(method, body).await,
        (health::SERVICE, "Check") => {
            let answer = |state: &ServerState, asked| {
                health::check_key(state, &head.headers, &asked)?;
                health::check(state, &asked)
            };
            call.unary(body, answer).await
        }
        (health::SERVICE, "Watch") => {
            let asked = call.receive(body).await?;
            health::check_key(state, &head.headers, &asked)?;
            Ok(health::watch(state.clone(), asked))
        }
        (reflection::V1 | reflection::V1_ALPHA, "ServerReflectionInfo") => {
            Ok(reflection::answer(state.clone(), body.take(), call.coding))
        }
        _ => Err(unknown(path).instead_of(body)),
    }
}

fn unknown(path: &str) -> Problem {
    let shown = headers::quoted(path.as_bytes());
    let what = format!("{shown} is not a method here; {SERVICE}, {} and reflection are served", health::SERVICE);
    Problem::new(Outcome::MethodNotAllowed, what)
}

/// A call that asks for what the front knows, and whose message has not been read.
struct Question<'a> {
    state: &'a ServerState,
    timeout: Option<Duration>,
    coding: Option<Coding>,
}

impl<'a> Question<'a> {
    fn new(state: &'a ServerState, headers: &HeaderMap) -> Result<Question<'a>, Failure> {
        check_transfer_encoding(headers)?;
        let timeout = RequestTerms::new(headers, head::timeout(headers)?)?.timeout;
        Ok(Question { state, timeout, coding: frame::coding(headers)? })
    }

    /// Its message.
    async fn receive<M: Message + Default>(self, body: &mut Upload) -> Result<M, Problem> {
        let Question { state, timeout, coding, .. } = self;
        let received = body.account().clone();
        let body = body::question(body, state, timeout).await?;
        let mut message = frame::only(body, coding, QUESTION_BYTES, state, &received).await?.message;
        Ok(frame::decode(message.contiguous().clone())?)
    }

    /// A method that answers out of what the front knows.
    async fn unary<M, A>(
        self,
        body: &mut Upload,
        answer: impl FnOnce(&ServerState, M) -> Result<A, Failure>,
    ) -> Result<Reply, Problem>
    where
        M: Message + Default,
        A: Message,
    {
        let state = self.state;
        let asked = self.receive(body).await?;
        let pieces = frame::message(&answer(state, asked)?)?;
        Ok(reply::message(pieces))
    }

    async fn describe(self, method: &str, body: &mut Upload) -> Result<Reply, Problem> {
        use message as m;
        match method {
            "ServerLive" => {
                self.unary(body, |_, _: m::ServerLiveRequest| Ok(m::ServerLiveResponse { live: true })).await
            }
            "ServerReady" => {
                let answer = |state: &ServerState, _: m::ServerReadyRequest| {
                    Ok(m::ServerReadyResponse { ready: state.readiness().ready })
                };
                self.unary(body, answer).await
            }
            "ModelReady" => {
                let answer = |state: &ServerState, asked: m::ModelReadyRequest| {
                    // What is not there is not ready: clients ask this to find out.
                    let deployment = describe::find(state, &asked.name, &asked.version);
                    let ready = deployment.is_ok_and(|deployment| describe::is_ready(state, &deployment));
                    Ok(m::ModelReadyResponse { ready })
                };
                self.unary(body, answer).await
            }
            "ServerMetadata" => self.unary(body, |_, _: m::ServerMetadataRequest| Ok(describe::server())).await,
            "ModelMetadata" => {
                let answer = |state: &ServerState, asked: m::ModelMetadataRequest| {
                    let deployment = describe::find(state, &asked.name, &asked.version)?;
                    Ok(describe::model(&deployment))
                };
                self.unary(body, answer).await
            }
            "ModelConfig" => {
                let answer = |state: &ServerState, asked: m::ModelConfigRequest| {
                    let deployment = describe::find(state, &asked.name, &asked.version)?;
                    Ok(m::ModelConfigResponse { config: Some(describe::config(&deployment)) })
                };
                self.unary(body, answer).await
            }
            "ModelStatistics" => {
                let answer = |state: &ServerState, asked: m::ModelStatisticsRequest| {
                    describe::all_statistics(state, &asked.name, &asked.version)
                };
                self.unary(body, answer).await
            }
            "RepositoryIndex" => {
                let answer =
                    |state: &ServerState, asked: m::RepositoryIndexRequest| Ok(describe::index(state, asked.ready));
                self.unary(body, answer).await
            }
            "RepositoryModelLoad" | "RepositoryModelUnload" => {
                Err(Problem::from(describe::no_control()).instead_of(body))
            }
            method if method.contains("SharedMemory") => {
                let what = describe::no_shared_memory().detail;
                Err(Problem::new(Outcome::MethodNotAllowed, what).instead_of(body))
            }
            "TraceSetting" | "LogSettings" => {
                let what = "this server has no settings of traces and logs to ask for or to change; its log has the level that it was started with";
                Err(Problem::new(Outcome::MethodNotAllowed, what).instead_of(body))
            }
            method => Err(unknown(&format!("/{SERVICE}/{method}")).instead_of(body)),
        }
    }
}

/// Methods that compute items.
pub(crate) fn is_call(path: &str) -> bool {
    let method = path.strip_prefix('/').and_then(|path| path.strip_prefix(SERVICE));
    matches!(method, Some("/ModelInfer" | "/ModelStreamInfer"))
}

/// The method whose messages are requests.
pub(crate) fn is_stream(path: &str) -> bool {
    path == stream::STREAM
}

/// Methods that answer without a key.
pub(crate) fn is_probe(path: &str) -> bool {
    matches!(path, "/inference.GRPCInferenceService/ServerLive" | "/inference.GRPCInferenceService/ServerReady")
        || path.starts_with("/grpc.health.v1.Health/")
}
