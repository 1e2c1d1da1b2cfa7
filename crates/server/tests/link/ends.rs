//! The front's end and the worker's end, over a Unix socket.

use crate::support::{bytes_part, call, results_bytes};
use bytes::Bytes;
use jitney_core::request::{BatchId, ItemId, ReplicaId};
use jitney_core::time::Time;
use jitney_server::call::{Call, Encoding, OutputPart, Tag};
use jitney_server::clock::Clock;
use jitney_server::deployment::Inbound;
use jitney_server::link::batch_frame;
use jitney_server::link::frame::{FrameReader, Header, Kind, small_frame};
use jitney_server::link::front::Link;
use jitney_server::link::results_frame::{Durations, ItemOutcome, ResultsWriter};
use jitney_server::link::worker::{Control, WorkerLink};
use jitney_server::report::Report;
use smallvec::SmallVec;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::block_in_place;

/// Nothing here takes longer unless it hangs.
const LONG: Duration = Duration::from_secs(60);
const WORKER: ReplicaId = ReplicaId(3);
const HOUR: Duration = Duration::from_secs(3600);

async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(LONG, future).await.expect("it takes no longer unless it hangs")
}

/// The front's end.
struct Front {
    link: Link,
    reports: mpsc::UnboundedReceiver<Report>,
    engine: mpsc::UnboundedReceiver<Inbound>,
}

impl Front {
    async fn start(stream: UnixStream) -> Front {
        let (reports_tx, mut reports) = mpsc::unbounded_channel();
        let (reader, writer) = stream.into_split();
        let mut reader = FrameReader::new(reader);
        let hello = soon(Link::greet(&mut reader)).await.unwrap();
        assert_eq!((hello.secret.as_str(), hello.worker), ("secret", WORKER.0));
        Link::start(reader, writer, WORKER, Clock::default(), reports_tx);
        let Some(Report::Connected(WORKER, link)) = soon(reports.recv()).await else { panic!("connected comes first") };
        let (inbound, engine) = mpsc::unbounded_channel();
        link.attach(inbound);
        Front { link, reports, engine }
    }

    async fn inbound(&mut self) -> Inbound {
        soon(self.engine.recv()).await.unwrap()
    }

    async fn report(&mut self) -> Report {
        soon(self.reports.recv()).await.unwrap()
    }

    fn send(&self, batch: u64, calls: &[(Call, Duration)]) {
        self.link.batch(BatchId(batch), &calls.iter().map(|(call, remaining)| (call, *remaining)).collect::<Vec<_>>());
    }
}

