//! One item in, one answer out: types, headers, failures.

use crate::support::{Front, f32s, post, server_options, submitted, timing, watched};
use jitney_core::config::options::ServerOptions;
use jitney_core::queue::group_key::KeyPart;
use jitney_core::request::Priority;
use jitney_core::tables::outcome::Outcome;
use jitney_server::engine::deployment::Inbound;
use jitney_server::values::answer::{Answer, Failure};
use jitney_server::values::call::Encoding;
use jitney_server::values::tensor::Tag;
use std::time::Duration;

#[tokio::test]
async fn a_byte_order_mark_is_called_by_its_name() {
    let front = Front::echo().await;
    for (path, body) in [
        ("text", "\"a\""),
        ("object", "{}"),
        ("grouped", "{}"),
        ("open", "[1]"),
        ("text/batch", "[\"a\"]"),
        ("v1/embeddings", "{}"),
        ("v2/models/text/infer", "{}"),
    ] {
        let reply = front.post(path, "", format!("\u{feff}{body}")).await;
        assert_eq!(reply.status, 400, "{path} {}", reply.text());
        assert!(reply.text().contains("byte order mark") && !reply.text().contains("content-type"), "{}", reply.text());
    }
}

#[tokio::test]
async fn items_go_in_and_come_out() {
    let front = Front::echo().await;
    for (path, headers, body, expected, media) in [
        ("text", "", "\"hi\"", "\"hi\"", "application/json"),
        ("text", "content-type: application/json\r\n", "\"hi\"", "\"hi\"", "application/json"),
        ("text", "content-type: text/plain; charset=utf-8\r\n", "a\"b", "\"a\\\"b\"", "application/json"),
        ("text", "content-type: text/plain\r\naccept: text/plain\r\n", "a\"b", "a\"b", "text/plain; charset=utf-8"),
        ("bytes", "", "raw", "raw", "image/png"),
        ("bytes", "content-type: audio/wav\r\n", "raw", "raw", "image/png"),
        (
            "image",
            "content-type: image/jpeg\r\naccept: application/json\r\n",
            "abcd",
            "\"YWJjZA==\"",
            "application/json",
        ),
        ("object", "content-type: application/vnd.x+json\r\n", "{\"a\":1}", "{\"a\":1}", "application/json"),
        ("object", "content-type: application/x-www-form-urlencoded\r\n", "{\"a\":1}", "{\"a\":1}", "application/json"),
        ("obj%65ct?verbose=1", "", "{}", "{}", "application/json"),
        (
            "object",
            "content-type: application/x-msgpack\r\naccept: application/msgpack\r\n",
            "\u{1}",
            "\u{1}",
            "application/msgpack",
        ),
    ] {
        let reply = front.post(path, headers, body).await;
        assert_eq!(
            (reply.status, reply.text(), reply.header("content-type")),
            (200, expected, Some(media)),
            "{path} {headers}"
        );
        assert_eq!(reply.header("server-timing"), Some("queue;dur=1.234, batch;dur=0.100, model;dur=5.021"));
        assert_eq!(reply.header("x-jitney-batch-size"), Some("7"));
        assert_eq!(reply.header("x-request-id").map(str::len), Some(16));
        assert_eq!(reply.header("transfer-encoding"), None);
    }
}

