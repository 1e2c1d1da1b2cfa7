//! Items that are values of a program and not bodies: whether they are what a deployment takes, and what the engine
//! asks about them. The same for a program that holds the engine and for one that dials it.

use super::fields::{self, Item};
use super::{Document, arrays, invalid};
use crate::call::{Answer, Call, Encoding, Failure, Part, Tag};
use crate::deployment::{Deployment, next_item_id};
use crate::heavy::{self, COPIED};
use crate::later::ITEM_BYTES;
use jitney_core::group_key::GroupKey;
use jitney_core::manifest::{DeploymentManifest, InputKind};
use jitney_core::outcome::Outcome;
use jitney_core::request::Priority;
use smallvec::SmallVec;
use std::time::Duration;

/// The parts of one item: one, or one per array parameter.
pub type Parts = SmallVec<[Part; 1]>;

/// What a caller says beside the items.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms {
    /// From now; `None` is the deployment's `request_timeout_s`.
    pub timeout: Option<Duration>,
    /// The class of the request.
    pub priority: Priority,
}

/// A call of these values, if they are what the deployment takes.
pub fn call(manifest: &DeploymentManifest, mut parts: Parts, terms: Terms) -> Result<Call, Failure> {
    let (group, cost) = ask(manifest, &mut parts)?;
    let (timeout, priority) = (terms.timeout, terms.priority);
    Ok(Call { id: next_item_id(), parts, encoding: Encoding::Msgpack, group, cost, timeout, priority })
}

/// Runs the items of one request: an answer each, in order. Those that are not what the deployment takes fail alone.
pub async fn run(deployment: &Deployment, mut items: Vec<Parts>, terms: Terms) -> Vec<Answer> {
    let manifest = &deployment.manifest;
    if items.len() == 1 {
        let Some(parts) = items.pop() else { return vec![] };
        return vec![match heavy::run(weight(manifest, &parts), || call(manifest, parts, terms)).await {
            Ok(call) => deployment.call(call).await,
            Err(failure) => {
                deployment.count(failure.outcome);
                Answer::failed(failure)
            }
        }];
    }
    let mut calls = Vec::with_capacity(items.len());
    let bytes = items.iter().flatten().map(|part| part.data.len()).sum();
    let weight = items.iter().map(|parts| ITEM_BYTES + weight(manifest, parts)).sum();
    let places: Vec<Result<(), Failure>> = heavy::run(weight, || {
        items.into_iter().map(|parts| call(manifest, parts, terms).map(|call| calls.push(call))).collect()
    })
    .await;
    let answered = if calls.is_empty() {
        // The request ends without a call: as its first item does.
        places.first().and_then(|place| place.as_ref().err()).iter().for_each(|f| deployment.count(f.outcome));
        vec![]
    } else {
        let count = calls.len();
        let answers = match deployment.hold(count, bytes) {
            Ok(_held) => deployment.open_many(calls).await.0,
            Err(failure) => {
                deployment.count(failure.outcome);
                Err(failure)
            }
        };
        answers.unwrap_or_else(|failure| vec![Answer::failed(failure); count])
    };
    let mut answered = answered.into_iter();
    let mut next =
        || answered.next().unwrap_or_else(|| Answer::failed(Failure::new(Outcome::Internal, "an answer is missing")));
    places.into_iter().map(|place| place.map_or_else(Answer::failed, |()| next())).collect()
}

/// How much work it is to make a call of these values, in bytes that are parsed.
fn weight(manifest: &DeploymentManifest, parts: &[Part]) -> usize {
    let parsed = |part: &Part| match part.tag {
        Tag::Json | Tag::Msgpack if fields::asks(manifest) => part.data.len(),
        Tag::Json | Tag::Msgpack | Tag::Bytes => 0,
        Tag::Text | Tag::Tensor => part.data.len() / COPIED,
    };
    parts.iter().map(parsed).sum()
}

/// The group key and the cost of an item, once its parts have been seen to be what the deployment takes.
fn ask(manifest: &DeploymentManifest, parts: &mut Parts) -> Result<(GroupKey, u64), Failure> {
    if manifest.input.kind == InputKind::Arrays {
        check_arrays(manifest, parts)?;
        return evaluate(manifest, |manifest| fields::evaluate(manifest, Item::Arrays(parts)));
    }
    let [part] = &mut parts[..] else {
        return Err(invalid("$", &format!("expected one value, got {} parts", parts.len())));
    };
    match part.tag {
        Tag::Tensor => Err(invalid("$", "expected a value, got an array")),
        Tag::Bytes => evaluate(manifest, |manifest| fields::evaluate(manifest, Item::Bytes(part.data.len()))),
        Tag::Text => {
            let text = std::str::from_utf8(part.data.contiguous());
            let text = text.map_err(|_| Failure::new(Outcome::MalformedBody, "the text is not UTF-8"))?;
            evaluate(manifest, |manifest| fields::evaluate(manifest, Item::Text(text)))
        }
        Tag::Json | Tag::Msgpack => {
            let base64 = matches!(manifest.input.kind, InputKind::Bytes | InputKind::Image);
            let (is_json, bytes) = (part.tag == Tag::Json, part.data.contiguous());
            let item = if is_json {
                Item::Document(Document::Json(bytes), base64)
            } else {
                Item::Document(Document::Msgpack(bytes), false)
            };
            evaluate(manifest, |manifest| fields::evaluate(manifest, item))
        }
    }
}

fn check_arrays(manifest: &DeploymentManifest, parts: &[Part]) -> Result<(), Failure> {
    let specs = &manifest.input.arrays;
    if specs.len() != parts.len() {
        return Err(invalid("$", &format!("expected {} arrays, got {} parts", specs.len(), parts.len())));
    }
    for (spec, part) in specs.iter().zip(parts) {
        let path = if specs.len() > 1 { format!("$.{}", spec.name) } else { "$".to_owned() };
        arrays::check_part(spec, &path, part)?;
    }
    Ok(())
}

fn evaluate(
    manifest: &DeploymentManifest,
    terms: impl FnOnce(&DeploymentManifest) -> Result<(GroupKey, u64), Failure>,
) -> Result<(GroupKey, u64), Failure> {
    if fields::asks(manifest) { terms(manifest) } else { Ok((GroupKey::default(), 1)) }
}
