//! What the supervisor does between a worker's fault and its end. No worker runs: the test says what happens.

mod rejoining;
mod scaling;

use crate::engine::deployment::Inbound;
use crate::engine::deployment::demand::Demand;
use crate::engine::readiness::Readiness;
use crate::link::frame::kind::Kind;
use crate::link::frame::reader::FrameReader;
use crate::link::front::receiver;
use crate::link::front::worker_event::WorkerEvent;
use crate::workers::backends::backend::{Backend, WorkerSpec};
use crate::workers::engines::Served;
use crate::workers::placement::plan::Assignment;
use crate::workers::settings::{Settings, Target};
use crate::workers::slot::Slot;
use crate::workers::supervisor::state::{Stop, Supervisor};
use jitney_core::config::options::ServerOptions;
use jitney_core::replicas::loss_history::Loss;
use jitney_core::request::ReplicaId;
use jitney_core::supervisor::event::{Cause, Command, Event};
use jitney_core::time::Time;
use serde_json::json;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::DuplexStream;
use tokio::sync::{mpsc, watch};

const WORKER: ReplicaId = ReplicaId(1);

/// What a backend was asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Start(ReplicaId),
    Kill(ReplicaId),
    KillWithStacks(ReplicaId),
}

/// A backend that only takes note.
#[derive(Clone, Debug, Default)]
struct FakeBackend(Arc<Mutex<Vec<Asked>>>);

impl FakeBackend {
    fn note(&self, asked: Asked) {
        self.0.lock().unwrap().push(asked);
    }

    /// What it was asked since the last time.
    fn take(&self) -> Vec<Asked> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Backend for FakeBackend {
    fn start(&self, worker: ReplicaId, _: WorkerSpec) {
        self.note(Asked::Start(worker));
    }

    fn kill(&self, worker: ReplicaId) {
        self.note(Asked::Kill(worker));
    }

    fn kill_with_stacks(&self, worker: ReplicaId) {
        self.note(Asked::KillWithStacks(worker));
    }
}

/// A supervisor of one worker that is up, with the other end of its link and with what its engine and its backend
/// receive.
struct Rig {
    supervisor: Supervisor,
    backend: FakeBackend,
    told: mpsc::UnboundedReceiver<Inbound>,
    _worker: DuplexStream,
    _folder: TempDir,
}

async fn rig() -> Rig {
    let settings = json!({"targets": [], "python": "none", "cores": 1, "server": ServerOptions::for_test()});
    let settings: Settings = serde_json::from_value(settings).unwrap();
    let (state, folder) = (Arc::new(settings.state()), tempfile::tempdir().unwrap());
    let backend = FakeBackend::default();
    let events = mpsc::unbounded_channel();
    let mut supervisor =
        Supervisor::with_backend(Arc::new(settings), state, folder.path(), Box::new(backend.clone()), events).unwrap();
    let (engine, mut told) = mpsc::unbounded_channel();
    let load_timeout = Duration::from_secs(60);
    let served = Served {
        engine,
        min_ready: 1,
        demand: Demand::default(),
        examples: std::collections::BTreeMap::new(),
        load_timeout,
        batch_timeout_s: 4.0,
        max_answer_bytes: 1,
        max_batch_size: 1,
        uses: Vec::new(),
    };
    supervisor.engines.served.insert("a".into(), served);
    let assignment = Assignment {
        deployment: "a".into(),
        replica: 0,
        device: None,
        cpu_threads: 1,
        most_items: None,
        needs: crate::workers::needs::Needs::default(),
    };
    supervisor.slots.push(Slot::new(0, Some(assignment), load_timeout, false));
    supervisor.slots.begin(0, WORKER, "w1".into(), 1, None);
    let now = supervisor.clock.now();
    supervisor.slots[0].life.tick(now);
    let (front, worker) = tokio::io::duplex(1 << 10);
    let (reader, writer) = tokio::io::split(front);
    receiver::start(FrameReader::new(reader), writer, WORKER, supervisor.clock, supervisor.events());
    let connected = supervisor.events.recv().await.unwrap();
    supervisor.handle(connected).unwrap();
    supervisor.event(0, Event::Ready).unwrap();
    supervisor.publish();
    assert!(matches!(told.try_recv().unwrap(), Inbound::Up(WORKER, _)));
    assert!(matches!(told.try_recv().unwrap(), Inbound::Placed(WORKER, 0, false)));
    assert!(supervisor.state.readiness().ready);
    Rig { supervisor, backend, told, _worker: worker, _folder: folder }
}

#[tokio::test]
async fn a_worker_that_is_killed_gets_nothing_more_although_it_is_not_gone_yet() {
    let mut rig = rig().await;
    rig.supervisor.event(0, Event::Failed(Cause::Died)).unwrap();
    assert!(rig.supervisor.slots[0].life.is_dying());
    assert!(matches!(rig.told.try_recv().unwrap(), Inbound::Retire(WORKER)));
    assert!(rig.told.try_recv().is_err());
    assert_eq!(rig.backend.take(), [Asked::Kill(WORKER)]);
}

#[tokio::test]
async fn a_worker_whose_process_is_gone_gets_nothing_more_while_its_last_messages_are_awaited() {
    let mut rig = rig().await;
    rig.supervisor.handle(WorkerEvent::Exited(WORKER, "exit status: 1".into(), Loss::Crashed)).unwrap();
    assert!(matches!(rig.told.try_recv().unwrap(), Inbound::Retire(WORKER)));
    assert!(rig.told.try_recv().is_err());
    rig.supervisor.handle(WorkerEvent::LinkLost(WORKER)).unwrap();
    assert!(matches!(rig.told.try_recv().unwrap(), Inbound::Lost(WORKER, Loss::Crashed)));
}

impl Rig {
    /// Its worker is the one that imports this target, and has no deployment yet.
    fn import(&mut self, target: &str) {
        let target = Target { target: target.into(), overrides: serde_json::Value::Null, workers: 1, shares: 1 };
        let settings = Arc::get_mut(&mut self.supervisor.settings).expect("the supervisor alone has the settings");
        settings.targets.push(target);
        self.supervisor.slots.replace(0, Slot::new(0, None, Duration::from_secs(60), false));
    }

