//! What the supervisor tells an engine of a worker between its fault and its end. No worker runs: the test says what happens.

use super::{Assignment, Served, Supervisor};
use crate::deployment::Inbound;
use crate::host::Settings;
use crate::link::frame::FrameReader;
use crate::link::front::Link;
use crate::report::Report;
use jitney_core::request::ReplicaId;
use jitney_core::scheduler::Loss;
use jitney_core::supervisor::{Cause, Event};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

const WORKER: ReplicaId = ReplicaId(1);

/// A supervisor of one worker that is up; the other end of its link; what its engine is told.
async fn supervisor() -> (Supervisor, DuplexStream, mpsc::UnboundedReceiver<Inbound>, TempDir) {
    let settings = json!({"targets": [], "python": "none", "cores": 1, "server": {
        "listen": [], "listen_programs": [], "allow_unauthenticated": false, "api_keys_file": null, "open_metrics": false,
        "cors_origin": [], "max_body_bytes": 1, "max_receiving_bytes": 1, "max_connections": 1, "header_timeout_s": 1.0,
        "body_timeout_s": 1.0, "idle_timeout_s": 1.0, "drain_grace_s": 0.0, "drain_timeout_s": 1.0, "log_format": "text",
        "log_level": "info",
    }});
    let settings: Settings = serde_json::from_value(settings).unwrap();
    let (site, directory) = (Arc::new(settings.site()), tempfile::tempdir().unwrap());
    let mut supervisor = Supervisor::start(Arc::new(settings), site, directory.path()).unwrap();
    let (engine, told) = mpsc::unbounded_channel();
    supervisor.served.insert("a".into(), Served { engine, min_ready: 1, example_cost: None });
    let assignment = Assignment { deployment: "a".into(), replica: 0, device: None, cpu_threads: 1, most_items: None };
    supervisor.add_slot(0, Some(assignment), Duration::from_secs(60));
    supervisor.slots[0].worker = WORKER;
    let now = supervisor.clock.now();
    supervisor.slots[0].place.tick(now);
    let (front, worker) = tokio::io::duplex(1 << 10);
    let (reader, writer) = tokio::io::split(front);
    Link::start(FrameReader::new(reader), writer, WORKER, supervisor.clock, supervisor.reports());
    let connected = supervisor.reports.recv().await.unwrap();
    supervisor.hear(connected).unwrap();
    supervisor.event(0, Event::Ready).unwrap();
    let mut told = told;
    assert!(matches!(told.try_recv().unwrap(), Inbound::Up(WORKER, _)));
    (supervisor, worker, told, directory)
}

#[tokio::test]
async fn a_worker_that_is_killed_gets_nothing_more_although_it_is_not_gone_yet() {
    let (mut supervisor, _worker, mut told, _directory) = supervisor().await;
    supervisor.event(0, Event::Failed(Cause::Died)).unwrap();
    assert!(supervisor.slots[0].place.is_dying());
    assert!(matches!(told.try_recv().unwrap(), Inbound::Retire(WORKER)));
    assert!(told.try_recv().is_err());
}

#[tokio::test]
async fn a_worker_whose_process_is_gone_gets_nothing_more_while_its_last_words_are_awaited() {
    let (mut supervisor, _worker, mut told, _directory) = supervisor().await;
    supervisor.hear(Report::Exited(WORKER, "exit status: 1".into(), Loss::Crashed)).unwrap();
    assert!(matches!(told.try_recv().unwrap(), Inbound::Retire(WORKER)));
    assert!(told.try_recv().is_err());
    supervisor.hear(Report::LinkLost(WORKER)).unwrap();
    assert!(matches!(told.try_recv().unwrap(), Inbound::Lost(WORKER, Loss::Crashed)));
}

#[tokio::test(start_paused = true)]
async fn after_a_stop_of_this_process_nobody_is_silent_whatever_is_heard_of_first() {
    let (mut supervisor, _worker, mut told, _directory) = supervisor().await;
    tokio::time::advance(Duration::from_secs(20)).await;
    supervisor.event(0, Event::Served).unwrap();
    assert!(supervisor.slots[0].place.is_up());
    supervisor.tick().unwrap();
    assert!(supervisor.slots[0].place.is_up());
    assert!(told.try_recv().is_err());
}
