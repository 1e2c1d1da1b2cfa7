//! Clients that attack, or that fail in numbers: they are bounded, and other clients are served.

use crate::support::{Client, Front, LONG, echo, output, post, server_options, submitted, timing, watched};
use bytes::Bytes;
use jitney_core::config::options::ServerOptions;
use jitney_server::engine::deployment::Inbound;
use jitney_server::values::answer::Answer;
use jitney_server::values::tensor::Tag;
use std::collections::{HashSet, VecDeque};
use std::time::Duration;
use tokio::io::AsyncReadExt;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: u8 = 4;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// `GET /livez` of `localhost`, without an index table.
fn head() -> Vec<u8> {
    let mut head = vec![0x82, 0x86];
    for (index, value) in [(0x04, "/livez"), (0x01, "localhost")] {
        head.extend([index, value.len() as u8]);
        head.extend(value.as_bytes());
    }
    head
}

fn field(name: &str, length: u16) -> Vec<u8> {
    let mut field = vec![0x00, name.len() as u8];
    field.extend(name.as_bytes());
    // A length of 127 and more: seven bits, then the rest in groups of seven.
    let rest = length - 127;
    field.extend([0x7f, (rest & 0x7f) as u8 | 0x80, (rest >> 7) as u8]);
    field.extend(std::iter::repeat_n(b'x', length.into()));
    field
}

async fn http2(front: &Front, frames: &[Vec<u8>]) -> Client {
    let mut client = front.connect().await;
    client.write([PREFACE, &frame(SETTINGS, 0, 0, &[]), &frames.concat()].concat()).await;
    client
}

/// The next frame: its kind, stream and payload.
async fn any(client: &mut Client) -> Option<(u8, u32, Vec<u8>)> {
    let read = async {
        let mut header = [0; 9];
        client.stream.read_exact(&mut header).await.ok()?;
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        let mut payload = vec![0; length as usize];
        client.stream.read_exact(&mut payload).await.ok()?;
        Some((header[3], u32::from_be_bytes([header[5], header[6], header[7], header[8]]), payload))
    };
    tokio::time::timeout(LONG, read).await.expect("a frame or the end")
}

/// What comes until a frame of this kind does: its stream and payload.
async fn next(client: &mut Client, wanted: u8) -> Option<(u32, Vec<u8>)> {
    loop {
        let (kind, stream, payload) = any(client).await?;
        if kind == wanted {
            return Some((stream, payload));
        }
    }
}

/// The code of the GOAWAY with which the connection ends.
async fn farewell(client: &mut Client) -> Option<u32> {
    let (_, payload) = next(client, GOAWAY).await?;
    Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()))
}

const ENHANCE_YOUR_CALM: u32 = 11;

#[tokio::test]
async fn an_idle_connection_is_told_which_calls_were_looked_at() {
    let options = ServerOptions { idle_timeout_s: 0.2, ..server_options() };
    let front = Front::with(options, |_| echo).await;
    let mut client = http2(&front, &[frame(HEADERS, END_HEADERS | END_STREAM, 1, &head())]).await;
    assert_eq!(next(&mut client, HEADERS).await.unwrap().0, 1);
    assert_eq!(farewell(&mut client).await, Some(0), "a call that crosses it may be sent again");
    while any(&mut client).await.is_some() {}
}

#[tokio::test]
async fn raw_frames_are_understood() {
    let front = Front::echo().await;
    let mut client = http2(&front, &[frame(HEADERS, END_HEADERS | END_STREAM, 1, &head())]).await;
    let (stream, answer) = next(&mut client, HEADERS).await.unwrap();
    // 0x88: status 200 of the static table.
    assert_eq!((stream, answer[0]), (1, 0x88));
}

const FRAME_SIZE_ERROR: u32 = 6;

/// The largest frame that the server announces.
async fn largest_frame(client: &mut Client) -> usize {
    const MAX_FRAME_SIZE: u16 = 5;
    let (_, settings) = next(client, SETTINGS).await.unwrap();
    let size = settings.chunks_exact(6).find(|entry| entry[..2] == MAX_FRAME_SIZE.to_be_bytes());
    size.map_or(16_384, |entry| u32::from_be_bytes(entry[2..].try_into().unwrap()) as usize)
}

