//! The live page and its events.

use crate::support::{Front, LONG, echo, server_options};
use jitney_server::base::keys::Keys;
use jitney_server::engine::readiness::Readiness;
use jitney_server::engine::server_state::live::hub;
use jitney_server::protocols::native::live::sampler;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A watcher that reads lines.
struct Watcher {
    stream: BufReader<TcpStream>,
}

impl Watcher {
    async fn open(front: &Front) -> Watcher {
        let mut stream = TcpStream::connect(&front.address).await.unwrap();
        stream.write_all(b"GET /live/events HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
        Watcher { stream: BufReader::new(stream) }
    }

    /// The next event with this name; `None` at the end of the stream.
    async fn next(&mut self, name: &str) -> Option<serde_json::Value> {
        let mut is_meant = false;
        loop {
            let mut line = String::new();
            let read = timeout(LONG, self.stream.read_line(&mut line)).await.expect("an event comes").unwrap();
            if read == 0 {
                return None;
            }
            if let Some(found) = line.strip_prefix("event: ") {
                is_meant = found.trim_end() == name;
            }
            if let (true, Some(data)) = (is_meant, line.strip_prefix("data: ")) {
                return Some(serde_json::from_str(data).unwrap());
            }
        }
    }
}

async fn watched_front() -> Front {
    let front = Front::echo().await;
    tokio::spawn(sampler::run(Arc::downgrade(&front.state)));
    front
}

#[tokio::test]
async fn requests_are_in_the_next_samples() {
    let front = watched_front().await;
    let mut watcher = Watcher::open(&front).await;
    watcher.next("history").await.unwrap();
    watcher.next("snapshot").await.unwrap();
    for _ in 0..5 {
        assert_eq!(front.post("text", "", "\"a\"").await.status, 200);
    }
    assert_eq!(front.post("text", "x-request-timeout-ms: 0\r\n", "\"a\"").await.status, 400);
    let mut counts = serde_json::Value::Null;
    // A sample may be taken between two requests.
    for _ in 0..3 {
        let snapshot = watcher.next("snapshot").await.unwrap();
        let all = snapshot["deployments"].as_array().unwrap();
        let text = all.iter().find(|one| one["name"] == "text").unwrap();
        counts = text["counts"].clone();
        if counts["answered"] == 5 && counts["mistaken"] == 1 {
            let quantiles = &text["quantiles"];
            assert!(quantiles["p50_ms"].as_f64().unwrap() > 0.0, "{text}");
            assert_eq!(text["outcomes"][0], serde_json::json!({"outcome": "ok", "blame": "none", "count": 5}));
            return;
        }
    }
    panic!("{counts}");
}

#[tokio::test]
async fn a_further_watcher_takes_the_place_of_the_first_and_a_server_that_ends_ends_their_streams() {
    let front = watched_front().await;
    let mut watchers = Vec::new();
    for _ in 0..hub::MOST_WATCHERS {
        let mut watcher = Watcher::open(&front).await;
        watcher.next("history").await.unwrap();
        watchers.push(watcher);
    }
    let mut next = Watcher::open(&front).await;
    next.next("history").await.unwrap();
    assert_eq!(watchers[0].next("replaced").await.unwrap()["most_watchers"], hub::MOST_WATCHERS);
    assert!(watchers[0].next("snapshot").await.is_none());
    watchers[1].next("snapshot").await.unwrap();
    front.state.set_readiness(Readiness::ending("the test ends"));
    while let Some(snapshot) = next.next("snapshot").await {
        assert!(snapshot["server"]["version"].is_string());
    }
}

#[tokio::test]
async fn the_page_has_no_data_and_its_events_need_the_key() {
    let keys = Keys::load(Some("a-key"), None).unwrap();
    let front = Front::guarded(server_options(), keys, |_| echo).await;
    let get = |path: &str, more: &str| format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{more}\r\n");
    let page = front.send(&get("/live", "")).await;
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
    assert!(!page.text().contains("%%"), "every piece is in its place");
    assert_eq!(front.send(&get("/live/events", "")).await.status, 401);
    assert_eq!(front.send(&get("/live/events", "origin: http://evil.example\r\n")).await.status, 421);
}
