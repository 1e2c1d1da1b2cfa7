//! A worker on another machine whose link is lost: it keeps its model, dials again, and what it had is nothing to the next link.

use crate::support::{bytes_part, call, end, results_bytes, whole};
use bytes::Bytes;
use jitney_channel::{Acceptor, Dialled, Pin, Secret, dial_worker};
use jitney_core::request::{BatchId, ItemId};
use jitney_server::link::batch_frame;
use jitney_server::link::frame::header::{HEADER_LEN, small_frame};
use jitney_server::link::frame::kind::Kind;
use jitney_server::link::results_frame::ItemOutcome;
use jitney_server::link::worker::inbox::{Delivered, Taken};
use jitney_server::link::worker::lease::{Identity, Lease};
use jitney_server::link::worker::link::WorkerLink;
use jitney_server::link::worker::stream::ByteStream;
use jitney_server::values::answer::OutputPart;
use jitney_server::values::call::Encoding;
use jitney_server::values::tensor::Tag;
use smallvec::SmallVec;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);
const LONG: Duration = Duration::from_secs(60);

/// A front that reads and writes single frames.
struct Front(TcpListener);

impl Front {
    fn listen() -> Front {
        Front(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    /// The next connection, and its hello.
    fn accept(&self) -> (TcpStream, serde_json::Value) {
        let (mut stream, _) = self.0.accept().unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let (kind, body) = read_frame(&mut stream);
        assert_eq!(kind, Kind::Hello as u8);
        (stream, serde_json::from_slice(&body).unwrap())
    }

    /// Each connection gets one batch, with the numbers 1, 2 and so on, and then nothing more. A worker that was away from its
    /// processor for longer than the silence that it allows has lost the link by then, and gets the next batch.
    fn send_a_batch_and_fall_silent(self) {
        std::thread::spawn(move || {
            let mut silent = Vec::new();
            for (number, stream) in (1..).zip(self.0.incoming()) {
                let mut stream = stream.unwrap();
                // A worker that has lost the link dials again.
                let _ = stream.write_all(&batch(number, 1, "a"));
                silent.push(stream);
            }
        });
    }

    fn token(stream: &mut impl Write, token: &str) {
        let body = serde_json::json!({ "token": token }).to_string();
        stream.write_all(&small_frame(Kind::Token, body.as_bytes())[0]).unwrap();
    }
}

fn read_frame(stream: &mut impl Read) -> (u8, Vec<u8>) {
    let mut header = [0; HEADER_LEN];
    stream.read_exact(&mut header).unwrap();
    let table = u64::from(u32::from_le_bytes(header[4..8].try_into().unwrap()));
    let mut body = vec![0; (table + u64::from_le_bytes(header[8..16].try_into().unwrap())) as usize];
    stream.read_exact(&mut body).unwrap();
    (header[3], body)
}

/// The frames that are not pongs, until one of this kind.
fn read_until(stream: &mut impl Read, kind: Kind) -> Vec<u8> {
    loop {
        let (found, body) = read_frame(stream);
        if found == kind as u8 {
            return body;
        }
        assert_eq!(found, Kind::Pong as u8);
    }
}

fn batch(id: u64, item: u64, text: &'static str) -> Vec<u8> {
    let call = call(item, vec![bytes_part(text)], Encoding::Json);
    batch_frame::encode(BatchId(id), &[(&call, HOUR)]).concat()
}

fn answer(worker: &WorkerLink, delivered: &Delivered) {
    let data = Bytes::copy_from_slice(&delivered.batch.payload);
    let part = OutputPart { name: "".into(), tag: Tag::Bytes, tensor: None, media_type: None, data };
    let item = delivered.batch.items[0].id;
    let values = ItemOutcome::Values(SmallVec::from_elem(part, 1));
    let frame = results_bytes(delivered.batch.id, &[whole(item.0, values)]);
    worker.of(delivered).finish([item].into_iter(), &[&frame], &end(delivered.batch.id)).unwrap();
}

/// A worker that has loaded its model, and a signal of its end.
fn worker(front: &Front, silence: Duration, lease: Duration) -> (WorkerLink, mpsc::Receiver<()>) {
    let address = front.address();
    let dial = move || Ok(Box::new(TcpStream::connect(address)?) as Box<dyn ByteStream>);
    let (ended_tx, ended) = mpsc::channel();
    let on_end = move || {
        // The test may have ended.
        let _ = ended_tx.send(());
    };
    let identity = Identity { id: "w1".into(), token: "first".into(), ..Identity::default() };
    let lease = Lease { dial: Box::new(dial), length: lease };
    (WorkerLink::start(dial().unwrap(), Some(silence), identity, Some(lease), on_end).unwrap(), ended)
}

fn loaded() -> serde_json::Value {
    serde_json::json!({ "deployment": "a" })
}

fn next(worker: &WorkerLink) -> Delivered {
    match worker.next_batch_until(Some(Instant::now() + LONG)) {
        Taken::Batch(delivered) => delivered,
        other => panic!("{other:?} instead of a batch"),
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < LONG, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_lost_link_cancels_what_came_over_it_and_its_answer_never_reaches_the_next_front() {
    let front = Front::listen();
    let (worker, _ended) = worker(&front, LONG, LONG);
    worker.keep(loaded());
    let (mut old, hello) = front.accept();
    assert_eq!((&hello["id"], &hello["token"], &hello["rejoin"]), (&"w1".into(), &"first".into(), &None::<()>.into()));
    Front::token(&mut old, "second");
    old.write_all(&batch(7, 1, "old")).unwrap();
    old.write_all(&batch(8, 2, "old, never taken")).unwrap();
    let running = next(&worker);
    assert_eq!((worker.wanted(&running), worker.cancelled(&running)), (vec![true], vec![false]));
    let changes = worker.changes();
    drop(old);
    until("cancelled", || worker.cancelled(&running) == [true]);
    assert!(worker.wanted(&running) == [false] && worker.changes() > changes);
    // A new front counts from the same numbers.
    let (mut new, hello) = front.accept();
    assert_eq!((&hello["id"], &hello["token"]), (&"w1".into(), &"second".into()));
    assert_eq!(hello["rejoin"], loaded());
    Front::token(&mut new, "third");
    new.write_all(&batch(7, 1, "new")).unwrap();
    let fresh = next(&worker);
    assert_eq!(&fresh.batch.payload, b"new");
    // All that a worker may say of the old batch goes nowhere, and takes nothing from the new one.
    worker.of(&running).started(BatchId(7)).unwrap();
    assert!(worker.of(&running).inputs_again(BatchId(7), &[ItemId(1)]).unwrap().items.is_empty());
    answer(&worker, &running);
    assert!(worker.cancelled(&running) == [true] && worker.wanted(&fresh) == [true]);
    answer(&worker, &fresh);
    let results = read_until(&mut new, Kind::Results);
    assert!(results.ends_with(b"new"), "{results:?}");
    read_until(&mut new, Kind::BatchEnd);
    new.write_all(&small_frame(Kind::Cancel, &1u64.to_le_bytes())[0]).unwrap();
    new.write_all(&small_frame(Kind::Ping, b"")[0]).unwrap();
    read_until(&mut new, Kind::Pong);
}

#[test]
fn a_link_that_is_cut_at_any_byte_of_a_frame_comes_back() {
    let front = Front::listen();
    let (worker, _ended) = worker(&front, LONG, LONG);
    worker.keep(loaded());
    let whole = batch(7, 1, "old");
    let (mut stream, _) = front.accept();
    // The pauses between tries grow only while no frame comes.
    for cut in (0..whole.len()).step_by(whole.len() / 8) {
        Front::token(&mut stream, "next");
        stream.write_all(&batch(6, 1, "before")).unwrap();
        let before = next(&worker);
        stream.write_all(&whole[..cut]).unwrap();
        drop(stream);
        stream = front.accept().0;
        answer(&worker, &before);
        assert_eq!(worker.cancelled(&before), [true], "cut at {cut}");
    }
    Front::token(&mut stream, "next");
    stream.write_all(&batch(9, 1, "last")).unwrap();
    answer(&worker, &next(&worker));
    assert!(read_until(&mut stream, Kind::Results).ends_with(b"last"));
}

#[test]
fn a_silent_front_is_lost_also_for_a_worker_that_computes_or_waits() {
    let front = Front::listen();
    let (worker, _ended) = worker(&front, Duration::from_millis(50), LONG);
    worker.keep(loaded());
    front.send_a_batch_and_fall_silent();
    let running = next(&worker);
    // Only the link's own thread reads.
    until("the batch is cancelled", || worker.cancelled(&running) == [true]);
    // A thread that waits reads, and the link may be lost again before it gets a batch.
    let waiting = std::thread::spawn({
        let worker = worker.clone();
        move || next(&worker).batch.id
    });
    assert!(waiting.join().unwrap() > running.batch.id, "it came over another link");
}

#[test]
fn a_front_that_takes_nothing_is_lost_and_the_writer_returns() {
    let front = Front::listen();
    let (worker, _ended) = worker(&front, Duration::from_millis(200), LONG);
    worker.keep(loaded());
    front.send_a_batch_and_fall_silent();
    let running = next(&worker);
    let large = vec![0; 64 << 20];
    worker.of(&running).results([ItemId(1)].into_iter(), &[&large]).unwrap();
    assert_eq!(worker.cancelled(&running), [true]);
    assert!(next(&worker).batch.id > running.batch.id, "it came over another link");
}

#[test]
fn a_worker_ends_when_its_lease_is_over_and_a_front_that_only_accepts_does_not_renew_it() {
    let front = Front::listen();
    let (worker, ended) = worker(&front, LONG, Duration::from_secs(2));
    worker.keep(loaded());
    let (stream, _) = front.accept();
    drop(stream);
    std::thread::spawn(move || {
        while let Ok((stream, _)) = front.0.accept() {
            drop(stream);
        }
    });
    ended.recv_timeout(LONG).unwrap();
    assert!(worker.next_batch().is_none());
}

#[test]
fn a_worker_without_a_model_or_that_is_to_end_does_not_come_back() {
    let front = Front::listen();
    let (_loading, ended) = worker(&front, LONG, LONG);
    drop(front.accept());
    ended.recv_timeout(LONG).unwrap();
    let (ending, ended) = worker(&front, LONG, LONG);
    ending.keep(loaded());
    let (mut stream, _) = front.accept();
    stream.write_all(&small_frame(Kind::Shutdown, b"")[0]).unwrap();
    assert!(ending.next_batch().is_none());
    drop(stream);
    ended.recv_timeout(LONG).unwrap();
}

/// The same over TLS: a worker that writes much still receives a cancel.
#[test]
fn a_worker_that_writes_a_large_answer_over_tls_receives_a_cancel_meanwhile() {
    let secret = Secret::new(&"a".repeat(32)).unwrap();
    let front = Front::listen();
    let address = front.address().to_string();
    let pin = Pin::of_front(&secret);
    let dialled = std::thread::spawn(move || dial_worker(&address, &pin).unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (stream, _) = front.0.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    let accepted = runtime.block_on(async {
        let tcp = tokio::net::TcpStream::from_std(stream).unwrap();
        Acceptor::new(&secret).unwrap().accept(tcp).await.unwrap().0
    });
    let Dialled::Tls(dialled) = dialled.join().unwrap() else { panic!("it uses TLS") };
    let worker = WorkerLink::start(Box::new(dialled), Some(LONG), Identity::default(), None, || {});
    let worker = worker.unwrap();
    let (_reader, mut writer) = tokio::io::split(accepted);
    let send = |bytes: Vec<u8>, writer: &mut tokio::io::WriteHalf<_>| {
        use tokio::io::AsyncWriteExt;
        runtime.block_on(async { writer.write_all(&bytes).await.and(writer.flush().await) }).unwrap();
    };
    send(batch(7, 1, "a"), &mut writer);
    let running = next(&worker);
    let writing = std::thread::spawn({
        let worker = worker.of(&running);
        // The front does not read it.
        move || -> io::Result<()> { worker.results(std::iter::empty(), &[&vec![0; 64 << 20]]) }
    });
    send(small_frame(Kind::Cancel, &1u64.to_le_bytes())[0].to_vec(), &mut writer);
    until("the cancel", || worker.cancelled(&running) == [true]);
    assert!(!writing.is_finished());
}
