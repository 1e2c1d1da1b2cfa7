//! `POST /v1/embeddings`: texts or tokens in, vectors out, each an item of its own.

use super::beside::Beside;
use super::input::{Body, Input, wrong};
use super::{callable, find};
use crate::call::{Chunks, Encoding, Failure, OutputPart, Tag, Timing};
use crate::deployment::Deployment;
use crate::heavy;
use crate::held::Held;
use crate::http::batch::{self, Run};
use crate::http::door::Door;
use crate::http::headers::{RequestId, quoted};
use crate::http::input::{Reading, Taken, take};
use crate::http::intake::{self, Intake, Wanted};
use crate::http::media::BodyType;
use crate::http::outcomes::Item;
use crate::http::pages::reply;
use crate::http::problem::Problem;
use crate::http::render;
use crate::http::service::Reply;
use crate::http::socket::Active;
use crate::http::upload::Upload;
use crate::site::Site;
use bytes::Bytes;
use hyper::Request;
use hyper::header::HeaderMap;
use jitney_core::manifest::{DeploymentManifest, InputKind, Task};
use jitney_core::outcome::Outcome;
use std::time::Duration;

/// How the vectors are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    Floats,
    /// float32, little-endian, which the official clients ask for unasked.
    Base64,
}

/// One request, understood.
struct Asked<'a> {
    model: &'a str,
    deployment: &'a Deployment,
    items: Vec<Taken>,
    _held: Option<Held>,
    written: Written,
    dimensions: Option<u32>,
}

pub(super) async fn answer(site: &Site, request: Request<Upload>, id: &RequestId, active: &Active) -> Reply {
    let refused = |problem: Problem| problem.reply(Door::OpenAi, id, &Timing::default());
    let (head, body) = request.into_parts();
    // Which deployment is meant is only known from the body: until then the most patient one counts.
    let allowed =
        callable(site).into_iter().flatten().map(|(_, deployment, _)| intake::allowed(&deployment.manifest)).max();
    let intake = Intake { site, body, allowed: allowed.unwrap_or(Duration::from_secs(60)) };
    let mut wanted = match check_head(site, &head.headers) {
        Ok(wanted) => wanted,
        Err(failure) => return refused(intake.refuse(failure).await),
    };
    let (mut chunks, receiving) = match intake.receive(&mut wanted).await {
        Ok(received) => received,
        Err(problem) => return refused(problem),
    };
    let asked = match heavy::run(chunks.len(), || understand(site, &mut chunks)).await {
        Ok(asked) => asked,
        Err(failure) => return refused(failure.into()),
    };
    drop(receiving);
    active.compute();
    let allowed = intake::allowed(&asked.deployment.manifest);
    let timeout = wanted.timeout.map(|timeout| if wanted.is_given { timeout } else { timeout.min(allowed) });
    let wanted = Wanted { timeout, ..wanted };
    let call = |taken: Taken| taken.call(Encoding::Json, &wanted);
    let Run { results, timing, tokens, ticket } =
        batch::run(asked.deployment, asked.items.into_iter().map(Ok).collect(), call).await;
    let written = match intake::with_room(site, results) {
        Ok(results) => {
            let bytes = batch::size(&results);
            heavy::run(bytes, || write(&results, asked.model, asked.written, asked.dimensions, tokens)).await
        }
        Err(failure) => Err(failure),
    };
    let ended = written.as_ref().map_or_else(|failure| failure.outcome, |_| Outcome::Ok);
    if let Some(mut ticket) = ticket {
        ticket.fail(ended);
    }
    match written {
        Ok(body) => {
            let mut reply = reply("application/json", body);
            id.stamp(reply.headers_mut(), &timing);
            reply
        }
        Err(failure) => Problem::from(failure).reply(Door::OpenAi, id, &timing),
    }
}

fn check_head(site: &Site, headers: &HeaderMap) -> Result<Wanted, Failure> {
    let reading = |body, got: &[u8]| match body {
        BodyType::Json | BodyType::Unsaid => Ok(()),
        _ => {
            let detail = format!("content-type {} is not taken here; send application/json", quoted(got));
            Err(Failure::new(Outcome::UnsupportedMediaType, detail))
        }
    };
    Wanted::and(site, headers, reading).map(|(wanted, ())| wanted)
}

/// From a body to items. What is wrong with one of them is wrong with the request: this API has no partial answers.
fn understand<'a>(site: &'a Site, chunks: &mut Chunks) -> Result<Asked<'a>, Failure> {
    let bytes = chunks.contiguous();
    let body = Body::read(bytes)?;
    let (model, deployment, Task::Embedding { takes_tokens, takes_dimensions }) = find(site, &body.model)?;
    let asked = || {
        let written = match body.encoding_format.as_deref() {
            None | Some("float") => Written::Floats,
            Some("base64") => Written::Base64,
            Some(other) => {
                let what = format!("expected float or base64, got {}", quoted(other.as_bytes()));
                return Err(wrong("encoding_format", &what));
            }
        };
        let dimensions = body.dimensions()?;
        if dimensions.is_some() && !takes_dimensions {
            return Err(wrong("dimensions", &format!("the vectors of {model} have one length; leave it out")));
        }
        let inputs = body.inputs()?;
        if !takes_tokens && inputs.iter().any(|input| matches!(input, Input::Tokens(_))) {
            let what =
                format!("{model} reads texts, not tokens: tokens mean something to one model only; send strings");
            return Err(wrong("input", &what));
        }
        let most = usize::try_from(site.options.max_body_bytes).unwrap_or(usize::MAX);
        let manifest = &*deployment.manifest;
        let beside = Beside::read(bytes, &manifest.input, dimensions)?;
        let count = inputs.len();
        beside.check_room(count, bytes.len())?;
        let held = deployment.hold(count, bytes.len())?;
        let items = inputs.into_iter().enumerate().map(|(index, input)| {
            item(manifest, input, &beside, most).map_err(|failure| in_place(failure, index, count))
        });
        let items = items.collect::<Result<_, _>>()?;
        Ok(Asked { model, deployment, items, _held: held, written, dimensions })
    };
    asked().inspect_err(|failure| deployment.count(failure.outcome))
}

