//! What every request passes, whatever its protocol: keys, origins, and refusals in the protocol's own form.

use crate::support::{Front, Reply, echo, server_options};
use jitney_core::config::options::ServerOptions;
use jitney_server::base::keys::Keys;

async fn guarded(options: ServerOptions) -> Front {
    let keys = Keys::load(Some("sesame,other"), None).unwrap();
    Front::guarded(options, keys, |_| echo).await
}

async fn send(front: &Front, route: &str, headers: &str) -> Reply {
    front.send(&format!("{route} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: 3\r\n\r\n\"a\"")).await
}

#[tokio::test]
async fn every_route_but_the_probes_asks_for_a_key() {
    let front = guarded(server_options()).await;
    for route in [
        "POST /text",
        "GET /",
        "GET /metrics",
        "GET /config",
        "GET /openapi.json",
        "GET /no-such-route",
        "GET /v1/models",
        "POST /v1/embeddings",
        "GET /v2",
        "GET /v2/models/text/ready",
        "POST /v2/models/text/infer",
        "OPTIONS /text",
    ] {
        for headers in ["", "authorization: Bearer wrong\r\n", "x-api-key:\r\n", "authorization: Basic sesame\r\n"] {
            let reply = send(&front, route, headers).await;
            assert_eq!((reply.status, reply.reason()), (401, "unauthorized"), "{route} {headers}");
            assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
            assert!(!reply.text().contains("wrong") && !reply.text().contains("sesame"));
        }
        for headers in ["authorization: Bearer sesame\r\n", "authorization: bearer other\r\n", "x-api-key: sesame\r\n"]
        {
            assert_ne!(send(&front, route, headers).await.status, 401, "{route} {headers}");
        }
    }
    // The page of docs is the same everywhere, and asks for a key itself.
    for route in ["GET /livez", "GET /readyz", "GET /v2/health/live", "GET /v2/health/ready", "GET /docs"] {
        assert_ne!(send(&front, route, "").await.status, 401, "{route}");
    }
    let metrics = send(&front, "GET /metrics", "x-api-key: other\r\n").await;
    assert!(metrics.text().contains("jitney_requests_total{deployment=\"text\",outcome=\"unauthorized\"} 8"));
    let open = guarded(ServerOptions { open_metrics: true, ..server_options() }).await;
    assert_eq!((send(&open, "GET /metrics", "").await.status, send(&open, "GET /config", "").await.status), (200, 401));
}

