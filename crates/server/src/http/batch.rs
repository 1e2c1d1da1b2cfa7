//! `POST /{deployment}/batch`: many items in, as many outcomes out, in their order.

use super::door::Door;
use super::headers::RequestId;
use super::input::{self, ManyReading, Taken};
use super::intake::{self, Intake, Wanted};
use super::limits::{LEAST_ITEM_BYTES, LEAST_ITEMS};
use super::media::Accept;
use super::outcomes::{self, Outcomes};
use super::payload::Payload;
use super::problem::Problem;
use super::render;
use super::service::Reply;
use super::socket::Active;
use super::upload::Upload;
use crate::call::{Answer, Call, Failure, Timing};
use crate::deployment::{Deployment, Ticket};
use crate::heavy;
use crate::held::Held;
use crate::later::ITEM_BYTES;
use crate::site::Site;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response};
use jitney_core::outcome::Outcome;

/// How many items of a request failed.
const FAILED: HeaderName = HeaderName::from_static("x-jitney-failed");

/// Answers one request of many items.
pub(crate) async fn post(
    site: &Site,
    deployment: &Deployment,
    request: Request<Upload>,
    id: &RequestId,
    active: &Active,
) -> Reply {
    let (head, body) = request.into_parts();
    let accept = Accept::of(&head.headers);
    let (items, wanted, _held) = match prepare(site, deployment, &head.headers, &accept, body).await {
        Ok(prepared) => prepared,
        Err(problem) => {
            deployment.count(problem.outcome());
            return problem.reply(Door::Native, id, &Timing::default());
        }
    };
    active.compute();
    let encoding = render::encoding(&accept);
    let Run { results, timing, ticket, .. } =
        run(deployment, items, |taken: Taken| taken.call(encoding, &wanted)).await;
    let rendered = match intake::with_room(site, results) {
        Ok(results) => heavy::run(size(&results), || outcomes::write(results, &accept, &id.text())).await,
        Err(failure) => Err(failure),
    };
    let ended = match &rendered {
        Ok(Outcomes { all_failed: None, .. }) => Outcome::Ok,
        Ok(Outcomes { all_failed: Some(first), .. }) | Err(first) => first.outcome,
    };
    match ticket {
        Some(mut ticket) => ticket.fail(ended),
        // Nothing of it ever reached the engine.
        None => deployment.count(ended),
    }
    match rendered {
        Ok(Outcomes { media, body, failed, all_failed }) => {
            let mut reply = match all_failed {
                None => Response::new(Payload::from(body)),
                Some(first) => {
                    let mut reply = Problem::from(first).reply(Door::Native, id, &timing);
                    *reply.body_mut() = Payload::from(body);
                    reply
                }
            };
            let headers = reply.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
            headers.insert(FAILED, HeaderValue::from(failed));
            id.stamp(headers, &timing);
            reply
        }
        Err(failure) => Problem::from(failure).reply(Door::Native, id, &timing),
    }
}

/// A body is cut into items at a cost of their number, which may be half of its bytes.
const ITEMS_WEIGH: usize = 16;

/// How the items of one request ended, in their order.
pub(crate) struct Run<'a> {
    /// A failure if nobody of them was let in.
    pub(crate) results: Result<Vec<outcomes::Item>, Failure>,
    /// That of the item that took longest.
    pub(crate) timing: Timing,
    /// How many tokens they took together, from models that count them.
    pub(crate) tokens: u64,
    /// `None` if no item was fit to be computed.
    pub(crate) ticket: Option<Ticket<'a>>,
}

/// How much there is to write: each item costs, however short its answer.
pub(crate) fn size(results: &[outcomes::Item]) -> usize {
    results.len() * ITEM_BYTES + results.iter().flatten().flatten().map(|part| part.data.len()).sum::<usize>()
}

