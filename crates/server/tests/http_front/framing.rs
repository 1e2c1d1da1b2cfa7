//! Requests whose framing could be read in two ways are refused, and do not affect other requests.

use crate::support::{Front, post, server_options};
use tokio::io::AsyncWriteExt;

const GOOD: &str = "POST /text HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\n\r\n\"a\"";

#[tokio::test]
async fn ambiguous_framing_is_refused() {
    let front = Front::echo().await;
    for (name, request) in [
        (
            "length and chunked",
            "POST /text HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "chunked and length",
            "POST /text HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n",
        ),
        (
            "two lengths",
            "POST /text HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\ncontent-length: 5\r\n\r\n\"a\"",
        ),
        ("a list of lengths", "POST /text HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3, 5\r\n\r\n\"a\""),
        ("a signed length", "POST /text HTTP/1.1\r\nhost: localhost\r\ncontent-length: +3\r\n\r\n\"a\""),
        ("a negative length", "POST /text HTTP/1.1\r\nhost: localhost\r\ncontent-length: -3\r\n\r\n\"a\""),
        (
            "a huge length",
            "POST /text HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999999999999999\r\n\r\n\"a\"",
        ),
        ("a hexadecimal length", "POST /text HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0x3\r\n\r\n\"a\""),
        ("an unknown coding", "POST /text HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n"),
        (
            "chunked not last",
            "POST /text HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        ),
        (
            "a bad chunk size",
            "POST /text HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n\"a\"\r\n0\r\n\r\n",
        ),
        (
            "a signed chunk size",
            "POST /text HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n+3\r\n\"a\"\r\n0\r\n\r\n",
        ),
        (
            "a huge chunk size",
            "POST /text HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n\"a\"\r\n0\r\n\r\n",
        ),
        (
            "a chunk without its end",
            "POST /text HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n3\r\n\"a\"X0\r\n\r\n",
        ),
        ("a folded header", "POST /text HTTP/1.1\r\nhost: localhost\r\nx-a: b\r\n c\r\ncontent-length: 3\r\n\r\n\"a\""),
        ("a space before the colon", "POST /text HTTP/1.1\r\nhost: localhost\r\ncontent-length : 3\r\n\r\n\"a\""),
        ("a space before the name", "POST /text HTTP/1.1\r\n host: localhost\r\ncontent-length: 3\r\n\r\n\"a\""),
        ("no colon", "POST /text HTTP/1.1\r\nhost x\r\ncontent-length: 3\r\n\r\n\"a\""),
        ("a zero byte in a value", "POST /text HTTP/1.1\r\nhost: localhost\0y\r\ncontent-length: 3\r\n\r\n\"a\""),
        ("a bare return in a value", "POST /text HTTP/1.1\r\nhost: localhost\ry\r\ncontent-length: 3\r\n\r\n\"a\""),
        ("spaces in the request line", "POST  /text  HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\n\r\n\"a\""),
        ("a version that is none", "POST /text HTTP/1.9\r\nhost: localhost\r\ncontent-length: 3\r\n\r\n\"a\""),
        ("not HTTP", "\x16\x03\x01\x02\x00\x01\x00\x01\x7c\x03\x03"),
    ] {
        let mut client = front.connect().await;
        // Had the bad one been read as shorter than it is, the good one behind it would be answered too.
        client.write(request).await;
        client.write(GOOD).await;
        let first = client.reply().await;
        if let Some(reply) = &first {
            assert!((400..500).contains(&reply.status), "{name}: {reply:?}");
            assert!(client.is_closed().await, "{name}: the connection stays open");
        }
        front.assert_well().await;
    }
}

#[tokio::test]
async fn unusual_but_clear_framing_is_served() {
    let front = Front::echo().await;
    for request in [
        "POST /text HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n1\r\n\"\r\n2;note=1\r\na\"\r\n0\r\ntrailer: 1\r\n\r\n",
        "POST /text HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\n\"a\"",
        "POST http://localhost/text HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\n\r\n\"a\"",
        "POST /text HTTP/1.0\r\ncontent-length: 3\r\n\r\n\"a\"",
    ] {
        let reply = front.send(request).await;
        assert_eq!((reply.status, reply.text()), (200, "\"a\""), "{request}");
    }
}

/// RFC 9112, 3.2.
#[tokio::test]
async fn a_request_names_its_host_once() {
    let front = Front::echo().await;
    let body = "content-length: 3\r\n\r\n\"a\"";
    for head in ["POST /text HTTP/1.1\r\n", "POST /text HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n"] {
        let reply = front.send(&format!("{head}{body}")).await;
        assert_eq!((reply.status, reply.reason()), (400, "invalid_request"), "{head}");
        assert!(reply.json()["detail"].as_str().unwrap().contains("Host"), "{}", reply.text());
    }
    assert_eq!(front.send("GET /livez HTTP/1.1\r\n\r\n").await.status, 400);
    assert_eq!(front.send("GET /livez HTTP/1.0\r\n\r\n").await.status, 200);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let front = Front::echo().await;
    let mut client = front.connect().await;
    let requests: Vec<String> = (0..50)
        .map(|number| format!("POST /text HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{number:02}"))
        .collect();
    client.write(requests.concat()).await;
    for number in 0..50 {
        assert_eq!(client.reply().await.unwrap().text(), format!("{number:02}"));
    }
}

#[tokio::test]
async fn heads_and_bodies_have_limits() {
    let front = Front::with(server_options(), |_| crate::support::echo).await;
    let reply =
        front.send(&format!("GET /livez HTTP/1.1\r\nhost: localhost\r\nx-a: {}\r\n\r\n", "a".repeat(40_000))).await;
    assert_eq!(reply.status, 431);
    let reply =
        front.send(&format!("GET /livez HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x-a: b\r\n".repeat(200))).await;
    assert_eq!(reply.status, 431);

    let most = server_options().max_body_bytes as usize;
    let mut client = front.connect().await;
    client.write(format!("POST /bytes HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", most + 1)).await;
    let reply = client.reply().await.unwrap();
    assert_eq!((reply.status, reply.reason(), reply.header("connection")), (413, "too_large", Some("close")));
    assert!(reply.json()["detail"].as_str().unwrap().contains(&most.to_string()));
    assert!(client.is_closed().await);

    // A client that sends everything before it looks still gets its answer.
    let reply = front.post("bytes", "", vec![b'x'; 30 * most]).await;
    assert_eq!((reply.status, reply.reason()), (413, "too_large"));

    // A refused request with a short body leaves its connection usable.
    let mut client = front.connect().await;
    for _ in 0..3 {
        client
            .write("POST /bytes HTTP/1.1\r\nhost: localhost\r\nx-priority: none\r\ncontent-length: 4\r\n\r\nab")
            .await;
        client.write("cd").await;
        assert_eq!(client.reply().await.unwrap().reason(), "invalid_request");
    }

    let exact = front.post("bytes", "", vec![b'x'; most]).await;
    assert_eq!((exact.status, exact.body.len()), (200, most));

    let mut client = front.connect().await;
    client.write("POST /bytes HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n").await;
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    for _ in 0..17 {
        client.write(&chunk).await;
    }
    assert_eq!(client.reply().await.unwrap().reason(), "too_large");
    front.assert_well().await;
}

/// Java's client offers HTTP/2 with every request. hyper then leaves the socket to the upgrade, which never happens.
#[tokio::test]
async fn a_refused_client_that_offers_an_upgrade_is_not_cut_off_either() {
    let front = Front::echo().await;
    let settings = "http2-settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n";
    let upgrade = format!("connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n{settings}");
    for (path, status) in [("bytes", 413), ("nowhere", 404)] {
        // With the request itself, and with one before it.
        for (first, then) in [("", &*upgrade), (&*upgrade, "")] {
            let mut client = front.connect().await;
            client.write(format!("GET /livez HTTP/1.1\r\nhost: localhost\r\n{first}\r\n")).await;
            assert_eq!(client.reply().await.unwrap().status, 200);
            client.stream.write_all(&post(path, then, vec![b'x'; 30 << 20])).await.expect("all is taken");
            let reply = client.reply().await.expect("an answer");
            assert_eq!((reply.status, reply.header("connection")), (status, Some("close")));
            assert!(client.is_closed().await);
        }
    }
}

#[tokio::test]
async fn a_body_that_is_coded_for_its_journey_is_refused() {
    let front = Front::echo().await;
    for (coding, status, reason) in [
        ("transfer-encoding: gzip, chunked", 415, "unsupported_media_type"),
        ("transfer-encoding: chunked, chunked", 415, "unsupported_media_type"),
        ("transfer-encoding: gzip\r\ntransfer-encoding: chunked", 400, "invalid_request"),
    ] {
        let mut client = front.connect().await;
        client
            .write(format!("POST /text HTTP/1.1\r\nhost: localhost\r\n{coding}\r\n\r\n3\r\n\"a\"\r\n0\r\n\r\n"))
            .await;
        let reply = client.reply().await.unwrap();
        assert_eq!((reply.status, reply.reason()), (status, reason), "{coding} {reply:?}");
        assert!(reply.json()["detail"].as_str().unwrap().contains("transfer-encoding"), "{reply:?}");
    }
    let body = "transfer-encoding: Chunked\r\n\r\n3\r\n\"a\"\r\n0\r\n\r\n";
    assert_eq!(front.send(&format!("POST /text HTTP/1.1\r\nhost: localhost\r\n{body}")).await.text(), "\"a\"");
}

/// hyper drops the length before we see it and reads the body as chunked; RFC 9112 (6.3) allows that if the connection
/// ends with the answer, so that the rest cannot be read in two ways.
#[tokio::test]
async fn a_length_beside_chunks_ends_the_connection() {
    let front = Front::echo().await;
    for lines in ["content-length: 4\r\ntransfer-encoding: chunked", "transfer-encoding: chunked\r\ncontent-length: 4"]
    {
        let mut client = front.connect().await;
        client.write(format!("POST /text HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n\r\n3\r\n\"a\"\r\n0\r\n\r\n")).await;
        client.write(GOOD).await;
        let reply = client.reply().await.unwrap();
        assert_eq!((reply.status, reply.text(), reply.header("connection")), (200, "\"a\"", Some("close")), "{lines}");
        assert!(client.is_closed().await, "{lines}");
    }
}

/// What stands before `chunked` was never undone, so the body is not what its type says. Every protocol reports that.
#[tokio::test]
async fn other_transfer_codings_are_refused_by_every_protocol() {
    let front = Front::echo().await;
    for route in ["text", "text/batch", "v1/embeddings", "v2/models/text/infer"] {
        let head = format!("POST /{route} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: gzip, chunked\r\n");
        let reply = front.send(&(head + "content-type: application/json\r\n\r\n3\r\n\"a\"\r\n0\r\n\r\n")).await;
        assert_eq!((reply.status, reply.reason()), (415, "unsupported_media_type"), "{route}");
        assert!(reply.text().contains("transfer-encoding `gzip, chunked`"), "{route}: {}", reply.text());
    }
    front.assert_well().await;
}
