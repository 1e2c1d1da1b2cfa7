//! HTTP/2 on the same port, and Unix sockets.

use crate::support::{Front, LONG, echo, echo_answer, output, server_options, submitted, watched};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use jitney_core::config::options::ServerOptions;
use jitney_server::engine::deployment::Inbound;
use jitney_server::engine::reply::{PartSent, ReplySender};
use jitney_server::protocols::connection::listen;
use jitney_server::values::answer::{Answer, Timing};
use jitney_server::values::call::Call;
use jitney_server::values::tensor::Tag;
use smallvec::SmallVec;
use std::os::unix::fs::PermissionsExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

async fn http2(front: &Front) -> (SendRequest<Full<Bytes>>, JoinHandle<hyper::Result<()>>) {
    let stream = TokioIo::new(TcpStream::connect(&front.address).await.unwrap());
    let (sender, connection) = handshake(TokioExecutor::new(), stream).await.unwrap();
    (sender, tokio::spawn(connection))
}

fn request(path: &str, body: &'static str) -> Request<Full<Bytes>> {
    Request::post(format!("http://localhost/{path}"))
        .header("content-type", "text/plain")
        .body(Full::from(body))
        .unwrap()
}

#[tokio::test]
async fn http2_is_served_on_the_same_port() {
    let front = Front::echo().await;
    let (mut sender, _) = http2(&front).await;
    for body in ["a", "b"] {
        let reply = sender.send_request(request("text", body)).await.unwrap();
        assert_eq!(reply.status(), 200);
        assert_eq!(reply.headers()["x-jitney-batch-size"], "7");
        assert_eq!(reply.into_body().collect().await.unwrap().to_bytes(), format!("\"{body}\""));
    }
    let head = Request::head("http://localhost/livez").body(Full::default()).unwrap();
    let reply = sender.send_request(head).await.unwrap();
    assert_eq!(reply.status(), 200);
    assert_eq!(reply.headers()["content-length"], "3");
    front.assert_well().await;
}

