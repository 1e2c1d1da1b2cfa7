//! `POST /v2/models/{model}/infer`: one request, of one or many rows, and its answer.

use super::read::{self, Binary, Infer};
use super::write::{self, Head};
use crate::call::{Chunks, Failure};
use crate::deployment::Deployment;
use crate::heavy;
use crate::http::batch;
use crate::http::coding::{self, Coding};
use crate::http::door::Door;
use crate::http::headers::{self, RequestId};
use crate::http::intake::{self, Intake, Wanted};
use crate::http::payload::Payload;
use crate::http::problem::Problem;
use crate::http::service::Reply;
use crate::http::socket::Active;
use crate::http::upload::Upload;
use crate::site::Site;
use crate::tensors::infer::{Around, Inference};
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, VARY};
use hyper::{Request, Response};
use jitney_core::outcome::Outcome;

/// How many bytes of a body are JSON; the rest are tensors.
const JSON_BYTES: HeaderName = HeaderName::from_static("inference-header-content-length");

/// Shorter answers are not compressed: it would not make them shorter.
const COMPRESS_FROM: usize = 512;

/// Answers one request.
pub(super) async fn infer(
    site: &Site,
    deployment: &Deployment,
    request: Request<Upload>,
    id: &RequestId,
    active: &Active,
) -> Result<Reply, Problem> {
    let (head, body) = request.into_parts();
    let (inference, binary) = match prepare(site, deployment, &head.headers, body).await {
        Ok(prepared) => prepared,
        Err(problem) => {
            deployment.count(problem.outcome());
            return Err(problem);
        }
    };
    active.compute();
    let (own_id, kept) = (inference.id.clone(), inference.kept.clone());
    let computed = inference.run(deployment).await;
    let timing = computed.timing;
    let (result, mut ticket) = heavy::run(computed.weight(), || computed.join()).await;
    let coding = coding::of_answer(&head.headers);
    let written = match intake::with_room(site, result) {
        Ok(tensors) => {
            let weight = write::weight(&tensors, &binary, coding.is_some());
            let head = Head { model: &deployment.manifest.name, id: &own_id, kept: &kept };
            heavy::run(weight, || {
                write::write(&head, tensors, &binary).map(|(body, json_bytes)| reply(body, json_bytes, coding))
            })
            .await
        }
        Err(failure) => Err(failure),
    };
    match written {
        Ok(mut reply) => {
            id.stamp(reply.headers_mut(), &timing);
            Ok(reply)
        }
        Err(failure) => {
            ticket.fail(failure.outcome);
            Ok(Problem::from(failure).reply(Door::OpenInference, id, &timing))
        }
    }
}

/// The cheapest checks first: headers, then the declared length, then the body, then what is in it.
async fn prepare(
    site: &Site,
    deployment: &Deployment,
    headers: &HeaderMap,
    body: Upload,
) -> Result<(Inference, Binary), Problem> {
    let intake = Intake { site, body, allowed: intake::allowed(&deployment.manifest) };
    let (mut wanted, form) = match check_head(site, headers) {
        Ok(checked) => checked,
        Err(failure) => return Err(intake.refuse(failure).await),
    };
    let (mut body, _receiving) = intake.receive(&mut wanted).await?;
    if let Some(coding) = form.coding {
        body = coding::inflate(coding, body, site.options.max_body_bytes, site).await?.into();
    }
    let most_rows = batch::most_items_of(site, body.len());
    let around = Around { timeout: wanted.timeout, priority: wanted.priority, most_rows };
    let json_bytes = form.json_bytes.unwrap_or(body.len());
    let weight = json_bytes + deployment.signature.weight(body.len().saturating_sub(json_bytes));
    Ok(heavy::run(weight, || take(site, deployment, body, form.json_bytes, around)).await?)
}

/// How a body is written.
#[derive(Clone, Copy)]
struct Form {
    coding: Option<Coding>,
    /// How many bytes of it are JSON; `None` if all are.
    json_bytes: Option<usize>,
}

fn check_head(site: &Site, headers: &HeaderMap) -> Result<(Wanted, Form), Failure> {
    let wanted = Wanted::of(site, headers)?;
    let json_bytes = headers::single(headers, &JSON_BYTES)?.map(|value| {
        let digits = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        digits.and_then(|text| text.parse().ok()).ok_or_else(|| {
            let got = headers::quoted(value.as_bytes());
            let detail = format!("header {JSON_BYTES} must be the length of the JSON in bytes, got {got}");
            Failure::new(Outcome::InvalidRequest, detail)
        })
    });
    Ok((wanted, Form { coding: coding::of_body(headers)?, json_bytes: json_bytes.transpose()? }))
}

fn take(
    site: &Site,
    deployment: &Deployment,
    body: Chunks,
    json_bytes: Option<usize>,
    around: Around,
) -> Result<(Inference, Binary), Failure> {
    let most = usize::try_from(site.options.max_body_bytes).unwrap_or(usize::MAX);
    let Infer { request, binary } = read::read(&deployment.signature, body, json_bytes, most)?;
    Ok((Inference::of(deployment, request, around)?, binary))
}

fn reply(mut body: Vec<u8>, json_bytes: Option<usize>, coding: Option<Coding>) -> Reply {
    let coding = coding.filter(|_| body.len() >= COMPRESS_FROM);
    if let Some(coding) = coding {
        body = coding::compress(coding, &body);
    }
    let mut reply = Response::new(Payload::from(body));
    let headers = reply.headers_mut();
    let media = if json_bytes.is_some() { "application/octet-stream" } else { "application/json" };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    if let Some(json_bytes) = json_bytes {
        headers.insert(JSON_BYTES, HeaderValue::from(json_bytes));
    }
    if let Some(coding) = coding {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
        headers.insert(VARY, HeaderValue::from_name(ACCEPT_ENCODING));
    }
    reply
}