#[tokio::test]
async fn wrong_requests_are_told_what_is_wrong() {
    let front = Front::echo().await;
    for (path, headers, body, status, reason, says) in [
        ("txt", "", "", 404, "not_found", "did you mean /text?"),
        ("ping", "", "", 404, "not_found", "did you mean /livez or /readyz?"),
        ("health/live", "", "", 404, "not_found", "did you mean /livez or /readyz?"),
        ("%ff", "", "", 404, "not_found", "`%ff`"),
        ("", "", "", 405, "method_not_allowed", "GET, HEAD"),
        ("livez", "", "", 405, "method_not_allowed", "GET, HEAD"),
        ("text", "content-type: image/png\r\n", "x", 415, "unsupported_media_type", "text/plain"),
        ("text", "content-type: text/plain; charset=latin1\r\n", "x", 415, "unsupported_media_type", "UTF-8"),
        ("text", "content-encoding: gzip\r\n", "x", 415, "unsupported_media_type", "`gzip`"),
        ("text", "accept: image/png\r\n", "\"x\"", 406, "not_acceptable", "image/png"),
        ("bytes", "accept: image/jpeg\r\n", "x", 406, "not_acceptable", "image/jpeg"),
        ("text", "x-request-timeout-ms: soon\r\n", "\"x\"", 400, "invalid_request", "`soon`"),
        ("text", "x-priority: urgent\r\n", "\"x\"", 400, "invalid_request", "`urgent`"),
        ("text", "x-priority: high\r\nx-priority: low\r\n", "\"x\"", 400, "invalid_request", "header x-priority is"),
        (
            "text",
            "x-request-timeout-ms: 100\r\nX-Request-Timeout-Ms: 9000\r\n",
            "\"x\"",
            400,
            "invalid_request",
            "header x-request-timeout-ms is there more than once",
        ),
        (
            "text",
            "content-type: text/plain\r\ncontent-type: application/json\r\n",
            "\"x\"",
            400,
            "invalid_request",
            "header content-type is",
        ),
        ("text", "", "", 400, "malformed_body", "empty"),
        ("grouped", "", "{", 400, "malformed_body", "no content-type, so its body was read as JSON"),
        ("grouped/batch", "", "\u{1}", 400, "malformed_body", "send one of application/json, application/msgpack"),
        ("grouped", "", "{\"scale\":1,\"width\":\"5\"}", 422, "invalid_input", "$.width: expected int, got str"),
        ("grouped", "", "[]", 422, "invalid_input", "$: expected object, got list"),
    ] {
        let reply = front.post(path, headers, body).await;
        let problem = reply.json();
        assert_eq!((reply.status, reply.reason()), (status, reason), "{path} {headers} {problem}");
        assert_eq!(reply.header("content-type"), Some("application/problem+json"));
        assert!(problem["detail"].as_str().unwrap().contains(says), "{problem}");
        assert_eq!(problem["status"], status);
        assert_eq!(problem["reason"], reason);
        assert_eq!(problem["request_id"].as_str(), reply.header("x-request-id"));
        // Only the encoded answer shows that it is an image; that request was in a batch.
        let (batch, times) = if path == "bytes" {
            ("7", "queue;dur=1.234, batch;dur=0.100, model;dur=5.021")
        } else {
            ("0", "queue;dur=0.000, batch;dur=0.000, model;dur=0.000")
        };
        assert_eq!((reply.header("x-jitney-batch-size"), reply.header("server-timing")), (Some(batch), Some(times)));
    }
    let reply = front.send("GET /text HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")));
    let metrics = front.send("GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(
        metrics.text().contains("jitney_requests_total{deployment=\"text\",outcome=\"unsupported_media_type\"} 3"),
        "{}",
        metrics.text()
    );
}

#[tokio::test]
async fn bytes_that_are_not_text_are_refused_as_text() {
    let front = Front::echo().await;
    let reply = front.post("text", "content-type: text/plain\r\n", b"a\xff").await;
    assert_eq!((reply.status, reply.reason()), (400, "malformed_body"));
}

#[tokio::test]
async fn only_who_did_not_say_the_type_of_a_body_is_told_that_there_are_several() {
    let (engine, mut messages) = watched();
    let front = Front::with(server_options(), engine).await;
    for (headers, outcome, is_told) in [
        ("", Outcome::MalformedBody, true),
        ("", Outcome::InvalidInput, false),
        ("content-type: application/json\r\n", Outcome::MalformedBody, false),
        ("content-type: application/x-www-form-urlencoded\r\n", Outcome::MalformedBody, false),
    ] {
        let mut client = front.connect().await;
        client.write(post("object", headers, b"\x81")).await;
        let (_, reply) = submitted(&mut messages).await;
        let failure = Failure::new(outcome, "JSON is malformed");
        assert!(reply.end(Answer { result: Err(failure), timing: timing(), tokens: None, end: None }));
        let told = client.reply().await.unwrap().json()["detail"].as_str().unwrap().to_owned();
        assert_eq!(told.contains("application/msgpack"), is_told, "{headers}{told}");
    }
    for (path, headers) in [("object", ""), ("bytes", "content-type: application/json\r\n")] {
        let reply = front.post(path, headers, "").await;
        assert!(reply.text().contains("the body is empty; send one item\""), "{}", reply.text());
    }
}

