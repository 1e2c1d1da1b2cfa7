//! Items that are values of a program and not bodies: whether they are what a deployment takes, and what the engine
//! asks about them. The same for a program that holds the engine and for one that dials it.

pub(crate) mod composed;
pub mod parts;

use crate::base::ledger::Ledger;
use crate::base::offload;
use crate::base::offload::COPIED;
use crate::engine::deployment::Deployment;
use crate::engine::deployment::ticket::Ticket;
use crate::engine::large_request::turns::ITEM_BYTES;
use crate::engine::request::{Answers, RequestItems, RequestOutcomes};
use crate::engine::{request, room};
use crate::items::arrays::parameter;
use crate::items::document::invalid;
use crate::items::fields;
use crate::values::answer::{Answer, Failure};
use crate::values::call::{Call, Encoding, Part};
use crate::values::call_id::CallId;
use crate::values::metadata::{FurtherMetadata, Metadata};
use crate::values::tensor::Tag;
use futures_util::FutureExt;
use jitney_core::config::manifest::{DeploymentManifest, InputKind};
use jitney_core::config::options::ServerOptions;
use jitney_core::queue::group_key::GroupKey;
use jitney_core::request::{ItemId, Priority};
use jitney_core::scheduler::item::Asked;
use jitney_core::tables::outcome::Outcome;
use smallvec::{SmallVec, smallvec};
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// The parts of one item: one, or one per array parameter.
pub type Parts = SmallVec<[Part; 1]>;

/// Answers to the items of one request, in order; dropping it cancels them.
pub type Answering = Pin<Box<dyn Future<Output = Vec<Answer>> + Send>>;

/// The answer to a request of one item; dropping it cancels the item.
pub type AnsweringOne = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// What a caller says about a request, in addition to its items.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// From now; `None` is the deployment's `request_timeout_s`.
    pub timeout: Option<Duration>,
    /// The class of the request.
    pub priority: Priority,
    /// What the logs name it by.
    pub id: CallId,
    /// Of a call that a model of this server makes: the items for which it asks. None if it asks for itself, as in its warm-up.
    pub parents: ParentItems,
    /// What the caller says in addition. Of a program it is the trace context of its span.
    pub further: Option<Arc<FurtherMetadata>>,
    /// What such a call has of the requests behind these items, which only the server knows.
    pub inherited: Option<Inherited>,
}

/// The items of a worker for which its model asks.
#[derive(Clone, Debug, Default)]
pub struct ParentItems {
    /// Their ids.
    pub items: SmallVec<[ItemId; 1]>,
    /// The number of the worker's link that they came over, if there are any. The call goes over no other link: on the next one
    /// the same ids may be other items.
    pub link: Option<u64>,
}

/// What a call of a model of this server has of the requests for which it is made.
#[derive(Clone, Debug)]
pub struct Inherited {
    /// What the scheduler has to know of them.
    pub asked: Asked,
    /// What they say in addition to their ids, if all of them say the same.
    pub further: Option<Arc<FurtherMetadata>>,
}

/// A call of these values, if they are what the deployment takes.
pub fn call(manifest: &DeploymentManifest, mut parts: Parts, terms: &Terms) -> Result<Call, Failure> {
    let (group, cost) = ask(manifest, &mut parts)?;
    let inherited = terms.inherited.as_ref().and_then(|inherited| inherited.further.clone());
    let further = inherited.or_else(|| terms.further.clone());
    let metadata = Some(Metadata { request_id: terms.id.clone(), further });
    let (timeout, priority) = (terms.timeout, terms.priority);
    let asked = terms.inherited.as_ref().map(|inherited| inherited.asked);
    Ok(Call { group, cost, timeout, priority, asked, metadata, ..Call::new(parts, Encoding::Msgpack) })
}

/// Runs the items of one request: an answer each, in order. Those that are not what the deployment takes fail alone.
pub async fn run(deployment: &Deployment, items: Vec<Parts>, terms: Terms) -> Vec<Answer> {
    run_with(deployment, items, terms, 0, None).await.0
}

/// Runs the items of a model of this server that asks. They were admitted with the requests behind them: no connection bounds them.
pub(crate) async fn run_asked(deployment: &Deployment, items: Vec<Parts>, terms: Terms, message: usize) -> Vec<Answer> {
    run_with(deployment, items, terms, message, None).await.0
}

/// Runs a request of one item. The engine has the item when this returns, unless it is large: what waits for the answer is
/// small. `until_answered` is dropped after the answer.
pub(crate) fn run_one(
    deployment: Arc<Deployment>,
    parts: Parts,
    terms: Terms,
    until_answered: impl Send + 'static,
) -> AnsweringOne {
    if !offload::is_light(weight(&deployment.manifest, &parts)) {
        return Box::pin(async move {
            let answers = run(&deployment, vec![parts], terms).await;
            drop(until_answered);
            only(answers)
        });
    }
    let call = call(&deployment.manifest, parts, &terms);
    match RequestItems::new(&deployment, smallvec![call], 0) {
        Ok(items) => Box::pin(request::run(deployment, items, None).map(move |RequestOutcomes { answers, .. }| {
            drop(until_answered);
            answers.map_or_else(Answer::failed, only)
        })),
        Err(failure) => {
            drop(deployment.refuse(failure.outcome));
            Box::pin(ready(Answer::failed(failure)))
        }
    }
}

