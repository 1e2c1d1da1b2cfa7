//! Compositions whose models are tasks of the test: what reaches a model, and that every item ends.

use super::Composition;
use crate::base::clock::Clock;
use crate::base::telemetry::Telemetry;
use crate::engine::deployment::inbox::Inbox;
use crate::engine::deployment::{Deployment, Inbound, Submission};
use crate::engine::program_values;
use crate::engine::program_values::{Inherited, Terms};
use crate::open_inference::tests::manifest;
use crate::values::answer::{Answer, Failure, OutputPart, Timing};
use crate::values::call::{Call, Encoding, Part};
use crate::values::call_id::CallId;
use crate::values::chunks::Chunks;
use crate::values::metadata::Metadata;
use crate::values::tensor::Tag;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::FuturesUnordered;
use jitney_core::config::manifest::Composed;
use jitney_core::request::{ItemId, Priority};
use jitney_core::scheduler::item::Asked;
use jitney_core::tables::metrics;
use jitney_core::tables::outcome::Outcome;
use jitney_core::time::Time;
use proptest::prelude::*;
use smallvec::smallvec;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

fn text_manifest(name: &str, composed: Option<Composed>) -> jitney_core::config::manifest::DeploymentManifest {
    let text = serde_json::json!({ "kind": "text", "arrays": [], "schema": true });
    let plain = manifest(text.clone(), text, serde_json::json!({}));
    jitney_core::config::manifest::DeploymentManifest { name: name.into(), composed, ..plain }
}

fn call(text: &'static str) -> Call {
    let data = Chunks::from(Bytes::from_static(text.as_bytes()));
    Call::new(smallvec![Part { tag: Tag::Text, tensor: None, data }], Encoding::Json)
}

fn answer(data: Bytes) -> Answer {
    let part = OutputPart { name: "".into(), tag: Tag::Text, tensor: None, media_type: None, data };
    let timing = Timing { model: Duration::from_millis(1), batch_size: 1, ..Timing::default() };
    Answer { result: Ok(smallvec![part]), timing, tokens: Some(1), end: None }
}

/// Deployments of one server, by name.
#[derive(Default)]
struct Rig {
    telemetry: Telemetry,
    clock: Clock,
    known: BTreeMap<String, Deployment>,
}

impl Rig {
    /// A model that the test plays.
    fn model(&mut self, name: &str) -> mpsc::UnboundedReceiver<Inbound> {
        let (inbound, messages) = mpsc::unbounded_channel();
        let deployment = Deployment::new(Arc::new(text_manifest(name, None)), inbound, &self.telemetry);
        self.known.insert(name.into(), deployment);
        messages
    }

    fn compose(&mut self, name: &str, composed: Composed) -> Deployment {
        let manifest = Arc::new(text_manifest(name, Some(composed)));
        let composition = Composition::new(&manifest, &self.known, self.clock).unwrap();
        let deployment = Deployment::new(manifest, Inbox::of_front(Arc::new(composition)), &self.telemetry);
        self.known.insert(name.into(), deployment.clone());
        deployment
    }

    fn chain(&mut self, name: &str, stages: &[&str]) -> Deployment {
        self.compose(name, Composed::Chain { stages: stages.iter().map(|&stage| stage.into()).collect() })
    }

    fn together(&mut self, name: &str, members: &[&str]) -> Deployment {
        let members = members.iter().map(|&member| (format!("as_{member}"), member.into())).collect();
        self.compose(name, Composed::Together { members })
    }

    fn ended(&self, name: &str, outcome: Outcome) -> u64 {
        self.telemetry.counter(metrics::REQUESTS, &[name, outcome.reason()]).get()
    }
}

async fn one(inbound: &mut mpsc::UnboundedReceiver<Inbound>) -> Submission {
    match inbound.recv().await {
        Some(Inbound::Submit(call, reply)) => (call, reply),
        other => panic!("an item is expected, not {other:?}"),
    }
}

fn bytes(call: &Call) -> &Bytes {
    &call.parts[0].data.0[0]
}

