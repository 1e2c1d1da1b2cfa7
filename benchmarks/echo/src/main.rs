//! The limit that `make bench` compares with: hyper alone. Reads the body, answers; no model, no queue.
//!
//! `echo PORT` answers JSON with a constant of the size of the no-op model's answer, and anything else with its own body.
//! `echo PORT 64` answers in batches of 64, each after 5 ms and 0.1 ms per item, in this process and without a value being
//! read or written: the most that this machine leaves of such a model's ceiling, whatever the server.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::error::Error;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

const ANSWER: &[u8] = br#"{"text":"a body of fifty-seven characters, as every server here gets"}"#;

/// How long a batch that is not full waits for the rest: users who were answered are back sooner.
const PATIENCE: Duration = Duration::from_millis(20);

type Model = Sender<oneshot::Sender<()>>;

/// A model that is there for one full batch after the other.
fn model(calls: &Receiver<oneshot::Sender<()>>, size: usize) {
    while let Ok(first) = calls.recv() {
        let mut batch = vec![first];
        while batch.len() < size
            && let Ok(next) = calls.recv_timeout(PATIENCE)
        {
            batch.push(next);
        }
        thread::sleep(Duration::from_micros(5_000 + 100 * batch.len() as u64));
        for call in batch {
            // The client may have disconnected.
            let _ = call.send(());
        }
    }
}

async fn compute(model: Option<Model>) {
    if let Some(model) = model {
        let (done, computed) = oneshot::channel();
        if model.send(done).is_ok() {
            // The model ends with the process.
            let _ = computed.await;
        }
    }
}

async fn answer(request: Request<Incoming>, model: Option<Model>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let is_json = request.headers().get(CONTENT_TYPE).is_none_or(|value| value.as_bytes() == b"application/json");
    let body = request.into_body().collect().await?.to_bytes();
    compute(model).await;
    let (media_type, answer) =
        if is_json { ("application/json", Bytes::from_static(ANSWER)) } else { ("application/octet-stream", body) };
    let mut response = Response::new(Full::new(answer));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    Ok(response)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = std::env::args().nth(1).unwrap_or_else(|| "0".into()).parse()?;
    let model = std::env::args().nth(2).map(|size| size.parse()).transpose()?.map(|size| {
        let (calls, called) = channel();
        thread::spawn(move || model(&called, size));
        calls
    });
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    eprintln!("listening on http://{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let model = model.clone();
        tokio::spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(10))
                .serve_connection(TokioIo::new(stream), service_fn(move |request| answer(request, model.clone())));
            // A time-out around the whole connection, as an idle time-out costs: one timer each.
            let _: Result<Result<(), hyper::Error>, _> =
                tokio::time::timeout(Duration::from_secs(600), connection).await;
            Ok::<(), Infallible>(())
        });
    }
}
