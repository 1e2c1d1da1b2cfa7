//! Calls over the link of a worker that loses its link and comes back.

use super::*;
use crate::engine::program_values::{AnsweringOne, ParentItems, Parts, Terms};
use crate::link::frame::header::HEADER_LEN;
use crate::link::worker::lease::{Identity, Lease};
use crate::link::worker::stream::ByteStream;
use futures_util::FutureExt;
use jitney_core::tables::outcome::Outcome;
use smallvec::smallvec;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

/// A worker that has loaded its model, and its front.
struct Rig {
    front: TcpListener,
    /// The front cannot be reached.
    is_away: Arc<AtomicBool>,
    calls: WorkerCalls,
}

fn rig() -> Rig {
    let front = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, is_away) = (front.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
    let is_away_now = is_away.clone();
    let dial = move || -> io::Result<Box<dyn ByteStream>> {
        if is_away_now.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        Ok(Box::new(TcpStream::connect(address)?))
    };
    let stream = dial().unwrap();
    let lease = Lease { dial: Box::new(dial), length: LONG };
    let link = WorkerLink::start(stream, Some(LONG), Identity::default(), Some(lease), || {}).unwrap();
    link.keep(serde_json::json!({}));
    let welcome = Welcome {
        deployments: std::collections::BTreeMap::default(),
        max_body_bytes: 1 << 20,
        max_items: 9,
        max_requests: 9,
    };
    let calls = WorkerCalls::new(&link, &serde_json::to_string(&welcome).unwrap()).unwrap();
    Rig { front, is_away, calls }
}

impl Rig {
    /// Calls as the event loop of a model does. `None` while the call has no answer.
    fn call(&self, link: Option<u64>) -> (AnsweringOne, Option<Outcome>) {
        self.calls.hold();
        let parents = ParentItems { items: smallvec![ItemId(1)], link };
        let mut answering = self.calls.entrance("inner").call_one(Parts::new(), Terms { parents, ..Terms::default() });
        let outcome = (&mut answering).now_or_never().map(|answer| answer.outcome());
        self.calls.flush();
        let outcome = outcome.or_else(|| (&mut answering).now_or_never().map(|answer| answer.outcome()));
        (answering, outcome)
    }

    fn number(&self) -> Option<u64> {
        self.calls.writer().map(|writer| writer.number())
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < LONG, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The next frame that is an ask.
fn ask(stream: &mut TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(LONG)).unwrap();
    loop {
        let mut header = [0; HEADER_LEN];
        stream.read_exact(&mut header).unwrap();
        let table = u64::from(u32::from_le_bytes(header[4..8].try_into().unwrap()));
        let mut body = vec![0; (table + u64::from_le_bytes(header[8..16].try_into().unwrap())) as usize];
        stream.read_exact(&mut body).unwrap();
        if header[3] == Kind::Ask as u8 {
            return body;
        }
    }
}

#[test]
fn calls_that_are_made_while_the_link_is_away_fail_and_those_after_it_came_back_do_not() {
    let rig = rig();
    let (mut old, _) = rig.front.accept().unwrap();
    let (mut waiting, outcome) = rig.call(Some(0));
    assert_eq!((outcome, rig.calls.lines.link.asking()), (None, vec![ItemId(1)]));
    ask(&mut old);
    rig.is_away.store(true, Ordering::SeqCst);
    drop(old);
    until("the link is lost", || rig.number() == Some(1));
    assert_eq!((&mut waiting).now_or_never().map(|answer| answer.outcome()), Some(Outcome::Disconnected));
    for link in [None, Some(1)] {
        assert_eq!(rig.call(link).1, Some(Outcome::Disconnected), "the front is away");
    }
    rig.is_away.store(false, Ordering::SeqCst);
    let (mut new, _) = rig.front.accept().unwrap();
    let mut open = None;
    until("a call is open", || {
        let (answering, outcome) = rig.call(Some(1));
        open = Some(answering);
        outcome.is_none()
    });
    ask(&mut new);
}

#[test]
fn a_call_for_an_item_of_a_lost_link_does_not_go_over_the_next_one() {
    let rig = rig();
    drop(rig.front.accept().unwrap());
    until("the link is lost", || rig.number() == Some(1));
    let (mut new, _) = rig.front.accept().unwrap();
    let mut open = None;
    until("a call is open", || {
        let old = rig.call(Some(0)).1;
        assert_eq!(old, Some(Outcome::Disconnected));
        let (answering, outcome) = rig.call(Some(1));
        open = Some(answering);
        outcome.is_none()
    });
    assert_eq!(rig.call(Some(0)).1, Some(Outcome::Disconnected));
    assert_eq!(rig.call(None).1, None, "a model may ask for itself");
    let first = ask(&mut new);
    assert_eq!(first[12..24], [&1_u32.to_le_bytes()[..], &1_u64.to_le_bytes()].concat(), "for the item of this link");
}
