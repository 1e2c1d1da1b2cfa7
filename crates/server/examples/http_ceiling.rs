//! What the HTTP front costs: `front` answers calls with an engine that echoes, `bare` is hyper with a constant answer.
//! Usage: `http_ceiling front|bare PORT`, then any load generator; the front's route is `POST /echo`.
#![allow(clippy::unwrap_used, reason = "an example that fails may panic")]

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use jitney_core::config::manifest::DeploymentManifest;
use jitney_core::config::options::{DeploymentOptions, ServerOptions};
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
    let options = ServerOptions {
        listen: vec![format!("tcp:127.0.0.1:{port}")],
        max_body_bytes: 64 << 20,
        max_receiving_bytes: 256 << 20,
        max_connections: 20_000,
        ..ServerOptions::for_test()
    };
    let manifest: DeploymentManifest = serde_json::from_value(json!({
        "name": "echo", "doc": "", "option_sources": {}, "group_by": [], "cost": null, "examples": [],
        "input": { "kind": "object", "arrays": [], "schema": {} }, "output": { "kind": "object", "arrays": [], "schema": {} },
        "options": DeploymentOptions::for_test(),
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
                    end: None,
                });
            }
        }
    });
    let deployment = Deployment::new(Arc::new(manifest), inbound, &state.telemetry);
    state.serve([deployment].into_iter().collect());
    let (_stop, stopped) = watch::channel(false);
    service::serve(listeners, state, stopped).await;
}
