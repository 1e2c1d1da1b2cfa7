//! gRPC's own protocol for health: the server's under no name, and each model's under its own.

use super::reply::{self, Piece};
use super::stream::looks;
use super::{SERVICE as INFERENCE, frame};
use crate::call::Failure;
use crate::http::headers::RequestId;
use crate::http::service::Reply;
use crate::messages::health::health_check_response::ServingStatus;
use crate::messages::health::{HealthCheckRequest, HealthCheckResponse};
use crate::site::Site;
use crate::tensors::{describe, quoted};
use jitney_core::outcome::Outcome;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Its name.
pub(super) const SERVICE: &str = "grpc.health.v1.Health";

/// Whether a service answers; `None` if there is none of this name.
fn status(site: &Site, service: &str) -> Option<ServingStatus> {
    let ready = match service {
        "" | INFERENCE => site.readiness().ready,
        model => describe::is_ready(site, site.deployments()?.get(model)?),
    };
    Some(if ready { ServingStatus::Serving } else { ServingStatus::NotServing })
}

/// The status now.
pub(super) fn check(site: &Site, asked: &HealthCheckRequest) -> Result<HealthCheckResponse, Failure> {
    let status = status(site, &asked.service).ok_or_else(|| {
        let detail = format!("there is no service {}; the names of models are services", quoted(&asked.service));
        Failure::new(Outcome::NotFound, detail)
    })?;
    Ok(HealthCheckResponse { status: status.into() })
}

/// The status now, and whenever it changes, until the client has heard enough or the server ends.
pub(super) fn watch(site: Arc<Site>, asked: HealthCheckRequest, id: &RequestId) -> Reply {
    let (pieces, sent) = mpsc::channel(1);
    let watching = tokio::spawn(async move {
        let mut looks = looks();
        let mut last = None;
        loop {
            looks.tick().await;
            let status = status(&site, &asked.service).unwrap_or(ServingStatus::ServiceUnknown);
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
            if site.readiness().draining {
                let ending = Failure::new(Outcome::Draining, "the server is shutting down; watch another");
                let _ = pieces.send(Piece::End(reply::failed(&ending))).await;
                return;
            }
        }
    });
    reply::stream(sent, watching.abort_handle(), id)
}
