//! `POST /{deployment}`: one item in, one answer out.

use super::body::{self, Patience};
use super::door::Door;
use super::headers::{self, RequestId};
use super::limits::DRAIN_BYTES;
use super::media::{Accept, body_type, check_encoding};
use super::payload::Payload;
use super::problem::Problem;
use super::service::Reply;
use super::socket::Active;
use super::{heavy, input, render};
use crate::call::{Answer, Call, Encoding, Failure, Timing};
use crate::deployment::{Deployment, next_item_id};
use crate::site::Site;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Request, Response};
use jitney_core::outcome::Outcome;
use jitney_core::request::Priority;
use std::time::{Duration, Instant};

/// Answers one request to a deployment.
pub(crate) async fn post(
    site: &Site,
    deployment: &Deployment,
    request: Request<Incoming>,
    id: &RequestId,
    active: &Active,
) -> Reply {
    let (head, body) = request.into_parts();
    let accept = Accept::of(&head.headers);
    let call = match prepare(site, deployment, &head.headers, &accept, body).await {
        Ok(call) => call,
        Err(problem) => {
            deployment.count(problem.outcome());
            return problem.reply(Door::Native, id, &Timing::default());
        }
    };
    active.compute();
    let (Answer { result, timing }, mut ticket) = deployment.open(call).await;
    let rendered = match result {
        // Clients may have stopped taking answers while this one was computed.
        Ok(parts) => match check_room(site) {
            Ok(()) => {
                let bytes = parts.iter().map(|part| part.data.len()).sum();
                heavy::run(bytes, || render::answer(&parts, &accept, timing.batch_size <= 1)).await
            }
            Err(failure) => Err(failure),
        },
        Err(failure) => Err(failure),
    };
    match rendered {
        Ok(rendered) => {
            let mut reply = Response::new(Payload::from(rendered.body));
            reply.headers_mut().insert(CONTENT_TYPE, rendered.media);
            id.stamp(reply.headers_mut(), &timing);
            reply
        }
        Err(failure) => {
            ticket.fail(failure.outcome);
            Problem::from(failure).reply(Door::Native, id, &timing)
        }
    }
}

/// The cheapest checks first: headers, then the declared length, then the body, then what is in it.
async fn prepare(
    site: &Site,
    deployment: &Deployment,
    headers: &HeaderMap,
    accept: &Accept,
    body: Incoming,
) -> Result<Call, Problem> {
    let manifest = &deployment.manifest;
    let allowed = Duration::try_from_secs_f64(manifest.options.request_timeout_s).unwrap_or(Duration::MAX);
    let Wanted { reading, timeout, priority } = match check_head(site, deployment, headers, accept) {
        Ok(wanted) => wanted,
        Err(failure) => {
            // A short body is read, so that the connection can be used again; a long one is not worth it.
            let short = body.size_hint().upper().is_some_and(|length| length <= DRAIN_BYTES);
            let read = short && body::receive(body, site, Patience::of(allowed, None)).await.is_ok();
            return Err(if read { Problem::from(failure) } else { Problem::from(failure).close() });
        }
    };
    let patience = Patience::of(allowed, timeout);
    let received = body::receive(body, site, patience).await?;
    // A body that took its time has used some of the request's.
    let timeout = match received.waited_since {
        None => timeout,
        Some(start) => Some(left(timeout.unwrap_or(allowed), start).ok_or_else(|| patience.end())?),
    };
    let most = usize::try_from(site.options.max_body_bytes).unwrap_or(usize::MAX);
    let chunks = received.chunks;
    let taken = heavy::run(chunks.len(), || input::take(manifest, reading, chunks, most)).await?;
    let prefers_msgpack = accept.quality(render::MSGPACK) > accept.quality(render::JSON);
    Ok(Call {
        id: next_item_id(),
        parts: taken.parts,
        encoding: if prefers_msgpack { Encoding::Msgpack } else { Encoding::Json },
        group: taken.group,
        cost: taken.cost,
        timeout,
        priority,
    })
}

/// What the head of a request asks for.
struct Wanted {
    reading: input::Reading,
    timeout: Option<Duration>,
    priority: Priority,
}

fn check_head(site: &Site, deployment: &Deployment, headers: &HeaderMap, accept: &Accept) -> Result<Wanted, Failure> {
    check_room(site)?;
    let manifest = &deployment.manifest;
    let timeout = headers::timeout(headers)?;
    let priority = headers::priority(headers)?;
    check_encoding(headers)?;
    let got = headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let reading = input::reading(&manifest.input, body_type(headers)?, got)?;
    render::check_accept(&manifest.output.kind, accept)?;
    Ok(Wanted { reading, timeout, priority })
}

/// Refuses while answers that nobody takes hold as much as bodies may: what is computed now would only add to it.
fn check_room(site: &Site) -> Result<(), Failure> {
    let most = site.options.max_receiving_bytes;
    if u64::try_from(site.untaken.get()).unwrap_or(0) < most {
        return Ok(());
    }
    let detail =
        format!("answers that clients have not taken yet hold the {most} bytes that they may; come back in a second");
    Err(Failure { retry_after: Some(Duration::from_secs(1)), ..Failure::new(Outcome::QueueBytesFull, detail) })
}

fn left(total: Duration, start: Instant) -> Option<Duration> {
    total.checked_sub(start.elapsed()).filter(|left| !left.is_zero())
}