#[tokio::test]
async fn frames_above_the_announced_size_are_refused() {
    let front = Front::echo().await;
    for kind in [HEADERS, DATA] {
        let mut client = http2(&front, &[]).await;
        let size = largest_frame(&mut client).await;
        client
            .write([frame(HEADERS, END_HEADERS, 1, &call()), frame(kind, END_STREAM, 3, &vec![0; size + 1])].concat())
            .await;
        assert_eq!(farewell(&mut client).await, Some(FRAME_SIZE_ERROR), "{kind}");
    }
    // 20 KiB are above what each server must take, and below what this one announces. Checkers of the protocol send as much,
    // without a look at the settings, and expect an error.
    let list = [head(), field("x-a", 10_000), field("x-b", 10_000)].concat();
    let mut client = http2(&front, &[frame(HEADERS, END_HEADERS | END_STREAM, 1, &list)]).await;
    assert!(largest_frame(&mut client).await > list.len());
    assert_eq!(next(&mut client, HEADERS).await.unwrap().1[0], 0x88);
    front.assert_well().await;
}

/// Every answer that becomes ready would otherwise set back the time since which none was taken.
#[tokio::test]
async fn a_client_that_asks_and_never_takes_an_answer_is_dropped() {
    const INITIAL_WINDOW: [u8; 6] = [0, 4, 0, 0, 0, 0];
    let front = Front::with(ServerOptions { body_timeout_s: 0.5, ..server_options() }, |_| echo).await;
    let mut client = front.connect().await;
    client.write([PREFACE, &frame(SETTINGS, 0, 0, &INITIAL_WINDOW)].concat()).await;
    let mut stream = 1;
    let asking = async {
        let mut bytes = [0; 4096];
        loop {
            client.write(frame(HEADERS, END_HEADERS | END_STREAM, stream, &head())).await;
            stream += 2;
            // Slowly enough to have streams left for longer than the test waits.
            let later = tokio::time::Instant::now() + Duration::from_millis(100);
            while let Ok(read) = tokio::time::timeout_at(later, client.stream.read(&mut bytes)).await {
                if matches!(read, Ok(0) | Err(_)) {
                    return;
                }
            }
        }
    };
    tokio::time::timeout(LONG, asking).await.expect("the connection ends");
    front.assert_well().await;
}

#[tokio::test]
async fn resets_in_a_row_end_the_connection() {
    let front = Front::echo().await;
    // As many as the limit allows are borne.
    for (resets, ends) in [(32, false), (200, true)] {
        let mut frames = vec![];
        for number in 0..resets {
            frames.push(frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, &head()));
            frames.push(frame(RESET, 0, 2 * number + 1, &8u32.to_be_bytes()));
        }
        frames.push(frame(HEADERS, END_HEADERS | END_STREAM, 2 * resets + 1, &head()));
        let mut client = http2(&front, &frames).await;
        if ends {
            assert_eq!(farewell(&mut client).await, Some(ENHANCE_YOUR_CALM));
        } else {
            assert_eq!(next(&mut client, HEADERS).await.unwrap().0, 2 * resets + 1);
        }
        front.assert_well().await;
    }
}

/// `POST /text` of `localhost`, without an index table.
fn call() -> Vec<u8> {
    let mut head = vec![0x83, 0x86];
    for (index, value) in [(0x04, "/text"), (0x01, "localhost")] {
        head.extend([index, value.len() as u8]);
        head.extend(value.as_bytes());
    }
    head
}

#[tokio::test]
async fn who_is_refused_while_it_sends_sees_the_answer_and_no_reset() {
    let front = Front::echo().await;
    let mut path = vec![0x83, 0x86];
    for (index, value) in [(0x04, "/nobody"), (0x01, "localhost")] {
        path.extend([index, value.len() as u8]);
        path.extend(value.as_bytes());
    }
    let mut client = http2(&front, &[frame(HEADERS, END_HEADERS, 1, &path)]).await;
    let (stream, answer) = next(&mut client, HEADERS).await.unwrap();
    // 0x8d: status 404 of the static table.
    assert_eq!((stream, answer[0]), (1, 0x8d));
    client.write([frame(DATA, END_STREAM, 1, &[7; 9000]), frame(PING, 0, 0, &[1; 8])].concat()).await;
    loop {
        let (kind, stream, payload) = any(&mut client).await.unwrap();
        assert_ne!((kind, stream), (RESET, 1));
        if kind == PING && payload == [1; 8] {
            break;
        }
    }
    front.assert_well().await;
}