/// One input as the deployment's own route would have got it.
fn item(manifest: &DeploymentManifest, input: Input, beside: &Beside, most: usize) -> Result<Taken, Failure> {
    let (tag, data) = match (manifest.input.kind, input) {
        (InputKind::Text, Input::Text(text)) => (Tag::Text, text.into_bytes()),
        (_, Input::Text(text)) => (Tag::Json, beside.item(&text)),
        (_, Input::Tokens(tokens)) => (Tag::Json, beside.item(&tokens)),
    };
    take(manifest, Reading::As(tag), Chunks::from(Bytes::from(data)), most)
}

/// The answer, if every item has a vector.
fn write(
    items: &[Item],
    model: &str,
    written: Written,
    dimensions: Option<u32>,
    tokens: u64,
) -> Result<Vec<u8>, Failure> {
    let room: usize = items.iter().flatten().map(|parts| render::room(parts) + 64).sum();
    let mut body = Vec::with_capacity(room + 128);
    body.extend_from_slice(b"{\"object\":\"list\",\"data\":[");
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        body.extend_from_slice(b"{\"object\":\"embedding\",\"index\":");
        body.extend_from_slice(itoa::Buffer::new().format(index).as_bytes());
        body.extend_from_slice(b",\"embedding\":");
        let parts = item.as_ref().map_err(|failure| in_place(failure.clone(), index, items.len()))?;
        let vector = vector(parts, dimensions)?;
        match written {
            Written::Floats => {
                check_finite(vector, index)?;
                render::json(&mut body, std::slice::from_ref(vector))
            }
            Written::Base64 => render::base64_f32(&mut body, vector),
        }?;
        body.push(b'}');
    }
    body.extend_from_slice(b"],\"model\":");
    // A Vec takes every byte.
    let _ = serde_json::to_writer(&mut body, model);
    body.extend_from_slice(format!(",\"usage\":{{\"prompt_tokens\":{tokens},\"total_tokens\":{tokens}}}}}").as_bytes());
    Ok(body)
}

/// The one vector of an answer.
fn vector(parts: &[OutputPart], dimensions: Option<u32>) -> Result<&OutputPart, Failure> {
    let invalid = |what: &str| Failure::new(Outcome::InvalidOutput, what.to_owned());
    let [part] = parts else { return Err(invalid("the model returned several arrays, not one vector")) };
    let shape = part.tensor.as_ref().map(|tensor| &tensor.shape[..]);
    match (shape, dimensions) {
        // Only the model knows how many it has.
        (Some([length]), Some(asked)) if *length < u64::from(asked) => {
            Err(wrong("dimensions", &format!("the model has {length}, not {asked}; ask for fewer")))
        }
        (Some([length]), Some(asked)) if *length > u64::from(asked) => {
            Err(invalid(&format!("the model was asked for {asked} dimensions and returned {length}")))
        }
        (Some([_]), _) => Ok(part),
        _ => Err(invalid("the model returned something else than a vector of one axis")),
    }
}

/// Clients read `null` in a vector as 0, or fail far from here.
fn check_finite(vector: &OutputPart, index: usize) -> Result<(), Failure> {
    let place = vector.tensor.as_ref().and_then(|tensor| render::not_finite(tensor.dtype, &vector.data));
    place.map_or(Ok(()), |place| {
        let field = format!("data[{index}].embedding[{place}]");
        let detail = format!(
            "{field}: the model returned NaN or an infinity, which JSON does not have; encoding_format base64 does"
        );
        Err(Failure { field: Some(field), ..Failure::new(Outcome::InvalidOutput, detail) })
    })
}

/// Says which of several inputs failed. A field that all of them have is the request's own.
fn in_place(failure: Failure, index: usize, items: usize) -> Failure {
    let is_input = matches!(failure.outcome, Outcome::InvalidInput | Outcome::MalformedBody);
    if !is_input {
        return failure;
    }
    let field = failure.field.as_deref().and_then(|field| field.strip_prefix("$."));
    if let Some(field) = field.filter(|field| field.split(['.', '[']).next() != Some("input")) {
        return Failure { field: Some(field.to_owned()), ..failure };
    }
    let place = if items > 1 { format!("input[{index}]") } else { "input".to_owned() };
    Failure { detail: format!("{place}: {}", failure.detail), field: Some(place), ..failure }
}
