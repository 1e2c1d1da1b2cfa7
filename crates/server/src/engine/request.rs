//! One request from its items to their answers: the same steps for every protocol, for programs that dial the server and
//! for those that hold the engine.

pub(crate) mod parts;

use crate::base::ledger::{Account, CountedBytes, Ledger};
use crate::base::offload;
use crate::base::offload::COPIED;
use crate::engine::deployment::ticket::Ticket;
use crate::engine::deployment::{Deployment, open};
use crate::engine::large_request::turns::ITEM_BYTES;
use crate::engine::reply::UnreadParts;
use crate::engine::request::parts::AnswerParts;
use crate::engine::room;
use crate::values::answer::{Answer, Failure, OutputPart};
use crate::values::call::Call;
use crate::values::tensor::Tag;
use futures_util::FutureExt;
use futures_util::future::Either;
use jitney_core::tables::outcome::Outcome;
use smallvec::{SmallVec, smallvec};
use std::future::ready;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A message may have so many bytes more than its items. If it has more, the items are copied and the message is freed.
const MOST_BESIDE_ITEMS: u64 = 1 << 20;

/// The items of a request, in order. One that cannot be computed is there as its failure.
pub(crate) type Items = SmallVec<[Result<Call, Failure>; 1]>;
/// The answers to the items of a request, in their order.
pub(crate) type Answers = SmallVec<[Answer; 1]>;

/// The decoded items of one request, and the memory that the request takes outside of the queue until it is answered.
#[derive(Debug)]
pub(crate) struct RequestItems {
    items: Items,
    /// Of the values of all items.
    bytes: u64,
    /// When they had been decoded.
    pub(crate) decoded: Instant,
    _held: Option<CountedBytes>,
}

impl RequestItems {
    /// The items of a message of `message` bytes, inflated if it was compressed. The items may be slices of it. Refuses them
    /// if large requests leave no room, and then drops them here.
    pub(crate) fn new(deployment: &Deployment, items: Items, message: usize) -> Result<RequestItems, Failure> {
        RequestItems::with_asked(deployment, items, message, 0)
    }

    /// The items of a message of `message` bytes, of which the request keeps `asked` bytes until it is answered.
    pub(crate) fn with_asked(
        deployment: &Deployment,
        mut items: Items,
        message: usize,
        asked: usize,
    ) -> Result<RequestItems, Failure> {
        let bytes = items.iter().flatten().map(Call::bytes).sum::<u64>();
        let held = deployment.hold(items.len(), bytes as usize, asked)?;
        // The queue counts the bytes of an item only, but a slice of two bytes keeps a message of 60 MB in memory.
        if (message as u64).saturating_sub(bytes) > MOST_BESIDE_ITEMS {
            items.iter_mut().flatten().for_each(Call::detach);
        }
        Ok(RequestItems { items, bytes, decoded: Instant::now(), _held: held })
    }

    /// Those that can be computed.
    pub(crate) fn calls_mut(&mut self) -> impl Iterator<Item = &mut Call> {
        self.items.iter_mut().flatten()
    }
}

/// How a request ended.
#[derive(Debug)]
pub(crate) struct RequestOutcomes {
    /// An answer for each item; a failure if the engine admitted none of them.
    pub(crate) answers: Result<Answers, Failure>,
    /// Counts the request, and has the timing of its slowest item.
    pub(crate) ticket: Ticket,
}

/// Runs a request. Dropping the future cancels what has not been answered. `ledger` has the accounts of its connection;
/// a program that holds the engine has no connection and may use the whole queue.
///
/// Requests of one item are the most frequent by far: the engine has the item when this returns, and the future is small.
/// All others wait on the heap.
pub(crate) fn run<'a, D: Deref<Target = Deployment> + Send + Sync + 'a>(
    deployment: D,
    request: RequestItems,
    ledger: Option<&Ledger>,
) -> impl Future<Output = RequestOutcomes> + Send + use<'a, D> {
    let RequestItems { mut items, bytes, decoded, _held: held } = request;
    let waiting = match waiting(&deployment, ledger, items.len(), bytes) {
        Ok(waiting) => waiting,
        Err(failure) => {
            let ticket = deployment.refuse(failure.outcome).of_items(count(&items));
            return Either::Right(ready(RequestOutcomes { answers: Err(failure), ticket }).boxed());
        }
    };
    if let [Ok(_)] = items[..]
        && let Some(Ok(call)) = items.pop()
    {
        return Either::Left(open(deployment, call, &waiting, decoded).map(move |(answer, ticket)| {
            drop(held);
            RequestOutcomes { answers: Ok(smallvec![answer]), ticket: ticket.of_items(1) }
        }));
    }
    Either::Right(run_many(deployment, items, waiting).inspect(move |_| drop(held)).boxed())
}