#[tokio::test]
async fn a_client_that_opens_too_much_at_first_is_refused_stream_by_stream() {
    const REFUSED_STREAM: u32 = 7;
    let front = Front::echo().await;
    // As a client does that has not read the settings yet: head, body and end in separate frames.
    let mut frames = vec![];
    for number in 0..1000 {
        let stream = 2 * number + 1;
        frames.push(frame(HEADERS, END_HEADERS, stream, &call()));
        frames.push(frame(DATA, 0, stream, b"\"a\""));
        frames.push(frame(DATA, END_STREAM, stream, b""));
    }
    let mut client = http2(&front, &frames).await;
    let (mut answered, mut refused) = (HashSet::new(), HashSet::new());
    while answered.len() + refused.len() < 1000 {
        let (kind, stream, payload) = any(&mut client).await.expect("the connection lives");
        match kind {
            // 0x88: status 200 of the static table; a body follows, or trailers, which there are none of.
            HEADERS if payload[0] == 0x88 => drop(answered.insert(stream)),
            // What follows a refused stream is refused again.
            RESET if payload == REFUSED_STREAM.to_be_bytes() => drop(refused.insert(stream)),
            GOAWAY => panic!("{payload:?}"),
            _ => {}
        }
    }
    assert!(answered.len() >= 256 && answered.is_disjoint(&refused), "{} answered", answered.len());
    client.write(frame(HEADERS, END_HEADERS | END_STREAM, 2001, &head())).await;
    while next(&mut client, HEADERS).await.expect("the connection lives").0 != 2001 {}
    front.assert_well().await;
}

#[tokio::test]
async fn a_client_that_makes_us_reset_without_end_is_dropped() {
    const WINDOW_UPDATE: u8 = 8;
    let front = Front::echo().await;
    let mut client = http2(&front, &[]).await;
    for number in 0..5000 {
        let stream = 2 * number + 1;
        // More than a window can hold is an error of the stream.
        let most = (u32::MAX >> 1).to_be_bytes();
        let broken = [frame(HEADERS, END_HEADERS, stream, &call()), frame(WINDOW_UPDATE, 0, stream, &most)];
        client.write(broken.concat()).await;
    }
    // The server has closed while we were sending: its farewell may be lost with the connection, the end is not.
    let farewell = farewell(&mut client).await;
    assert!([Some(ENHANCE_YOUR_CALM), None].contains(&farewell), "{farewell:?}");
    front.assert_well().await;
}

#[tokio::test]
async fn long_header_lists_are_refused() {
    let front = Front::echo().await;
    for (length, refused) in [(8_000, false), (12_000, true)] {
        // Three of them: below and above 32 KiB together, in a frame that is allowed.
        let list = [head(), field("x-a", length), field("x-b", length), field("x-c", length)].concat();
        let mut client = http2(&front, &[frame(HEADERS, END_HEADERS | END_STREAM, 1, &list)]).await;
        let (_, answer) = next(&mut client, HEADERS).await.unwrap();
        assert_eq!(answer[0] == 0x88, !refused, "{length}");
    }
    front.assert_well().await;
}

#[tokio::test]
async fn endless_continuations_end_the_connection() {
    let front = Front::echo().await;
    let mut client = http2(&front, &[frame(HEADERS, END_STREAM, 1, &head())]).await;
    for number in 0..2000 {
        client.write(frame(CONTINUATION, 0, 1, &field(&format!("x-{number}"), 200))).await;
    }
    // The server has closed while we were sending: its farewell may be lost with the connection, the end is not.
    assert!([Some(ENHANCE_YOUR_CALM), None].contains(&farewell(&mut client).await));
    front.assert_well().await;
}

/// Panics where it is dropped.
struct Bomb;

impl AsRef<[u8]> for Bomb {
    fn as_ref(&self) -> &[u8] {
        b"tick"
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a panic that a test wants");
    }
}

