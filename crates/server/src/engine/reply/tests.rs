//! The channel by which an item is answered.

use super::*;
use bytes::Bytes;
use futures_util::FutureExt;
use smallvec::smallvec;

fn value(tag: Tag, data: Bytes) -> PartValues {
    smallvec![OutputPart { name: "".into(), tag, tensor: None, media_type: None, data }]
}

fn part(number: u32) -> PartValues {
    value(Tag::Bytes, Bytes::copy_from_slice(&number.to_le_bytes()))
}

fn text(text: &str) -> PartValues {
    value(Tag::Text, Bytes::copy_from_slice(text.as_bytes()))
}

fn number(part: &PartValues) -> u32 {
    u32::from_le_bytes(part[0].data[..].try_into().unwrap())
}

fn answer() -> Answer {
    Answer { result: Ok(part(7)), ..Answer::failed(Failure::new(Outcome::Internal, "")) }
}

/// The part that has come.
fn next(receiver: &mut ReplyReceiver) -> PartValues {
    let Some(ReplyEvent::Part(part)) = receiver.next().now_or_never() else { panic!("no part") };
    part
}

/// All parts that have come.
fn rest(receiver: &mut ReplyReceiver) -> Vec<PartValues> {
    let part = |event| if let ReplyEvent::Part(part) = event { Some(part) } else { None };
    std::iter::from_fn(|| receiver.next().now_or_never().and_then(part)).collect()
}

fn unread(account: &Account, limit: u64) -> UnreadParts {
    UnreadParts { account: account.part(), limit, silence: Some(Duration::from_secs(20)) }
}

#[test]
fn a_whole_answer_is_one_event() {
    let (sender, mut receiver) = channel();
    assert!(receiver.next().now_or_never().is_none());
    assert!(sender.end(answer()));
    let Some(ReplyEvent::End(end)) = receiver.next().now_or_never() else { panic!("no end") };
    assert_eq!(number(&end.result.unwrap()), 7);
}

#[test]
fn a_client_that_reads_too_little_pauses_its_item_until_it_has_read_half() {
    let (mut sender, mut receiver) = channel();
    let sent = (0..100_000).take_while(|&number| matches!(sender.try_part(part(number)), PartSent::Taken)).count();
    assert!((PAUSE_BYTES / 300..PAUSE_BYTES / 256).contains(&sent), "{sent}");
    assert!(matches!(sender.try_part(part(sent as u32 + 1)), PartSent::Taken), "this part was on its way");
    for wanted in 0..sent as u32 / 2 {
        assert_eq!(number(&next(&mut receiver)), wanted);
        assert!(!receiver.take_resume(), "after {wanted} of {sent}");
    }
    (0..3).for_each(|_| _ = next(&mut receiver));
    assert!(receiver.take_resume() && !receiver.take_resume(), "once");
    assert!(sender.end(answer()));
    let seen: Vec<u32> = rest(&mut receiver).iter().map(number).collect();
    assert_eq!(seen, (sent as u32 / 2 + 3..sent as u32 + 2).collect::<Vec<_>>(), "none is lost, all in order");
}

#[test]
fn an_item_that_goes_on_although_it_is_paused_is_bounded() {
    let (mut sender, _receiver) = channel();
    let large = |_| value(Tag::Bytes, Bytes::from(vec![1; 64 << 10]));
    let sent = (0..1000).take_while(|&number| !matches!(sender.try_part(large(number)), PartSent::Full)).count();
    assert_eq!(sent, LATE_BYTES / (64 << 10) - 1);
}

#[test]
fn a_single_part_of_any_size_pauses_nothing() {
    let (mut sender, mut receiver) = channel();
    for _ in 0..3 {
        assert!(matches!(sender.try_part(value(Tag::Bytes, Bytes::from(vec![1; 1 << 20]))), PartSent::Taken));
        assert_eq!(next(&mut receiver)[0].data.len(), 1 << 20);
    }
}

#[test]
fn a_large_part_finds_no_room_while_other_clients_take_nothing() {
    let (account, limit) = (Account::default(), 8 << 20);
    let large = || value(Tag::Bytes, Bytes::from(vec![1; 3 << 20]));
    let open = || {
        let (mut sender, receiver) = channel();
        sender.count_parts(unread(&account, limit));
        (sender, receiver)
    };
    let mut streams: Vec<_> = (0..100).map(|_| open()).collect();
    let sent = streams.iter_mut().map(|(sender, _)| sender.try_part(large()));
    let refused = sent.filter(|sent| matches!(sent, PartSent::NoRoom(of) if *of == limit)).count();
    assert_eq!(refused, 97, "three of them exceed the limit, and no further one is held");
    assert!(account.amount() < limit + (4 << 20), "{}", account.amount());
    drop(streams);
    assert!(!matches!(open().0.try_part(large()), PartSent::NoRoom(_)), "there is room again");
}

#[test]
fn texts_that_wait_are_put_together_and_lose_nothing() {
    let (mut sender, mut receiver) = channel();
    let tokens: Vec<String> = (0..20_000).map(|number| format!("{number} ")).collect();
    for token in &tokens {
        assert!(matches!(sender.try_part(text(token)), PartSent::Taken), "a text model is hardly ever paused");
    }
    let parts = rest(&mut receiver);
    assert!((240..260).contains(&parts.len()), "the first ones stay unchanged: {}", parts.len());
    let all: Vec<u8> = parts.iter().flat_map(|part| part[0].data.to_vec()).collect();
    assert_eq!(String::from_utf8(all).unwrap(), tokens.concat());
    assert!(matches!(sender.try_part(text("alone")), PartSent::Taken));
    assert_eq!(&next(&mut receiver)[0].data[..], b"alone");
}