#[tokio::test]
async fn headers_reach_the_call() {
    let (engine, mut messages) = watched();
    let front = Front::with(server_options(), engine).await;
    let mut client = front.connect().await;
    let headers =
        "x-request-timeout-ms: 2500\r\nx-priority: high\r\naccept: application/msgpack\r\nx-request-id: mine-1\r\n";
    client.write(post("grouped", headers, r#"{"scale": 7.0, "other": [[{}]], "scale": 7.5, "width": 640}"#)).await;
    let (call, reply) = submitted(&mut messages).await;
    assert_eq!(
        (call.timeout, call.priority, call.encoding),
        (Some(Duration::from_millis(2500)), Priority::High, Encoding::Msgpack)
    );
    assert_eq!(call.group.0.to_vec(), [KeyPart::Int(640), KeyPart::number(7.5)]);
    assert_eq!((call.parts.len(), call.parts[0].tag, call.cost), (1, Tag::Json, 1));
    let failure = Failure {
        retry_after: Some(Duration::from_millis(1500)),
        field: Some("$.x".into()),
        ..Failure::new(Outcome::QueueFull, "full")
    };
    assert!(reply.end(Answer { result: Err(failure), timing: timing(), tokens: None, end: None }));
    let reply = client.reply().await.unwrap();
    assert_eq!((reply.status, reply.reason(), reply.header("retry-after")), (429, "queue_full", Some("2")));
    assert_eq!((reply.header("x-request-id"), reply.header("x-should-retry")), (Some("mine-1"), None));
    assert_eq!(reply.json()["field"], "$.x");

    client.write(post("object", "x-request-id: bad id\r\n", "{}")).await;
    let (call, reply) = submitted(&mut messages).await;
    assert_eq!((call.timeout, call.priority, call.encoding), (None, Priority::Normal, Encoding::Json));
    assert!(reply.end(Answer {
        result: Err(Failure::new(Outcome::WorkerLost, "lost")),
        timing: timing(),
        tokens: None,
        end: None,
    }));
    let reply = client.reply().await.unwrap();
    assert_eq!((reply.status, reply.header("x-should-retry"), reply.header("retry-after")), (502, Some("false"), None));
    assert_ne!(reply.header("x-request-id"), Some("bad id"));
}

#[tokio::test]
async fn a_client_that_leaves_cancels() {
    let (engine, mut messages) = watched();
    let front = Front::with(server_options(), engine).await;
    let mut client = front.connect().await;
    client.write(post("text", "", "\"x\"")).await;
    let (call, _reply) = submitted(&mut messages).await;
    drop(client);
    match tokio::time::timeout(crate::support::LONG, messages.recv()).await.unwrap() {
        Some(Inbound::Cancel(id)) => assert_eq!(id, call.id),
        other => panic!("{other:?}"),
    }
    let metrics = front.send("GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(metrics.text().contains("jitney_requests_total{deployment=\"text\",outcome=\"cancelled\"} 1"));
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_its_next_request_cancels() {
    let (engine, mut messages) = watched();
    let front = Front::with(server_options(), engine).await;
    for (with_it, later) in [("P", ""), ("P", "OST /text"), ("", "P"), ("P", &*"x".repeat(10_000))] {
        let mut client = front.connect().await;
        let mut request = post("text", "", "\"x\"");
        request.extend_from_slice(with_it.as_bytes());
        client.write(request).await;
        let (call, _reply) = submitted(&mut messages).await;
        client.write(later).await;
        drop(client);
        match tokio::time::timeout(crate::support::LONG, messages.recv()).await.unwrap() {
            Some(Inbound::Cancel(id)) => assert_eq!(id, call.id, "{with_it} {later}"),
            other => panic!("{other:?}"),
        }
    }
    // What was read ahead is not lost.
    let mut client = front.connect().await;
    let requests = ["1", "2", "3"].map(|body| post("text", "", body)).concat();
    let (first, rest) = requests.split_at(requests.len() / 2);
    client.write(first).await;
    for (number, body) in ["1", "2", "3"].into_iter().enumerate() {
        let (call, reply) = submitted(&mut messages).await;
        if number == 0 {
            client.write(rest).await;
        }
        assert!(reply.end(crate::support::echo_answer(call)));
        assert_eq!(client.reply().await.unwrap().text(), body);
    }
}

#[tokio::test]
async fn a_request_is_counted_once_as_it_really_ended() {
    let front = Front::echo().await;
    assert_eq!(front.post("text", "", "\"x\"").await.status, 200);
    // Only the answer shows that it is an image.
    assert_eq!(front.post("bytes", "accept: image/jpeg\r\n", "x").await.reason(), "not_acceptable");
    let metrics = front.send("GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let counted: Vec<&str> = metrics
        .text()
        .lines()
        .filter(|line| line.starts_with("jitney_requests_total{") && !line.ends_with(" 0"))
        .collect();
    assert_eq!(
        counted,
        [
            "jitney_requests_total{deployment=\"bytes\",outcome=\"not_acceptable\"} 1",
            "jitney_requests_total{deployment=\"text\",outcome=\"ok\"} 1"
        ]
    );
}

#[tokio::test]
async fn whose_engine_has_ended_is_told_that_the_server_is_draining() {
    let (engine, mut messages) = watched();
    let front = Front::with(server_options(), engine).await;
    let mut client = front.connect().await;
    client.write(post("text", "", "\"x\"")).await;
    drop(submitted(&mut messages).await);
    let reply = client.reply().await.unwrap();
    assert_eq!((reply.status, reply.reason()), (503, "draining"));
    client.write(post("open", "", "[1, 2.5]")).await;
    let (_, reply) = submitted(&mut messages).await;
    let answer = [f32s(&[0.5, 0.25], &[2])].into_iter().collect();
    assert!(reply.end(Answer { result: Ok(answer), timing: timing(), tokens: None, end: None }));
    assert_eq!(client.reply().await.unwrap().text(), "[0.5,0.25]");
}

#[tokio::test]
async fn pages_of_others_reach_nothing_on_loopback() {
    let front = Front::echo().await;
    let send = async |front: &Front, route: &str, host: &str, more: &str| {
        front.send(&format!("{route} HTTP/1.1\r\nhost: {host}\r\n{more}content-length: 3\r\n\r\n\"a\"")).await
    };
    for (host, more) in [("evil.example", ""), ("127.0.0.1:80", "origin: https://evil.example\r\n")] {
        for route in ["POST /text", "GET /config"] {
            let reply = send(&front, route, host, more).await;
            assert_eq!((reply.status, reply.reason()), (421, "foreign_host"), "{route} {host}");
            let detail = reply.json()["detail"].as_str().unwrap().to_owned();
            assert!(detail.contains("evil.example") && detail.contains("proxy_set_header"), "{detail}");
        }
        assert_eq!(send(&front, "POST /text", "127.0.0.1:80", "origin: http://localhost:80\r\n").await.status, 200);
    }
    let metrics = front.send("GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").await;
    assert!(metrics.text().contains("jitney_requests_total{deployment=\"text\",outcome=\"foreign_host\"} 2"));
    let open = ServerOptions { allow_unauthenticated: true, ..server_options() };
    let front = Front::with(open, |_| crate::support::echo).await;
    assert_eq!(send(&front, "POST /text", "evil.example", "").await.status, 200);
}

#[tokio::test]
async fn nothing_is_called_before_it_is_loaded() {
    let front = Front::loading(server_options()).await;
    let reply = front.post("text", "", "\"x\"").await;
    assert_eq!((reply.status, reply.reason(), reply.header("retry-after")), (503, "loading", Some("2")));
}