#[tokio::test]
async fn a_panic_costs_its_connection_only() {
    let (engine, mut messages) = watched();
    let front = Front::with(server_options(), engine).await;
    let mut beside = front.connect().await;
    beside.write(post("bytes", "", "beside")).await;
    let (call, other) = submitted(&mut messages).await;
    let mut client = front.connect().await;
    client.write(post("bytes", "", "x")).await;
    let (_, reply) = submitted(&mut messages).await;
    let part = output(Tag::Bytes, Bytes::from_owner(Bomb));
    assert!(reply.end(Answer { result: Ok([part].into_iter().collect()), timing: timing(), tokens: None, end: None }));
    assert!(client.is_closed().await);
    assert!(other.end(crate::support::echo_answer(call)));
    assert_eq!(beside.reply().await.unwrap().text(), "beside");
    // Its place is free again.
    drop(beside);
    let alone = async {
        while !front
            .send("GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await
            .text()
            .contains("jitney_connections 1\n")
        {}
    };
    tokio::time::timeout(LONG, alone).await.expect("the connection is counted off");
}

#[tokio::test]
async fn thousands_that_leave_early_delay_nobody() {
    let front = Front::with(server_options(), |_| echo).await;
    let mut honest = front.connect().await;
    let whole = post("text", "", "\"a\"");
    let mut slowest = Duration::ZERO;
    for number in 0..3000 {
        let mut client = front.connect().await;
        client.write(&whole[..=number % whole.len()]).await;
        drop(client);
        if number % 100 == 0 {
            let begin = std::time::Instant::now();
            honest.write(&whole).await;
            assert_eq!(honest.reply().await.unwrap().text(), "\"a\"");
            slowest = slowest.max(begin.elapsed());
        }
    }
    // Generous: a leaver that is waited for costs 10 s.
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    let gone = async {
        loop {
            honest.write("GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
            let metrics = honest.reply().await.unwrap();
            let text = metrics.text();
            if text.contains("jitney_connections 1\n") {
                assert!(
                    text.contains("jitney_receiving_bytes 0\n") && text.contains("jitney_untaken_bytes 0\n"),
                    "{text}"
                );
                return;
            }
        }
    };
    tokio::time::timeout(LONG, gone).await.expect("they are all gone");
}

/// A client that sends all of its body before it looks would otherwise find its stream reset, and no answer.
#[tokio::test]
async fn a_body_that_nobody_reads_is_passed_over_until_it_pauses() {
    let front = Front::echo().await;
    let mut client = http2(&front, &[frame(HEADERS, END_HEADERS, 1, &head())]).await;
    for _ in 0..13 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        client.write(frame(DATA, 0, 1, &[b'x'; 1000])).await;
    }
    client.write([frame(DATA, END_STREAM, 1, b"x"), frame(PING, 0, 0, b"the-last")].concat()).await;
    let mut kinds = HashSet::new();
    loop {
        let (kind, _, payload) = any(&mut client).await.expect("the connection lives");
        kinds.insert(kind);
        if kind == PING && payload == b"the-last" {
            break;
        }
    }
    assert!(kinds.contains(&HEADERS) && !kinds.contains(&RESET), "{kinds:?}");
}

/// Its bodies would otherwise hold the half of the memory without which no large body of another connection begins.
#[tokio::test]
async fn bodies_of_one_connection_that_never_end_keep_no_other_client_out() {
    const LIMIT: u64 = 8 << 20;
    let front = Front::with(ServerOptions { max_receiving_bytes: LIMIT, ..server_options() }, |_| echo).await;
    let mut attacker = http2(&front, &[]).await;
    let streams = (0..100).map(|number| 2 * number + 1);
    for stream in streams.clone() {
        attacker.write(frame(HEADERS, END_HEADERS, stream, &call())).await;
    }
    let held = || front.state.ledger.received.amount();
    let piece = vec![b'x'; 10_000];
    // Each stream sends until its body is refused or nearly there, and never ends it.
    let mut open: VecDeque<(u32, usize)> = streams.map(|stream| (stream, 0)).collect();
    while let Some((stream, sent)) = open.pop_front()
        && held() <= LIMIT / 2
    {
        attacker.write([frame(DATA, 0, stream, &piece), frame(PING, 0, 0, &[1; 8])].concat()).await;
        if sent < 900_000 {
            open.push_back((stream, sent + 10_000));
        }
        loop {
            match any(&mut attacker).await.expect("the connection lives") {
                (HEADERS, refused, _) => open.retain(|(stream, _)| *stream != refused),
                (PING, _, _) => break,
                _ => {}
            }
        }
    }
    assert!(held() > LIMIT / 8, "{} bytes", held());
    let mut statuses = Vec::new();
    for _ in 0..20 {
        let mut client = front.connect().await;
        let post = "POST /bytes HTTP/1.1\r\nhost: localhost\r\ncontent-length: 500000\r\n\r\n";
        client.write(post.to_owned() + &"x".repeat(100_000)).await;
        // Its body has begun before its rest comes.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let _ = tokio::io::AsyncWriteExt::write_all(&mut client.stream, "x".repeat(400_000).as_bytes()).await;
        statuses.push(client.reply().await.expect("an answer").status);
    }
    assert_eq!(statuses, [200; 20], "the attacker holds {} bytes", held());
}

/// Answers each item with a megabyte.
fn megabyte(message: Inbound) {
    let answer = || {
        let part = output(Tag::Bytes, vec![0; 1 << 20]);
        Answer { result: Ok([part].into_iter().collect()), timing: timing(), tokens: None, end: None }
    };
    if let Inbound::Submit(_, reply) = message {
        reply.end(answer());
    }
}

#[tokio::test]
async fn connections_that_never_take_their_answers_keep_no_other_client_out() {
    const INITIAL_WINDOW: [u8; 6] = [0, 4, 0, 0, 0, 0];
    const LIMIT: u64 = 64 << 20;
    let front = Front::with(ServerOptions { max_receiving_bytes: LIMIT, ..server_options() }, |_| megabyte).await;
    let mut attackers = Vec::new();
    for _ in 0..20 {
        let mut attacker = front.connect().await;
        let mut frames = [PREFACE, &frame(SETTINGS, 0, 0, &INITIAL_WINDOW)].concat();
        for stream in (0..200).map(|number| 2 * number + 1) {
            frames.extend(frame(HEADERS, END_HEADERS, stream, &call()));
            frames.extend(frame(DATA, END_STREAM, stream, b"\"a\""));
        }
        attacker.write(frames).await;
        attackers.push(attacker);
    }
    for attacker in &mut attackers {
        // The heads of answers need no window.
        for _ in 0..200 {
            next(attacker, HEADERS).await.expect("the connection lives");
        }
    }
    let untaken = front.state.ledger.untaken.amount();
    let mut client = front.connect().await;
    let mut served = 0;
    for _ in 0..50 {
        client.write(post("text", "", "\"a\"")).await;
        served += usize::from(client.reply().await.expect("an answer").status == 200);
    }
    assert_eq!(served, 50, "the others hold {untaken} bytes");
    assert!(untaken < LIMIT, "{untaken} bytes");
}

/// `POST` of a method of the Open Inference Protocol over gRPC.
fn grpc_head(method: &str) -> Vec<u8> {
    let path = format!("/inference.GRPCInferenceService/{method}");
    let mut head = vec![0x83, 0x86];
    for (index, value) in [(0x04, &*path), (0x01, "localhost"), (0x0f, "application/grpc")] {
        head.push(index);
        // The name of a content type does not fit into four bits: its index goes on in the next byte.
        head.extend((index == 0x0f).then_some(31 - 15));
        head.push(value.len() as u8);
        head.extend(value.as_bytes());
    }
    head
}

/// Requests that were counted as cancelled.
fn cancelled(front: &Front) -> u64 {
    let text = front.state.telemetry.text();
    let lines = text.lines().filter(|line| line.contains("outcome=\"cancelled\""));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[tokio::test]
async fn a_call_that_is_cancelled_is_counted_whatever_its_protocol() {
    const CANCEL: [u8; 4] = 8u32.to_be_bytes();
    const GOODBYE: [u8; 8] = [0; 8];
    let half = [&[0, 0, 0, 0, 100][..], &[7; 20]].concat();
    let calls = [("rest", call()), ("unary", grpc_head("ModelInfer")), ("stream", grpc_head("ModelStreamInfer"))];
    for ends_connection in [false, true] {
        let front = Front::echo().await;
        for (number, (name, head)) in calls.iter().enumerate() {
            let frames = [frame(HEADERS, END_HEADERS, 1, head), frame(DATA, 0, 1, &half)];
            let mut client = http2(&front, &frames).await;
            while front.state.ledger.received.amount() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(cancelled(&front), number as u64, "{name}");
            if ends_connection {
                client.write(frame(GOAWAY, 0, 0, &GOODBYE)).await;
                drop(client);
            } else {
                client.write(frame(RESET, 0, 1, &CANCEL)).await;
                // The connection stays.
                tokio::spawn(async move { while any(&mut client).await.is_some() {} });
            }
            let counted = async {
                while cancelled(&front) == number as u64 || front.state.ledger.received.amount() > 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(LONG, counted).await.expect(name);
            assert_eq!(cancelled(&front), number as u64 + 1, "{name}");
        }
    }
}
