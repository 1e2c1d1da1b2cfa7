//! The catalogue changes while requests are in flight.

use crate::support::*;
use jitney_core::config::manifest::InputKind;
use jitney_server::engine::deployment::{Deployment, Inbound};
use std::sync::Arc;
use tokio::sync::mpsc;

const TEXT: &str = "content-type: text/plain\r\n";

/// A version of the deployment `text`, and what its engine gets.
fn version(front: &Front, version: &str) -> (Deployment, mpsc::UnboundedReceiver<Inbound>) {
    let (inbound, messages) = mpsc::unbounded_channel();
    let manifest = Arc::new(manifest("text", InputKind::Text, vec![], "text"));
    let mut deployment = Deployment::new(manifest, inbound, &front.state.telemetry);
    version.clone_into(&mut deployment.version);
    (deployment, messages)
}

#[tokio::test]
async fn a_request_in_flight_keeps_its_version_and_the_next_one_gets_the_new_version() {
    let front = Front::loading(server_options()).await;
    let (first, mut old_engine) = version(&front, "1");
    front.state.serve([first].into_iter().collect());
    let mut early = front.connect().await;
    early.write(post("text", TEXT, "early")).await;
    let waiting = old_engine.recv().await.expect("the early request");

    let (second, mut new_engine) = version(&front, "2");
    front.state.serve([second].into_iter().collect());
    let mut late = front.connect().await;
    late.write(post("text", TEXT, "late")).await;
    echo(new_engine.recv().await.expect("the late request"));
    assert_eq!(late.reply().await.unwrap().text(), "\"late\"");

    assert!(old_engine.try_recv().is_err() && !old_engine.is_closed(), "its request still waits");
    echo(waiting);
    assert_eq!(early.reply().await.unwrap().text(), "\"early\"");
    assert!(old_engine.recv().await.is_none(), "no request holds the old version any more");
}

#[tokio::test]
async fn what_the_open_inference_protocol_says_is_of_the_version_that_is_served() {
    let front = Front::loading(server_options()).await;
    let (deployment, mut engine) = version(&front, "7");
    front.state.serve([deployment].into_iter().collect());
    tokio::spawn(async move {
        while let Some(message) = engine.recv().await {
            echo(message);
        }
    });
    let get = async |path: &str| front.send(&format!("GET /{path} HTTP/1.1\r\nhost: localhost\r\n\r\n")).await;
    assert_eq!(get("v2/models/text").await.json()["versions"], serde_json::json!(["7"]));
    assert_eq!(get("v2/models/text/stats").await.json()["model_stats"][0]["version"], "7");
    assert_eq!(get("v2/models/text/versions/7").await.status, 200);
    let unknown = get("v2/models/text/versions/1").await;
    assert!(unknown.status == 404 && unknown.text().contains("its only version is 7"), "{}", unknown.text());
    let index = front.post("v2/repository/index", "", "").await.json();
    assert_eq!(index[0]["version"], "7");
    let body = r#"{"inputs": [{"name": "input", "datatype": "BYTES", "shape": [1, 1], "data": ["x"]}]}"#;
    let reply = front.post("v2/models/text/versions/7/infer", "", body).await;
    assert_eq!((reply.status, &reply.json()["model_version"]), (200, &serde_json::json!("7")), "{}", reply.text());
}
