//! One connection of a program, with a server of the test's.

use super::*;
use crate::clients::call_frame::Caller;
use crate::clients::gathering::Gathering;
use crate::engine::deployment::Inbound;
use crate::engine::reply::PartSent;
use crate::link::frame::header::Header;
use crate::values::answer::OutputPart;
use crate::values::call::Part;
use crate::values::chunks::Chunks;
use crate::values::tensor::Tag;
use bytes::Bytes;
use smallvec::smallvec;
use tokio::io::AsyncWriteExt;

#[tokio::test]
async fn an_answer_has_its_place_until_it_was_written() {
    let places = Arc::new(Semaphore::new(1));
    let place = places.clone().acquire_owned().await.unwrap();
    let segments = answer_frames::until_written(vec![Bytes::from_static(b"head"), Bytes::from_static(b"value")], place);
    assert_eq!((places.available_permits(), &segments.concat()[..]), (0, &b"headvalue"[..]));
    drop(segments);
    assert_eq!(places.available_permits(), 1);
}

#[tokio::test]
async fn who_waits_for_models_does_not_keep_the_server_from_ending() {
    let (mut near, far) = tokio::io::duplex(1 << 16);
    let (reader, writer) = tokio::io::split(far);
    let (stop, stopped) = watch::channel(false);
    let serving = tokio::spawn(Connection::run(
        reader,
        writer,
        Arc::new(ServerState::for_test(1000)),
        stopped,
        Newcomer::for_test(),
    ));
    near.write_all(&small_frame(Kind::Dial, br#"{"key": null}"#)[0]).await.unwrap();
    stop.send(true).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(5), serving).await;
    assert!(ended.expect("it ends at once").unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_program_that_shows_no_sign_of_life_loses_its_place() {
    for is_alive in [false, true] {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (reader, writer) = tokio::io::split(far);
        let (_stop, stopped) = watch::channel(false);
        let state = Arc::new(ServerState::for_test(1000));
        state.set_readiness(crate::engine::readiness::Readiness { ready: true, ..Default::default() });
        let serving = tokio::spawn(Connection::run(reader, writer, state, stopped, Newcomer::for_test()));
        let (_heard, mut near) = tokio::io::split(near);
        near.write_all(&small_frame(Kind::Dial, br#"{"key": null}"#)[0]).await.unwrap();
        for _ in 0..3 {
            tokio::time::sleep(SILENCE / 2).await;
            if is_alive {
                near.write_all(&small_frame(Kind::Ping, b"")[0]).await.unwrap();
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(serving.is_finished(), !is_alive);
        serving.abort();
    }
}

/// A server with a deployment `x` of texts, and where its items arrive.
fn serving_x() -> (Arc<ServerState>, mpsc::UnboundedReceiver<Inbound>) {
    let mut state = ServerState::for_test(2 << 20);
    state.options.max_receiving_bytes = 4 << 20;
    let state = Arc::new(state);
    let (inbound, engine) = mpsc::unbounded_channel();
    let text = serde_json::json!({ "kind": "text", "arrays": [], "schema": true });
    let mut manifest = crate::open_inference::tests::manifest(text.clone(), text, serde_json::json!({}));
    manifest.name = "x".into();
    let deployment = crate::engine::deployment::Deployment::new(Arc::new(manifest), inbound, &state.telemetry);
    state.serve([deployment].into_iter().collect());
    state.set_readiness(crate::engine::readiness::Readiness { ready: true, ..Default::default() });
    (state, engine)
}

/// The answers of a frame to a request of so many items.
fn answers(frame: &Frame, items: usize) -> (u64, Vec<Answer>) {
    let (id, entries) = answer_frames::read(frame).unwrap();
    let mut gathering = Gathering::new(items);
    gathering.add(entries).unwrap();
    (id, gathering.finish())
}

fn call_x(id: u64) -> Vec<u8> {
    let text = Part { tag: Tag::Text, tensor: None, data: Chunks::from(Bytes::from_static(b"text")) };
    call_frame::call(Caller::Program, id, "x", vec![smallvec![text]], &program_values::Terms::default()).concat()
}

#[tokio::test]
async fn who_waits_for_the_last_answers_hears_that_the_server_lives() {
    let (near, far) = tokio::io::duplex(1 << 16);
    let (reader, writer) = tokio::io::split(far);
    let (stop, stopped) = watch::channel(false);
    let (state, mut engine) = serving_x();
    let serving = tokio::spawn(Connection::run(reader, writer, state, stopped, Newcomer::for_test()));
    let (heard, mut near) = tokio::io::split(near);
    let mut heard = FrameReader::new(heard);
    let mut next = async || heard.next().await.unwrap().unwrap();
    near.write_all(&small_frame(Kind::Dial, br#"{"key": null}"#)[0]).await.unwrap();
    assert_eq!(next().await.kind, Kind::Welcome);
    near.write_all(&call_x(1)).await.unwrap();
    let Some(Inbound::Submit(_, reply)) = engine.recv().await else { panic!("no call") };
    stop.send(true).unwrap();
    near.write_all(&small_frame(Kind::Ping, b"")[0]).await.unwrap();
    assert_eq!(next().await.kind, Kind::Pong);
    near.write_all(&call_x(2)).await.unwrap();
    let (id, refused) = answers(&next().await, 1);
    assert_eq!((id, refused[0].outcome()), (2, Outcome::Draining));
    assert!(!serving.is_finished(), "the first call is still being computed");
    assert!(reply.end(Answer::failed(Failure::new(Outcome::ModelFailed, "done"))));
    assert_eq!(answers(&next().await, 1).0, 1);
    assert!(tokio::time::timeout(Duration::from_secs(5), serving).await.expect("it ends").unwrap().is_ok());
}

#[tokio::test]
async fn who_asks_and_does_not_listen_is_not_told_again_and_again() {
    let (near, far) = tokio::io::duplex(1 << 10);
    let (reader, writer) = tokio::io::split(far);
    let (_stop, stopped) = watch::channel(false);
    let serving = tokio::spawn(Connection::run(reader, writer, serving_x().0, stopped, Newcomer::for_test()));
    let (heard, mut near) = tokio::io::split(near);
    near.write_all(&small_frame(Kind::Dial, br#"{"key": null}"#)[0]).await.unwrap();
    for _ in 0..5_000 {
        near.write_all(&small_frame(Kind::Ping, b"")[0]).await.unwrap();
    }
    let mut heard = FrameReader::new(heard);
    let mut pongs = 0;
    while let Ok(frame) = tokio::time::timeout(Duration::from_millis(100), heard.next()).await {
        pongs += u32::from(frame.unwrap().unwrap().kind == Kind::Pong);
    }
    assert!((1..200).contains(&pongs), "{pongs}");
    serving.abort();
}

#[tokio::test]
async fn one_number_is_one_request() {
    let (state, _engine) = serving_x();
    let name = "x".to_owned();
    let (outgoing, _queue) = mpsc::unbounded_channel();
    let places = Arc::new(Semaphore::new(2));
    let session = Arc::new(Session::new(state, outgoing, None, false));
    let connection = Connection { session, places: places.clone(), pong: Arc::new(Semaphore::new(1)) };
    let call = |id| {
        let text = Part { tag: Tag::Text, tensor: None, data: Chunks::from(Bytes::from_static(b"text")) };
        let items = vec![smallvec![text]];
        let terms = program_values::Terms::default();
        let request = Request { id, deployment: name.clone(), items, terms, streams: false, bytes: 4 };
        connection.call(request, places.clone().try_acquire_owned().unwrap())
    };
    assert!(call(7).is_ok());
    assert!(call(7).unwrap_err().to_string().contains("two requests the number 7"));
}

/// Its pings say that it lives, and not that it takes its answers.
#[tokio::test(start_paused = true)]
async fn a_program_that_never_reads_its_answers_is_ended() {
    let (near, far) = tokio::io::duplex(1 << 10);
    let (reader, writer) = tokio::io::split(far);
    let (_stop, stopped) = watch::channel(false);
    let (state, mut engine) = serving_x();
    let untaken = state.ledger.untaken.clone();
    let serving = tokio::spawn(Connection::run(reader, writer, state, stopped, Newcomer::for_test()));
    let (_heard, mut near) = tokio::io::split(near);
    near.write_all(&small_frame(Kind::Dial, br#"{"key": null}"#)[0]).await.unwrap();
    near.write_all(&call_x(1)).await.unwrap();
    let Some(Inbound::Submit(_, reply)) = engine.recv().await else { panic!("no call") };
    let data = Bytes::from(vec![b'x'; 100_000]);
    let value = OutputPart { name: "".into(), tag: Tag::Text, tensor: None, media_type: None, data };
    assert!(reply.end(Answer { result: Ok(smallvec![value]), ..Answer::failed(Failure::new(Outcome::Internal, "")) }));
    let mut seconds = 0;
    while !serving.is_finished() {
        // It may have ended a moment ago.
        let _ = near.write_all(&small_frame(Kind::Ping, b"")[0]).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(seconds == 0 || serving.is_finished() || untaken.amount() >= 100_000);
        seconds += 1;
    }
    assert!((6..15).contains(&seconds), "a second of silence, and seven for a slow reader: {seconds}");
    assert_eq!(serving.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert_eq!(untaken.amount(), 0);
}

#[tokio::test]
async fn a_call_of_a_deployment_that_is_not_there_is_counted_like_over_http() {
    let (near, far) = tokio::io::duplex(1 << 16);
    let (reader, writer) = tokio::io::split(far);
    let (_stop, stopped) = watch::channel(false);
    let (state, _engine) = serving_x();
    let telemetry = state.telemetry.clone();
    let serving = tokio::spawn(Connection::run(reader, writer, state, stopped, Newcomer::for_test()));
    let (heard, mut near) = tokio::io::split(near);
    near.write_all(&small_frame(Kind::Dial, br#"{"key": null}"#)[0]).await.unwrap();
    let text = Part { tag: Tag::Text, tensor: None, data: Chunks::from(Bytes::from_static(b"text")) };
    let call = call_frame::call(Caller::Program, 1, "none", vec![smallvec![text]], &program_values::Terms::default());
    near.write_all(&call.concat()).await.unwrap();
    let mut heard = FrameReader::new(heard);
    while heard.next().await.unwrap().unwrap().kind != Kind::Answers {}
    let counted = r#"jitney_requests_total{deployment="(unknown)",outcome="not_found"} 1"#;
    assert!(telemetry.text().contains(counted));
    serving.abort();
}

/// A program that is connected to a server with a deployment `x`.
struct Program {
    state: Arc<ServerState>,
    engine: mpsc::UnboundedReceiver<Inbound>,
    heard: FrameReader<tokio::io::ReadHalf<tokio::io::DuplexStream>>,
    near: tokio::io::WriteHalf<tokio::io::DuplexStream>,
    serving: tokio::task::JoinHandle<io::Result<()>>,
    _stop: watch::Sender<bool>,
}

impl Program {
    async fn new() -> Program {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (reader, writer) = tokio::io::split(far);
        let (stop, stopped) = watch::channel(false);
        let (state, engine) = serving_x();
        let serving = tokio::spawn(Connection::run(reader, writer, state.clone(), stopped, Newcomer::for_test()));
        let (heard, mut near) = tokio::io::split(near);
        near.write_all(&small_frame(Kind::Dial, br#"{"key": null}"#)[0]).await.unwrap();
        let mut heard = FrameReader::new(heard);
        assert_eq!(heard.next().await.unwrap().unwrap().kind, Kind::Welcome);
        Program { state, engine, heard, near, serving, _stop: stop }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn text(bytes: usize) -> Part {
    Part { tag: Tag::Text, tensor: None, data: Chunks::from(Bytes::from(vec![b'x'; bytes])) }
}

/// A large frame counts as it arrives. If there is no room for it, its request is refused, and the program may go on.
#[tokio::test]
async fn a_frame_that_arrives_counts_and_may_find_no_room() {
    let mut program = Program::new().await;
    let received = program.state.ledger.received.clone();
    let large = |id| {
        let items = vec![smallvec![text(500_000)], smallvec![text(4)]];
        call_frame::call(Caller::Program, id, "x", items, &program_values::Terms::default()).concat()
    };
    let (first, rest) = (large(1), large(1).split_off(300_000));
    program.near.write_all(&first[..300_000]).await.unwrap();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(received.amount() >= 200_000, "{} bytes", received.amount());
    program.near.write_all(&rest).await.unwrap();
    let Some(Inbound::SubmitMany { items: waiting, .. }) = program.engine.recv().await else { panic!("no call") };
    assert_eq!(received.amount(), 0, "it has been decoded");
    // Others hold most of what all may hold.
    let others = received.hold(4_000_000);
    program.near.write_all(&large(2)).await.unwrap();
    let (id, refused) = answers(&program.heard.next().await.unwrap().unwrap(), 2);
    assert_eq!((id, received.amount()), (2, 4_000_000));
    for answer in refused {
        let failure = answer.result.unwrap_err();
        assert_eq!((failure.outcome, failure.retry_after.is_some()), (Outcome::QueueBytesFull, true));
    }
    assert!(program.state.telemetry.text().contains(r#"outcome="queue_bytes_full"} 1"#));
    // The connection is as good as before.
    program.near.write_all(&call_x(3)).await.unwrap();
    assert!(matches!(program.engine.recv().await, Some(Inbound::Submit(..))));
    drop(others);
    program.near.write_all(&large(4)).await.unwrap();
    assert!(matches!(program.engine.recv().await, Some(Inbound::SubmitMany { .. })));
    drop(waiting);
}

/// A value is a slice of the frame that it came in, which may have far more bytes.
#[tokio::test]
async fn a_value_does_not_keep_a_frame_that_is_much_larger() {
    let mut program = Program::new().await;
    let call =
        call_frame::call(Caller::Program, 1, "x", vec![smallvec![text(10_000)]], &program_values::Terms::default());
    let frame = FrameReader::new(&call.concat()[..]).next().await.unwrap().unwrap();
    let payload = [&frame.payload.to_bytes()[..], &vec![0; (1 << 20) + 1]].concat();
    let header = Header { kind: Kind::Call, table: frame.table.len(), payload: payload.len() };
    let whole = [&header.encode()[..], &frame.table, &payload].concat();
    program.near.write_all(&whole[..]).await.unwrap();
    let Some(Inbound::Submit(mut call, _reply)) = program.engine.recv().await else { panic!("no call") };
    let value = std::mem::take(&mut call.parts[0].data.0)[0].clone();
    let memory = value.try_into_mut().expect("nothing else has it");
    assert_eq!((memory.len(), memory.capacity()), (10_000, 10_000));
}

/// Otherwise a byte now and then would hold its place, and the memory of the frame.
#[tokio::test(start_paused = true)]
async fn a_frame_that_trickles_ends_its_connection() {
    for bytes_each_second in [1, 2000] {
        let mut program = Program::new().await;
        let call = call_frame::call(
            Caller::Program,
            1,
            "x",
            vec![smallvec![text(100_000)]],
            &program_values::Terms::default(),
        )
        .concat();
        for bytes in call.chunks(bytes_each_second).take(100) {
            // The connection may have ended.
            let _ = program.near.write_all(bytes).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let is_slow = bytes_each_second == 1;
        assert_eq!(program.serving.is_finished(), is_slow);
        assert_eq!(program.engine.try_recv().is_ok(), !is_slow);
        assert_eq!(program.state.ledger.received.amount(), 0);
    }
}

fn stream_x(id: u64) -> Vec<u8> {
    call_frame::stream(Caller::Program, id, "x", smallvec![text(4)], &program_values::Terms::default()).concat()
}

/// A part of an answer, of so many bytes.
fn part(bytes: usize) -> crate::engine::reply::PartValues {
    let data = Bytes::from(vec![b'p'; bytes]);
    smallvec![OutputPart { name: "".into(), tag: Tag::Bytes, tensor: None, media_type: None, data }]
}

fn end() -> Answer {
    let end = crate::values::answer::StreamEnd { reason: "length".into(), usage: None };
    Answer { result: Ok(smallvec![]), end: Some(Box::new(end)), ..Answer::failed(Failure::new(Outcome::Ok, "")) }
}

#[tokio::test]
async fn parts_go_to_the_program_when_they_are_made_and_the_end_ends_the_request() {
    let mut program = Program::new().await;
    program.near.write_all(&stream_x(1)).await.unwrap();
    let Some(Inbound::Submit(call, mut reply)) = program.engine.recv().await else { panic!("no call") };
    assert!(call.streams, "so the worker sends parts");
    assert!(matches!(reply.try_part(part(3)), PartSent::Taken));
    let frame = program.heard.next().await.unwrap().unwrap();
    let (id, entries) = answer_frames::read(&frame).unwrap();
    assert_eq!((frame.kind, id, entries.len(), entries[0].sequence), (Kind::AnswerParts, 1, 1, 0));
    assert!(matches!(reply.try_part(part(3)), PartSent::Taken));
    assert!(reply.end(end()));
    let mut sequence = 1;
    loop {
        let frame = program.heard.next().await.unwrap().unwrap();
        for entry in answer_frames::read(&frame).unwrap().1 {
            assert_eq!(entry.sequence, sequence);
            sequence += 1;
        }
        if frame.kind == Kind::Answers {
            break;
        }
    }
    assert_eq!(sequence, 3, "a part and the end");
    assert!(program.state.telemetry.text().contains(r#"deployment="x",outcome="ok"} 1"#));
    assert_eq!(program.state.ledger.untaken.amount(), 0);
    program.near.write_all(&call_x(1)).await.unwrap();
    assert!(matches!(program.engine.recv().await, Some(Inbound::Submit(..))), "the number is free again");
}

#[tokio::test]
async fn a_program_gets_no_more_parts_than_it_takes() {
    let mut program = Program::new().await;
    program.near.write_all(&stream_x(1)).await.unwrap();
    let Some(Inbound::Submit(_, mut reply)) = program.engine.recv().await else { panic!("no call") };
    let parts = async |program: &mut Program, most: usize| {
        let mut count = 0;
        while count < most {
            let next = tokio::time::timeout(Duration::from_millis(200), program.heard.next());
            let Ok(frame) = next.await else { break };
            count += answer_frames::read(&frame.unwrap().unwrap()).unwrap().1.len();
        }
        count
    };
    for _ in 0..10 {
        assert!(matches!(reply.try_part(part(100_000)), PartSent::Taken | PartSent::Filled));
    }
    assert_eq!(parts(&mut program, 10).await, 3, "256 KiB, and the part that goes beyond");
    program.near.write_all(&part_frames::taken(1, 2 * 100_256).concat()).await.unwrap();
    assert_eq!(parts(&mut program, 10).await, 2);
    // What no program can have taken opens no larger window.
    program.near.write_all(&part_frames::taken(1, u64::MAX).concat()).await.unwrap();
    assert_eq!(parts(&mut program, 10).await, 3);
    program.near.write_all(&part_frames::taken(7, 1).concat()).await.unwrap();
    program.near.write_all(&small_frame(Kind::Hangup, &1u64.to_le_bytes())[0]).await.unwrap();
    assert!(matches!(program.engine.recv().await, Some(Inbound::Cancel(_))));
    assert!(reply.is_abandoned());
    assert_eq!(program.state.ledger.untaken.amount(), 0, "parts that it did not get are freed");
}

#[tokio::test]
async fn a_program_that_takes_no_parts_hears_that_its_item_was_given_up() {
    let mut program = Program::new().await;
    program.near.write_all(&stream_x(1)).await.unwrap();
    let Some(Inbound::Submit(_, mut reply)) = program.engine.recv().await else { panic!("no call") };
    for _ in 0..4 {
        assert!(!matches!(reply.try_part(part(100_000)), PartSent::Full | PartSent::NobodyWaits));
    }
    assert!(reply.end(Answer::failed(Failure::new(Outcome::TooSlow, "it was paused for too long"))));
    let last = loop {
        let next = tokio::time::timeout(Duration::from_secs(5), program.heard.next());
        let frame = next.await.expect("the end does not wait for the program").unwrap().unwrap();
        let entry = answer_frames::read(&frame).unwrap().1.pop().unwrap();
        if frame.kind == Kind::Answers {
            break entry;
        }
    };
    let crate::link::results_frame::ItemOutcome::Failed(failure) = last.outcome else { panic!("no failure") };
    assert_eq!((last.sequence, failure.outcome), (3, Outcome::TooSlow));
    assert!(program.state.telemetry.text().contains(r#"deployment="x",outcome="too_slow"} 1"#));
    assert_eq!(program.state.ledger.untaken.amount(), 0);
}

#[tokio::test]
async fn a_stream_that_fails_says_so_behind_its_parts_and_hides_what_the_model_says() {
    let mut program = Program::new().await;
    program.near.write_all(&stream_x(1)).await.unwrap();
    let Some(Inbound::Submit(_, mut reply)) = program.engine.recv().await else { panic!("no call") };
    assert!(matches!(reply.try_part(part(1)), PartSent::Taken));
    let failure = Failure { model_text: Some("a path".into()), ..Failure::new(Outcome::ModelFailed, "a path") };
    assert!(reply.end(Answer::failed(failure)));
    let last = loop {
        let frame = program.heard.next().await.unwrap().unwrap();
        if frame.kind == Kind::Answers {
            break answer_frames::read(&frame).unwrap().1.pop().unwrap();
        }
    };
    let crate::link::results_frame::ItemOutcome::Failed(failure) = last.outcome else { panic!("no failure") };
    assert_eq!((last.sequence, failure.outcome), (1, Outcome::ModelFailed));
    assert!(!failure.detail.contains("a path"));
}
