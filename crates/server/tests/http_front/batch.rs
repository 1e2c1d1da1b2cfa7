//! Many items in one request, as many outcomes out.

use crate::support::{Front, Reply, echo_answer, f32s, output, post, server_options, submitted_many, timing, watched};
use jitney_core::config::options::ServerOptions;
use jitney_core::request::Priority;
use jitney_core::tables::metrics::LATER_BYTES;
use jitney_core::tables::outcome::Outcome;
use jitney_server::engine::deployment::Inbound;
use jitney_server::values::answer::{Answer, Failure, Timing};
use jitney_server::values::call::Encoding;
use jitney_server::values::tensor::Tag;
use serde_json::{Value, json};
use std::time::Duration;

fn npy(dtype: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let mut header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}");
    header.push_str(&" ".repeat(63 - (10 + header.len()) % 64));
    header.push('\n');
    [&b"\x93NUMPY\x01\x00"[..], &(header.len() as u16).to_le_bytes(), header.as_bytes(), data].concat()
}

#[tokio::test]
async fn items_go_in_and_outcomes_come_out_in_order() {
    let front = Front::echo().await;
    for (path, headers, body, values) in [
        ("text/batch", "", r#"["a", "b\"c" ,"d"]"#, json!(["a", "b\"c", "d"])),
        ("t%65xt/batch?x=1", "content-type: application/json\r\n", "[]", json!([])),
        ("object/batch", "", r#"[{"a": 1}, [2], null]"#, json!([{ "a": 1 }, [2], null])),
        (
            "grouped/batch",
            "",
            r#"[{"scale": 1}, {"scale": 2, "width": 3}]"#,
            json!([{ "scale": 1 }, { "scale": 2, "width": 3 }]),
        ),
        ("open/batch", "", "[[1, 2], [3.5], 4]", json!([[1.0, 2.0], [3.5], 4.0])),
        ("two/batch", "", r#"[{"a": [1], "b": [true, false]}]"#, json!([{ "a": [1.0], "b": [true, false] }])),
    ] {
        let reply = front.post(path, headers, body).await;
        assert_eq!((reply.status, reply.header("x-jitney-failed")), (200, Some("0")), "{path} {}", reply.text());
        assert_eq!(reply.header("content-type"), Some("application/json"));
        let outcomes: Vec<Value> = values.as_array().unwrap().iter().map(|value| json!({ "value": value })).collect();
        assert_eq!(reply.json(), json!({ "outcomes": outcomes, "failed": 0 }));
        assert!(reply.header("x-request-id").is_some());
    }
    // One array of n rows; and one array out of n rows.
    let rows = npy("<f4", "(3, 2)", &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0].map(f32::to_le_bytes).concat());
    let npy_type = "content-type: application/x-npy\r\n";
    let reply = front.post("open/batch", npy_type, &rows).await;
    assert_eq!(reply.json()["outcomes"][2]["value"], json!([5.0, 6.0]));
    let reply = front.post("open/batch", &format!("{npy_type}accept: application/x-npy\r\n"), &rows).await;
    assert_eq!((reply.status, &reply.body), (200, &rows));
    assert_eq!(reply.header("content-type"), Some("application/x-npy"));
    // msgpack both ways.
    let msgpack = "content-type: application/msgpack\r\naccept: application/msgpack\r\n";
    let reply = front.post("text/batch", msgpack, rmp_serde::to_vec(&["a", "b"]).unwrap()).await;
    let value: Value = rmp_serde::from_slice(&reply.body).unwrap();
    assert_eq!(value, json!({ "outcomes": [{ "value": "a" }, { "value": "b" }], "failed": 0 }));
}

#[tokio::test]
async fn one_bad_item_fails_alone() {
    let front = Front::echo().await;
    let reply = front.post("grouped/batch", "", r#"[{"scale": 1}, {"width": 2}, {"scale": "x"}, {"scale": 4}]"#).await;
    assert_eq!((reply.status, reply.header("x-jitney-failed"), reply.reason()), (200, Some("2"), ""));
    let body = reply.json();
    assert_eq!((&body["failed"], &body["outcomes"][3]), (&json!(2), &json!({ "value": { "scale": 4 } })));
    let problem = &body["outcomes"][2]["problem"];
    assert_eq!(
        (&problem["status"], &problem["reason"], &problem["field"]),
        (&json!(422), &json!("invalid_input"), &json!("$.scale"))
    );
    assert_eq!(problem["request_id"].as_str(), reply.header("x-request-id"));
    assert_eq!(body["outcomes"][1].as_object().unwrap().len(), 1);

    let both = "accept: application/x-npy, application/json;q=0.5\r\n";
    let reply = front.post("fixed/batch", both, "[[[1, 2], [3, 4]], [[1, 2], [3]]]").await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    let reply = front.post("fixed/batch", "accept: application/x-npy\r\n", "[[[1, 2], [3, 4]], [[1, 2], [3]]]").await;
    assert_eq!((reply.status, reply.reason()), (406, "not_acceptable"));
    assert!(reply.json()["detail"].as_str().unwrap().contains("lists of equal length"), "{}", reply.text());
    let metrics = front.send("GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    for line in ["deployment=\"grouped\",outcome=\"ok\"} 1", "deployment=\"fixed\",outcome=\"not_acceptable\"} 1"] {
        assert!(metrics.text().contains(line), "{line}");
    }
}

#[tokio::test]
async fn when_all_items_fail_the_answer_is_a_problem() {
    let front = Front::echo().await;
    let reply = front.post("grouped/batch", "", r#"[{"scale": "x"}, 7]"#).await;
    assert_eq!((reply.status, reply.reason(), reply.header("x-jitney-failed")), (422, "invalid_input", Some("2")));
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    let problem = reply.json();
    assert!(problem["detail"].as_str().unwrap().starts_with("all 2 items failed, the first because: $.scale"));
    assert_eq!(problem["outcomes"][1]["problem"]["field"], "$");
    assert_eq!((&problem["failed"], &problem["field"]), (&json!(2), &json!("$.scale")));

    let (engine, mut messages) = watched();
    let front = Front::with(server_options(), engine).await;
    let mut client = front.connect().await;
    client.write(post("text/batch", "", r#"["a", "b"]"#)).await;
    for (_, reply) in submitted_many(&mut messages).await {
        let failure = Failure { retry_after: Some(Duration::from_secs(3)), ..Failure::new(Outcome::QueueFull, "full") };
        assert!(reply.end(Answer { result: Err(failure), timing: timing(), tokens: None, end: None }));
    }
    let reply = client.reply().await.unwrap();
    assert_eq!((reply.status, reply.reason(), reply.header("retry-after")), (429, "queue_full", Some("3")));
}

#[tokio::test]
async fn headers_reach_every_item() {
    let (engine, mut messages) = watched();
    let front = Front::with(server_options(), engine).await;
    let mut client = front.connect().await;
    let headers = "x-request-timeout-ms: 2500\r\nx-priority: low\r\naccept: application/msgpack\r\n";
    client.write(post("object/batch", headers, "[{}, {}, {}]")).await;
    let items = submitted_many(&mut messages).await;
    assert_eq!(items.len(), 3);
    for (number, (call, reply)) in items.into_iter().enumerate() {
        assert_eq!((call.timeout, call.priority), (Some(Duration::from_millis(2500)), Priority::Low));
        assert_eq!(call.encoding, Encoding::Msgpack);
        let parts = [output(Tag::Msgpack, vec![number as u8])].into_iter().collect();
        assert!(reply.end(Answer { result: Ok(parts), timing: timing(), tokens: None, end: None }));
    }
    let value: Value = rmp_serde::from_slice(&client.reply().await.unwrap().body).unwrap();
    assert_eq!(value["outcomes"], json!([{ "value": 0 }, { "value": 1 }, { "value": 2 }]));
}

#[tokio::test]
async fn a_client_that_leaves_cancels_what_has_no_answer() {
    let (engine, mut messages) = watched();
    let front = Front::with(server_options(), engine).await;
    let mut client = front.connect().await;
    client.write(post("text/batch", "", r#"["a", "b", "c"]"#)).await;
    let mut items = submitted_many(&mut messages).await;
    let (first, reply) = items.remove(0);
    assert!(reply.end(echo_answer(first)));
    drop(client);
    let mut cancelled = Vec::new();
    while cancelled.len() < 2 {
        match tokio::time::timeout(crate::support::LONG, messages.recv()).await.unwrap().unwrap() {
            Inbound::Cancel(id) if items.iter().any(|(call, _)| call.id == id) => cancelled.push(id),
            Inbound::Cancel(_) => {} // the answer of the first may not have been looked at yet
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_written_is_that_items_problem() {
    let (engine, mut messages) = watched();
    let front = Front::with(server_options(), engine).await;
    let mut client = front.connect().await;
    client.write(post("text/batch", "", r#"["a", "b"]"#)).await;
    for (parts, (_, reply)) in [output(Tag::Text, "fine"), output(Tag::Text, &b"\xff"[..])]
        .into_iter()
        .zip(submitted_many(&mut messages).await)
    {
        assert!(reply.end(Answer {
            result: Ok([parts].into_iter().collect()),
            timing: timing(),
            tokens: None,
            end: None
        }));
    }
    let body = client.reply().await.unwrap().json();
    assert_eq!((&body["failed"], &body["outcomes"][0]), (&json!(1), &json!({ "value": "fine" })));
    assert_eq!(body["outcomes"][1]["problem"]["reason"], "invalid_output");
    // Rows of different shapes do not make an array.
    for accept in ["application/x-npy", "application/x-npy, application/json;q=0.1"] {
        client.write(post("open/batch", &format!("accept: {accept}\r\n"), "[[1], [1, 2]]")).await;
        for (row, (_, reply)) in
            [f32s(&[1.0], &[1]), f32s(&[1.0, 2.0], &[2])].into_iter().zip(submitted_many(&mut messages).await)
        {
            assert!(reply.end(Answer {
                result: Ok([row].into_iter().collect()),
                timing: timing(),
                tokens: None,
                end: None
            }));
        }
        let reply = client.reply().await.unwrap();
        assert_eq!(reply.status, if accept.contains("json") { 200 } else { 406 }, "{}", reply.text());
    }
}

#[tokio::test]
async fn wrong_bodies_and_headers_are_told_what_is_wrong() {
    let front = Front::echo().await;
    for (path, headers, body, status, reason, says) in [
        ("text/batch", "", "{}", 422, "invalid_input", "a list of items"),
        ("text/batch", "", "[\"a\"", 400, "malformed_body", "JSON"),
        ("text/batch", "", "", 400, "malformed_body", "JSON"),
        ("text/batch", "content-type: application/msgpack\r\n", "\u{1}", 422, "invalid_input", "a list of items"),
        ("text/batch", "content-type: text/plain\r\n", "a", 415, "unsupported_media_type", "application/msgpack"),
        ("text/batch", "content-type: application/x-npy\r\n", "a", 415, "unsupported_media_type", "application/json"),
        ("open/batch", "content-type: application/x-npy\r\n", "a", 400, "malformed_body", ".npy"),
        ("text/batch", "accept: text/plain\r\n", "[]", 406, "not_acceptable", "application/msgpack"),
        ("text/batch", "accept: application/x-npy\r\n", "[]", 406, "not_acceptable", "application/json"),
        ("open/batch", "accept: application/x-npy\r\n", "[]", 406, "not_acceptable", "there are no items"),
        ("text/batch", "x-priority: urgent\r\n", "[]", 400, "invalid_request", "`urgent`"),
        ("txt/batch", "", "[]", 404, "not_found", "`txt/batch`"),
        ("text/batch/", "", "[]", 404, "not_found", "deployments: "),
    ] {
        let reply = front.post(path, headers, body).await;
        assert_eq!((reply.status, reply.reason()), (status, reason), "{path} {headers} {}", reply.text());
        assert!(reply.json()["detail"].as_str().unwrap().contains(says), "{}", reply.text());
    }
    let scalar = npy("<f4", "()", &[0; 4]);
    let reply = front.post("open/batch", "content-type: application/x-npy\r\n", scalar).await;
    assert_eq!((reply.status, reply.reason()), (422, "invalid_input"));
    let wrong = npy("<f8", "(1, 2, 2)", &[0; 32]);
    let reply = front.post("fixed/batch", "content-type: application/x-npy\r\n", wrong).await;
    assert!(
        reply.json()["detail"].as_str().unwrap().contains("expected uint8 of shape (2, 2), got float64"),
        "{}",
        reply.text()
    );
    let get = front.send("GET /text/batch HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert_eq!((get.status, get.header("allow")), (405, Some("POST")));
}

#[tokio::test]
async fn a_request_may_have_many_items_but_not_without_end() {
    let front = Front::echo().await;
    let many = |items: usize| format!("[{}1]", "1,".repeat(items - 1));
    let reply: Reply = front.post("object/batch", "", many(8192)).await;
    assert_eq!((reply.status, reply.json()["outcomes"].as_array().unwrap().len()), (200, 8192));
    let reply = front.post("object/batch", "", many(8193)).await;
    assert_eq!((reply.status, reply.reason()), (413, "too_large"));
    assert!(reply.json()["detail"].as_str().unwrap().contains("8192 items"));
    // Rows of nothing cost no bytes either.
    let empty = npy("<f4", "(1000000, 0)", &[]);
    let reply = front.post("open/batch", "content-type: application/x-npy\r\n", empty).await;
    assert_eq!((reply.status, reply.reason()), (413, "too_large"));
    let larger =
        Front::with(ServerOptions { max_body_bytes: 1 << 24, ..server_options() }, |_| crate::support::echo).await;
    assert_eq!(larger.post("object/batch", "", many(8193)).await.status, 200);
}

#[tokio::test]
async fn large_items_of_many_groups_are_counted_while_their_turn_has_not_come() {
    let options = ServerOptions { max_body_bytes: 4 << 20, ..server_options() };
    let (engine, mut messages) = watched();
    let front = Front::with(options, engine).await;
    let padding = "x".repeat(200_000);
    let items: Vec<Value> = (0..8).map(|n| json!({ "scale": n, "padding": padding })).collect();
    let body = Value::from(items).to_string();
    let (mut clients, mut pieces) = (vec![], vec![]);
    // Where all are of one group, they are in the first piece, which the queue counts.
    for (name, first, least) in [("grouped", 2, body.len()), ("object", 8, 0)] {
        let mut client = front.connect().await;
        client.write(post(&format!("{name}/batch"), "", &body)).await;
        clients.push(client);
        pieces.push(submitted_many(&mut messages).await);
        drop(front.state.telemetry.text());
        let held = front.state.telemetry.gauge(LATER_BYTES, &[name]).get() as usize;
        assert_eq!(pieces.last().unwrap().len(), first, "{name}");
        assert!(held >= least && (held > 0) == (least > 0), "{name}: {held} bytes");
    }
}

/// The item that took longest is the same one in the headers of an answer and in the statistics of its deployment.
#[tokio::test]
async fn the_slowest_item_is_the_one_that_took_longest_in_all() {
    let (engine, mut messages) = watched();
    let front = Front::with(server_options(), engine).await;
    let mut client = front.connect().await;
    client.write(post("text/batch", "", r#"["a", "b"]"#)).await;
    let ms = Duration::from_millis;
    let timings = [(1, 100, 1), (50, 1, 2)].map(|(queue, batch, model)| Timing {
        queue: ms(queue),
        batch: ms(batch),
        model: ms(model),
        batch_size: 2,
    });
    for ((call, reply), timing) in submitted_many(&mut messages).await.into_iter().zip(timings) {
        assert!(reply.end(Answer { timing, ..echo_answer(call) }));
    }
    let reply = client.reply().await.unwrap();
    assert_eq!(reply.header("server-timing"), Some("queue;dur=1.000, batch;dur=100.000, model;dur=1.000"));
    let totals = front.state.deployment("text").unwrap().statistics().totals();
    let seen = [totals.queue, totals.batch, totals.model].map(|tally| tally.ns / 1_000_000);
    assert_eq!(seen, [1, 100, 1]);
}
