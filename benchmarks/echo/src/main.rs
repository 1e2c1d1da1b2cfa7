//! The limit that `make bench` compares with: hyper alone. Reads the body, answers; no model, no queue.
//!
//! `echo PORT` answers JSON with a constant of the size of the no-op model's answer, and anything else with its own body.
//! `echo PORT 64` answers in batches of 64, each after 5 ms and 0.1 ms per item, in this process and without a value being
//! read or written: the most that this machine leaves of such a model's ceiling, whatever the server.
//! `echo PORT stream` answers with 64 server-sent events and the event of the end, as jitney writes them, and `echo PORT chunks`
//! with those of a chat in OpenAI's API. Each event is one write to the socket: what a part costs a server that has parts one
//! by one.

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
const NATIVE: Events = Events { event: b"data: \"abcd\"\n\n", end: b"event: end\ndata: {\"reason\":\"stop\"}\n\n" };
const CHAT: Events = Events {
    event: b"data: {\"id\":\"chatcmpl-0123456789abcdef0123456789abcdef\",\"object\":\"chat.completion.chunk\",\
        \"created\":1790000000,\"model\":\"chunks\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"abcd\"},\
        \"logprobs\":null,\"finish_reason\":null}]}\n\n",
    end: b"data: [DONE]\n\n",
};

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

/// What a stream consists of.
#[derive(Clone, Copy)]
struct Events {
    event: &'static [u8],
    end: &'static [u8],
}

/// A body of events. After each it is not ready once, so that hyper writes the event alone.
struct Stream {
    events: Events,
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
        (self.left, self.has_written) = (left, true);
        let event = if left == 0 { self.events.end } else { self.events.event };
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(event)))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }
}

type Answer = Response<Either<Full<Bytes>, Stream>>;

async fn stream_events(request: Request<Incoming>, events: Events) -> Result<Answer, hyper::Error> {
    request.into_body().collect().await?;
    let mut response = Response::new(Either::Right(Stream { events, left: EVENTS + 1, has_written: false }));
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
    let events = mode.as_deref().and_then(|mode| match mode {
        "stream" => Some(NATIVE),
        "chunks" => Some(CHAT),
        _ => None,
    });
    let model = mode.filter(|_| events.is_none()).map(|size| size.parse()).transpose()?.map(|size| {
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
                        async move {
                            match events {
                                Some(events) => stream_events(request, events).await,
                                None => answer(request, model).await,
                            }
                        }
                    }),
                );
            // A time-out around the whole connection, as an idle time-out costs: one timer each.
            let _: Result<Result<(), hyper::Error>, _> =
                tokio::time::timeout(Duration::from_secs(600), connection).await;
            Ok::<(), Infallible>(())
        });
    }
}
