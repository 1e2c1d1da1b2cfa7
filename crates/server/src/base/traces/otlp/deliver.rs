//! One message to the collector, until it takes it or it is hopeless.

use crate::base::traces::messages::ExportResponse;
use crate::base::traces::settings::Endpoint;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, RETRY_AFTER, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use prost::Message;
use std::io::Write;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How often a message is sent.
const ATTEMPTS: u32 = 6;
/// The wait before the second attempt; each further wait is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// A collector that asks for a longer wait is asked again after this.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Bytes of an answer that are read.
const MOST_ANSWER: usize = 64 << 10;

/// Why a message was not taken.
struct Refused {
    why: String,
    /// `None` if it would be refused again.
    again_after: Option<Duration>,
}

/// What a collector did not take of a message that it took.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rejected {
    pub(super) spans: u64,
    pub(super) why: String,
}

/// Sends a message; a part of it may be rejected. Fails if the collector does not take it after several attempts. After `is_ending` there is one more attempt at
/// once.
pub(super) async fn deliver(
    endpoint: &Endpoint,
    message: Bytes,
    mut is_ending: watch::Receiver<bool>,
) -> Result<Option<Rejected>, String> {
    let body = if endpoint.gzips { gzip(&message) } else { message };
    let mut wait = FIRST_WAIT;
    for attempt in 1..=ATTEMPTS {
        let was_ending = *is_ending.borrow();
        let refused = match post(endpoint, body.clone()).await {
            Ok(rejected) => return Ok(rejected),
            Err(refused) => refused,
        };
        let Some(asked) = refused.again_after.filter(|_| attempt < ATTEMPTS && !was_ending) else {
            return Err(refused.why);
        };
        // Servers that lost their collector together do not come back together.
        let spread = wait.mul_f64(0.75 + 0.5 * (crate::base::traces::context::fresh() as f64 / u64::MAX as f64));
        let after = if asked.is_zero() { spread } else { asked.min(LONGEST_WAIT) };
        let _ = timeout(after, is_ending.wait_for(|is_ending| *is_ending)).await;
        wait *= 2;
    }
    unreachable!("the last attempt returns")
}

/// Sends it once.
async fn post(endpoint: &Endpoint, body: Bytes) -> Result<Option<Rejected>, Refused> {
    match timeout(endpoint.timeout, exchange(endpoint, body)).await {
        Ok(Ok((status, headers, body))) => judge(status, &headers, &body),
        Ok(Err(why)) => Err(Refused { why, again_after: Some(Duration::ZERO) }),
        Err(_) => {
            let why = format!("it did not answer within {} ms", endpoint.timeout.as_millis());
            Err(Refused { why, again_after: Some(Duration::ZERO) })
        }
    }
}

/// A task that ends with its handle.
struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn exchange(endpoint: &Endpoint, body: Bytes) -> Result<(StatusCode, HeaderMap, Bytes), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await.map_err(|error| text(&error))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| text(&error))?;
    let _connection = Connection(tokio::spawn(async { drop(connection.await) }));
    let mut request = Request::post(endpoint.path.as_str())
        .header(HOST, endpoint.authority())
        // An empty message has a length too.
        .header(CONTENT_LENGTH, body.len())
        .header(CONTENT_TYPE, "application/x-protobuf")
        .header(USER_AGENT, concat!("jitney/", env!("CARGO_PKG_VERSION")))
        .body(Full::new(body))
        .map_err(|error| text(&error))?;
    if endpoint.gzips {
        request.headers_mut().insert(CONTENT_ENCODING, "gzip".parse().expect("a header value"));
    }
    request.headers_mut().extend(endpoint.headers.iter().cloned());
    let response = sender.send_request(request).await.map_err(|error| text(&error))?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, MOST_ANSWER).collect().await.map_err(|error| error.to_string())?.to_bytes();
    Ok((head.status, head.headers, body))
}

fn judge(status: StatusCode, headers: &HeaderMap, body: &Bytes) -> Result<Option<Rejected>, Refused> {
    if status.is_success() {
        let partial = ExportResponse::decode(body.clone()).ok().and_then(|response| response.partial_success);
        return Ok(partial.and_then(|partial| {
            let spans = u64::try_from(partial.rejected_spans).ok().filter(|spans| *spans > 0)?;
            Some(Rejected { spans, why: partial.error_message.chars().take(200).collect() })
        }));
    }
    // These are the ones that the protocol says to repeat.
    let may_repeat = matches!(status.as_u16(), 429 | 502 | 503 | 504);
    let after = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok()).unwrap_or(0);
    let again_after = may_repeat.then(|| Duration::from_secs(after));
    Err(Refused { why: format!("it answered {}", status.as_u16()), again_after })
}

fn gzip(message: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // A Vec takes every byte.
    let _ = encoder.write_all(message);
    encoder.finish().unwrap_or_default().into()
}

/// Asks whether the collector is there, with a message without spans. The answer is for the log.
pub(super) async fn try_out(endpoint: &Endpoint) {
    let url = endpoint.url();
    let empty = if endpoint.gzips { gzip(b"") } else { Bytes::new() };
    match post(endpoint, empty).await {
        Ok(_) => tracing::info!("traces go to {url}, which answers"),
        Err(Refused { why, .. }) => {
            tracing::warn!("traces go to {url}, which does not take them now: {why}; requests do not wait for it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::traces::messages::PartialSuccess;

    #[test]
    fn a_part_that_is_not_taken_is_told() {
        for (rejected_spans, expected) in
            [(0, None), (-1, None), (3, Some(Rejected { spans: 3, why: "too old".to_owned() }))]
        {
            let partial = PartialSuccess { rejected_spans, error_message: "too old".to_owned() };
            let body = ExportResponse { partial_success: Some(partial) }.encode_to_vec().into();
            let judged = judge(StatusCode::OK, &HeaderMap::new(), &body);
            assert_eq!(judged.map_err(|refused| refused.why), Ok(expected));
        }
        assert!(judge(StatusCode::BAD_REQUEST, &HeaderMap::new(), &Bytes::new()).is_err());
    }
}
