//! The front's end and the worker's end, over a Unix socket.

use crate::support::{bytes_part, call, end, results_bytes, soon, whole};
use bytes::Bytes;
use jitney_core::request::{BatchId, ItemId, ReplicaId};
use jitney_core::tables::outcome::Outcome;
use jitney_core::time::Time;
use jitney_server::base::clock::Clock;
use jitney_server::engine::deployment::Inbound;
use jitney_server::link::batch_frame;
use jitney_server::link::frame::header::{Header, small_frame};
use jitney_server::link::frame::kind::Kind;
use jitney_server::link::frame::reader::FrameReader;
use jitney_server::link::front::events::BatchEvent;
use jitney_server::link::front::hello::greet;
use jitney_server::link::front::link::Link;
use jitney_server::link::front::receiver;
use jitney_server::link::front::worker_event::WorkerEvent;
use jitney_server::link::results_frame::{ItemOutcome, ResultsWriter};
use jitney_server::link::worker::inbox::Control;
use jitney_server::link::worker::lease::Identity;
use jitney_server::link::worker::link::WorkerLink;
use jitney_server::values::answer::OutputPart;
use jitney_server::values::call::{Call, Encoding};
use jitney_server::values::tensor::Tag;
use smallvec::SmallVec;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::block_in_place;

const WORKER: ReplicaId = ReplicaId(3);
const HOUR: Duration = Duration::from_secs(3600);

/// The front's end.
struct Front {
    link: Link,
    reports: mpsc::UnboundedReceiver<WorkerEvent>,
    engine: mpsc::UnboundedReceiver<Inbound>,
}

impl Front {
    async fn start(stream: UnixStream) -> Front {
        let (reports_tx, mut reports) = mpsc::unbounded_channel();
        let (reader, writer) = stream.into_split();
        let mut reader = FrameReader::new(reader);
        let hello = soon(greet(&mut reader)).await.unwrap();
        assert_eq!((hello.token.as_str(), hello.version.as_str()), ("token", env!("CARGO_PKG_VERSION")));
        receiver::start(reader, writer, WORKER, Clock::default(), reports_tx);
        let Some(WorkerEvent::Connected(WORKER, link)) = soon(reports.recv()).await else {
            panic!("connected comes first")
        };
        let (inbound, engine) = mpsc::unbounded_channel();
        link.attach(inbound);
        Front { link, reports, engine }
    }

    async fn batch_event(&mut self) -> BatchEvent {
        match soon(self.engine.recv()).await.unwrap() {
            Inbound::Batch(WORKER, event) => event,
            other => panic!("{other:?} is not of the worker"),
        }
    }

    async fn report(&mut self) -> WorkerEvent {
        soon(self.reports.recv()).await.unwrap()
    }

    fn send(&self, batch: u64, calls: &[(Call, Duration)]) {
        self.link.batch(BatchId(batch), &calls.iter().map(|(call, remaining)| (call, *remaining)).collect::<Vec<_>>());
    }
}

/// Both ends, and the signal that the worker's `on_end` was called.
async fn connected() -> (Front, WorkerLink, oneshot::Receiver<()>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("workers");
    let listener = UnixListener::bind(&path).unwrap();
    let (ended_tx, ended) = oneshot::channel();
    let on_end = move || ended_tx.send(()).unwrap();
    let address = format!("unix:{}", path.display());
    let identity = Identity { token: "token".into(), ..Identity::default() };
    let worker = block_in_place(|| WorkerLink::connect(&address, identity, on_end)).unwrap();
    (Front::start(listener.accept().await.unwrap().0).await, worker, ended)
}

fn item(id: u64, data: impl Into<Bytes>) -> (Call, Duration) {
    (call(id, vec![bytes_part(data)], Encoding::Json), HOUR)
}