#[tokio::test]
async fn a_reset_stream_cancels() {
    let (engine, mut messages) = watched();
    let front = Front::with(server_options(), engine).await;
    let (mut sender, _) = http2(&front).await;
    let pending = tokio::spawn(sender.send_request(request("text", "a")));
    let (call, _reply) = submitted(&mut messages).await;
    pending.abort();
    match tokio::time::timeout(LONG, messages.recv()).await.unwrap() {
        Some(Inbound::Cancel(id)) => assert_eq!(id, call.id),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_end_of_the_front_finishes_streams() {
    let (engine, mut messages) = watched();
    let front = Front::with(server_options(), engine).await;
    let (mut sender, connection) = http2(&front).await;
    let pending = tokio::spawn(sender.send_request(request("text", "a")));
    let (call, reply) = submitted(&mut messages).await;
    front.stop();
    assert!(reply.end(echo_answer(call)));
    let answer = pending.await.unwrap().unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "\"a\"");
    tokio::time::timeout(LONG, connection).await.unwrap().unwrap().unwrap();
    front.ended().await;
}

#[tokio::test]
async fn an_idle_http2_connection_is_closed() {
    let front = Front::with(ServerOptions { idle_timeout_s: 0.2, ..server_options() }, |_| echo).await;
    let (mut sender, connection) = http2(&front).await;
    assert_eq!(sender.send_request(request("text", "a")).await.unwrap().status(), 200);
    let _ = tokio::time::timeout(LONG, connection).await.expect("the connection ends");
}

#[tokio::test]
async fn an_http2_client_that_takes_no_answer_is_dropped() {
    let options = ServerOptions { body_timeout_s: 0.2, idle_timeout_s: 0.2, ..server_options() };
    let front = Front::with(options, |_| echo).await;
    let stream = TokioIo::new(TcpStream::connect(&front.address).await.unwrap());
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (mut sender, connection) = builder.initial_stream_window_size(0).handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let pending = tokio::spawn(sender.send_request(request("text", "a")));
    let _ = tokio::time::timeout(LONG, connection).await.expect("the connection ends");
    drop(pending);
}

#[tokio::test]
async fn an_http2_client_that_takes_a_byte_now_and_then_is_dropped() {
    let options = ServerOptions { body_timeout_s: 0.2, idle_timeout_s: 60.0, ..server_options() };
    let front = Front::with(options, |_| echo).await;
    let stream = TokioIo::new(TcpStream::connect(&front.address).await.unwrap());
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    // The answer is handed to the protocol, which may write one byte of it.
    let (mut sender, connection) = builder.initial_stream_window_size(1).handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let long = Request::post("http://localhost/bytes").body(Full::from(vec![b'x'; 2048])).unwrap();
    let answer = sender.send_request(long).await.unwrap();
    // The connection is never idle.
    let busy = async { while sender.send_request(request("nowhere", "")).await.is_ok() {} };
    tokio::time::timeout(LONG, busy).await.expect("the connection ends");
    assert!(answer.into_body().collect().await.is_err());
    let _ = tokio::time::timeout(LONG, connection).await.unwrap();
    assert_eq!(front.state.ledger.untaken.amount(), 0);
}

/// A connection whose client reads up to this many bytes of a stream that it does not look at.
async fn http2_with(front: &Front, window: u32) -> (SendRequest<Full<Bytes>>, JoinHandle<hyper::Result<()>>) {
    let socket = TokioIo::new(TcpStream::connect(&front.address).await.unwrap());
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let builder = builder.initial_stream_window_size(window).initial_connection_window_size(1 << 20);
    let (sender, connection) = builder.handshake(socket).await.unwrap();
    (sender, tokio::spawn(connection))
}

/// Asks for an answer in parts. Returns its item, and the answer once it begins.
async fn stream(
    sender: &mut SendRequest<Full<Bytes>>,
    messages: &mut mpsc::UnboundedReceiver<Inbound>,
) -> (Call, ReplySender, Response<Incoming>) {
    let mut request = request("bytes", "a");
    request.headers_mut().insert("accept", "text/event-stream".parse().unwrap());
    let pending = tokio::spawn(sender.send_request(request));
    let (call, mut reply) = submitted(messages).await;
    say(&mut reply, 1);
    (call, reply, pending.await.unwrap().unwrap())
}

/// The end of an answer that was in its parts.
fn whole() -> Answer {
    Answer { result: Ok(SmallVec::new()), timing: Timing::default(), tokens: None, end: Some(Box::default()) }
}

fn say(reply: &mut ReplySender, bytes: usize) {
    let part = output(Tag::Bytes, vec![b'x'; bytes]);
    assert!(matches!(reply.try_part([part].into_iter().collect()), PartSent::Taken | PartSent::NobodyWaits));
}

#[tokio::test]
async fn a_stream_of_http2_that_is_not_read_ends_alone() {
    let (engine, mut messages) = watched();
    let front = Front::with(ServerOptions { body_timeout_s: 0.2, ..server_options() }, engine).await;
    let (mut sender, connection) = http2_with(&front, 4096).await;
    let (stalled, mut stalled_reply, unread) = stream(&mut sender, &mut messages).await;
    let (_, mut reply, mut read) = stream(&mut sender, &mut messages).await;
    (0..8).for_each(|_| say(&mut stalled_reply, 3000));
    let ended = loop {
        say(&mut reply, 1);
        assert!(read.frame().await.unwrap().is_ok(), "the other stream goes on");
        if let Ok(message) = messages.try_recv() {
            break message;
        }
    };
    assert!(matches!(ended, Inbound::Cancel(id) if id == stalled.id), "{ended:?}");
    assert!(unread.into_body().collect().await.is_err(), "its client can see that it is not whole");
    say(&mut reply, 5000);
    assert!(read.frame().await.unwrap().is_ok());
    assert!(!connection.is_finished());
    let metrics = front.send("GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let counted = "jitney_requests_total{deployment=\"bytes\",outcome=\"too_slow\"} 1\n";
    assert!(metrics.text().contains(counted), "{}", metrics.text());
}

#[tokio::test]
async fn a_stream_of_http2_of_which_not_even_the_first_part_is_read_ends() {
    let (engine, mut messages) = watched();
    let front = Front::with(ServerOptions { body_timeout_s: 0.2, ..server_options() }, engine).await;
    let (mut sender, connection) = http2_with(&front, 0).await;
    let (call, mut reply, unread) = stream(&mut sender, &mut messages).await;
    (0..8).for_each(|_| say(&mut reply, 1));
    let ended = tokio::time::timeout(LONG, messages.recv()).await.expect("it ends");
    assert!(matches!(ended, Some(Inbound::Cancel(id)) if id == call.id));
    assert!(unread.into_body().collect().await.is_err());
    assert!(!connection.is_finished());
    assert_eq!(front.state.ledger.untaken.amount(), 0);
}

#[tokio::test]
async fn a_stream_of_http2_that_has_ended_and_is_not_read_ends_alone() {
    let (engine, mut messages) = watched();
    let front = Front::with(ServerOptions { body_timeout_s: 0.2, ..server_options() }, engine).await;
    let (mut sender, connection) = http2_with(&front, 4096).await;
    let (_, mut ended_reply, unread) = stream(&mut sender, &mut messages).await;
    let (_, mut reply, mut read) = stream(&mut sender, &mut messages).await;
    say(&mut ended_reply, 5000);
    assert!(ended_reply.end(whole()));
    let untaken = &front.state.ledger.untaken;
    let mut was_unread = false;
    while !was_unread || untaken.amount() > 4000 {
        was_unread |= untaken.amount() > 4000;
        say(&mut reply, 1);
        assert!(read.frame().await.unwrap().is_ok(), "the other stream goes on");
    }
    assert!(unread.into_body().collect().await.is_err(), "its client can see that it is not whole");
    say(&mut reply, 5000);
    assert!(reply.end(whole()));
    let rest = read.collect().await.unwrap().to_bytes();
    assert!(rest.ends_with(b"event: end\ndata: {\"reason\":\"stop\"}\n\n"), "{rest:?}");
    assert!(!connection.is_finished());
    assert_eq!(untaken.amount(), 0);
}

#[tokio::test]
async fn http2_streams_are_limited_as_configured() {
    let (engine, mut messages) = watched();
    let front = Front::with(server_options(), engine).await;
    let (mut sender, _) = http2(&front).await;
    sender.ready().await.unwrap();
    // The server's settings must have arrived.
    let first = tokio::spawn(sender.send_request(request("text", "a")));
    let (call, reply) = submitted(&mut messages).await;
    assert!(reply.end(echo_answer(call)));
    first.await.unwrap().unwrap();
    let pending: Vec<_> = (0..300).map(|_| tokio::spawn(sender.send_request(request("text", "a")))).collect();
    let mut held = vec![];
    for _ in 0..256 {
        held.push(submitted(&mut messages).await);
    }
    assert!(messages.try_recv().is_err());
    for (call, reply) in held {
        assert!(reply.end(echo_answer(call)));
    }
    for _ in 256..300 {
        let (call, reply) = submitted(&mut messages).await;
        assert!(reply.end(echo_answer(call)));
    }
    for answer in pending {
        assert_eq!(answer.await.unwrap().unwrap().status(), 200);
    }
}

#[tokio::test]
async fn a_unix_socket_is_private_and_outlives_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("front.sock");
    let address = format!("unix:{}", path.display());
    // What a crash leaves behind: a socket without a listener.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let listeners = listen::bind(std::slice::from_ref(&address)).await.unwrap();
    assert_eq!(listeners[0].local_address(), address);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(listen::bind(std::slice::from_ref(&address)).await.unwrap_err().contains("another process listens"));
    drop(listeners);
    assert!(!path.exists());
    std::fs::write(&path, "not a socket").unwrap();
    assert!(listen::bind(&[address]).await.unwrap_err().contains("is not a socket"));
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let front = Front::echo().await;
    let error = listen::bind(&[format!("tcp:{}", front.address)]).await.unwrap_err();
    assert!(error.contains(&front.address) && error.contains("choose another port"), "{error}");
}

/// Clients without a key do not see which models there are; probes of the server as a whole have none.
#[tokio::test]
async fn health_over_grpc_names_models_to_those_with_a_key() {
    let keys = jitney_server::base::keys::Keys::load(Some("sesame"), None).unwrap();
    let front = Front::guarded(server_options(), keys, |_| echo).await;
    let (mut sender, _connection) = http2(&front).await;
    let mut ask = async |method: &str, service: &str, key: &'static str| {
        let mut message = vec![0, 0, 0, 0, service.len() as u8 + 2, 0x0a, service.len() as u8];
        message.extend_from_slice(service.as_bytes());
        let request = Request::post(format!("http://localhost/grpc.health.v1.Health/{method}"))
            .header("content-type", "application/grpc")
            .header("x-api-key", key)
            .body(Full::from(message))
            .unwrap();
        let reply = sender.send_request(request).await.unwrap();
        let status = reply.headers().get("grpc-status").map(|status| status.to_str().unwrap().to_owned());
        if status.is_some() || method == "Watch" {
            return status;
        }
        let body = reply.into_body().collect().await.unwrap();
        body.trailers().and_then(|all| all.get("grpc-status")).map(|status| status.to_str().unwrap().to_owned())
    };
    for method in ["Check", "Watch"] {
        for model in ["text", "no-such-model"] {
            assert_eq!(ask(method, model, "wrong").await.as_deref(), Some("16"), "{method} {model}");
        }
        assert_ne!(ask(method, "", "wrong").await.as_deref(), Some("16"), "{method}");
    }
    assert_eq!(ask("Check", "text", "sesame").await.as_deref(), Some("0"));
    assert_eq!(ask("Check", "no-such-model", "sesame").await.as_deref(), Some("5"));
}