    /// A worker is started that imports `a.py`, and ends before its connection is accepted.
    fn ends_before_it_connects(&mut self) -> ReplicaId {
        let worker = ReplicaId(2);
        self.import("a.py");
        self.supervisor.slots.begin(0, worker, "w2".into(), 1, None);
        let now = self.supervisor.clock.now();
        self.supervisor.slots[0].life.tick(now);
        self.supervisor.handle(WorkerEvent::Exited(worker, "exit status: 1".into(), Loss::Crashed)).unwrap();
        worker
    }
}

#[tokio::test]
async fn why_a_worker_failed_is_heard_although_its_process_ended_before_its_connection_was_accepted() {
    let mut rig = rig().await;
    let worker = rig.ends_before_it_connects();
    let body = json!({"stage": "importing", "error": "no module named x"}).to_string();
    rig.supervisor.handle(WorkerEvent::Message(worker, Kind::Failed, body.into())).unwrap();
    let fatal = rig.supervisor.handle(WorkerEvent::LinkLost(worker)).unwrap_err();
    assert!(fatal.text.ends_with("(load_failed): importing failed: no module named x"), "{fatal:?}");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_ends_without_a_connection_is_waited_for_only_a_moment() {
    let mut rig = rig().await;
    rig.ends_before_it_connects();
    rig.supervisor.tick().unwrap();
    tokio::time::advance(Duration::from_millis(301)).await;
    let fatal = rig.supervisor.tick().unwrap_err();
    assert!(fatal.text.ends_with("(died): the worker ended: exit status: 1"), "{fatal:?}");
}

#[tokio::test(start_paused = true)]
async fn after_a_stop_of_this_process_nobody_is_silent_whatever_is_reported_first() {
    let mut rig = rig().await;
    tokio::time::advance(Duration::from_secs(20)).await;
    rig.supervisor.event(0, Event::Served).unwrap();
    assert!(rig.supervisor.slots[0].life.is_up());
    rig.supervisor.tick().unwrap();
    assert!(rig.supervisor.slots[0].life.is_up());
    assert!(rig.told.try_recv().is_err());
}

#[tokio::test]
async fn a_worker_that_hangs_says_where_before_it_is_killed_and_the_limit_is_named() {
    let mut rig = rig().await;
    rig.supervisor.handle(WorkerEvent::Hung(WORKER, vec!["r-1".into()])).unwrap();
    assert_eq!(rig.backend.take(), [Asked::KillWithStacks(WORKER)]);
    rig.supervisor.handle(WorkerEvent::Exited(WORKER, "signal: 9 (SIGKILL)".into(), Loss::Killed)).unwrap();
    let why = rig.supervisor.why(0, Cause::Hung);
    assert!(why.starts_with("a batch ran for longer than batch_timeout_s = 4;"), "{why}");
    rig.supervisor.handle(WorkerEvent::LinkLost(WORKER)).unwrap();
    assert_eq!(
        rig.supervisor.state.readiness().reasons,
        ["a: 0 of 1 replicas are ready: a batch took too long; see the log"]
    );
}

#[tokio::test]
async fn a_worker_that_was_told_to_end_does_not_count_as_ready() {
    let mut rig = rig().await;
    rig.supervisor.handle(WorkerEvent::FilesChanged).unwrap();
    assert!(matches!(rig.told.try_recv().unwrap(), Inbound::Retire(WORKER)));
    let readiness = rig.supervisor.state.readiness();
    assert_eq!((readiness.ready, readiness.is_ready_for("a")), (false, false));
    assert!(rig.backend.take().is_empty(), "what it holds is answered");
}

#[tokio::test]
async fn a_worker_that_says_it_is_broken_is_not_ready_and_what_it_says_is_for_the_log_only() {
    let mut rig = rig().await;
    let body = json!({"stage": "serving", "error": "postgres://user:password@host"}).to_string();
    rig.supervisor.handle(WorkerEvent::Message(WORKER, Kind::Failed, body.into())).unwrap();
    let readiness = rig.supervisor.state.readiness();
    assert_eq!(readiness.reasons, ["a: 0 of 1 replicas are ready: a model is broken; see the log"]);
    assert_eq!(rig.supervisor.why(0, Cause::Broken), "postgres://user:password@host");
}

#[tokio::test]
async fn a_server_whose_engine_has_failed_is_not_ready_while_its_workers_end() {
    let mut rig = rig().await;
    rig.supervisor.engines.spawn(async { panic!("a bug") });
    let (_stop, mut stopped) = watch::channel(Stop::No);
    let fatal = rig.supervisor.run(&mut stopped).await.unwrap_err();
    assert!(fatal.is_broken() && rig.supervisor.slots[0].is_running, "{fatal:?}");
    let readiness = rig.supervisor.state.readiness();
    assert_eq!((readiness.ready, readiness.draining), (false, true));
    let last = std::iter::from_fn(|| rig.told.try_recv().ok()).last();
    assert!(matches!(last, Some(Inbound::Drain)));
}

#[tokio::test]
async fn a_server_that_ends_stays_closed_for_that_reason_also_if_its_workers_crash() {
    let mut rig = rig().await;
    rig.supervisor.state.set_readiness(Readiness::ending("the server is shutting down"));
    for worker in 1.. {
        let worker = ReplicaId(worker);
        rig.supervisor.slots.begin(0, worker, "w2".into(), 1, None);
        rig.supervisor.handle(WorkerEvent::Exited(worker, "exit status: 1".into(), Loss::Crashed)).unwrap();
        rig.supervisor.handle(WorkerEvent::LinkLost(worker)).unwrap();
        if rig.supervisor.slots[0].life.is_crash_looping() {
            break;
        }
        while !matches!(rig.supervisor.slots[0].life.tick(Time(u64::MAX / 2)), Some(Command::Spawn)) {}
    }
    let doors = std::iter::from_fn(|| rig.told.try_recv().ok()).filter(|told| matches!(told, Inbound::CrashLooping));
    assert_eq!(doors.count(), 0);
}
