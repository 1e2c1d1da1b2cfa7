//! Clients that take their time, and the end of the front.

use crate::support::{Client, Front, LONG, echo, echo_answer, output, post, server_options, submitted, watched};
use jitney_core::config::options::ServerOptions;
use jitney_server::engine::reply::PartSent;
use jitney_server::values::tensor::Tag;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn impatient() -> ServerOptions {
    ServerOptions { header_timeout_s: 0.2, body_timeout_s: 0.2, idle_timeout_s: 0.2, ..server_options() }
}

#[tokio::test]
async fn a_slow_head_ends_the_connection() {
    let front = Front::with(ServerOptions { idle_timeout_s: 60.0, ..impatient() }, |_| echo).await;
    for start in ["", "P", "POST /te", "PRI * HTTP/2.0\r\n"] {
        let mut client = front.connect().await;
        client.write(start).await;
        assert!(client.is_closed().await, "{start}");
    }
    // Also the second head of a connection, fed byte by byte.
    let mut client = front.connect().await;
    client.write(post("text", "", "\"a\"")).await;
    assert_eq!(client.reply().await.unwrap().status, 200);
    let started = Instant::now();
    let drip = async {
        loop {
            client.write("P").await;
            let mut byte = [0];
            if let Ok(Ok(0) | Err(_)) =
                tokio::time::timeout(Duration::from_millis(20), client.stream.read(&mut byte)).await
            {
                break;
            }
        }
    };
    tokio::time::timeout(LONG, drip).await.expect("the connection ends");
    assert!(started.elapsed() >= Duration::from_millis(150));
    front.assert_well().await;
}