/// Both ends, and what tells that the worker's `on_end` was called.
async fn connected() -> (Front, WorkerLink, oneshot::Receiver<()>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("workers");
    let listener = UnixListener::bind(&path).unwrap();
    let (ended_tx, ended) = oneshot::channel();
    let on_end = move || ended_tx.send(()).unwrap();
    let address = format!("unix:{}", path.display());
    let worker = block_in_place(|| WorkerLink::connect(&address, "secret", WORKER.0, on_end)).unwrap();
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
    assert!(matches!(front.report().await, Report::Said(WORKER, Kind::Ready, body) if body == "[1]"));
    for number in 1..=3u64 {
        front.send(number, &[item(number * 10, "a"), item(number * 10 + 1, vec![7; 100_000])]);
        let delivered = block_in_place(|| worker.next_batch()).unwrap();
        assert_eq!(delivered.batch.id, BatchId(number));
        assert_eq!(worker.wanted(&delivered), [true, true]);
        worker.started(delivered.batch.id).unwrap();
        assert!(matches!(front.inbound().await, Inbound::Started(BatchId(batch)) if batch == number));
        let ids = delivered.batch.items.iter().map(|item| item.id);
        let frame = results_bytes(delivered.batch.id, &[(ItemId(number * 10), ItemOutcome::LeftOut)]);
        worker.finish(ids, &[&frame]).unwrap();
        let Inbound::Results(WORKER, results) = front.inbound().await else { panic!("results come next") };
        assert_eq!((results.batch, results.items.len()), (BatchId(number), 1));
    }
    // Reported once.
    assert!(matches!(front.report().await, Report::Served(WORKER)));
    front.link.shutdown();
    assert!(block_in_place(|| worker.next_batch()).is_none());
    assert_eq!(worker.receive(), Control::Shutdown);
    assert!(front.reports.try_recv().is_err());
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
        // The link's own thread watches no more, and does not hold the stream: it follows nobody.
        is("is_watched: false").await;
        is("followers: 0").await;
        is("stream: None").await;
        front.send(number, &[]);
        assert_eq!(block_in_place(|| waiting.join().unwrap()), BatchId(number));
    }
    // While nobody waits the link's own thread receives.
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
        worker.finish(batch.batch.items.iter().map(|item| item.id), &[&frame]).unwrap();
        front.inbound().await;
    }
    // Too late: the items are no longer here.
    front.link.cancel(ItemId(1));
    front.send(3, &[]);
    block_in_place(|| worker.next_batch()).unwrap();
    assert!(state().contains("here: {}, cancelled: {}"), "{}", state());
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
    let mut table = ResultsWriter::new(BatchId(1), Durations::default(), true, 1);
    table.values(ItemId(2), 1);
    table.value("", Tag::Bytes, None, "", data.len());
    let head = table.finish();
    // More pieces than the kernel takes at once.
    let pieces: Vec<&[u8]> = std::iter::once(&head[..]).chain(data.chunks(16 << 10)).collect();
    block_in_place(|| worker.finish(std::iter::empty(), &pieces)).unwrap();
    let Inbound::Results(_, results) = front.inbound().await else { panic!("results come next") };
    let ItemOutcome::Values(parts) = &results.items[0].1 else { panic!("values were sent") };
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
    let frame = Bytes::from(results_bytes(BatchId(1), &[(ItemId(1), echo(large))]));
    let header = Header::decode(frame[..16].try_into().unwrap()).unwrap();
    let payload = frame.slice(16 + header.table..);
    let results =
        jitney_server::link::results_frame::decode(&frame[16..16 + header.table], &payload.clone().into()).unwrap();
    let ItemOutcome::Values(parts) = &results.items[0].1 else { panic!("values were sent") };
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
    let hello = small_frame(Kind::Hello, br#"{"secret":"secret","worker":3}"#).concat();
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
        assert!(matches!(front.report().await, Report::LinkLost(WORKER)), "after {nonsense:?}");
    }
}

#[tokio::test]
async fn a_stranger_gets_little_memory_and_no_second_chance() {
    let too_long = Header { kind: Kind::Hello, table: 1 << 20, payload: 0 }.encode();
    let too_heavy = Header { kind: Kind::Hello, table: 2, payload: 16 << 30 }.encode();
    let not_hello = small_frame(Kind::Ready, br#"{"secret":"secret","worker":3}"#).concat();
    let not_json = small_frame(Kind::Hello, b"secret").concat();
    for stranger in [&too_long[..], &too_heavy, &not_hello, &not_json, b""] {
        let (front, mut worker) = UnixStream::pair().unwrap();
        worker.write_all(stranger).await.unwrap();
        worker.shutdown().await.unwrap();
        let error = soon(Link::greet(&mut FrameReader::new(front))).await.unwrap_err();
        assert!(stranger.is_empty() || error.kind() != std::io::ErrorKind::UnexpectedEof, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stranger_that_says_nothing_is_not_waited_for() {
    let (front, _silent) = UnixStream::pair().unwrap();
    let error = Link::greet(&mut FrameReader::new(front)).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn what_has_come_of_a_large_frame_is_a_sign_of_life() {
    let (front, mut worker) = UnixStream::pair().unwrap();
    let (reports_tx, mut reports) = mpsc::unbounded_channel();
    let (reader, writer) = front.into_split();
    Link::start(FrameReader::new(reader), writer, WORKER, Clock::default(), reports_tx);
    let Some(Report::Connected(WORKER, link)) = soon(reports.recv()).await else { panic!("connected comes first") };
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
