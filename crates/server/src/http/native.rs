//! `POST /{deployment}`: one item in, one answer out.

use super::door::Door;
use super::headers::RequestId;
use super::input::Reading;
use super::intake::{self, Intake, Wanted};
use super::media::Accept;
use super::payload::Payload;
use super::problem::Problem;
use super::service::Reply;
use super::socket::Active;
use super::upload::Upload;
use super::{form, input, render};
use crate::call::{Answer, Call, Failure, Timing};
use crate::deployment::Deployment;
use crate::heavy;
use crate::site::Site;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Request, Response};

/// Answers one request to a deployment.
pub(crate) async fn post(
    site: &Site,
    deployment: &Deployment,
    request: Request<Upload>,
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
    let (Answer { result, timing, .. }, mut ticket) = deployment.open(call).await;
    let rendered = match result {
        // Clients may have stopped taking answers while this one was computed.
        Ok(parts) => match intake::check_room(site) {
            Ok(()) => {
                let weight = render::weight(&parts, &accept);
                heavy::run(weight, || render::answer(&parts, &accept, timing.batch_size <= 1)).await
            }
            Err(failure) => Err(failure),
        },
        // Most documents are first looked into by the worker.
        Err(failure) => Err(input::unsaid(&head.headers, input::accepted(&deployment.manifest.input), failure)),
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
    body: Upload,
) -> Result<Call, Problem> {
    let manifest = &deployment.manifest;
    let intake = Intake { site, body, allowed: intake::allowed(manifest) };
    let (mut wanted, reading) = match check_head(site, deployment, headers, accept) {
        Ok(checked) => checked,
        Err(failure) => return Err(intake.refuse(failure).await),
    };
    let (chunks, _receiving) = intake.receive(&mut wanted).await?;
    let most = usize::try_from(site.options.max_body_bytes).unwrap_or(usize::MAX);
    let take = |chunks| match reading {
        Reading::Form => form::read(manifest, headers, chunks, most),
        reading => input::take(manifest, reading, chunks, most),
    };
    let length = chunks.len();
    let taken = heavy::run(input::weight(manifest, reading, length), || take(chunks)).await;
    // There is no need to guess what an empty body is.
    let named =
        |failure| if length == 0 { failure } else { input::unsaid(headers, input::accepted(&manifest.input), failure) };
    let taken = taken.map_err(named)?;
    Ok(taken.call(render::encoding(accept), &wanted))
}

fn check_head(
    site: &Site,
    deployment: &Deployment,
    headers: &HeaderMap,
    accept: &Accept,
) -> Result<(Wanted, Reading), Failure> {
    let manifest = &deployment.manifest;
    let checked = Wanted::and(site, headers, |body, got| input::reading(&manifest.input, body, got))?;
    render::check_accept(&manifest.output.kind, accept)?;
    Ok(checked)
}
