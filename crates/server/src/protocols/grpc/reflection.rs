//! gRPC's protocol for asking a server what it serves: clients such as grpcurl need no files of ours.

use crate::engine::server_state::ServerState;
use crate::open_inference::messages::DESCRIPTORS;
use crate::open_inference::messages::reflection::server_reflection_request::MessageRequest;
use crate::open_inference::messages::reflection::server_reflection_response::MessageResponse;
use crate::open_inference::messages::reflection::{
    ErrorResponse, FileDescriptorResponse, ListServiceResponse, ServerReflectionRequest, ServerReflectionResponse,
    ServiceResponse,
};
use crate::open_inference::tensor::quoted;
use crate::protocols::connection::limits::QUESTION_BYTES;
use crate::protocols::connection::upload::Upload;
use crate::protocols::grpc::frame;
use crate::protocols::grpc::head::NOBODY;
use crate::protocols::grpc::reply;
use crate::protocols::grpc::reply::Piece;
use crate::protocols::grpc::stream::messages::{Bounds, Messages, looks, unless_draining};
use crate::protocols::reply::payload::Reply;
use crate::protocols::request::compression::Coding;
use jitney_core::tables::outcome::Outcome;
use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorProto, FileDescriptorSet};
use std::sync::{Arc, LazyLock};
use tokio::sync::mpsc;

/// Its names: the messages of both are the same.
pub(crate) const V1: &str = "grpc.reflection.v1.ServerReflection";
/// See `V1`.
pub(crate) const V1_ALPHA: &str = "grpc.reflection.v1alpha.ServerReflection";

static FILES: LazyLock<Vec<FileDescriptorProto>> =
    LazyLock::new(|| FileDescriptorSet::decode(DESCRIPTORS).map(|set| set.file).unwrap_or_default());

/// Answers one question after the other.
pub(crate) fn answer(state: Arc<ServerState>, body: Upload, coding: Option<Coding>) -> Reply {
    let (pieces, sent) = mpsc::channel(1);
    let answering = tokio::spawn(async move {
        let mut messages = Messages::new(&state, body, coding, Bounds { most: QUESTION_BYTES, allowed: NOBODY });
        let mut looks = looks();
        let end = loop {
            let next = unless_draining(&state, &mut looks, messages.next()).await;
            let asked = match next.and_then(|next| next) {
                Ok(None) => break reply::ok(),
                Ok(Some(message)) => {
                    message.plain(&state).await.and_then(|mut plain| frame::decode(plain.message.contiguous().clone()))
                }
                Err(failure) => Err(failure),
            };
            match asked.and_then(|asked| frame::message(&respond(asked))) {
                Ok(message) => {
                    for piece in message {
                        if pieces.send(Piece::Data(piece)).await.is_err() {
                            return;
                        }
                    }
                }
                Err(failure) => break reply::failed(&failure),
            }
        };
        let _ = pieces.send(Piece::End(end)).await;
    });
    reply::stream(sent, answering.abort_handle())
}

fn respond(asked: ServerReflectionRequest) -> ServerReflectionResponse {
    let response = match &asked.message_request {
        Some(MessageRequest::ListServices(_)) => MessageResponse::ListServicesResponse(ListServiceResponse {
            service: services().map(|name| ServiceResponse { name }).collect(),
        }),
        Some(MessageRequest::FileByFilename(name)) => file(name, |file| file.name() == name),
        Some(MessageRequest::FileContainingSymbol(symbol)) => file(symbol, |file| holds(file, symbol)),
        _ => refusal("files by name and by symbol and the list of services can be asked for".into(), 12),
    };
    ServerReflectionResponse {
        valid_host: asked.host.clone(),
        original_request: Some(asked),
        message_response: Some(response),
    }
}

fn services() -> impl Iterator<Item = String> {
    FILES.iter().flat_map(|file| file.service.iter().map(|service| format!("{}.{}", file.package(), service.name())))
}

fn refusal(error_message: String, error_code: i32) -> MessageResponse {
    MessageResponse::ErrorResponse(ErrorResponse { error_code, error_message })
}

/// The file that is meant, and those that it needs.
fn file(asked: &str, is_meant: impl Fn(&FileDescriptorProto) -> bool) -> MessageResponse {
    let Some(found) = FILES.iter().find(|file| is_meant(file)) else {
        let code = i32::from(Outcome::NotFound.grpc_code());
        return refusal(format!("there is no {} here", quoted(asked)), code);
    };
    let needed = FILES.iter().filter(|file| found.dependency.iter().any(|name| name == file.name()));
    let file_descriptor_proto = std::iter::once(found).chain(needed).map(|file| file.encode_to_vec().into()).collect();
    MessageResponse::FileDescriptorResponse(FileDescriptorResponse { file_descriptor_proto })
}

/// Whether a file defines a symbol: a service, a method, a message or an enumeration.
fn holds(file: &FileDescriptorProto, symbol: &str) -> bool {
    let Some(rest) = symbol.strip_prefix(file.package()).and_then(|rest| rest.strip_prefix('.')) else { return false };
    let (first, last) = rest.split_once('.').unwrap_or((rest, ""));
    let service = file.service.iter().find(|service| service.name() == first);
    service.is_some_and(|service| last.is_empty() || service.method.iter().any(|method| method.name() == last))
        || file.enum_type.iter().any(|kind| kind.name() == rest)
        || within(&file.message_type, first, last)
}

fn within(messages: &[DescriptorProto], first: &str, rest: &str) -> bool {
    let Some(message) = messages.iter().find(|message| message.name() == first) else { return false };
    let (next, last) = rest.split_once('.').unwrap_or((rest, ""));
    rest.is_empty()
        || message.enum_type.iter().any(|kind| kind.name() == rest)
        || within(&message.nested_type, next, last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_found_in_their_file() {
        let file = |symbol: &str| FILES.iter().find(|file| holds(file, symbol)).map(FileDescriptorProto::name);
        assert_eq!(file("inference.GRPCInferenceService.ModelInfer"), Some("inference.proto"));
        assert_eq!(file("inference.ModelInferRequest.InferInputTensor"), Some("inference.proto"));
        assert_eq!(file("inference.DataType"), Some("inference.proto"));
        assert_eq!(file("grpc.health.v1.HealthCheckResponse.ServingStatus"), Some("health.proto"));
        for unknown in ["", "inference", "inference.Nothing", "inference.ModelInferRequest.Nothing", "inference."] {
            assert_eq!(file(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn every_service_is_listed() {
        let services: Vec<String> = services().collect();
        assert_eq!(services, ["grpc.health.v1.Health", "inference.GRPCInferenceService", V1]);
    }
}