/// The answer of a request of one item.
pub fn only(answers: impl IntoIterator<Item = Answer>) -> Answer {
    let missing = || Answer::failed(Failure::new(Outcome::Internal, "an answer is missing"));
    answers.into_iter().next().unwrap_or_else(missing)
}

/// The values may be slices of `message` bytes.
async fn run_with(
    deployment: &Deployment,
    items: Vec<Parts>,
    terms: Terms,
    message: usize,
    ledger: Option<&Ledger>,
) -> (Vec<Answer>, Ticket) {
    let (manifest, count) = (&deployment.manifest, items.len());
    let of_items = if count > 1 { count * ITEM_BYTES } else { 0 };
    let weight = of_items + items.iter().map(|parts| weight(manifest, parts)).sum::<usize>();
    let arriving = deployment.outcomes.arrive();
    let decoded = offload::run(weight, || {
        let calls = items.into_iter().map(|parts| call(manifest, parts, &terms)).collect();
        RequestItems::new(deployment, calls, message)
    })
    .await;
    arriving.end();
    let RequestOutcomes { answers, ticket } = match decoded {
        Ok(items) => request::run(deployment, items, ledger).await,
        Err(failure) => {
            let ticket = deployment.refuse(failure.outcome);
            RequestOutcomes { answers: Err(failure), ticket }
        }
    };
    (answers.map_or_else(|failure| vec![Answer::failed(failure); count], Answers::into_vec), ticket)
}

/// Runs the items of a program that dials the server. Its answers wait in the server's memory until it takes them, so items
/// are refused while there is no room.
pub(crate) async fn run_remote(
    deployment: &Deployment,
    items: Vec<Parts>,
    terms: Terms,
    message: usize,
    (ledger, options): (&Ledger, &ServerOptions),
) -> Vec<Answer> {
    let count = items.len();
    let no_room = |failure| vec![Answer::failed(failure); count];
    if let Err(failure) = room::check(ledger, options) {
        drop(deployment.refuse(failure.outcome));
        return no_room(failure);
    }
    let (answers, mut ticket) = run_with(deployment, items, terms, message, Some(ledger)).await;
    match room::check(ledger, options) {
        Ok(()) => answers,
        Err(failure) => {
            ticket.set_outcome(failure.outcome);
            no_room(failure)
        }
    }
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
        return fields::of_arrays(manifest, parts);
    }
    let [part] = &mut parts[..] else {
        return Err(invalid("$", &format!("expected one value, got {} parts", parts.len())));
    };
    fields::of_value(manifest, part.tag, &mut part.data)
}

fn check_arrays(manifest: &DeploymentManifest, parts: &[Part]) -> Result<(), Failure> {
    let specs = &manifest.input.arrays;
    if specs.len() != parts.len() {
        return Err(invalid("$", &format!("expected {} arrays, got {} parts", specs.len(), parts.len())));
    }
    for (spec, part) in specs.iter().zip(parts) {
        let path = if specs.len() > 1 { format!("$.{}", spec.name) } else { "$".to_owned() };
        parameter::check_part(spec, &path, part)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::telemetry::Telemetry;
    use crate::engine::deployment::Inbound;
    use crate::engine::server_state::ServerState;
    use crate::open_inference::tests::manifest;
    use crate::values::chunks::Chunks;
    use bytes::Bytes;
    use tokio::sync::mpsc;

    fn counted(telemetry: &Telemetry) -> Vec<String> {
        let text = telemetry.text();
        let lines =
            text.lines().filter_map(|line| line.strip_prefix("jitney_requests_total{deployment=\"demo\",outcome="));
        lines.filter(|line| !line.ends_with(" 0")).map(str::to_owned).collect()
    }

    /// The program took no answers while this one was computed: it gets a refusal, and that is what is counted.
    #[tokio::test]
    async fn an_answer_that_finds_no_room_is_counted_as_refused() {
        let state = ServerState::for_test(1 << 20);
        let text = serde_json::json!({ "kind": "text", "arrays": [], "schema": true });
        let mut manifest = manifest(text.clone(), text, serde_json::json!({}));
        manifest.name = "demo".into();
        let (inbound, mut engine) = mpsc::unbounded_channel();
        let deployment = Deployment::new(Arc::new(manifest), inbound, &state.telemetry);
        let ledger = state.ledger.connection();
        let item = smallvec![Part { tag: Tag::Text, tensor: None, data: Chunks::from(Bytes::from_static(b"text")) }];
        let answering = run_remote(&deployment, vec![item], Terms::default(), 4, (&ledger, &state.options));
        let computing = async {
            let Some(Inbound::Submit(_, reply)) = engine.recv().await else { panic!("an item") };
            let untaken = ledger.untaken.hold(usize::try_from(state.options.max_receiving_bytes).unwrap() * 2);
            reply.end(Answer {
                result: Ok(smallvec![]),
                timing: crate::values::answer::Timing::default(),
                tokens: None,
                end: None,
            });
            untaken
        };
        let (answers, _untaken) = tokio::join!(answering, computing);
        assert_eq!(answers[0].outcome(), Outcome::QueueBytesFull);
        assert_eq!(counted(&state.telemetry), [r#""queue_bytes_full"} 1"#]);
    }
}