/// Runs a request whose answers are taken part by part. It says to the worker that they are. If an item cannot be computed,
/// the request fails. The answers of all clients may have `most_unread` bytes, and this client may read nothing for `silence`.
pub(crate) fn open_parts(
    deployment: &Arc<Deployment>,
    request: RequestItems,
    ledger: &Ledger,
    most_unread: u64,
    silence: Duration,
) -> Result<AnswerParts, Box<(Failure, Ticket)>> {
    let unread = UnreadParts { account: ledger.untaken.clone(), limit: most_unread, silence: Some(silence) };
    open_parts_of(deployment, request, Some(ledger), &unread)
}

/// Hands items whose answers come in parts to their engine, for a program that holds the engine: the program has no
/// connection and may use the whole queue.
pub(crate) fn open_own_parts(
    deployment: &Arc<Deployment>,
    request: RequestItems,
    unread: &UnreadParts,
) -> Result<AnswerParts, Box<(Failure, Ticket)>> {
    open_parts_of(deployment, request, None, unread)
}

fn open_parts_of(
    deployment: &Arc<Deployment>,
    request: RequestItems,
    ledger: Option<&Ledger>,
    unread: &UnreadParts,
) -> Result<AnswerParts, Box<(Failure, Ticket)>> {
    let RequestItems { items, bytes, _held: held, .. } = request;
    let count = count(&items);
    let entered = waiting(deployment, ledger, items.len(), bytes).and_then(|waiting| {
        let calls = items.into_iter().map(|item| item.map(|call| Call { streams: true, ..call }));
        Ok((calls.collect::<Result<SmallVec<[Call; 1]>, Failure>>()?, waiting))
    });
    let (calls, waiting) = entered.map_err(|failure| {
        let ticket = deployment.refuse(failure.outcome).of_items(count);
        Box::new((failure, ticket))
    })?;
    Ok(AnswerParts::open(deployment, calls, &waiting, unread, held))
}

/// Where the items of a request count while they wait; a failure if its connection has more than its share.
fn waiting(deployment: &Deployment, ledger: Option<&Ledger>, items: usize, bytes: u64) -> Result<Account, Failure> {
    let Some(ledger) = ledger else { return Ok(deployment.waiting.clone()) };
    let waiting = ledger.waiting.of(&deployment.waiting);
    room::check_share(deployment, &waiting, items, bytes)?;
    Ok(waiting)
}

/// Items of a request, for its ticket.
fn count(items: &Items) -> u32 {
    u32::try_from(items.len()).unwrap_or(u32::MAX)
}

/// Runs a request of several items, or one whose item was refused.
async fn run_many<D: Deref<Target = Deployment>>(deployment: D, items: Items, waiting: Account) -> RequestOutcomes {
    let count = count(&items);
    let weight = items.len() * ITEM_BYTES;
    let arriving = deployment.outcomes.arrive();
    let (calls, refused) = offload::run(weight, || {
        let mut calls = Vec::with_capacity(items.len());
        let refused = items.into_iter().map(|item| item.map(|call| calls.push(call)).err());
        let refused: Vec<Option<Failure>> = refused.collect();
        (calls, refused)
    })
    .await;
    arriving.end();
    if calls.is_empty() {
        let outcome = refused.iter().flatten().next().map_or(Outcome::Ok, |first| first.outcome);
        let answers = refused.into_iter().flatten().map(Answer::failed).collect();
        return RequestOutcomes { answers: Ok(answers), ticket: deployment.refuse(outcome).of_items(count) };
    }
    let (answers, ticket) = deployment.open_many(calls, &waiting).await;
    let answers = match answers {
        Ok(answers) => Ok(offload::run(weight, || merge(refused, answers)).await),
        Err(failure) => Err(failure),
    };
    RequestOutcomes { answers, ticket: ticket.of_items(count) }
}

/// The answers of all items in their order: those that were refused have their failures.
fn merge(refused: Vec<Option<Failure>>, answers: Vec<Answer>) -> Answers {
    let mut answers = answers.into_iter();
    let missing = || Answer::failed(Failure::new(Outcome::Internal, "an answer is missing"));
    let mut next = || answers.next().unwrap_or_else(missing);
    refused.into_iter().map(|refused| refused.map_or_else(&mut next, Answer::failed)).collect()
}

/// How much work it is to write answers, in bytes that are parsed or written anew: each item costs, however short its
/// answer.
pub(crate) fn weight(answers: &[Answer], of_part: impl Fn(&OutputPart) -> usize) -> usize {
    let parts = answers.iter().filter_map(|answer| answer.result.as_ref().ok()).flatten();
    answers.len() * ITEM_BYTES + parts.map(of_part).sum::<usize>()
}