#[tokio::test]
async fn an_idle_connection_lives_as_long_as_it_may() {
    let front =
        Front::with(ServerOptions { header_timeout_s: 0.1, idle_timeout_s: 0.5, ..impatient() }, |_| echo).await;
    let mut client = front.connect().await;
    client.write(post("text", "", "\"a\"")).await;
    assert_eq!(client.reply().await.unwrap().status, 200);
    let started = Instant::now();
    assert!(client.is_closed().await);
    assert!(started.elapsed() >= Duration::from_millis(400), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_client_that_waits_for_us_is_not_idle() {
    let (engine, mut messages) = watched();
    let front = Front::with(impatient(), engine).await;
    let mut client = front.connect().await;
    client.write(post("text", "", "\"a\"")).await;
    let (call, reply) = submitted(&mut messages).await;
    // Longer than every time-out of this front: this is what is tested, not a way to synchronise.
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!(reply.end(echo_answer(call)));
    assert_eq!(client.reply().await.unwrap().status, 200);
}

#[tokio::test]
async fn a_slow_body_is_refused() {
    let front = Front::with(impatient(), |_| echo).await;
    let mut client = front.connect().await;
    client.write("POST /bytes HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nabc").await;
    let reply = client.reply().await.unwrap();
    assert_eq!((reply.status, reply.reason(), reply.header("connection")), (408, "body_timeout", Some("close")));
    assert!(client.is_closed().await);
    front.assert_well().await;
}

/// Else an answer in parts whose body came after its head would end at `request_timeout_s`.
#[tokio::test]
async fn a_body_that_comes_late_is_no_time_out_of_the_client_for_an_answer_in_parts() {
    let (engine, mut messages) = watched();
    let front = Front::with(server_options(), engine).await;
    for (header, is_own) in [("", false), ("x-request-timeout-ms: 5000\r\n", true)] {
        let mut client = front.connect().await;
        let head = "POST /bytes HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\nexpect: 100-continue\r\n";
        client.write(format!("{head}{header}content-length: 3\r\n\r\n")).await;
        let mut go_on = [0; 25];
        client.stream.read_exact(&mut go_on).await.unwrap();
        assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
        client.write("abc").await;
        let (call, _reply) = submitted(&mut messages).await;
        assert!(call.streams);
        assert_eq!(call.timeout.is_some(), is_own, "{header}");
    }
}

/// Sends one byte again and again until the connection ends.
async fn trickle(client: &mut Client) {
    let mut byte = [0];
    let dripping = async {
        while client.stream.write_all(b"x").await.is_ok() {
            match tokio::time::timeout(Duration::from_millis(20), client.stream.peek(&mut byte)).await {
                Err(_) => {}
                Ok(_) => return,
            }
        }
    };
    tokio::time::timeout(LONG, dripping).await.expect("an answer or the end of the connection");
}

#[tokio::test]
async fn a_body_that_trickles_is_refused() {
    let front = Front::with(ServerOptions { body_timeout_s: 0.5, ..server_options() }, |_| echo).await;
    let mut client = front.connect().await;
    client.write("POST /bytes HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n").await;
    trickle(&mut client).await;
    let reply = client.reply().await.unwrap();
    assert_eq!((reply.status, reply.reason(), reply.header("connection")), (408, "body_timeout", Some("close")));
    assert!(reply.json()["detail"].as_str().unwrap().contains("fewer than 256 bytes in 0.5 s"), "{}", reply.text());
    front.assert_well().await;
}

/// A client that is refused may go on sending, but not hold its connection with a byte now and then.
#[tokio::test]
async fn a_refused_body_that_trickles_ends_the_connection() {
    let front = Front::echo().await;
    let mut client = front.connect().await;
    client.write("POST /nowhere HTTP/1.1\r\nhost: localhost\r\ncontent-length: 70000000\r\n\r\n").await;
    assert_eq!(client.reply().await.unwrap().status, 404);
    let started = Instant::now();
    while client.stream.write_all(b"x").await.is_ok() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // It may pause for 2 s, and go on for 30 s.
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_body_that_drips_ends_with_its_request() {
    let front = Front::with(ServerOptions { body_timeout_s: 60.0, ..server_options() }, |_| echo).await;
    let mut client = front.connect().await;
    client
        .write("POST /bytes HTTP/1.1\r\nhost: localhost\r\nx-request-timeout-ms: 200\r\ncontent-length: 10\r\n\r\na")
        .await;
    let reply = client.reply().await.unwrap();
    assert_eq!((reply.status, reply.reason(), reply.header("connection")), (504, "deadline_exceeded", Some("close")));
}

#[tokio::test]
async fn nobody_sends_for_longer_than_a_request_may_take() {
    let front = Front::with(ServerOptions { body_timeout_s: 60.0, ..server_options() }, |_| echo).await;
    // The deployment allows 0.2 s; without a header of the caller that is the deadline.
    for (asked, status) in [("x-request-timeout-ms: 1000000000000\r\n", 408), ("", 504)] {
        let mut client = front.connect().await;
        client.write(format!("POST /brief HTTP/1.1\r\nhost: localhost\r\n{asked}content-length: 10\r\n\r\na")).await;
        assert_eq!(client.reply().await.unwrap().status, status);
    }
}

#[tokio::test]
async fn one_byte_chunks_are_served() {
    let front = Front::echo().await;
    let mut request = b"POST /bytes HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..50_000 {
        request.extend_from_slice(b"1\r\nx\r\n");
    }
    request.extend_from_slice(b"0\r\n\r\n");
    let reply = front.send_bytes(&request).await;
    assert_eq!((reply.status, reply.body.len()), (200, 50_000));
    let gauge = front.send("GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(gauge.text().contains("jitney_receiving_bytes 0"), "{}", gauge.text());
}

#[tokio::test]
async fn bodies_together_hold_no_more_than_they_may() {
    let front = Front::with(ServerOptions { max_receiving_bytes: 10_000, ..server_options() }, |_| echo).await;
    let mut first = front.connect().await;
    first
        .write(format!("POST /bytes HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9000\r\n\r\n{}", "x".repeat(8999)))
        .await;
    loop {
        let metrics = front.send("GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        if metrics.text().contains("jitney_receiving_bytes 8999") {
            break;
        }
    }
    let mut second = front.connect().await;
    second
        .write(format!("POST /bytes HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9000\r\n\r\n{}", "x".repeat(8999)))
        .await;
    let reply = second.reply().await.unwrap();
    assert_eq!((reply.status, reply.reason(), reply.header("retry-after")), (429, "queue_bytes_full", Some("1")));
    first.write("x").await;
    assert_eq!(first.reply().await.unwrap().body.len(), 9000);
}

/// Otherwise all bodies would be received halfway under overload, and none completely.
#[tokio::test]
async fn large_bodies_that_begin_leave_room_for_those_under_way() {
    let front = Front::with(ServerOptions { max_receiving_bytes: 1_000_000, ..server_options() }, |_| echo).await;
    let head = |length: usize| format!("POST /bytes HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n");
    let begin = async |length: usize, sent: usize| {
        let mut client = front.connect().await;
        client.write(head(length) + &"x".repeat(sent)).await;
        client
    };
    let mut first = begin(900_000, 600_000).await;
    let metrics = async || front.send("GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").await.text().to_owned();
    while !metrics().await.contains("jitney_receiving_bytes 600000") {}
    let reply = begin(900_000, 1).await.reply().await.unwrap();
    assert_eq!((reply.status, reply.reason()), (429, "queue_bytes_full"));
    assert!(reply.text().contains("half of the 1000000 bytes"), "{}", reply.text());
    let mut small = begin(5000, 1).await;
    while !metrics().await.contains("jitney_receiving_bytes 600001") {}
    small.write("x".repeat(4999)).await;
    assert_eq!(small.reply().await.unwrap().body.len(), 5000);
    first.write("x".repeat(300_000)).await;
    assert_eq!(first.reply().await.unwrap().body.len(), 900_000);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_dropped() {
    let (engine, mut messages) = watched();
    let front = Front::with(impatient(), engine).await;
    let mut client = front.connect().await;
    client.write(post("bytes", "", "x")).await;
    let (_, reply) = submitted(&mut messages).await;
    let large = crate::support::output(jitney_server::values::tensor::Tag::Bytes, vec![0; 64 << 20]);
    assert!(reply.end(jitney_server::values::answer::Answer {
        result: Ok([large].into_iter().collect()),
        timing: crate::support::timing(),
        tokens: None,
        end: None,
    }));
    loop {
        let metrics = front.send("GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        if metrics.text().contains("jitney_connections 1\n") {
            assert!(metrics.text().contains("jitney_untaken_bytes 0\n"));
            break;
        }
    }
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn answers_that_nobody_takes_hold_no_more_than_they_may() {
    let (engine, mut messages) = watched();
    let front = Front::with(ServerOptions { max_receiving_bytes: 1 << 20, ..server_options() }, engine).await;
    let mut idler = front.connect().await;
    idler.write(post("bytes", "", "x")).await;
    let mut late = front.connect().await;
    let (_, first) = submitted(&mut messages).await;
    late.write(post("bytes", "", "y")).await;
    let (call, second) = submitted(&mut messages).await;
    let large = crate::support::output(jitney_server::values::tensor::Tag::Bytes, vec![0; 64 << 20]);
    let answer = jitney_server::values::answer::Answer {
        result: Ok([large].into_iter().collect()),
        timing: crate::support::timing(),
        tokens: None,
        end: None,
    };
    assert!(first.end(answer));
    while front.state.ledger.untaken.amount() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(front.state.ledger.untaken.amount(), 64 << 20);
    // No more bytes are received, and those received are not kept.
    let refused = front.post("bytes", "", "z").await;
    assert!(second.end(echo_answer(call)));
    for reply in [refused, late.reply().await.unwrap()] {
        assert_eq!((reply.status, reply.reason(), reply.header("retry-after")), (429, "queue_bytes_full", Some("1")));
        assert!(reply.json()["detail"].as_str().unwrap().contains("answers"));
    }
    drop(idler);
    while front.state.ledger.untaken.amount() > 0 {
        tokio::task::yield_now().await;
    }
    late.write(post("bytes", "", "y")).await;
    let (call, reply) = submitted(&mut messages).await;
    assert!(reply.end(echo_answer(call)));
    assert_eq!(late.reply().await.unwrap().status, 200);
}

#[tokio::test]
async fn a_refused_client_may_go_on_sending_until_it_pauses() {
    let front = Front::echo().await;
    let mut client = front.connect().await;
    client.write("POST /nowhere HTTP/1.1\r\nhost: localhost\r\ncontent-length: 70000000\r\n\r\n").await;
    let piece = [b'x'; 1000];
    // For longer than it may pause: this is what is tested.
    for _ in 0..13 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        client.stream.write_all(&piece).await.expect("it is read");
    }
    let stopped = Instant::now();
    assert_eq!(client.reply().await.unwrap().status, 404);
    assert!(client.is_closed().await);
    // Our half was closed at once. The other one is when it has been silent for long enough: then writes fail.
    tokio::time::sleep(Duration::from_millis(2200)).await;
    while client.stream.write_all(b"x").await.is_ok() {
        assert!(stopped.elapsed() < LONG);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn connections_above_the_limit_wait() {
    let front = Front::with(ServerOptions { max_connections: 1, ..server_options() }, |_| echo).await;
    let mut first = front.connect().await;
    first.write(post("text", "", "\"a\"")).await;
    assert_eq!(first.reply().await.unwrap().status, 200);
    let mut second = front.connect().await;
    second.write(post("text", "", "\"b\"")).await;
    let mut byte = [0];
    assert!(tokio::time::timeout(Duration::from_millis(100), second.stream.peek(&mut byte)).await.is_err());
    drop(first);
    assert_eq!(second.reply().await.unwrap().text(), "\"b\"");
}

#[tokio::test]
async fn the_end_waits_for_requests_and_not_for_idle_connections() {
    let (engine, mut messages) = watched();
    let front = Front::with(server_options(), engine).await;
    let mut fresh = front.connect().await;
    let mut busy = front.connect().await;
    let mut idle = front.connect().await;
    idle.write("GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert_eq!(idle.reply().await.unwrap().status, 200);
    busy.write(post("text", "", "\"a\"")).await;
    let (call, reply) = submitted(&mut messages).await;
    front.stop();
    assert!(idle.is_closed().await);
    assert!(fresh.is_closed().await);
    assert!(reply.end(echo_answer(call)));
    let last = busy.reply().await.unwrap();
    assert_eq!((last.status, last.header("connection")), (200, Some("close")));
    assert!(busy.is_closed().await);
    front.ended().await;
}

/// hyper answers into a buffer until that is full, and reads no further then.
#[tokio::test]
async fn a_client_that_pipelines_and_never_reads_is_dropped() {
    let front = Front::with(ServerOptions { body_timeout_s: 0.5, ..server_options() }, |_| echo).await;
    let mut client = front.connect().await;
    let page = "GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(100);
    let sending = async { while client.stream.write_all(page.as_bytes()).await.is_ok() {} };
    tokio::time::timeout(LONG, sending).await.expect("the connection ends");
    let metrics = front.send("GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(metrics.text().contains("jitney_untaken_bytes 0\n"));
    front.assert_well().await;
}

/// With one thread for all connections, the other request is answered only if the part is not written on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_heavy_part_of_an_answer_delays_no_other_request() {
    let (engine, mut messages) = watched();
    let front = Front::with(server_options(), engine).await;
    let mut client = front.connect().await;
    client.write(post("bytes", "accept: text/event-stream\r\n", "x")).await;
    let (_, mut reply) = submitted(&mut messages).await;
    let text = output(Tag::Text, "\u{1}".repeat(32 << 20));
    assert!(matches!(reply.try_part([text].into_iter().collect()), PartSent::Taken | PartSent::Filled));
    let mut begin = [0; 8];
    tokio::select! {
        biased;
        _ = client.stream.read(&mut begin) => panic!("the part was written first"),
        other = front.send("GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n") => assert_eq!(other.status, 200),
    }
    client.stream.read_exact(&mut begin).await.unwrap();
    assert_eq!(&begin, b"HTTP/1.1");
}