#[tokio::test]
async fn each_protocol_refuses_in_its_own_form() {
    let front = guarded(server_options()).await;
    let native = send(&front, "POST /text", "").await;
    assert_eq!(native.header("content-type"), Some("application/problem+json"));
    assert_eq!(native.json()["reason"], "unauthorized");

    let openai = send(&front, "POST /v1/embeddings", "").await;
    assert_eq!(openai.header("content-type"), Some("application/json"));
    let error = &openai.json()["error"];
    assert!(error["message"].as_str().unwrap().contains("Bearer KEY"), "{error}");
    assert_eq!((&error["type"], &error["code"]), (&"authentication_error".into(), &"invalid_api_key".into()));
    assert!(error.as_object().unwrap().contains_key("param"));

    let inference = send(&front, "POST /v2/models/text/infer", "").await;
    assert!(inference.json()["error"].as_str().unwrap().contains("Bearer KEY"));

    let grpc =
        send(&front, "POST /inference.GRPCInferenceService/ModelInfer", "content-type: application/grpc\r\n").await;
    assert_eq!((grpc.status, grpc.header("grpc-status"), grpc.body.len()), (200, Some("16"), 0));
    assert_eq!(grpc.header("content-type"), Some("application/grpc"));
    assert!(grpc.header("grpc-message").unwrap().contains("Bearer KEY"));
    for method in ["inference.GRPCInferenceService/ServerLive", "grpc.health.v1.Health/Check"] {
        let probe = send(&front, &format!("POST /{method}"), "content-type: application/grpc\r\n").await;
        assert_ne!(probe.header("grpc-status"), Some("16"), "{method}");
    }
    for reply in [native, openai, inference, grpc] {
        assert!(reply.header("x-request-id").is_some() && reply.header("connection") == Some("close"));
    }
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_may_ask_and_call() {
    let allowed = "https://app.example";
    let options = ServerOptions { cors_origin: vec![allowed.into()], ..server_options() };
    let front = guarded(options).await;
    let ask =
        "access-control-request-method: POST\r\naccess-control-request-headers: x-stainless-os, authorization\r\n";
    for path in ["text", "text/batch", "v1/embeddings", "v2/models/text/infer"] {
        let asked = send(&front, &format!("OPTIONS /{path}"), &format!("origin: {allowed}\r\n{ask}")).await;
        assert_eq!((asked.status, asked.body.len()), (204, 0), "{path}");
        assert_eq!(asked.header("access-control-allow-origin"), Some(allowed));
        assert_eq!(asked.header("access-control-allow-headers"), Some("x-stainless-os, authorization"));
        assert!(asked.header("access-control-allow-methods").unwrap().contains("POST"));
    }
    let called = send(&front, "POST /text", &format!("origin: {allowed}\r\nx-api-key: sesame\r\n")).await;
    assert_eq!((called.status, called.header("access-control-allow-origin")), (200, Some(allowed)));
    for header in ["x-request-id", "server-timing", "x-jitney-batch-size", "x-jitney-reason", "retry-after"] {
        assert!(called.header("access-control-expose-headers").unwrap().contains(header), "{header}");
    }
    assert_eq!(called.header("vary"), Some("origin"));
    // Also a refusal can be read by the page that it is for.
    let refused = send(&front, "POST /text", &format!("origin: {allowed}\r\n")).await;
    assert_eq!((refused.status, refused.header("access-control-allow-origin")), (401, Some(allowed)));
}

#[tokio::test]
async fn a_page_of_another_origin_may_not() {
    let options = ServerOptions { cors_origin: vec!["https://app.example".into()], ..server_options() };
    let front = Front::with(options, |_| echo).await;
    for origin in ["https://evil.example", "https://app.example.evil.example", "http://app.example", "null"] {
        for route in ["OPTIONS /text", "POST /text"] {
            let headers = format!("origin: {origin}\r\naccess-control-request-method: POST\r\n");
            let reply = send(&front, route, &headers).await;
            assert_eq!((reply.status, reply.header("access-control-allow-origin")), (421, None), "{route} {origin}");
        }
    }
    // Without the option nothing is said of origins, and a page of this machine may send but not read.
    let silent = Front::echo().await;
    let reply = send(&silent, "POST /text", "origin: http://localhost:3000\r\n").await;
    assert_eq!((reply.status, reply.header("access-control-allow-origin"), reply.header("vary")), (200, None, None));
    let all = Front::with(ServerOptions { cors_origin: vec!["*".into()], ..server_options() }, |_| echo).await;
    let reply = send(&all, "POST /text", "origin: https://any.example\r\n").await;
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (200, Some("https://any.example")));
    // The origin of a page says nothing about the host of the request.
    let foreign = all.send("POST /text HTTP/1.1\r\nhost: evil.example\r\norigin: https://any.example\r\ncontent-length: 3\r\n\r\n\"a\"").await;
    assert_eq!(foreign.status, 421);
}

#[tokio::test]
async fn every_answer_has_the_id_of_its_request_and_where_its_time_went() {
    let options = ServerOptions { cors_origin: vec!["https://app.example".into()], ..server_options() };
    let front = guarded(options).await;
    let key = "x-api-key: sesame\r\n";
    let ask = "origin: https://app.example\r\naccess-control-request-method: POST\r\n";
    let grpc = format!("content-type: application/grpc\r\n{key}");
    for (route, headers) in [
        ("POST /text", key),
        ("POST /text", ""),
        ("POST /no-such-route", key),
        ("GET /text", key),
        ("GET /livez", ""),
        ("GET /openapi.json", key),
        ("OPTIONS /text", ask),
        ("POST /v1/embeddings", key),
        ("GET /v1/models", key),
        ("GET /v1/none", key),
        ("POST /v2/models/text/infer", key),
        ("GET /v2/health/live", ""),
        ("POST /inference.GRPCInferenceService/ModelInfer", &grpc),
    ] {
        let reply = send(&front, route, &format!("{headers}x-request-id: mine\r\n")).await;
        assert_eq!(reply.head.matches("x-request-id: mine").count(), 1, "{route} {headers}: {}", reply.head);
        assert_eq!(reply.head.matches("server-timing: queue;dur=").count(), 1, "{route}: {}", reply.head);
        assert!(reply.header("x-jitney-batch-size").is_some(), "{route}: {}", reply.head);
    }
}