#[test]
fn texts_are_put_together_earlier_while_there_is_no_room() {
    let account = Account::default();
    let (mut sender, mut receiver) = channel();
    sender.count_parts(unread(&account, 1 << 20));
    let _others = account.hold(1 << 20);
    let sent = (0..20_000).take_while(|_| matches!(sender.try_part(text("abcd")), PartSent::Taken)).count();
    assert!(sent > 1000, "{sent}");
    assert!((30..40).contains(&rest(&mut receiver).len()));
}

#[test]
fn only_texts_are_put_together() {
    let (mut sender, mut receiver) = channel();
    for turn in 0..100 {
        let next = if turn % 2 == 0 { part(turn) } else { text("x") };
        assert!(matches!(sender.try_part(next), PartSent::Taken));
    }
    assert_eq!(rest(&mut receiver).len(), 100);
}

#[test]
fn long_texts_that_nobody_reads_pause_their_item() {
    let (mut sender, _receiver) = channel();
    let long = "x".repeat(9 << 10);
    let sent = (0..100).take_while(|_| matches!(sender.try_part(text(&long)), PartSent::Taken)).count();
    assert_eq!(sent, PAUSE_BYTES / long.len());
}

#[test]
fn parts_that_wait_count_and_need_room() {
    let server = Account::default();
    let (mut sender, mut receiver) = channel();
    sender.count_parts(unread(&server, 64 << 10));
    let sent = (0..100_000).take_while(|&number| matches!(sender.try_part(part(number)), PartSent::Taken)).count();
    let held = server.amount();
    assert!(sent > 60 && (LEAST_BYTES as u64..20 << 10).contains(&held), "a quarter: {sent}, {held}");
    next(&mut receiver);
    assert!(server.amount() < held, "what was taken does not count");
    drop(receiver);
    assert_eq!(server.amount(), 0);
}

#[test]
fn texts_count_with_their_bytes() {
    let server = Account::default();
    let (mut sender, receiver) = channel();
    sender.count_parts(unread(&server, 64 << 20));
    (0..10_000).for_each(|_| _ = sender.try_part(text("four")));
    assert!((100_000..110_000).contains(&server.amount()), "{}", server.amount());
    drop(receiver);
    assert_eq!(server.amount(), 0);
}

#[test]
fn the_pause_may_last_as_long_as_a_slow_client_needs() {
    let server = Account::default();
    let (mut sender, _receiver) = channel();
    assert_eq!(sender.patience(), None, "a program may take any time");
    let unread = unread(&server, 64 << 20);
    let _written = unread.account.hold(10 * TAKE_RATE);
    sender.count_parts(unread);
    assert_eq!(sender.patience(), Some(Duration::from_secs(30)), "20 s, and 10 s for what was handed over");
}

#[test]
fn short_parts_do_not_keep_their_frame() {
    let (mut sender, receiver) = channel();
    let frame = Bytes::from(vec![7; 1 << 20]);
    assert!(matches!(sender.try_part(value(Tag::Bytes, frame.slice(..10))), PartSent::Taken));
    assert!(frame.is_unique(), "a short part was copied");
    drop(receiver);
}

#[test]
fn a_sender_that_is_dropped_ends_the_answer() {
    let (sender, mut receiver) = channel();
    drop(sender);
    let failure = receiver.end().now_or_never().expect("an end").result.unwrap_err();
    assert_eq!((failure.outcome, failure.retry_after), (Outcome::Draining, Some(GONE_FOR)));
}

#[test]
fn a_receiver_that_is_dropped_takes_nothing() {
    let (mut sender, receiver) = channel();
    assert!(!sender.is_abandoned());
    let data = Bytes::from(vec![1; 1 << 16]); // a shorter one is copied
    assert!(matches!(sender.try_part(value(Tag::Bytes, data.clone())), PartSent::Taken));
    assert!(!data.is_unique());
    drop(receiver);
    assert!(data.is_unique(), "unread parts are freed");
    assert!(sender.is_abandoned() && matches!(sender.try_part(part(1)), PartSent::NobodyWaits));
    assert!(!sender.end(answer()));
}

#[test]
fn an_end_that_nobody_has_read_can_be_seen() {
    let (sender, receiver) = channel();
    assert_eq!(receiver.unread_end(), None);
    sender.end(Answer::failed(Failure::new(Outcome::TooSlow, "")));
    assert_eq!(receiver.unread_end(), Some(Outcome::TooSlow));
}

#[test]
fn events_arrive_once_and_in_order_between_threads() {
    for round in 0..200 {
        let (mut sender, mut receiver) = channel();
        let count = round * 7;
        let sending = std::thread::spawn(move || {
            for number in 0..count {
                assert!(!matches!(sender.try_part(part(number)), PartSent::Full));
            }
            assert!(sender.end(answer()));
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let seen = runtime.block_on(async {
            let mut seen = Vec::new();
            loop {
                match receiver.next().await {
                    ReplyEvent::Part(part) => seen.push(number(&part)),
                    ReplyEvent::End(_) => return seen,
                }
            }
        });
        sending.join().unwrap();
        assert_eq!(seen, (0..count).collect::<Vec<_>>());
    }
}
