//! The limit that `make bench` compares with: hyper alone. Reads the body, answers; no model, no queue.
//!
//! `echo PORT` answers JSON with a constant of the size of the no-op model's answer, and anything else with its own body.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::error::Error;
use std::time::Duration;
use tokio::net::TcpListener;

const ANSWER: &[u8] = br#"{"text":"a body of fifty-seven characters, as every server here gets"}"#;

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let is_json = request.headers().get(CONTENT_TYPE).is_none_or(|value| value.as_bytes() == b"application/json");
    let body = request.into_body().collect().await?.to_bytes();
    let (media_type, answer) =
        if is_json { ("application/json", Bytes::from_static(ANSWER)) } else { ("application/octet-stream", body) };
    let mut response = Response::new(Full::new(answer));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    Ok(response)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = std::env::args().nth(1).unwrap_or_else(|| "0".into()).parse()?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    eprintln!("listening on http://{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(10))
                .serve_connection(TokioIo::new(stream), service_fn(answer));
            // A time-out around the whole connection, as an idle time-out costs: one timer each.
            let _: Result<Result<(), hyper::Error>, _> =
                tokio::time::timeout(Duration::from_secs(600), connection).await;
            Ok::<(), Infallible>(())
        });
    }
}
