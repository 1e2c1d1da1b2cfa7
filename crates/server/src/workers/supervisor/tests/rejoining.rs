//! Workers that come back with their models. Each gets a link of which the test has the other end.

use super::{Rig, WORKER, rig};
use crate::engine::deployment::Inbound;
use crate::link::agents::agent_link::{AgentEvent, AgentLink, ConnectionId};
use crate::link::agents::messages::{Ended, Join, Report};
use crate::link::frame::header::{Segments, small_frame};
use crate::link::frame::kind::Kind;
use crate::link::front::hello::{Rejoin, Returned};
use crate::link::front::link::{Attached, Link};
use crate::link::front::worker_event::WorkerEvent;
use crate::link::liveness::Life;
use crate::workers::backends::agents::At;
use crate::workers::settings::Target;
use jitney_core::config::manifest::Manifest;
use jitney_core::replicas::loss_history::Loss;
use jitney_core::request::ReplicaId;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

const BACK: ReplicaId = ReplicaId(7);

fn manifest(options: &serde_json::Value) -> Manifest {
    let text = json!({ "kind": "text", "arrays": [], "schema": true });
    let deployment =
        crate::open_inference::tests::manifest(text.clone(), text, json!({ "name": "a", "options": options }));
    Manifest { target: "a.py".into(), deployments: vec![deployment] }
}

/// A rig that serves `a.py`, whose worker is on another machine.
async fn remote() -> Rig {
    let mut rig = rig().await;
    let target = Target { target: "a.py".into(), overrides: json!({}), workers: 1, shares: 1 };
    let settings = Arc::get_mut(&mut rig.supervisor.settings).expect("the supervisor alone has the settings");
    settings.targets.push(target);
    rig.supervisor.manifests.push(Some(manifest(&json!({}))));
    rig.supervisor.slots[0].life.placed(true);
    rig.supervisor.slots[0].at = Some(At::unknown("h"));
    rig
}

impl Rig {
    /// A worker comes back; what it gets over its link.
    fn comes_back(&mut self, id: &str, manifest: &Manifest) -> UnboundedReceiver<Segments> {
        let (outgoing, received) = unbounded_channel();
        let link = Link::new(outgoing, Life::new(self.supervisor.clock), Attached::default(), Arc::default());
        let loaded = Rejoin {
            target: "a.py".into(),
            deployment: "a".into(),
            replica: 0,
            options_hash: self.supervisor.options_hash(&self.supervisor.settings.targets[0]),
        };
        let manifest = serde_json::to_vec(manifest).unwrap().into();
        let returned = Returned { id: id.into(), host: "h".into(), loaded, manifest, link };
        self.supervisor.handle(WorkerEvent::Returned(BACK, Box::new(returned))).unwrap();
        received
    }
}

/// Whether the worker is asked to end.
fn ends(received: &mut UnboundedReceiver<Segments>) -> bool {
    let shutdown = small_frame(Kind::Shutdown, b"").concat();
    std::iter::from_fn(|| received.try_recv().ok()).any(|frame| frame.concat() == shutdown)
}

#[tokio::test]
async fn a_worker_that_is_back_before_the_loss_of_its_link_is_noticed_is_the_same_replica() {
    let mut rig = remote().await;
    let mut link = rig.comes_back("w1", &manifest(&json!({})));
    assert!(matches!(rig.told.try_recv().unwrap(), Inbound::Lost(WORKER, Loss::Away)));
    assert!(matches!(rig.told.try_recv().unwrap(), Inbound::Up(BACK, _)));
    assert!(matches!(rig.told.try_recv().unwrap(), Inbound::Placed(BACK, 0, true)));
    assert!(rig.supervisor.state.readiness().ready);
    // The end of the old link comes late, and says nothing about the new one.
    rig.supervisor.handle(WorkerEvent::LinkLost(WORKER)).unwrap();
    assert!(rig.supervisor.slots[0].life.is_up() && rig.told.try_recv().is_err());
    assert!(!ends(&mut link));
}