#[tokio::test]
async fn items_that_are_refused_because_of_a_later_stage_count_as_arrivals_of_every_stage() {
    let mut rig = Rig::default();
    let (mut first, _second) = (rig.model("first"), rig.model("second"));
    let chain = rig.chain("chain", &["first", "second"]);
    rig.known["second"].published.set_most_waiting(0);
    let refused = chain.begin_each(vec![call("one"), call("two")], false);
    for (mut answer, guard) in refused {
        guard.disarm();
        assert_eq!(answer.end().await.outcome(), Outcome::WaitTooLong);
    }
    assert!(first.try_recv().is_err(), "no stage has begun");
    for name in ["first", "second"] {
        let (arrived, refused) = rig.known[name].published.demand().counts();
        assert!(arrived == 2 && refused > 0, "{name}: {arrived} arrived, {refused} refused");
    }
    assert!(rig.known["second"].published.take_refused() && !rig.known["first"].published.take_refused());
}

#[tokio::test(start_paused = true)]
async fn a_later_stage_gets_the_same_bytes_the_rest_of_the_time_and_the_rank() {
    let mut rig = Rig::default();
    let (mut first, mut second) = (rig.model("first"), rig.model("second"));
    let chain = rig.chain("chain", &["first", "second"]);
    tokio::time::advance(Duration::from_secs(5)).await;
    let id = CallId::given("mine").unwrap();
    let metadata = Some(Metadata::of_id(id));
    let timeout = Some(Duration::from_secs(10));
    let outer = Call { timeout, priority: Priority::High, metadata, ..call("item") };
    let (sent, answering) = (
        bytes(&outer).as_ptr(),
        tokio::spawn({
            let chain = chain.clone();
            async move { chain.call(outer).await }
        }),
    );

    let (inner, reply) = one(&mut first).await;
    assert_eq!((bytes(&inner).as_ptr(), inner.asked, inner.timeout), (sent, None, timeout));
    tokio::time::advance(Duration::from_secs(4)).await;
    let made = Bytes::from_static(b"made");
    reply.end(answer(made.clone()));

    let (inner, reply) = one(&mut second).await;
    assert_eq!((bytes(&inner).as_ptr(), inner.priority), (made.as_ptr(), Priority::High), "nothing is copied");
    assert_eq!(
        inner.asked.map(|asked| asked.since),
        Some(Time(0) + Duration::from_secs(5)),
        "it keeps its place in the queue"
    );
    assert_eq!(inner.timeout, Some(Duration::from_secs(6)));
    assert_eq!(inner.metadata.as_ref().map(|metadata| metadata.request_id.text().into_owned()), Some("mine".into()));
    reply.end(answer(made));
    let whole = answering.await.unwrap();
    assert_eq!((whole.timing.model, whole.tokens), (Duration::from_millis(2), Some(2)), "the sum of both stages");
    assert_eq!([rig.ended("chain", Outcome::Ok), rig.ended("second", Outcome::Ok)], [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn all_members_get_one_item_and_a_failure_of_one_cancels_the_others() {
    let mut rig = Rig::default();
    let (mut left, mut right) = (rig.model("left"), rig.model("right"));
    let both = rig.together("both", &["left", "right"]);
    let outer = call("item");
    let sent = bytes(&outer).as_ptr();
    let answering = tokio::spawn(async move { both.call(outer).await });
    let ((one_item, _kept), (other, reply)) = (one(&mut left).await, one(&mut right).await);
    assert_eq!((bytes(&one_item).as_ptr(), bytes(&other).as_ptr()), (sent, sent));
    reply.end(Answer::failed(Failure::new(Outcome::InvalidInput, "no")));
    let failure = answering.await.unwrap().result.unwrap_err();
    assert_eq!((failure.outcome, &*failure.detail), (Outcome::InvalidInput, "right: no"));
    assert!(matches!(left.recv().await, Some(Inbound::Cancel(id)) if id == one_item.id));
}

#[tokio::test(start_paused = true)]
async fn what_a_later_stage_refuses_is_no_fault_of_the_client() {
    let mut rig = Rig::default();
    let (mut first, mut second) = (rig.model("first"), rig.model("second"));
    let chain = rig.chain("chain", &["first", "second"]);
    for (inner, outer) in [
        (Outcome::InvalidInput, Outcome::ModelFailed),
        (Outcome::TooLarge, Outcome::ModelFailed),
        (Outcome::QueueBytesFull, Outcome::QueueBytesFull),
        (Outcome::WorkerLost, Outcome::WorkerLost),
        (Outcome::DeadlineExceeded, Outcome::DeadlineExceeded),
    ] {
        let answering = tokio::spawn({
            let chain = chain.clone();
            async move { chain.call(call("item")).await }
        });
        one(&mut first).await.1.end(answer(Bytes::new()));
        one(&mut second).await.1.end(Answer::failed(Failure::new(inner, "no")));
        let mut failure = answering.await.unwrap().result.unwrap_err();
        assert_eq!((failure.outcome, &*failure.detail), (outer, "second: no"));
        failure.hide_model_text();
        let is_hidden = failure.detail.starts_with("second: the model failed on this input;");
        assert_eq!(is_hidden, outer == Outcome::ModelFailed, "the name of the stage is public");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_cancels_the_item_where_it_is() {
    let mut rig = Rig::default();
    let (mut first, mut second) = (rig.model("first"), rig.model("second"));
    let chain = rig.chain("chain", &["first", "second"]);
    let answering = tokio::spawn(async move { chain.call(call("item")).await });
    one(&mut first).await.1.end(answer(Bytes::new()));
    let (inner, reply) = one(&mut second).await;
    answering.abort();
    assert!(matches!(second.recv().await, Some(Inbound::Cancel(id)) if id == inner.id));
    assert!(reply.is_abandoned());
    assert_eq!([rig.ended("chain", Outcome::Cancelled), rig.ended("second", Outcome::Cancelled)], [1, 1]);
}

/// A deployment of a random graph. Each calls only earlier ones.
#[derive(Clone, Debug)]
enum Node {
    /// A model with one replica.
    Model,
    /// A model that computes so many items side by side, and asks these others for each.
    Asking(usize, Vec<usize>),
    Chain(Vec<usize>),
    Together(Vec<usize>),
}

fn node(earlier: usize) -> BoxedStrategy<Node> {
    if earlier == 0 {
        return Just(Node::Model).boxed();
    }
    let some = move || proptest::collection::vec(0..earlier, 1..4);
    prop_oneof![
        Just(Node::Model),
        (1..3usize, some()).prop_map(|(places, others)| Node::Asking(places, others)),
        some().prop_map(Node::Chain),
        some().prop_map(Node::Together),
    ]
    .boxed()
}

fn graph() -> impl Strategy<Value = Vec<Node>> {
    (1..=8usize).prop_flat_map(|count| (0..count).map(node).collect::<Vec<_>>())
}

/// A request: for which deployment, how many items, and after how many milliseconds its client leaves.
fn requests() -> impl Strategy<Value = Vec<(prop::sample::Index, usize, Option<u64>)>> {
    proptest::collection::vec((any::<prop::sample::Index>(), 1..4usize, proptest::option::of(0..30u64)), 1..24)
}

/// Plays a model: computes so many items at once, and asks these deployments for each.
async fn play(mut inbound: mpsc::UnboundedReceiver<Inbound>, places: usize, others: Vec<Arc<Deployment>>) {
    let (mut queue, mut running) = (VecDeque::<Submission>::new(), BTreeMap::<ItemId, AbortHandle>::new());
    let mut work = FuturesUnordered::new();
    loop {
        tokio::select! {
            message = inbound.recv() => match message {
                Some(Inbound::Submit(call, reply)) => queue.push_back((call, reply)),
                Some(Inbound::SubmitMany { items, .. }) => queue.extend(items),
                Some(Inbound::Cancel(id)) => {
                    queue.retain(|(call, _)| call.id != id);
                    running.remove(&id).iter().for_each(AbortHandle::abort);
                }
                Some(_) => {}
                None => return,
            },
            Some(id) = work.next(), if !work.is_empty() => drop(running.remove(&id)),
        }
        while work.len() < places
            && let Some((call, reply)) = queue.pop_front()
        {
            let (handle, registration) = AbortHandle::new_pair();
            running.insert(call.id, handle);
            let (id, others) = (call.id, others.clone());
            let computing = async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                for other in others {
                    let asked = call.asked.unwrap_or(Asked { since: Time(0), may_stream: false });
                    let inherited = Some(Inherited { asked, further: None });
                    let terms = Terms { inherited, ..Terms::default() };
                    if let Err(failure) = program_values::run_one(other, call.parts.clone(), terms, ()).await.result {
                        return reply.end(Answer::failed(failure));
                    }
                }
                reply.end(answer(Bytes::from_static(b"done")))
            };
            let computing = Abortable::new(computing, registration);
            work.push(async move {
                let _ = computing.await;
                id
            });
        }
    }
}

/// Whether the answer of a node is one text, so that it can be an item.
fn is_text(graph: &[Node], place: usize) -> bool {
    match &graph[place] {
        Node::Model | Node::Asking(..) => true,
        Node::Chain(stages) => stages.iter().all(|&stage| is_text(graph, stage)),
        Node::Together(_) => false,
    }
}

async fn run(graph: Vec<Node>, requests: Vec<(prop::sample::Index, usize, Option<u64>)>) {
    let mut rig = Rig::default();
    let names: Vec<String> = (0..graph.len()).map(|place| format!("n{place}")).collect();
    for (place, node) in graph.iter().enumerate() {
        let called = |others: &[usize]| others.iter().map(|&other| &*names[other]).collect::<Vec<_>>();
        match node {
            Node::Model => drop(tokio::spawn(play(rig.model(&names[place]), 1, Vec::new()))),
            Node::Asking(places, others) => {
                let others = called(others).iter().map(|&other| Arc::new(rig.known[other].clone())).collect();
                drop(tokio::spawn(play(rig.model(&names[place]), *places, others)));
            }
            Node::Chain(stages) => {
                // Only the last stage may answer with something else than a text.
                let (last, before) = stages.split_last().unwrap();
                let stages: Vec<usize> =
                    before.iter().copied().filter(|&stage| is_text(&graph, stage)).chain([*last]).collect();
                rig.chain(&names[place], &called(&stages));
            }
            Node::Together(members) => {
                rig.together(&names[place], &called(members));
            }
        }
    }
    let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
    let mut clients = Vec::new();
    for (place, items, leaves) in &requests {
        let name = &*names[place.index(graph.len())];
        *expected.entry(name).or_default() += 1;
        let (deployment, items, leaves) = (rig.known[name].clone(), *items, *leaves);
        clients.push(tokio::spawn(async move {
            let waiting = deployment.waiting.clone();
            let calls = (0..items).map(|_| call("item")).collect();
            let answers = deployment.open_many(calls, &waiting);
            let patience = leaves.map_or(Duration::MAX, Duration::from_millis);
            tokio::time::timeout(patience, answers).await.map_or(items, |(answers, _)| answers.unwrap().len())
        }));
    }
    for (client, (_, items, _)) in clients.into_iter().zip(&requests) {
        assert_eq!(client.await.unwrap(), *items, "every item ends");
    }
    // What was cancelled ends at every level.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for (name, deployment) in &rig.known {
        assert_eq!(deployment.waiting.amount(), 0, "{name} holds nothing");
        let counted: u64 = [Outcome::Ok, Outcome::Cancelled].iter().map(|&outcome| rig.ended(name, outcome)).sum();
        assert!(counted >= expected.get(&**name).copied().unwrap_or(0), "{name} has counted its requests");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Models that wait for others hold their places, and still every item ends: in a graph without a circle the last models wait for none.
    #[test]
    fn every_item_of_every_graph_ends(graph in graph(), requests in requests()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            // The time is paused: it jumps to this end only if nothing else can happen.
            tokio::time::timeout(Duration::from_secs(3600), run(graph, requests)).await.expect("all items end");
        });
    }
}
