//! Probes, metrics, configuration, docs.

use crate::support::{Front, manifests, server_options, watched};
use jitney_server::engine::deployment::Inbound;
use jitney_server::engine::readiness::Readiness;

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")
}

#[tokio::test]
async fn probes_tell_the_truth() {
    let front = Front::loading(server_options()).await;
    assert_eq!(front.send(&get("/livez")).await.status, 200);
    let reply = front.send(&get("/readyz")).await;
    assert_eq!((reply.status, reply.json()["reasons"][0].as_str().unwrap()), (503, "the targets are being imported"));
    front.state.set_readiness(Readiness { ready: true, ..Readiness::default() });
    assert_eq!(front.send(&get("/readyz")).await.status, 200);
}

#[tokio::test]
async fn every_page_answers() {
    let front = Front::echo().await;
    for (path, media, says) in [
        ("/", "application/json", "POST /text"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8", "jitney_connections 1"),
        ("/config", "application/json", "max_batch_size"),
        ("/openapi.json", "application/json", "\"3.1"),
        ("/docs", "text/html; charset=utf-8", "openapi.json"),
        ("/live", "text/html; charset=utf-8", "live/events"),
    ] {
        let reply = front.send(&get(path)).await;
        assert_eq!((reply.status, reply.header("content-type")), (200, Some(media)), "{path}");
        assert!(reply.text().contains(says), "{path} {}", reply.text());
        assert!(reply.header("x-request-id").is_some());
        let mut client = front.connect().await;
        client.write(get(path).replace("GET", "HEAD")).await;
        let head = client.reply_to(false).await.unwrap();
        assert_eq!(head.status, 200);
        assert!(head.header("content-length").is_some_and(|length| length != "0"), "{path}");
        client.write(get("/livez")).await;
        assert_eq!(client.reply().await.unwrap().text(), "ok\n");
    }
    let browser = front.send("GET / HTTP/1.1\r\nhost: localhost\r\naccept: text/html,*/*;q=0.8\r\n\r\n").await;
    assert_eq!((browser.status, browser.header("location")), (307, Some("/live")));
}

#[tokio::test]
async fn a_path_that_is_not_text_is_no_page() {
    let front = Front::echo().await;
    for path in ["/%ff", "/%C3", "/livez%ff", "/%00", "/%2f"] {
        let reply = front.send(&get(path)).await;
        assert_eq!((reply.status, reply.reason()), (404, "not_found"), "{path}");
        assert!(reply.json()["detail"].as_str().unwrap().contains("deployments: "), "{path} {}", reply.text());
    }
    assert_eq!(front.send(&get("/%6civez")).await.status, 200);
}

#[tokio::test]
async fn the_server_as_a_whole_may_be_asked() {
    let front = Front::echo().await;
    let reply = front.send("OPTIONS * HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert_eq!((reply.status, reply.header("allow")), (204, Some("GET, HEAD, POST, OPTIONS")));
    assert_eq!(front.send("GET * HTTP/1.1\r\nhost: localhost\r\n\r\n").await.status, 404);
}

#[tokio::test]
async fn the_description_of_the_api_says_what_is_taken() {
    let front = Front::echo().await;
    let api = front.send(&get("/openapi.json")).await.json();
    let body = |path: &str| api["paths"][path]["post"]["requestBody"].clone();
    let octets = |path: &str| body(path)["content"].get("application/octet-stream").is_some();
    assert!(octets("/fixed") && !octets("/open"), "elements alone do not say an open shape");
    assert_eq!((&body("/bytes")["required"], &body("/text")["required"]), (&false.into(), &true.into()));
    assert_eq!(front.post("bytes", "", "").await.status, 200);
    let parameter = |name: &str| api["components"]["parameters"][name]["schema"].clone();
    let longest = parameter("Timeout")["maximum"].as_u64().unwrap();
    for (asked, status) in [(longest.to_string(), 200), (format!("{longest}0"), 400)] {
        let reply = front.post("text", &format!("x-request-timeout-ms: {asked}\r\n"), "\"a\"").await;
        assert_eq!(reply.status, status, "{asked} {}", reply.text());
    }
    assert_eq!(parameter("RequestId").get("maxLength"), None, "a longer one is replaced, not refused");
    assert!(!api["components"]["schemas"]["EmbeddingList"].to_string().contains("null"), "vectors have no null");
}

/// Engines that are busy answer late: a page asks all of them before it waits for one.
#[tokio::test]
async fn pages_ask_all_engines_at_once() {
    for path in ["/config", "/metrics"] {
        let (engine, mut messages) = watched();
        let front = Front::with(server_options(), engine).await;
        let page = get(path);
        let reply = front.send(&page);
        let engines = async {
            let mut asked = Vec::new();
            while asked.len() < manifests().len() {
                asked.push(messages.recv().await.expect("a question"));
            }
            let waits = |question: &Inbound| match question {
                Inbound::Explain(reply) => !reply.is_closed(),
                Inbound::ShowLearned(reply) => !reply.is_closed(),
                other => panic!("{other:?}"),
            };
            assert!(asked.iter().all(waits), "no engine has been given up before all were asked");
        };
        assert_eq!(tokio::join!(reply, engines).0.status, 200, "{path}");
    }
}
