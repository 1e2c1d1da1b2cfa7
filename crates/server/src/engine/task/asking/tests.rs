//! What an engine makes of asks: for which items they are made, with which terms, and when they end.

use super::*;
use crate::base::clock::Clock;
use crate::base::telemetry::Telemetry;
use crate::engine::deployment::Inbound;
use crate::engine::deployment::published::Published;
use crate::engine::reply;
use crate::engine::reply::ReplyReceiver;
use crate::engine::task::asks::{AskSession, Asking};
use crate::link::answer_limit::AnswerLimit;
use crate::link::front::events::BatchEvent;
use crate::link::front::link::{Attached, Link};
use crate::link::front::worker_event::WorkerEvent;
use crate::link::liveness::Life;
use crate::values::call::{Call, Encoding};
use bytes::Bytes;
use jitney_core::config::options::DeploymentOptions;
use jitney_core::config::rules::Rules;
use jitney_core::replicas::loss_history::Loss;
use smallvec::smallvec;
use std::sync::{Mutex, MutexGuard};

const REPLICA: ReplicaId = ReplicaId(1);

/// What the sessions got.
#[derive(Debug, Default)]
struct Seen {
    terms: Vec<AskTerms>,
    refused: Vec<Outcome>,
    withdrawn: Vec<u64>,
    open: Vec<u64>,
    ended: usize,
}

#[derive(Clone, Debug, Default)]
struct Notes(Arc<Mutex<Seen>>);

impl Notes {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap()
    }

    /// Asks that were carried out, and asks that were cancelled.
    fn counts(&self) -> (usize, usize) {
        let seen = self.seen();
        (seen.terms.len(), seen.withdrawn.len())
    }
}

impl Asking for Notes {
    fn session(&self, _: Arc<[String]>, _: &mpsc::UnboundedSender<Segments>) -> Box<dyn AskSession> {
        Box::new(Session(self.clone()))
    }

    fn welcome(&self, _: &[String]) -> serde_json::Value {
        serde_json::Value::Null
    }
}

#[derive(Debug)]
struct Session(Notes);

impl AskSession for Session {
    fn ask(&mut self, _: &Frame, _: &[u8], terms: AskTerms) -> Result<(), FrameError> {
        self.0.seen().terms.push(terms);
        Ok(())
    }

    fn refuse(&mut self, _: &[u8], failure: Failure) -> Result<(), FrameError> {
        self.0.seen().refused.push(failure.outcome);
        Ok(())
    }

    fn take(&mut self, _: &Frame) -> Result<(), FrameError> {
        Ok(())
    }

    fn withdraw(&mut self, number: u64) {
        self.0.seen().withdrawn.push(number);
    }

    fn is_open(&self, number: u64) -> bool {
        self.0.seen().open.contains(&number)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.0.seen().ended += 1;
    }
}

struct Rig {
    engine: Engine,
    notes: Notes,
    reports: mpsc::UnboundedReceiver<WorkerEvent>,
    answers: mpsc::UnboundedSender<Segments>,
    _queues: (mpsc::UnboundedSender<Inbound>, mpsc::UnboundedReceiver<Segments>),
}

fn rig() -> Rig {
    let options = DeploymentOptions {
        max_batch_size: 2,
        policy: "fixed".into(),
        batch_timeout_s: 4.0,
        request_timeout_s: 60.0,
        ..DeploymentOptions::for_test()
    };
    let rules = Rules::new(&options).unwrap();
    let (inbound, messages) = mpsc::unbounded_channel();
    let (reports_tx, reports) = mpsc::unbounded_channel();
    let (answers, sent) = mpsc::unbounded_channel();
    let (notes, telemetry) = (Notes::default(), Telemetry::new());
    let engine = Engine::new("d", rules, Clock::default(), messages, reports_tx, &telemetry, Published::default());
    let engine = engine.with_asks(Asks::of(Arc::new(notes.clone()), &["inner".into()]));
    Rig { engine, notes, reports, answers, _queues: (inbound, sent) }
}

impl Rig {
    fn up(&mut self, replica: ReplicaId) {
        let life = Life::new(Clock::default());
        let link = Link::new(self.answers.clone(), life, Attached::default(), Arc::new(AnswerLimit::default()));
        self.engine.receive(Time(0), Inbound::Up(replica, link));
    }

    fn submit(&mut self, call: Call) -> (ItemId, ReplyReceiver) {
        let (reply, receiver) = reply::channel();
        let id = call.id;
        self.engine.receive(Time(0), Inbound::Submit(Box::new(call), reply));
        (id, receiver)
    }

    /// Lets the engine decide at this time, as its loop does.
    fn decide(&mut self, now: Time) {
        self.engine.excuse_asking(now);
        while let Some(action) = self.engine.scheduler.poll(now) {
            self.engine.carry_out(now, action);
        }
    }