/// How much work it is to write answers whose arrays are copied and whose other values are parsed, in bytes.
pub(crate) fn join_weight(answers: &[Answer]) -> usize {
    weight(answers, |part| part.data.len() / if part.tag == Tag::Tensor { COPIED } else { 1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::telemetry::Telemetry;
    use crate::engine::deployment::Inbound;
    use crate::engine::program_values::{Terms, call};
    use crate::open_inference::tests::manifest;
    use crate::values::call::Part;
    use crate::values::chunks::Chunks;
    use bytes::Bytes;
    use futures_util::FutureExt;
    use std::pin::Pin;
    use tokio::sync::mpsc;

    fn serving(max_queued_items: u64) -> (Deployment, mpsc::UnboundedReceiver<Inbound>) {
        let text = serde_json::json!({ "kind": "text", "arrays": [], "schema": true });
        let mut manifest = manifest(text.clone(), text, serde_json::json!({}));
        manifest.options.max_queued_items = max_queued_items;
        let (inbound, engine) = mpsc::unbounded_channel();
        (Deployment::new(Arc::new(manifest), inbound, &Telemetry::new()), engine)
    }

    fn items(deployment: &Deployment, count: usize) -> RequestItems {
        items_of(deployment, count, 4)
    }

    /// Items that have so many bytes each.
    fn items_of(deployment: &Deployment, count: usize, bytes: usize) -> RequestItems {
        let data = Chunks::from(Bytes::from(vec![b'x'; bytes]));
        let part = Part { tag: Tag::Text, tensor: None, data };
        let call = || call(&deployment.manifest, smallvec![part.clone()], &Terms::default());
        RequestItems::new(deployment, (0..count).map(|_| call()).collect(), bytes * count).unwrap()
    }

    fn item(deployment: &Deployment) -> RequestItems {
        items(deployment, 1)
    }

    /// Only the first items of a large request are in the queue, and these alone use up the room of other connections.
    #[tokio::test]
    async fn a_large_request_leaves_room_for_the_requests_of_another_connection() {
        let (deployment, _engine) = serving(4096);
        let (large, other) = (Ledger::default().connection(), Ledger::default().connection());
        let mut batch = Box::pin(run(&deployment, items(&deployment, 10_000), Some(&large)));
        tokio::time::timeout(std::time::Duration::from_millis(200), &mut batch).await.unwrap_err();
        let mut requests = [(); 2].map(|()| Box::pin(run(&deployment, item(&deployment), Some(&other))));
        for request in &mut requests {
            assert!(request.as_mut().now_or_never().is_none(), "it waits for its answer");
        }
    }

    /// The items of a connection in another deployment use up nothing.
    #[tokio::test]
    async fn a_connection_has_a_share_in_each_deployment() {
        let ((busy, _busy_engine), (deployment, _engine)) = (serving(1000), serving(10));
        let connection = Ledger::default().connection();
        let mut requests: Vec<_> = (0..200).map(|_| Box::pin(run(&busy, item(&busy), Some(&connection)))).collect();
        requests.push(Box::pin(run(&deployment, item(&deployment), Some(&connection))));
        requests.push(Box::pin(run(&deployment, item(&deployment), Some(&connection))));
        for request in &mut requests {
            assert!(request.as_mut().now_or_never().is_none(), "it waits for its answer");
        }
    }

    /// The queue is never full of one connection's requests: who has few in it finds room.
    #[tokio::test]
    async fn one_connection_cannot_fill_the_queue_of_all() {
        let (deployment, engine) = serving(100);
        let server = Ledger::default();
        let connections: Vec<Ledger> = (0..5).map(|_| server.connection()).collect();
        let mut running = Vec::new();
        let mut refused = 0;
        for connection in connections.iter().cycle().take(500) {
            let mut request = Box::pin(run(&deployment, item(&deployment), Some(connection)));
            match request.as_mut().now_or_never() {
                None => running.push(request),
                Some(RequestOutcomes { answers, .. }) => {
                    let failure = answers.unwrap_err();
                    assert_eq!((failure.outcome, failure.retry_after.is_some()), (Outcome::QueueFull, true));
                    refused += 1;
                }
            }
        }
        assert!((80..100).contains(&running.len()) && refused == 500 - running.len(), "{} run", running.len());
        let other = server.connection();
        let mut request = Box::pin(run(&deployment, item(&deployment), Some(&other)));
        assert!(request.as_mut().now_or_never().is_none(), "it has entered");
        drop((request, running, engine));
        assert_eq!(deployment.waiting.amount(), 0);
    }

    type Waiting<'a> = Vec<Pin<Box<dyn Future<Output = RequestOutcomes> + Send + 'a>>>;

    /// Requests of one connection, each of one item of `bytes`, until one is refused: how many wait, and why that one does not.
    fn flood<'a>(deployment: &'a Deployment, connection: &Ledger, bytes: usize) -> (Waiting<'a>, Failure) {
        let mut waiting = Waiting::new();
        loop {
            let mut request = Box::pin(run(deployment, items_of(deployment, 1, bytes), Some(connection)));
            match request.as_mut().now_or_never() {
                None => waiting.push(request),
                Some(RequestOutcomes { answers, .. }) => return (waiting, answers.unwrap_err()),
            }
        }
    }

    /// The wait is too long before the queue is full: a connection has its share of the shorter queue.
    #[tokio::test]
    async fn one_connection_cannot_make_the_wait_of_all_too_long() {
        let (deployment, _engine) = serving(4096);
        deployment.published.set_most_waiting(90);
        let server = Ledger::default();
        let (greedy, other) = (server.connection(), server.connection());
        let (waiting, failure) = flood(&deployment, &greedy, 4);
        assert_eq!((waiting.len(), failure.outcome, failure.retry_after.is_some()), (80, Outcome::WaitTooLong, true));
        assert!(failure.detail.contains("80 items of this connection") && failure.detail.contains("10 more items"));
        assert!(deployment.published.take_refused() && !deployment.published.take_refused(), "the engine sees it once");
        let mut request = Box::pin(run(&deployment, item(&deployment), Some(&other)));
        assert!(request.as_mut().now_or_never().is_none(), "it has entered");
    }

    #[tokio::test]
    async fn one_connection_cannot_make_all_answers_late() {
        let text = serde_json::json!({ "kind": "text", "arrays": [], "schema": true });
        let mut manifest = manifest(text.clone(), text, serde_json::json!({}));
        manifest.options.latency_target_ms = Some(100.0);
        let (inbound, _engine) = mpsc::unbounded_channel();
        let deployment = Deployment::new(Arc::new(manifest), inbound, &Telemetry::new());
        deployment.published.set_most_waiting(9);
        let server = Ledger::default();
        let (greedy, other) = (server.connection(), server.connection());
        let (waiting, failure) = flood(&deployment, &greedy, 4);
        assert_eq!((waiting.len(), failure.outcome), (8, Outcome::WouldBeLate), "{}", failure.detail);
        let mut request = Box::pin(run(&deployment, item(&deployment), Some(&other)));
        assert!(request.as_mut().now_or_never().is_none(), "it has entered");
        drop((request, waiting));
    }

    /// A request of many items takes more of the room that is left for others than one of one item.
    #[tokio::test]
    async fn a_request_counts_with_all_items_that_enter_at_once() {
        let (deployment, _engine) = serving(4096);
        deployment.published.set_most_waiting(90);
        let server = Ledger::default();
        let (greedy, other) = (server.connection(), server.connection());
        let mut waiting = Vec::new();
        for _ in 0..20 {
            let mut request = Box::pin(run(&deployment, items(&deployment, 30), Some(&greedy)));
            if request.as_mut().now_or_never().is_none() {
                waiting.push(request);
            }
        }
        assert_eq!((waiting.len(), deployment.waiting.amount()), (2, 60), "30 more would leave no room");
        let mut request = Box::pin(run(&deployment, item(&deployment), Some(&other)));
        assert!(request.as_mut().now_or_never().is_none(), "it has entered");
        drop((request, waiting));
    }

    #[tokio::test]
    async fn one_connection_cannot_take_all_bytes_of_the_queue() {
        let (deployment, _engine) = serving(4096);
        let server = Ledger::default();
        let (greedy, other) = (server.connection(), server.connection());
        let tenth = deployment.manifest.options.max_queued_bytes as usize / 10;
        let (waiting, failure) = flood(&deployment, &greedy, tenth);
        assert_eq!((waiting.len(), failure.outcome), (9, Outcome::QueueBytesFull), "{}", failure.detail);
        assert_eq!(deployment.waiting.item_bytes(), 9 * tenth as u64);
        let mut request = Box::pin(run(&deployment, items_of(&deployment, 1, tenth / 2), Some(&other)));
        assert!(request.as_mut().now_or_never().is_none(), "it has entered");
        drop((request, waiting));
    }

    #[tokio::test]
    async fn one_connection_alone_has_most_of_the_queue() {
        let (deployment, _engine) = serving(90);
        let connection = Ledger::default().connection();
        let (mut requests, mut entered) = (Vec::new(), 0);
        for _ in 0..200 {
            let mut request = Box::pin(run(&deployment, item(&deployment), Some(&connection)));
            entered += usize::from(request.as_mut().now_or_never().is_none());
            requests.push(request);
        }
        assert_eq!(entered, 80, "eight ninths");
    }
}
