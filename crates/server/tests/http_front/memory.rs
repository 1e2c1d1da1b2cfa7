//! What a request that waits keeps in memory: its items, which the queue counts, and nothing else that is not counted.

use crate::support::{Front, post, server_options, submitted_many, watched};
use jitney_core::config::options::ServerOptions;
use jitney_core::tables::metrics::LATER_BYTES;
use jitney_server::engine::deployment::Inbound;
use serde_json::json;
use tokio::sync::mpsc;

const LONG_TEXT: usize = 2 << 20;

async fn front() -> (Front, mpsc::UnboundedReceiver<Inbound>) {
    let (engine, messages) = watched();
    (Front::with(ServerOptions { max_body_bytes: 8 << 20, ..server_options() }, engine).await, messages)
}

/// Sends a request. While it waits none of its values is a slice of what others hold. Returns the bytes that count as those of
/// a large request.
async fn later_bytes(path: &str, headers: &str, body: Vec<u8>) -> usize {
    let (front, mut messages) = front().await;
    let mut client = front.connect().await;
    client.write(post(path, headers, body)).await;
    let items = tokio::select! {
        items = submitted_many(&mut messages) => items,
        reply = client.reply() => panic!("{reply:?}"),
    };
    let values: Vec<_> = items.iter().flat_map(|(call, _)| call.parts.iter().flat_map(|part| &part.data.0)).collect();
    assert_eq!(values.len(), 2);
    assert!(values.iter().all(|value| value.is_unique()), "{path}: the values are slices of the message");
    drop(front.state.telemetry.text());
    let deployment = path.split('/').find(|name| ["text", "grouped", "two"].contains(name)).unwrap();
    front.state.telemetry.gauge(LATER_BYTES, &[deployment]).get() as usize
}

#[tokio::test]
async fn short_items_do_not_keep_a_long_body() {
    let body = format!(r#"["a",{}"b"]"#, " ".repeat(LONG_TEXT));
    assert_eq!(later_bytes("text/batch", "", body.into()).await, 0);
    let invalid = format!(r#"[{{"scale":1}},{{"text":"{}"}},{{"scale":2}}]"#, "x".repeat(LONG_TEXT));
    assert_eq!(later_bytes("grouped/batch", "", invalid.into()).await, 0, "the second item is refused");
}

#[tokio::test]
async fn tensors_do_not_keep_the_json_before_them_and_what_the_answer_repeats_is_counted() {
    let (long, none) = ("x".repeat(LONG_TEXT), String::new());
    for (id, parameter) in [(&long, &none), (&none, &long)] {
        let head = json!({ "id": id, "parameters": { "mine": parameter }, "inputs": [
            { "name": "a", "shape": [1, 1], "datatype": "FP32", "parameters": { "binary_data_size": 4 } },
            { "name": "b", "shape": [1, 2], "datatype": "BOOL", "parameters": { "binary_data_size": 2 } },
        ]})
        .to_string();
        let headers = format!("inference-header-content-length: {}\r\n", head.len());
        let body = [head.as_bytes(), &[0; 6]].concat();
        let bytes = later_bytes("v2/models/two/infer", &headers, body).await;
        assert!((LONG_TEXT..LONG_TEXT + 100).contains(&bytes), "{bytes} bytes");
    }
}
