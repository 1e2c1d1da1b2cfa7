//! The limit that `make bench` compares with: hyper alone. Reads the body, answers; no model, no queue.
//!
//! `echo PORT` answers JSON with a constant of the size of the no-op model's answer, and anything else with its own body.
//! `echo PORT 64` answers in batches of 64, each after 5 ms and 0.1 ms per item, in this process and without a value being
//! read or written: the most that this machine leaves of such a model's ceiling, whatever the server.
//! `echo PORT stream` answers with 64 server-sent events and the event of the end, as jitney writes them. Each event is
//! one write to the socket: what a part costs a server that has parts one by one.

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::error::Error;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

const ANSWER: &[u8] = br#"{"text":"a body of fifty-seven characters, as every server here gets"}"#;

const EVENTS: u32 = 64;
const EVENT: &[u8] = b"data: \"abcd\"\n\n";
const END: &[u8] = b"event: end\ndata: {\"reason\":\"stop\"}\n\n";

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

/// A body of events. After each it is not ready once, so that hyper writes the event alone.
struct Stream {
    left: u32,
    has_written: bool,
}

impl Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if std::mem::take(&mut self.has_written) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Some(left) = self.left.checked_sub(1) else { return Poll::Ready(None) };
        *self = Stream { left, has_written: true };
        let event = if left == 0 { END } else { EVENT };
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(event)))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }
}

type Answer = Response<Either<Full<Bytes>, Stream>>;

async fn events(request: Request<Incoming>) -> Result<Answer, hyper::Error> {
    request.into_body().collect().await?;
    let mut response = Response::new(Either::Right(Stream { left: EVENTS + 1, has_written: false }));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    Ok(response)
}

async fn answer(request: Request<Incoming>, model: Option<Model>) -> Result<Answer, hyper::Error> {
    let is_json = request.headers().get(CONTENT_TYPE).is_none_or(|value| value.as_bytes() == b"application/json");
    let body = request.into_body().collect().await?.to_bytes();
    compute(model).await;
    let (media_type, answer) =
        if is_json { ("application/json", Bytes::from_static(ANSWER)) } else { ("application/octet-stream", body) };
    let mut response = Response::new(Either::Left(Full::new(answer)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    Ok(response)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = std::env::args().nth(1).unwrap_or_else(|| "0".into()).parse()?;
    let mode = std::env::args().nth(2);
    let is_stream = mode.as_deref() == Some("stream");
    let model = mode.filter(|_| !is_stream).map(|size| size.parse()).transpose()?.map(|size| {
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
                .serve_connection(
                    TokioIo::new(stream),
                    service_fn(move |request| {
                        let model = model.clone();
                        async move { if is_stream { events(request).await } else { answer(request, model).await } }
                    }),
                );
            // A time-out around the whole connection, as an idle time-out costs: one timer each.
            let _: Result<Result<(), hyper::Error>, _> =
                tokio::time::timeout(Duration::from_secs(600), connection).await;
            Ok::<(), Infallible>(())
        });
    }
}
