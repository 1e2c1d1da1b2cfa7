//! What a link needs of its byte stream: signs of life in both directions, and reading without waiting.

use crate::support::{bytes_part, call, end, results_bytes, soon, whole};
use jitney_core::request::{BatchId, ItemId, ReplicaId};
use jitney_server::base::clock::Clock;
use jitney_server::link::batch_frame;
use jitney_server::link::frame::header::{HEADER_LEN, small_frame};
use jitney_server::link::frame::kind::Kind;
use jitney_server::link::frame::reader::FrameReader;
use jitney_server::link::front::receiver;
use jitney_server::link::front::worker_event::WorkerEvent;
use jitney_server::link::results_frame::ItemOutcome;
use jitney_server::link::worker::inbox::{Control, Taken};
use jitney_server::link::worker::lease::Identity;
use jitney_server::link::worker::link::WorkerLink;
use jitney_server::values::call::Encoding;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;

const WORKER: ReplicaId = ReplicaId(3);
const HOUR: Duration = Duration::from_secs(3600);
/// Nothing here takes longer unless it hangs.
const LONG: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_batch_that_takes_long_to_send_is_a_sign_of_life_and_a_full_socket_is_none() {
    let (front, worker) = tokio::io::duplex(1 << 10);
    let (reports_tx, mut reports) = tokio::sync::mpsc::unbounded_channel();
    let (reader, writer) = tokio::io::split(front);
    receiver::start(FrameReader::new(reader), writer, WORKER, Clock::default(), reports_tx);
    let Some(WorkerEvent::Connected(WORKER, link)) = soon(reports.recv()).await else {
        panic!("connected comes first")
    };
    let large = call(1, vec![bytes_part(vec![7; 50_000])], Encoding::Json);
    link.batch(BatchId(1), &[(&large, HOUR)]);
    let (mut taken, _writer) = tokio::io::split(worker);
    let mut last = link.heard();
    for _ in 0..10 {
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(link.heard(), last, "nothing was taken meanwhile");
        taken.read_exact(&mut [0; 2000]).await.unwrap();
        soon(async {
            while link.heard() == last {
                tokio::task::yield_now().await;
            }
        })
        .await;
        // The writer has filled the room that was made.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        last = link.heard();
    }
}

/// A worker over TCP, and the front's end of its connection, behind the hello.
fn over_tcp(silence: Option<Duration>) -> (WorkerLink, TcpStream, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let dialled = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ended_tx, ended) = mpsc::channel();
    let worker = WorkerLink::start(Box::new(dialled), silence, Identity::default(), None, move || {
        // The test may have ended.
        let _ = ended_tx.send(());
    });
    let (mut front, _) = listener.accept().unwrap();
    let hello = read_frame(&mut front);
    assert_eq!(hello.0, Kind::Hello as u8);
    (worker.unwrap(), front, ended)
}

fn read_frame(stream: &mut impl Read) -> (u8, Vec<u8>) {
    let mut header = [0; HEADER_LEN];
    stream.read_exact(&mut header).unwrap();
    let (table, payload) = (&header[4..8], &header[8..16]);
    let len =
        u64::from(u32::from_le_bytes(table.try_into().unwrap())) + u64::from_le_bytes(payload.try_into().unwrap());
    let mut body = vec![0; usize::try_from(len).unwrap()];
    stream.read_exact(&mut body).unwrap();
    (header[3], body)
}

fn batch(id: u64, remaining: Duration) -> Vec<u8> {
    let call = call(id * 10, vec![bytes_part("text")], Encoding::Json);
    batch_frame::encode(BatchId(id), &[(&call, remaining)]).concat()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < LONG, "not {what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_link_runs_over_any_byte_stream() {
    let (worker, mut front, ended) = over_tcp(None);
    front.write_all(&small_frame(Kind::Ping, b"").concat()).unwrap();
    assert_eq!(read_frame(&mut front).0, Kind::Pong as u8);
    front.write_all(&batch(1, HOUR)).unwrap();
    let delivered = worker.next_batch().unwrap();
    let results = results_bytes(BatchId(1), &[whole(10, ItemOutcome::LeftOut)]);
    worker.finish(std::iter::once(ItemId(10)), &[&results], &end(BatchId(1))).unwrap();
    assert_eq!(read_frame(&mut front).0, Kind::Results as u8);
    assert_eq!(read_frame(&mut front), (Kind::BatchEnd as u8, end(delivered.batch.id).encode()[HEADER_LEN..].to_vec()));
    drop(front);
    ended.recv_timeout(LONG).unwrap();
    assert_eq!(worker.receive(), Control::Shutdown);
}

#[test]
fn a_silent_front_ends_a_link_that_cannot_see_its_end() {
    for is_waiting in [true, false] {
        let (worker, front, ended) = over_tcp(Some(Duration::from_millis(50)));
        if is_waiting {
            assert!(worker.next_batch().is_none(), "the thread that reads notices");
        }
        ended.recv_timeout(LONG).unwrap();
        assert_eq!(worker.receive(), Control::Shutdown);
        drop(front);
    }
}

#[test]
fn taking_does_not_wait() {
    let (worker, mut front, _ended) = over_tcp(None);
    assert!(matches!(worker.take(), Taken::Nothing));
    for id in 1..=3 {
        front.write_all(&batch(id, HOUR)).unwrap();
        let mut taken = Taken::Nothing;
        until("received by the link's own thread", || {
            taken = worker.take();
            matches!(taken, Taken::Batch(_))
        });
        assert!(matches!(taken, Taken::Batch(delivered) if delivered.batch.id == BatchId(id)));
        assert!(matches!(worker.take(), Taken::Nothing), "each once");
        // A wait between two takes leaves the link's own thread asleep at most until the next take.
        front.write_all(&batch(id + 100, HOUR)).unwrap();
        assert_eq!(worker.next_batch().unwrap().batch.id, BatchId(id + 100));
    }
    front.write_all(&small_frame(Kind::Shutdown, b"").concat()).unwrap();
    until("ended", || matches!(worker.take(), Taken::Ended));
}

#[test]
fn the_time_of_an_item_runs_while_its_batch_is_on_the_way() {
    const REMAINING: Duration = Duration::from_millis(20);
    let (worker, mut front, _ended) = over_tcp(None);
    let frame = batch(1, REMAINING);
    front.write_all(&frame[..HEADER_LEN]).unwrap();
    until("read what has arrived", || format!("{worker:?}").contains("stream: taken"));
    let header_came = Instant::now();
    until("late", || header_came.elapsed() > 2 * REMAINING);
    front.write_all(&frame[HEADER_LEN..]).unwrap();
    let delivered = worker.next_batch().unwrap();
    assert_eq!(worker.wanted(&delivered), [false], "the transfer took longer than it had");
}
