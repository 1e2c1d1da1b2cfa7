//! gRPC's own protocol for health: the server's under no name, and each model's under its own.

use crate::engine::server_state::ServerState;
use crate::open_inference::messages::health::health_check_response::ServingStatus;
use crate::open_inference::messages::health::{HealthCheckRequest, HealthCheckResponse};
use crate::open_inference::tensor::quoted;
use crate::protocols::grpc::frame;
use crate::protocols::grpc::head::SERVICE as INFERENCE;
use crate::protocols::grpc::reply;
use crate::protocols::grpc::reply::Piece;
use crate::protocols::grpc::stream::messages::looks;
use crate::protocols::open_inference::describe;
use crate::protocols::reply::payload::Reply;
use crate::protocols::request::api_key;
use crate::values::answer::Failure;
use hyper::header::HeaderMap;
use jitney_core::tables::outcome::Outcome;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Its name.
pub(crate) const SERVICE: &str = "grpc.health.v1.Health";

/// Whether a service answers; `None` if there is none of this name.
fn status(state: &ServerState, service: &str) -> Option<ServingStatus> {
    let ready = match service {
        "" | INFERENCE => state.readiness().ready,
        model => describe::is_ready(state, &*state.deployment(model)?),
    };
    Some(if ready { ServingStatus::Serving } else { ServingStatus::NotServing })
}

/// Refuses to say without a key whether there is a model of a name. Probes ask for the server, and have none.
pub(crate) fn check_key(state: &ServerState, headers: &HeaderMap, asked: &HealthCheckRequest) -> Result<(), Failure> {
    if matches!(&*asked.service, "" | INFERENCE) { Ok(()) } else { api_key::check(state, headers) }
}

/// The status now.
pub(crate) fn check(state: &ServerState, asked: &HealthCheckRequest) -> Result<HealthCheckResponse, Failure> {
    let status = status(state, &asked.service).ok_or_else(|| {
        let detail = format!("there is no service {}; the names of models are services", quoted(&asked.service));
        Failure::new(Outcome::NotFound, detail)
    })?;
    Ok(HealthCheckResponse { status: status.into() })
}

/// The status now, and whenever it changes, until the client has heard enough or the server ends.
pub(crate) fn watch(state: Arc<ServerState>, asked: HealthCheckRequest) -> Reply {
    let (pieces, sent) = mpsc::channel(1);
    let watching = tokio::spawn(async move {
        let mut looks = looks();
        let mut last = None;
        loop {
            looks.tick().await;
            let status = status(&state, &asked.service).unwrap_or(ServingStatus::ServiceUnknown);
            if last != Some(status) {
                last = Some(status);
                let message = frame::message(&HealthCheckResponse { status: status.into() });
                for piece in message.unwrap_or_default() {
                    if pieces.send(Piece::Data(piece)).await.is_err() {
                        return;
                    }
                }
            }
            // A watch would keep its connection, and so the server, from ending.
            if state.readiness().draining {
                let ending = Failure::new(Outcome::Draining, "the server is shutting down; watch another");
                let _ = pieces.send(Piece::End(reply::failed(&ending))).await;
                return;
            }
        }
    });
    reply::stream(sent, watching.abort_handle())
}
