//! What the HTTP front costs: `front` answers calls with an engine that echoes, `bare` is hyper with a constant answer.
//! Usage: `http_ceiling front|bare PORT`, then any load generator; the front's route is `POST /echo`.
#![allow(clippy::unwrap_used, reason = "an example that fails may panic")]

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use jitney_core::config::manifest::DeploymentManifest;
use jitney_core::config::options::ServerOptions;
use jitney_server::base::telemetry::Telemetry;
use jitney_server::engine::deployment::{Deployment, Inbound};
use jitney_server::engine::server_state::ServerState;
use jitney_server::protocols::connection::listen;
use jitney_server::protocols::routing::service;
use jitney_server::values::answer::{Answer, OutputPart, Timing};
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, port] = &arguments[..] else { panic!("usage: http_ceiling front|bare PORT") };
    match mode.as_str() {
        "bare" => bare(port).await,
        _ => front(port).await,
    }
}

async fn bare(port: &str) {
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await.unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        tokio::spawn(async move {
            let answer = service_fn(async |_: Request<hyper::body::Incoming>| {
                let mut reply = Response::new(Full::new(Bytes::from_static(
                    b"{\"text\":\"a constant answer of some fifty-seven characters, as it were\"}",
                )));
                reply.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static("application/json"));
                Ok::<_, Infallible>(reply)
            });
            let _ = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), answer)
                .await;
        });
    }
}

async fn front(port: &str) {
    let options: ServerOptions = serde_json::from_value(json!({
        "listen": [format!("tcp:127.0.0.1:{port}")], "listen_programs": [], "allow_unauthenticated": false, "api_keys_file": null,
        "open_metrics": false, "show_errors": false, "cors_origin": [], "max_body_bytes": 67_108_864,
        "max_receiving_bytes": 268_435_456, "max_connections": 20_000, "header_timeout_s": 10.0, "body_timeout_s": 20.0,
        "idle_timeout_s": 75.0, "drain_grace_s": 0.0, "drain_timeout_s": 30.0, "log_format": "text", "log_level": "info",
    }))
    .unwrap();
    let manifest: DeploymentManifest = serde_json::from_value(json!({
        "name": "echo", "doc": "", "option_sources": {}, "group_by": [], "cost": null, "examples": [],
        "input": { "kind": "object", "arrays": [], "schema": {} }, "output": { "kind": "object", "arrays": [], "schema": {} },
        "options": {
            "max_batch_size": 32, "max_batch_cost": null, "policy": "eager", "max_batch_delay_ms": 0.0, "latency_target_ms": null, "replicas": 1,
            "min_ready_replicas": 1, "devices": [], "openai_names": [], "max_queued_items": 4096, "max_queued_bytes": 268_435_456, "max_wait_s": null, "request_timeout_s": 60.0,
            "batch_timeout_s": 60.0, "load_timeout_s": 600.0, "priority_boost_s": 1.0, "retry": true, "batched": true, "max_pixels": 1, "max_answer_bytes": 67_108_864,
        },
    }))
    .unwrap();
    let listeners = listen::bind(&options.listen).await.unwrap();
    let state = Arc::new(ServerState::new(options, Arc::new(Telemetry::new())));
    let (inbound, mut messages) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(message) = messages.recv().await {
            if let Inbound::Submit(call, reply) = message {
                let parts = call.parts.into_iter().map(|mut part| OutputPart {
                    name: "".into(),
                    tag: part.tag,
                    tensor: part.tensor,
                    media_type: None,
                    data: part.data.contiguous().clone(),
                });
                reply.end(Answer {
                    result: Ok(parts.collect()),
                    timing: Timing { batch_size: 1, ..Timing::default() },
                    tokens: None,
                });
            }
        }
    });
    let deployment = Deployment::new(Arc::new(manifest), inbound, &state.telemetry);
    state.serve([deployment].into_iter().collect());
    let (_stop, stopped) = watch::channel(false);
    service::serve(listeners, state, stopped).await;
}
