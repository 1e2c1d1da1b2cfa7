//! A connection whose server is the test.

use super::*;
use crate::clients::call_frame;
use crate::clients::call_frame::Caller;
use crate::clients::client::calls::Address;
use crate::clients::client::calls::{AwaitedAnswer, OutgoingCall, Sent};
use crate::clients::client::entrance::RemoteEntrance;
use crate::clients::client::sending::too_large;
use crate::clients::gathering::Gathering;
use crate::clients::part_frames;
use crate::engine::program_values::parts::{BoxedCallParts, EndedParts};
use crate::engine::program_values::{ParentItems, Parts, Terms};
use crate::engine::reply::{PartValues, ReplyEvent};
use crate::link::results_frame::ResultsWriter;
use crate::values::answer::{Answer, Failure, OutputPart};
use crate::values::tensor::Tag;
use futures_util::FutureExt;
use jitney_core::request::{BatchId, ItemId};
use jitney_core::tables::outcome::Outcome;
use smallvec::{SmallVec, smallvec};
use std::future::poll_fn;
use tokio::io::AsyncWriteExt;

fn shared() -> Arc<Shared> {
    Arc::new(Shared::new(Address { address: "unix:nowhere".into(), key: None }, Caller::Program))
}

#[tokio::test]
async fn a_refusal_is_no_connection_that_worked() {
    let (near, mut far) = tokio::io::duplex(1 << 16);
    far.write_all(&small_frame(Kind::Refused, br#"{"why": "no key"}"#)[0]).await.unwrap();
    let (shared, (reader, writer)) = (shared(), tokio::io::split(near));
    assert!(talk(&shared, reader, writer).await.is_err(), "so the pause before the next dial grows");
    assert!(shared.lost().detail.ends_with("no key"));
}

#[test]
fn what_would_end_the_connection_is_not_sent() {
    let shared = shared();
    let welcome = Welcome { deployments: [].into(), max_body_bytes: 1000, max_items: 10, max_requests: 1 };
    shared.standing.send_replace(Standing::Connected(Arc::new(welcome)));
    let told = |items, bytes, framed| too_large(&shared, items, bytes, framed).map(|failure| failure.detail);
    assert_eq!(told(10, 1000, 1400), None);
    assert!(told(1, 1001, 1400).unwrap().contains("max_body_bytes"));
    assert!(told(1, 900, 1001 + call_frame::TABLE).unwrap().contains("max_body_bytes"));
    assert!(told(11, 100, 400).unwrap().contains("11 items"));
}

#[test]
fn a_server_that_came_back_as_another_is_known() {
    let welcome = |dtype: &str, kind: &str| {
        let known = serde_json::json!({
            "input": { "kind": "arrays", "arrays": [{ "name": "x", "dtype": dtype }], "schema": dtype },
            "output": { "kind": kind, "arrays": [] },
        });
        let deployments = [("a".to_owned(), known), (kind.to_owned(), Value::Null)].into();
        Welcome { deployments, max_body_bytes: 1, max_items: 1, max_requests: 1 }
    };
    let first = welcome("int32", "text");
    assert!(changed(&first, &first).is_empty());
    for other in [welcome("int64", "text"), welcome("int32", "any")] {
        assert_eq!(changed(&first, &other), FxHashSet::from_iter(["a".to_owned()]));
    }
}

fn welcome(max_requests: u32) -> Segments {
    let welcome = Welcome { deployments: [].into(), max_body_bytes: 1000, max_items: 10, max_requests };
    small_frame(Kind::Welcome, &serde_json::to_vec(&welcome).unwrap())
}

/// A program that is connected to a server which takes one request at a time, and the server's end of the connection.
struct Connected {
    shared: Arc<Shared>,
    entrance: RemoteEntrance,
    frames: FrameReader<tokio::io::ReadHalf<tokio::io::DuplexStream>>,
    writer: tokio::io::WriteHalf<tokio::io::DuplexStream>,
    talking: tokio::task::JoinHandle<io::Result<()>>,
}

impl Connected {
    async fn new() -> Connected {
        let (near, far) = tokio::io::duplex(1 << 20);
        let (shared, (reader, writer)) = (shared(), tokio::io::split(near));
        let (far_reader, mut far_writer) = tokio::io::split(far);
        far_writer.write_all(&welcome(1)[0]).await.unwrap();
        let talking = tokio::spawn({
            let shared = shared.clone();
            async move { talk(&shared, reader, writer).await }
        });
        shared.standing.subscribe().wait_for(|standing| matches!(standing, Standing::Connected(_))).await.unwrap();
        let entrance = RemoteEntrance { deployment: "x".into(), shared: shared.clone() };
        Connected { shared, entrance, frames: FrameReader::new(far_reader), writer: far_writer, talking }
    }

    /// The next frame of this kind that the program sends.
    async fn frame(&mut self, kind: Kind) -> Frame {
        loop {
            let frame = self.frames.next().await.unwrap().unwrap();
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// The next request that the program sends.
    async fn call(&mut self) -> call_frame::Request {
        call_frame::read_call(&self.frame(Kind::Call).await, 9).unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_not_waited_for_when_its_server_has_stopped() {
    let mut program = Connected::new().await;
    let (began, timeout) = (Instant::now(), Some(Duration::from_millis(50)));
    let answers = program.entrance.call(vec![Parts::new()], Terms { timeout, ..Terms::default() }).await;
    assert_eq!(answers[0].result.as_ref().unwrap_err().outcome, Outcome::DeadlineExceeded);
    assert!(began.elapsed() < Duration::from_secs(3), "sooner than the connection is given up");
    program.frame(Kind::Hangup).await;
    assert!(!program.talking.is_finished(), "it may still come back");
}

#[tokio::test]
async fn no_more_calls_are_sent_than_the_server_takes() {
    let mut program = Connected::new().await;
    assert_eq!(program.frames.next().await.unwrap().unwrap().kind, Kind::Dial);
    let timeout = Some(Duration::from_millis(50));
    let [first, second, late] = [None, None, timeout]
        .map(|timeout| tokio::spawn(program.entrance.call(vec![Parts::new()], Terms { timeout, ..Terms::default() })));
    let id = program.call().await.id;
    assert!(tokio::time::timeout(Duration::from_millis(100), program.call()).await.is_err(), "the second waits");
    let answered = [Answer::failed(Failure::new(Outcome::Internal, ""))];
    program.writer.write_all(&answer_frames::answers(id, &answered).concat()).await.unwrap();
    assert_eq!(first.await.unwrap()[0].outcome(), Outcome::Internal);
    program.call().await;
    program.shared.lose();
    assert_eq!(second.await.unwrap()[0].outcome(), Outcome::Disconnected);
    assert!(matches!(late.await.unwrap()[0].outcome(), Outcome::Disconnected | Outcome::DeadlineExceeded));
    program.talking.abort();
}

/// What becomes of a program whose server sends one answer so slowly, or nothing at all.
async fn end(piece_every: Option<Duration>) -> io::Result<()> {
    let (near, mut far) = tokio::io::duplex(1 << 16);
    let (shared, (reader, writer)) = (shared(), tokio::io::split(near));
    far.write_all(&welcome(10)[0]).await.unwrap();
    tokio::spawn(async move {
        let answer = answer_frames::answers(1, &[]).concat();
        let Some(every) = piece_every else { return std::future::pending().await };
        for byte in answer {
            tokio::time::sleep(every).await;
            far.write_all(&[byte]).await.unwrap();
        }
    });
    talk(&shared, reader, writer).await
}

#[tokio::test(start_paused = true)]
async fn a_long_answer_is_a_sign_of_life_and_silence_is_none() {
    assert!(end(Some(SILENCE / 2)).await.is_ok(), "it ends when the server has said all");
    assert!(end(None).await.unwrap_err().to_string().contains("silent"));
}

#[tokio::test]
async fn what_answers_at_a_wrong_address_is_named() {
    let frame_of_another_version = b"JY\x02\x31\0\0\0\0\0\0\0\0\0\0\0\0";
    for (answer, expected) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "this is an HTTP server"),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", "not a jitney server"),
        (frame_of_another_version, "frame version 2"),
    ] {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        far.write_all(answer).await.unwrap();
        let (shared, (reader, writer)) = (shared(), tokio::io::split(near));
        assert!(talk(&shared, reader, writer).await.is_err());
        assert!(matches!(&*shared.standing.borrow(), Standing::Refused(_)), "waiting callers get the error at once");
        assert!(shared.lost().detail.contains(expected), "{}", shared.lost().detail);
    }
}

#[tokio::test]
async fn a_server_that_is_full_is_dialled_again_without_an_error() {
    let (near, mut far) = tokio::io::duplex(1 << 16);
    far.write_all(&small_frame(Kind::Refused, br#"{"why": "it is full", "is_temporary": true}"#)[0]).await.unwrap();
    let (shared, (reader, writer)) = (shared(), tokio::io::split(near));
    assert!(talk(&shared, reader, writer).await.unwrap_err().to_string().contains("it is full"));
    assert!(matches!(&*shared.standing.borrow(), Standing::Dialling(_)));
}

#[tokio::test]
async fn a_place_of_a_connection_that_was_lost_is_none_of_the_next() {
    let shared = shared();
    let line = || {
        let (outgoing, queue) = mpsc::unbounded_channel();
        let line = Line {
            outgoing: Outgoing::Queue(outgoing),
            places: Arc::new(Semaphore::new(1)),
            changed: FxHashSet::default(),
        };
        (line, queue)
    };
    let (first, _queue) = line();
    shared.calls().line = Some(first);
    let place = shared.place(&ParentItems::default()).await.unwrap();
    shared.lose();
    let (second, mut queue) = line();
    shared.calls().line = Some(second);
    let frame = small_frame(Kind::Call, b"");
    let awaited = || Some(AwaitedAnswer::Whole(tokio::sync::oneshot::channel().0, Gathering::new(1)));
    let call = || OutgoingCall { id: 1, deployment: "x", parents: SmallVec::new(), end: None };
    assert!(matches!(shared.send(call(), &place, frame.clone(), awaited), Sent::OtherLine));
    assert!(queue.try_recv().is_err(), "nothing was sent without a place");
    let place = shared.place(&ParentItems::default()).await.unwrap();
    assert!(matches!(shared.send(call(), &place, frame, awaited), Sent::Waits));
}

#[tokio::test]
async fn an_answer_may_come_in_several_frames() {
    let mut program = Connected::new().await;
    let calling = tokio::spawn(program.entrance.call(vec![Parts::new(), Parts::new()], Terms::default()));
    let id = program.call().await.id;
    let frame = |kind, item, outcome: Outcome| {
        let mut table = ResultsWriter::new(BatchId(id), Duration::ZERO, 1);
        table.failed(ItemId(item), 0, &Failure::new(outcome, ""));
        table.finish_as(kind)
    };
    program.writer.write_all(&frame(Kind::AnswerParts, 1, Outcome::ModelFailed)).await.unwrap();
    program.writer.write_all(&frame(Kind::Answers, 0, Outcome::TooLarge)).await.unwrap();
    let outcomes: Vec<Outcome> = calling.await.unwrap().iter().map(Answer::outcome).collect();
    assert_eq!(outcomes, [Outcome::TooLarge, Outcome::ModelFailed]);
    program.talking.abort();
}

/// A program with a stream, and the server's end of its connection.
struct OpenStream {
    program: Connected,
    parts: BoxedCallParts,
    id: u64,
}

impl OpenStream {
    async fn new() -> OpenStream {
        let program = Connected::new().await;
        let parts = program.entrance.stream(Parts::new(), Terms::default());
        let mut stream = OpenStream { program, parts, id: 0 };
        assert!(stream.next().now_or_never().is_none(), "the first poll sends the call");
        let call = stream.program.call().await;
        assert!(call.streams);
        stream.id = call.id;
        stream
    }

    async fn next(&mut self) -> ReplyEvent {
        poll_fn(|cx| self.parts.poll_event(cx)).await
    }

    async fn send(&mut self, sequence: u32, parts: &[PartValues], end: Option<&Answer>) {
        let frame = part_frames::parts(Kind::Answers, self.id, sequence, parts, end).concat();
        self.program.writer.write_all(&frame).await.unwrap();
    }
}

fn part(bytes: usize) -> PartValues {
    let data = bytes::Bytes::from(vec![b'p'; bytes]);
    smallvec![OutputPart { name: "".into(), tag: Tag::Bytes, tensor: None, media_type: None, data }]
}

#[tokio::test]
async fn a_program_says_what_it_has_taken_of_a_stream() {
    let mut stream = OpenStream::new().await;
    stream.send(0, &[part(100_000), part(100_000)], None).await;
    for _ in 0..2 {
        assert!(matches!(stream.next().await, ReplyEvent::Part(_)));
    }
    let taken = stream.program.frame(Kind::PartsTaken).await;
    assert_eq!(part_frames::read_taken(&taken.table).unwrap(), (stream.id, 2 * 100_256));
    let ended = Answer { result: Ok(part(1)), ..Answer::failed(Failure::new(Outcome::Ok, "")) };
    stream.send(2, &[part(1)], Some(&ended)).await;
    assert!(matches!(stream.next().await, ReplyEvent::Part(_)));
    let ReplyEvent::End(answer) = stream.next().await else { panic!("no end") };
    assert_eq!(answer.outcome(), Outcome::Ok);
    let place =
        tokio::time::timeout(Duration::from_secs(5), stream.program.shared.place(&ParentItems::default())).await;
    assert!(place.expect("its place is free").is_some());
}

/// They take less room there, and would keep the window shut.
#[tokio::test]
async fn texts_that_were_put_together_are_taken_as_they_were_sent() {
    let mut stream = OpenStream::new().await;
    let text = |part: PartValues| part.into_iter().map(|value| OutputPart { tag: Tag::Text, ..value }).collect();
    let parts: Vec<PartValues> = (0..900).map(|_| text(part(4))).collect();
    stream.send(0, &parts, None).await;
    let mut bytes = 0;
    while bytes < 900 * 4 {
        let ReplyEvent::Part(values) = stream.next().await else { panic!("no part") };
        bytes += values[0].data.len();
    }
    let taken =
        tokio::time::timeout(Duration::from_secs(5), stream.program.frame(Kind::PartsTaken)).await.expect("it is said");
    let (_, bytes) = part_frames::read_taken(&taken.table).unwrap();
    assert!((128 << 10..=900 * 260).contains(&bytes), "{bytes}");
}

#[tokio::test]
async fn a_stream_that_is_dropped_is_hung_up_and_one_whose_server_is_lost_fails() {
    let mut stream = OpenStream::new().await;
    stream.send(0, &[part(1)], None).await;
    assert!(matches!(stream.next().await, ReplyEvent::Part(_)));
    stream.parts = Box::new(EndedParts(None));
    assert_eq!(&stream.program.frame(Kind::Hangup).await.table[..], &stream.id.to_le_bytes());
    let mut stream = OpenStream::new().await;
    stream.program.shared.lose();
    let ReplyEvent::End(answer) = stream.next().await else { panic!("no end") };
    let failure = answer.result.unwrap_err();
    assert!(failure.outcome == Outcome::Disconnected && failure.detail.contains("while it had this call"));
}

#[tokio::test]
async fn parts_that_are_out_of_sequence_or_too_many_end_the_connection() {
    let mut stream = OpenStream::new().await;
    stream.send(1, &[part(1)], None).await;
    assert!(stream.program.talking.await.unwrap().is_err());
    let mut stream = OpenStream::new().await;
    let parts: Vec<PartValues> = (0..16).map(|_| part(100_000)).collect();
    stream.send(0, &parts, None).await;
    assert!(stream.program.talking.await.unwrap().unwrap_err().to_string().contains("more parts"));
}