/// Runs what can be run of a request's items; the others keep their failures, and their places.
pub(crate) async fn run<T>(
    deployment: &Deployment,
    items: Vec<Result<T, Failure>>,
    mut call: impl FnMut(T) -> Call,
) -> Run<'_> {
    let size = items.len() * ITEM_BYTES;
    let (calls, results) = heavy::run(size, || {
        let mut calls = Vec::with_capacity(items.len());
        let refused = |item: Result<T, Failure>| item.map(|item| calls.push(call(item))).err();
        let results: Vec<Option<Failure>> = items.into_iter().map(refused).collect();
        (calls, results)
    })
    .await;
    let (mut timing, mut tokens) = (Timing::default(), 0_u64);
    if calls.is_empty() {
        let results = Ok(results.into_iter().flatten().map(Err).collect());
        return Run { results, timing, tokens, ticket: None };
    }
    let (answers, ticket) = deployment.open_many(calls).await;
    let total = |timing: &Timing| timing.queue + timing.batch + timing.model;
    let merged = |answers: Vec<Answer>| {
        let mut answers = answers.into_iter();
        let result = |refused: Option<Failure>| {
            if let Some(failure) = refused {
                return Some(Err(failure));
            }
            let Answer { result, timing: its, tokens: counted } = answers.next()?;
            tokens = tokens.saturating_add(counted.unwrap_or(0));
            if total(&its) > total(&timing) {
                timing = its;
            }
            Some(result)
        };
        results.into_iter().filter_map(result).collect()
    };
    let results = match answers {
        Ok(answers) => Ok(heavy::run(size, || merged(answers)).await),
        Err(failure) => Err(failure),
    };
    Run { results, timing, tokens, ticket: Some(ticket) }
}

/// The most items that one request may have.
pub(crate) fn most_items(site: &Site) -> usize {
    let most = (site.options.max_body_bytes / LEAST_ITEM_BYTES).max(LEAST_ITEMS);
    usize::try_from(most).unwrap_or(usize::MAX)
}

/// The same for one of so many bytes: rows without elements take none, and a short header could ask for any number.
pub(crate) fn most_items_of(site: &Site, bytes: usize) -> usize {
    most_items(site).min(bytes.max(LEAST_ITEMS as usize))
}

/// The cheapest checks first, as for one item.
async fn prepare(
    site: &Site,
    deployment: &Deployment,
    headers: &HeaderMap,
    accept: &Accept,
    body: Upload,
) -> Result<(Vec<Result<Taken, Failure>>, Wanted, Option<Held>), Problem> {
    let manifest = &deployment.manifest;
    let intake = Intake { site, body, allowed: intake::allowed(manifest) };
    let (mut wanted, reading) = match check_head(site, deployment, headers, accept) {
        Ok(checked) => checked,
        Err(failure) => return Err(intake.refuse(failure).await),
    };
    let (chunks, _receiving) = intake.receive(&mut wanted).await?;
    let length = chunks.len();
    let most = usize::try_from(site.options.max_body_bytes).unwrap_or(usize::MAX);
    let take = || {
        let items = input::take_many(manifest, reading, chunks, most, most_items_of(site, length))?;
        // What there is no room for is given back here, and kept nowhere.
        Ok(deployment.hold(items.len(), length).map(|held| (items, held)))
    };
    // An item may be as short as two bytes.
    let taken = heavy::run(length.saturating_mul(ITEMS_WEIGH), take).await;
    let known = input::accepted_many(&manifest.input).iter().copied();
    let (items, held) = taken.map_err(|failure| input::unsaid(headers, known, failure))??;
    Ok((items, wanted, held))
}

fn check_head(
    site: &Site,
    deployment: &Deployment,
    headers: &HeaderMap,
    accept: &Accept,
) -> Result<(Wanted, ManyReading), Failure> {
    let manifest = &deployment.manifest;
    let checked = Wanted::and(site, headers, |body, got| input::reading_many(&manifest.input, body, got))?;
    render::choose(accept, outcomes::offers(&manifest.output.kind))?;
    Ok(checked)
}
