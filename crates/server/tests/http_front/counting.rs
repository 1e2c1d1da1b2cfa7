//! How requests are counted: the same for every protocol, whatever becomes of them and however early.

use crate::support::{Front, LONG, echo, post, server_options, watched};
use jitney_core::config::options::ServerOptions;
use jitney_server::base::keys::Keys;
use std::io::Write;
use std::time::Duration;
use tokio::time::timeout;

const JSON: &str = "content-type: application/json\r\n";
const GRPC: &str = "content-type: application/grpc\r\n";
const UNKNOWN: &str = "(unknown)";
/// A call in each protocol, and the deployment that is known before its body has been read.
const CALLS: [(&str, &str, &str); 11] = [
    ("text", JSON, "text"),
    ("text/batch", JSON, "text"),
    ("v1/embeddings", JSON, UNKNOWN),
    ("v1/chat/completions", JSON, UNKNOWN),
    ("v1/completions", JSON, UNKNOWN),
    ("v1/images/generations", JSON, UNKNOWN),
    ("v2/models/text/infer", JSON, "text"),
    ("v2/models/text/versions/1/infer", JSON, "text"),
    ("v2/models/text/generate", JSON, "text"),
    ("v2/models/text/versions/1/generate_stream", JSON, "text"),
    ("inference.GRPCInferenceService/ModelInfer", GRPC, UNKNOWN),
];

/// Requests with this outcome.
fn count(front: &Front, deployment: &str, outcome: &str) -> u64 {
    let start = format!("jitney_requests_total{{deployment=\"{deployment}\",outcome=\"{outcome}\"}} ");
    let text = front.state.telemetry.text();
    text.lines().find_map(|line| line.strip_prefix(&start)).map_or(0, |count| count.parse().unwrap())
}

/// Requests that have been counted at all.
fn all(front: &Front) -> u64 {
    let text = front.state.telemetry.text();
    let lines = text.lines().filter(|line| line.starts_with("jitney_requests_total{"));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[tokio::test]
async fn a_call_without_a_key() {
    let front = Front::guarded(server_options(), Keys::load(Some("sesame"), None).unwrap(), |_| echo).await;
    for (path, headers, deployment) in CALLS {
        let before = (count(&front, deployment, "unauthorized"), all(&front));
        front.post(path, headers, "\"a\"").await;
        let after = (count(&front, deployment, "unauthorized"), all(&front));
        assert_eq!(after, (before.0 + 1, before.1 + 1), "{path}");
    }
}

#[tokio::test]
async fn a_call_for_another_host() {
    let options = ServerOptions { cors_origin: vec!["https://app.example".into()], ..server_options() };
    let front = Front::with(options, |_| echo).await;
    for (path, headers, deployment) in CALLS {
        let before = (count(&front, deployment, "foreign_host"), all(&front));
        front.send(&format!("POST /{path} HTTP/1.1\r\nhost: evil.example\r\n{headers}content-length: 0\r\n\r\n")).await;
        let after = (count(&front, deployment, "foreign_host"), all(&front));
        assert_eq!(after, (before.0 + 1, before.1 + 1), "{path}: {}", front.state.telemetry.text());
    }
}

#[tokio::test]
async fn a_call_that_is_too_large() {
    let front = Front::echo().await;
    for (path, headers, deployment) in &CALLS[..10] {
        let before = (count(&front, deployment, "too_large"), all(&front));
        let mut client = front.connect().await;
        client
            .write(format!("POST /{path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: 99999999\r\n\r\n"))
            .await;
        assert_eq!(client.reply().await.unwrap().status, 413, "{path}");
        let after = (count(&front, deployment, "too_large"), all(&front));
        assert_eq!(after, (before.0 + 1, before.1 + 1), "{path}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_while_it_sends() {
    let front = Front::echo().await;
    for (path, headers, deployment) in &CALLS[..10] {
        let before = (count(&front, deployment, "cancelled"), all(&front));
        let mut client = front.connect().await;
        client.write(&post(path, headers, vec![b' '; 1000])[..200]).await;
        // The head has been read when the client leaves.
        while front.state.ledger.received.amount() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(client);
        while all(&front) == before.1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let after = (count(&front, deployment, "cancelled"), all(&front));
        assert_eq!(after, (before.0 + 1, before.1 + 1), "{path}");
    }
}

/// The server may see the request and its end at once.
fn send_and_leave(front: &Front, bytes: &[u8]) {
    std::net::TcpStream::connect(&front.address).unwrap().write_all(bytes).unwrap();
}

/// Waits until so many requests have been counted, and a little longer to see whether one is counted twice.
async fn settle(front: &Front, requests: u64) {
    while all(front) < requests {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_at_once() {
    const REQUESTS: u64 = 100;
    // An engine that never answers: what it gets is cancelled too.
    let (engine, _messages) = watched();
    let front = Front::with(server_options(), engine).await;
    for (path, headers, _) in CALLS {
        let before = all(&front);
        for _ in 0..REQUESTS {
            send_and_leave(&front, &post(path, headers, "\"a\""));
        }
        timeout(LONG, settle(&front, before + REQUESTS)).await.expect(path);
        assert_eq!(all(&front), before + REQUESTS, "{path}: {}", front.state.telemetry.text());
    }
    assert_eq!(count(&front, "text", "ok"), 0);
    assert!(count(&front, "text", "cancelled") >= REQUESTS);
    // A page does not count as a call, even if its client leaves early.
    let before = all(&front);
    send_and_leave(&front, b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n");
    front.send("GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert_eq!(all(&front), before);
}

#[tokio::test]
async fn a_call_of_a_deployment_that_is_not_there() {
    let front = Front::echo().await;
    for (path, body) in [
        ("none", "\"a\""),
        ("none/batch", "[]"),
        ("v1/embeddings", r#"{"model": "none", "input": "a"}"#),
        ("v2/models/none/infer", "{}"),
        ("v2/models/none/generate", "{}"),
    ] {
        let before = (count(&front, UNKNOWN, "not_found"), all(&front));
        let reply = front.post(path, JSON, body).await;
        assert_eq!(reply.status, 404, "{path}");
        let after = (count(&front, UNKNOWN, "not_found"), all(&front));
        assert_eq!(after, (before.0 + 1, before.1 + 1), "{path} {}", front.state.telemetry.text());
    }
}

#[tokio::test]
async fn pages_are_no_calls() {
    let front = Front::echo().await;
    for (path, headers) in [
        ("livez", JSON),
        ("v1/models", JSON),
        ("v2/repository/index", JSON),
        ("inference.GRPCInferenceService/ServerLive", GRPC),
    ] {
        front.post(path, headers, "{}").await;
    }
    assert_eq!(all(&front), 0);
}