#[tokio::test]
async fn a_worker_that_was_asked_to_end_does_not_come_back() {
    let mut rig = remote().await;
    rig.supervisor.event(0, jitney_core::supervisor::event::Event::Leave).unwrap();
    let mut link = rig.comes_back("w1", &manifest(&json!({})));
    assert!(ends(&mut link));
    assert!(!std::iter::from_fn(|| rig.told.try_recv().ok()).any(|told| matches!(told, Inbound::Up(..))));
}

#[tokio::test]
async fn a_worker_whose_slot_another_one_has_is_ended() {
    let mut rig = remote().await;
    let mut link = rig.comes_back("w9", &manifest(&json!({})));
    assert!(ends(&mut link) && rig.told.try_recv().is_err());
    assert_eq!(rig.supervisor.slots[0].worker, WORKER);
}

#[tokio::test]
async fn a_worker_of_an_earlier_front_takes_the_slot_of_one_that_still_loads_unless_its_code_differs() {
    let mut rig = remote().await;
    rig.supervisor.handle(WorkerEvent::Exited(WORKER, "signal: 9 (SIGKILL)".into(), Loss::Killed)).unwrap();
    rig.supervisor.handle(WorkerEvent::LinkLost(WORKER)).unwrap();
    let later = rig.supervisor.clock.now() + std::time::Duration::from_secs(60);
    rig.supervisor.slots.begin(0, ReplicaId(2), "w2".into(), 1, None);
    rig.supervisor.slots[0].life.tick(later);
    assert!(rig.supervisor.slots[0].life.is_starting());
    let mut other = rig.comes_back("w1", &manifest(&json!({ "max_batch_size": 7 })));
    assert!(ends(&mut other) && rig.supervisor.slots[0].life.is_starting());
    rig.backend.take();
    let mut link = rig.comes_back("w1", &manifest(&json!({})));
    assert_eq!(rig.backend.take(), [super::Asked::Kill(ReplicaId(2))]);
    assert!(rig.supervisor.slots[0].life.is_up() && !ends(&mut link));
    let told: Vec<_> = std::iter::from_fn(|| rig.told.try_recv().ok()).collect();
    assert!(matches!(told[..], [.., Inbound::Up(BACK, _), Inbound::Placed(BACK, 0, true)]), "{told:?}");
}

impl Rig {
    /// An agent of this machine joins, or says something.
    fn agent(&mut self, name: &str, event: AgentEvent) {
        self.supervisor.handle(WorkerEvent::Agent(name.into(), ConnectionId(1), event)).unwrap();
    }

    fn joins(&mut self, name: &str, host: &str) {
        let (outgoing, _) = unbounded_channel();
        let (life, reader) = (Life::new(self.supervisor.clock), tokio::spawn(async {}).abort_handle());
        let link = AgentLink { connection: ConnectionId(1), outgoing, life, reader };
        let join = Join { agent: name.into(), host: host.into(), ..Join::default() };
        self.agent(name, AgentEvent::Joined(Box::new(join), link));
    }
}

#[tokio::test]
async fn a_worker_that_is_away_is_replaced_when_a_new_agent_of_its_machine_joins() {
    let mut rig = remote().await;
    rig.supervisor.slots[0].at = Some(At { agent: "old".into(), ..At::unknown("h") });
    rig.supervisor.handle(WorkerEvent::LinkLost(WORKER)).unwrap();
    assert!(rig.supervisor.slots[0].life.is_away());
    assert_eq!(
        rig.supervisor.state.readiness().reasons,
        ["a: 0 of 1 replicas are ready: waits for a worker of h that cannot be reached, for 15 s more"]
    );
    rig.joins("other", "another machine");
    assert!(rig.supervisor.slots[0].life.is_away());
    rig.joins("new", "h");
    assert!(rig.supervisor.slots[0].life.is_vacant() && !rig.supervisor.slots[0].is_running);
}

#[tokio::test]
async fn a_worker_does_not_end_because_an_agent_says_so_that_does_not_have_it() {
    let mut rig = remote().await;
    rig.joins("liar", "h");
    let lie = Ended { id: "w1".into(), how: "a lie".into(), was_killed: false };
    rig.agent("liar", AgentEvent::Said(Report::Ended(lie)));
    assert!(rig.supervisor.slots[0].life.is_up() && rig.told.try_recv().is_err());
}