fn echo(data: Bytes) -> ItemOutcome {
    let part = OutputPart { name: "".into(), tag: Tag::Bytes, tensor: None, media_type: None, data };
    ItemOutcome::Values(SmallVec::from_elem(part, 1))
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_arrive_and_answers_come_back() {
    let (mut front, worker, _ended) = connected().await;
    front.link.assign(b"{}");
    assert_eq!(block_in_place(|| worker.receive()), Control::Assign(b"{}".into()));
    worker.control(Kind::Ready, b"[1]").unwrap();
    assert!(matches!(front.report().await, WorkerEvent::Message(WORKER, Kind::Ready, body) if body == "[1]"));
    for number in 1..=3u64 {
        front.send(number, &[item(number * 10, "a"), item(number * 10 + 1, vec![7; 100_000])]);
        let delivered = block_in_place(|| worker.next_batch()).unwrap();
        assert_eq!(delivered.batch.id, BatchId(number));
        assert_eq!(worker.wanted(&delivered), [true, true]);
        worker.started(delivered.batch.id).unwrap();
        let started = front.batch_event().await;
        assert!(matches!(started, BatchEvent::Started(BatchId(batch)) if batch == number));
        let ids = delivered.batch.items.iter().map(|item| item.id);
        let frame = results_bytes(delivered.batch.id, &[whole(number * 10, echo("b".into()))]);
        worker.finish(ids, &[&frame], &end(BatchId(number))).unwrap();
        let BatchEvent::Results(results) = front.batch_event().await else { panic!("results come next") };
        assert_eq!((results.batch, results.items.len()), (BatchId(number), 1));
        assert!(matches!(front.batch_event().await, BatchEvent::Ended(ended) if ended == end(BatchId(number))));
    }
    // Reported once.
    assert!(matches!(front.report().await, WorkerEvent::Served(WORKER)));
    front.link.shutdown();
    assert!(block_in_place(|| worker.next_batch()).is_none());
    assert_eq!(worker.receive(), Control::Shutdown);
    assert!(front.reports.try_recv().is_err());
}

/// Workers refuse such answers themselves. What comes from one that does not is never read into memory whole.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_above_the_limit_fails_alone_and_a_frame_far_above_it_ends_the_link() {
    let (mut front, worker, _ended) = connected().await;
    front.link.limit_answers(1000, 2, 1000);
    // The limit holds from the next frame on.
    worker.control(Kind::Ready, b"[1]").unwrap();
    assert!(matches!(front.report().await, WorkerEvent::Message(WORKER, Kind::Ready, _)));
    let [large, small] = [1001, 1000].map(|length| echo(vec![7; length].into()));
    let frame = results_bytes(BatchId(1), &[whole(1, large), whole(2, small)]);
    worker.finish([ItemId(1), ItemId(2)].into_iter(), &[&frame], &end(BatchId(1))).unwrap();
    let BatchEvent::Results(results) = front.batch_event().await else { panic!("results come next") };
    let [ItemOutcome::Failed(failure), ItemOutcome::Values(_)] = [0, 1].map(|n| results.items[n].outcome.clone())
    else {
        panic!("{results:?}")
    };
    assert_eq!(failure.outcome, Outcome::InvalidOutput);
    assert!(failure.detail.contains("1001 bytes") && failure.detail.contains("1000 (max_answer_bytes)"));
    assert!(matches!(front.report().await, WorkerEvent::Served(WORKER)));
    // A gigabyte is announced, and none of it sent.
    let header = Header { kind: Kind::Results, table: 0, payload: 1 << 30 }.encode();
    worker.results(std::iter::empty(), &[&header]).unwrap();
    assert!(matches!(front.report().await, WorkerEvent::LinkLost(WORKER)));
}