    fn ask(&mut self, now: Time, replica: ReplicaId, number: u64, parents: &[ItemId]) {
        let mut table = number.to_le_bytes().to_vec();
        table.extend_from_slice(&1_u32.to_le_bytes());
        table.extend_from_slice(&(parents.len() as u32).to_le_bytes());
        parents.iter().for_each(|parent| table.extend_from_slice(&parent.0.to_le_bytes()));
        let frame = Frame { kind: Kind::Ask, table: table.into(), payload: Bytes::new().into() };
        self.engine.receive(now, Inbound::Batch(replica, BatchEvent::Asks(frame, self.answers.clone())));
    }
}

fn call() -> Call {
    Call::new(smallvec![], Encoding::Msgpack)
}

#[test]
fn an_ask_for_a_batch_ends_with_its_last_item_also_if_others_had_ended_before() {
    let mut rig = rig();
    rig.up(REPLICA);
    let ((first, _a), (second, _b)) = (rig.submit(call()), rig.submit(call()));
    rig.decide(Time(1));
    drop(rig.engine.cancel(first));
    rig.ask(Time(2), REPLICA, 7, &[first, second, second]);
    assert_eq!(rig.notes.counts(), (1, 0));
    drop(rig.engine.cancel(second));
    assert_eq!(rig.notes.seen().withdrawn, [7]);
}

#[test]
fn an_ask_says_whether_a_part_moves_the_deadline_of_the_item_behind_it() {
    let mut rig = rig();
    rig.up(REPLICA);
    let timeout = Some(Duration::from_secs(9));
    let ((open, _a), (bound, _b)) = (rig.submit(call()), rig.submit(Call { timeout, ..call() }));
    rig.decide(Time(1));
    for (number, parents) in [(1, &[bound][..]), (2, &[open]), (3, &[bound, open])] {
        rig.ask(Time(1), REPLICA, number, parents);
    }
    let may_stream = |terms: &AskTerms| terms.inherited.as_ref().map(|(inherited, _)| inherited.asked.may_stream);
    let found: Vec<_> = rig.notes.seen().terms.iter().map(may_stream).collect();
    assert_eq!(found, [Some(false), Some(true), Some(true)]);
}

#[test]
fn what_a_lost_worker_asked_ends_before_its_link_does_and_it_asks_nothing_more() {
    let mut rig = rig();
    rig.up(REPLICA);
    let (item, _answer) = rig.submit(call());
    rig.decide(Time(1));
    rig.ask(Time(1), REPLICA, 7, &[item]);
    rig.engine.receive(Time(2), Inbound::Lost(REPLICA, Loss::Away));
    assert_eq!(rig.notes.seen().ended, 1);
    rig.ask(Time(3), REPLICA, 8, &[item]);
    assert_eq!(rig.notes.seen().refused, [Outcome::Cancelled]);
    let other = ReplicaId(2);
    rig.up(other);
    rig.decide(Time(3));
    rig.ask(Time(4), other, 7, &[item]);
    rig.engine.receive(Time(5), Inbound::Batch(REPLICA, BatchEvent::Disconnected));
    drop(rig.engine.cancel(item));
    assert_eq!(rig.notes.counts(), (2, 1));
}

#[test]
fn an_asked_item_waits_for_a_deployment_that_sleeps_for_as_long_as_its_own_time_allows() {
    let mut rig = rig();
    rig.engine.published.demand().set_ready_in(Some(Duration::from_secs(100)));
    let asked = Some(Asked { since: Time(0), may_stream: false });
    let within = |seconds: u64| Call { asked, timeout: Some(Duration::from_secs(seconds)), ..call() };
    for (call, enters) in [(call(), 0), (within(99), 0), (within(3600), 1), (Call { asked, ..call() }, 2)] {
        let (_, _answer) = rig.submit(call);
        assert_eq!(rig.engine.scheduler.len(), enters);
    }
}

#[test]
fn a_batch_does_not_hang_while_what_it_asked_is_open() {
    let mut rig = rig();
    rig.up(REPLICA);
    let (item, _answer) = rig.submit(call());
    let at = |seconds: u64| Time(0) + Duration::from_secs(seconds);
    rig.decide(at(0));
    rig.ask(at(1), REPLICA, 7, &[item]);
    rig.notes.seen().open.push(7);
    (1..=20).for_each(|second| rig.decide(at(second)));
    assert!(rig.reports.try_recv().is_err());
    rig.notes.seen().open.clear();
    (21..=23).for_each(|second| rig.decide(at(second)));
    assert!(rig.reports.try_recv().is_err(), "it has as long as after a part");
    (24..=26).for_each(|second| rig.decide(at(second)));
    assert!(matches!(rig.reports.try_recv(), Ok(WorkerEvent::Hung(REPLICA, _))));
}