/// Else an item that is to be paused sends all of its answer before the engine sees the first part.
#[tokio::test]
async fn the_engine_has_its_turn_while_a_worker_writes_without_a_pause() {
    const BYTES: usize = 128 << 10;
    let frame = results_bytes(BatchId(1), &[whole(1, echo(vec![7; BYTES].into()))]);
    let (reports_tx, mut reports) = mpsc::unbounded_channel();
    let always_ready = std::io::Cursor::new(frame.repeat(100));
    receiver::start(FrameReader::new(always_ready), tokio::io::sink(), WORKER, Clock::default(), reports_tx);
    let Ok(WorkerEvent::Connected(WORKER, link)) = reports.try_recv() else { panic!("connected comes first") };
    let (inbound, mut engine) = mpsc::unbounded_channel();
    link.attach(inbound);
    let mut received = 0;
    while received < 100 {
        assert!(matches!(soon(engine.recv()).await, Some(Inbound::Batch(WORKER, BatchEvent::Results(_)))));
        received += 1;
        assert!(engine.len() <= 2, "{} more frames were read before the engine had a turn", engine.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_read_by_who_waits_for_it() {
    let (front, worker, _ended) = connected().await;
    let is = async |state: &str| {
        soon(async {
            while !format!("{worker:?}").contains(state) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    };
    for number in 1..=3 {
        is("is_watched: true").await;
        let waiting = std::thread::spawn({
            let worker = worker.clone();
            move || worker.next_batch().unwrap().batch.id
        });
        // The link's own thread watches no more, and does not hold the stream: it is not a follower.
        is("is_watched: false").await;
        is("followers: 0").await;
        is("stream: taken").await;
        front.send(number, &[]);
        assert_eq!(block_in_place(|| waiting.join().unwrap()), BatchId(number));
    }
    // While no thread waits, the link's own thread receives.
    is("is_watched: true").await;
    front.send(4, &[item(1, "a")]);
    is("here: {ItemId(1)}").await;
    assert_eq!(block_in_place(|| worker.next_batch()).unwrap().batch.id, BatchId(4));
}

#[tokio::test(flavor = "multi_thread")]
async fn cancels_are_seen_and_those_of_strangers_leave_no_trace() {
    let (mut front, worker, _ended) = connected().await;
    for stranger in 1000..11_000 {
        front.link.cancel(ItemId(stranger));
    }
    front.send(1, &[item(1, "a"), item(2, "b"), item(3, "c")]);
    front.link.cancel(ItemId(2));
    // What is sent after the cancel has been received after it.
    front.send(2, &[item(4, "d")]);
    let first = block_in_place(|| worker.next_batch()).unwrap();
    let second = block_in_place(|| worker.next_batch()).unwrap();
    assert_eq!(worker.wanted(&first), [true, false, true]);
    assert_eq!(worker.wanted(&second), [true]);
    let state = || format!("{worker:?}");
    assert!(state().contains("cancelled: {ItemId(2)}"), "{}", state());
    for batch in [first, second] {
        let frame = results_bytes(batch.batch.id, &[]);
        worker.finish(batch.batch.items.iter().map(|item| item.id), &[&frame], &end(batch.batch.id)).unwrap();
        front.batch_event().await;
    }
    // Too late: the items are no longer here.
    front.link.cancel(ItemId(1));
    front.send(3, &[]);
    block_in_place(|| worker.next_batch()).unwrap();
    assert!(state().contains("here: {}, cancelled: {}"), "{}", state());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inputs_of_a_batch_come_again_when_they_are_asked_for() {
    let (mut front, worker, _ended) = connected().await;
    let asking = std::thread::spawn({
        let worker = worker.clone();
        move || worker.inputs_again(BatchId(1), &[ItemId(1), ItemId(3)])
    });
    let event = front.batch_event().await;
    let BatchEvent::InputsAgain(BatchId(1), items) = event else { panic!("{event:?}") };
    assert_eq!(items, [ItemId(1), ItemId(3)]);
    // A batch that comes first stays for who takes batches.
    front.send(2, &[item(9, "next")]);
    front.link.inputs(BatchId(1), &[&item(3, "c").0]);
    let again = block_in_place(|| asking.join().unwrap()).unwrap();
    assert_eq!((again.items.len(), again.items[0].id, &again.payload[..]), (1, ItemId(3), &b"c"[..]));
    assert_eq!(block_in_place(|| worker.next_batch()).unwrap().batch.id, BatchId(2));
    drop(front);
    assert!(block_in_place(|| worker.inputs_again(BatchId(2), &[ItemId(9)])).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_an_item_whose_time_is_over() {
    let (front, worker, _ended) = connected().await;
    let with = |id, remaining| (item(id, "x").0, remaining);
    front.send(1, &[with(1, Duration::ZERO), with(2, HOUR), with(3, Duration::from_millis(30))]);
    let delivered = block_in_place(|| worker.next_batch()).unwrap();
    assert_eq!(worker.wanted(&delivered)[..2], [false, true]);
    let gone = async {
        while worker.wanted(&delivered)[2] {
            tokio::task::yield_now().await;
        }
    };
    soon(gone).await;
    assert!(delivered.arrived.elapsed() >= Duration::from_millis(30));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ping_is_answered_while_the_worker_computes() {
    let (front, _busy, _ended) = connected().await;
    let before = front.link.heard();
    front.link.ping();
    let heard = async {
        while front.link.heard() == before {
            tokio::task::yield_now().await;
        }
    };
    soon(heard).await;
    assert!(front.link.heard() > before && before >= Time(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn huge_payloads_pass_both_ways() {
    const HUGE: usize = 64 << 20;
    let (mut front, worker, _ended) = connected().await;
    let pattern: Vec<u8> = (0..HUGE).map(|place| (place / 4096) as u8).collect();
    let sent = Bytes::from(pattern);
    front.send(1, &[item(1, "small"), item(2, sent.clone())]);
    let delivered = block_in_place(|| worker.next_batch()).unwrap();
    let part = &delivered.batch.items[1].parts[0];
    let data = &delivered.batch.payload[part.offset..part.offset + part.len];
    assert!(data == sent);
    let mut table = ResultsWriter::new(BatchId(1), Duration::ZERO, 1);
    table.values(ItemId(2), 0, 1);
    table.value("", Tag::Bytes, None, "", data.len());
    let head = table.finish();
    // More pieces than the kernel takes at once.
    let pieces: Vec<&[u8]> = std::iter::once(&head[..]).chain(data.chunks(16 << 10)).collect();
    block_in_place(|| worker.finish(std::iter::empty(), &pieces, &end(BatchId(1)))).unwrap();
    let BatchEvent::Results(results) = front.batch_event().await else { panic!("results come next") };
    let ItemOutcome::Values(parts) = &results.items[0].outcome else { panic!("values were sent") };
    assert!(parts[0].data == sent);
}

#[test]
fn large_pieces_are_not_copied() {
    let large = Bytes::from(vec![1; 64 << 10]);
    let calls = [item(1, "small"), item(2, large.clone()), item(3, "small")];
    let segments =
        batch_frame::encode(BatchId(1), &calls.iter().map(|(call, remaining)| (call, *remaining)).collect::<Vec<_>>());
    assert_eq!(segments.len(), 3);
    assert_eq!(segments[1].as_ptr(), large.as_ptr());
    // Nor by the way back: values are windows on the frame that came.
    let frame = Bytes::from(results_bytes(BatchId(1), &[whole(1, echo(large))]));
    let header = Header::decode(frame[..16].try_into().unwrap()).unwrap();
    let payload = frame.slice(16 + header.table..);
    let results =
        jitney_server::link::results_frame::decode(&frame[16..16 + header.table], &payload.clone().into()).unwrap();
    let ItemOutcome::Values(parts) = &results.items[0].outcome else { panic!("values were sent") };
    assert_eq!(parts[0].data.as_ptr(), payload.as_ptr());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_ends_with_its_front() {
    let (front, worker, ended) = connected().await;
    front.send(1, &[item(1, "the last")]);
    drop(front);
    soon(ended).await.unwrap();
    // What had arrived may still be looked at.
    assert!(worker.next_batch().is_some());
    assert!(worker.next_batch().is_none());
    assert_eq!(worker.receive(), Control::Shutdown);
}

/// The worker's end as raw bytes.
async fn raw() -> (Front, UnixStream) {
    let (front, mut worker) = UnixStream::pair().unwrap();
    let hello = small_frame(
        Kind::Hello,
        concat!(r#"{"version":""#, env!("CARGO_PKG_VERSION"), r#"","token":"token","host":"h","devices":[]}"#)
            .as_bytes(),
    )
    .concat();
    worker.write_all(&hello).await.unwrap();
    (Front::start(front).await, worker)
}

#[tokio::test]
async fn a_link_that_ends_or_talks_nonsense_is_lost() {
    let unexpected = small_frame(Kind::Assign, b"").concat();
    let short = small_frame(Kind::Started, b"short").concat();
    let damaged = small_frame(Kind::Results, b"damaged").concat();
    let half = &small_frame(Kind::Ready, b"{}").concat()[..17];
    for nonsense in [b"", &b"GET / HTTP/1.1\r\n\r\n"[..], &unexpected, &short, &damaged, half] {
        let (mut front, mut worker) = raw().await;
        worker.write_all(nonsense).await.unwrap();
        worker.shutdown().await.unwrap();
        assert!(matches!(front.report().await, WorkerEvent::LinkLost(WORKER)), "after {nonsense:?}");
    }
}

#[tokio::test]
async fn a_stranger_gets_little_memory_and_no_second_chance() {
    let too_long = Header { kind: Kind::Hello, table: 1 << 20, payload: 0 }.encode();
    let too_heavy = Header { kind: Kind::Hello, table: 2, payload: 16 << 30 }.encode();
    let not_hello = small_frame(
        Kind::Ready,
        concat!(r#"{"version":""#, env!("CARGO_PKG_VERSION"), r#"","token":"token","host":"h","devices":[]}"#)
            .as_bytes(),
    )
    .concat();
    let not_json = small_frame(Kind::Hello, b"secret").concat();
    for stranger in [&too_long[..], &too_heavy, &not_hello, &not_json, b""] {
        let (front, mut worker) = UnixStream::pair().unwrap();
        worker.write_all(stranger).await.unwrap();
        worker.shutdown().await.unwrap();
        let error = soon(greet(&mut FrameReader::new(front))).await.unwrap_err();
        assert!(stranger.is_empty() || error.kind() != std::io::ErrorKind::UnexpectedEof, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stranger_that_says_nothing_is_not_waited_for() {
    let (front, _silent) = UnixStream::pair().unwrap();
    let error = greet(&mut FrameReader::new(front)).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn what_has_come_of_a_large_frame_is_a_sign_of_life() {
    let (front, mut worker) = UnixStream::pair().unwrap();
    let (reports_tx, mut reports) = mpsc::unbounded_channel();
    let (reader, writer) = front.into_split();
    receiver::start(FrameReader::new(reader), writer, WORKER, Clock::default(), reports_tx);
    let Some(WorkerEvent::Connected(WORKER, link)) = soon(reports.recv()).await else {
        panic!("connected comes first")
    };
    let frame = small_frame(Kind::Progress, &vec![b' '; 100_000]).concat();
    // Never all of it.
    for piece in [&frame[..10], &frame[10..20], &frame[20..1000], &frame[1000..50_000]] {
        let before = link.heard();
        worker.write_all(piece).await.unwrap();
        soon(async {
            while link.heard() == before {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}
