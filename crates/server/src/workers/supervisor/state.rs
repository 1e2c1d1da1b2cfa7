//! The state of the supervisor, and its life from start to end.

use crate::base::clock::Clock;
use crate::base::fatal::Fatal;
use crate::base::telemetry::workers::{Questions, WorkerSeen};
use crate::engine::readiness::Readiness;
use crate::engine::server_state::ServerState;
use crate::link::front::port::WorkerPorts;
use crate::link::front::worker_event::WorkerEvent;
use crate::workers::backends::agents::Agents;
use crate::workers::backends::backend::Backend;
use crate::workers::backends::inline::Inline;
use crate::workers::backends::process::{Printing, Processes, RemoteOutput};
use crate::workers::backends::ray::cluster::{Cluster, arrived};
use crate::workers::backends::returning::Returning;
use crate::workers::engines::Engines;
use crate::workers::placement::elastic::Elastic;
use crate::workers::registry::Registry;
use crate::workers::settings::Settings;
use crate::workers::slot::Slot;
use crate::workers::slots::Slots;
use jitney_core::config::manifest::Manifest;
use jitney_core::tables::metrics;
use jitney_core::time::Time;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// How often the rules are asked what time alone commands.
const TICK: Duration = Duration::from_millis(100);
/// Longest time that workers may take to end after they were asked to.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// What the socket of the workers is called.
pub(crate) const SOCKET: &str = "workers";
/// Before its options are known, a worker may take this long to import its target.
const IMPORT_TIMEOUT: Duration = Duration::from_secs(600);

/// Whether the workers are to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// They serve.
    No,
    /// They may finish what they hold.
    InOrder,
    /// They are killed.
    AtOnce,
}

/// The next question of somebody who wants to see the replicas; none if somebody else answers them.
async fn next(questions: &mut Option<Questions>) -> Option<oneshot::Sender<Vec<WorkerSeen>>> {
    match questions {
        Some(questions) => questions.recv().await,
        None => None,
    }
}

/// All workers of a server.
#[derive(Debug)]
pub struct Supervisor {
    pub(super) settings: Arc<Settings>,
    pub(super) state: Arc<ServerState>,
    pub(super) clock: Clock,
    pub(super) events: mpsc::UnboundedReceiver<WorkerEvent>,
    pub(super) events_tx: mpsc::UnboundedSender<WorkerEvent>,
    pub(super) backend: Box<dyn Backend>,
    pub(super) agents: Agents,
    /// The Ray cluster in which workers run, if there is one.
    pub(super) ray: Option<Cluster>,
    /// Workers that come back and are in no slot yet.
    pub(super) returning: Returning,
    /// What workers of other machines print; `None` if there can be none.
    pub(super) output: Option<RemoteOutput>,
    /// Workers that may be started until the next tick.
    pub(super) starts_left: usize,
    pub(super) registry: Registry,
    pub(super) engines: Engines,
    pub(super) slots: Slots,
    pub(super) manifests: Vec<Option<Manifest>>,
    pub(super) was_ready: bool,
    /// The deployments whose number of replicas follows their load.
    pub(super) elastic: BTreeMap<String, Elastic>,
    pub(super) pinged: Time,
    pub(super) ticked: Time,
}

impl Supervisor {
    /// Starts the workers of these targets: as processes of this machine, whose socket is in this folder, and at agents that join
    /// at these ports.
    pub fn start(
        settings: Arc<Settings>,
        state: Arc<ServerState>,
        folder: &std::path::Path,
        ports: Option<WorkerPorts>,
    ) -> Result<Supervisor, Fatal> {
        let (events_tx, events) = mpsc::unbounded_channel();
        let backend: Box<dyn Backend> = if let Some(workers) = &settings.inline {
            Box::new(Inline { workers: workers.clone(), events: events_tx.clone() })
        } else {
            let processes = {
                let printing = Printing::Here(settings.worker_log());
                Processes::start(settings.python.clone(), folder.into(), events_tx.clone(), printing)
            };
            Box::new(processes.map_err(|error| Fatal::new(format!("no thread: {error}")))?)
        };
        let log = settings.worker_log();
        let mut supervisor = Supervisor::with_backend(settings, state, folder, backend, (events_tx, events))?;
        let name = || supervisor.registry.name();
        let ray = Cluster::start(&supervisor.state.options, &supervisor.settings.python, name);
        supervisor.ray = ray.map_err(|error| Fatal::new(format!("Ray cannot be used: {error}")))?;
        if ports.is_some() || supervisor.ray.is_some() {
            let output = RemoteOutput::start(log).map_err(|error| Fatal::new(format!("no thread: {error}")))?;
            supervisor.output = Some(output);
        }
        if let Some(ports) = ports {
            supervisor.registry.open(ports, "");
        }
        Ok(supervisor)
    }

    /// A supervisor of workers that run in this backend.
    pub(crate) fn with_backend(
        settings: Arc<Settings>,
        state: Arc<ServerState>,
        folder: &std::path::Path,
        backend: Box<dyn Backend>,
        (events_tx, events): (mpsc::UnboundedSender<WorkerEvent>, mpsc::UnboundedReceiver<WorkerEvent>),
    ) -> Result<Supervisor, Fatal> {
        let clock = Clock::default();
        let path = folder.join(SOCKET);
        let registry = Registry::listen(&path, clock, events_tx.clone())
            .map_err(|error| Fatal::new(format!("{}: {error}", path.display())))?;
        let (targets, renews) = (0..settings.targets.len(), settings.renews);
        let slots = targets.clone().flat_map(|target| {
            // As many as are expected: when the manifest has come, the replicas need not import one after the other.
            let workers = settings.targets[target].workers.max(1) as usize;
            std::iter::repeat_with(move || Slot::new(target, None, IMPORT_TIMEOUT, renews)).take(workers)
        });
        Ok(Supervisor {
            slots: slots.collect(),
            manifests: targets.map(|_| None).collect(),
            settings,
            state,
            clock,
            events,
            events_tx,
            backend,
            agents: Agents::default(),
            ray: None,
            returning: Returning::default(),
            output: None,
            starts_left: 0,
            registry,
            engines: Engines::default(),
            was_ready: false,
            elastic: BTreeMap::new(),
            pinged: Time(0),
            ticked: clock.now(),
        })
    }

    /// Where events are sent.
    pub fn events(&self) -> mpsc::UnboundedSender<WorkerEvent> {
        self.events_tx.clone()
    }

    /// Runs until a fatal error, or until `stop` says to end.
    pub async fn run(&mut self, stop: &mut watch::Receiver<Stop>) -> Result<(), Fatal> {
        let result = self.run_until(stop).await;
        if result.is_err() {
            // It takes a while until all workers have ended. Clients must send nothing during that time.
            self.state.set_readiness(Readiness::ending("the server has failed and is ending; see the log"));
            self.engines.close();
        }
        result
    }

    async fn run_until(&mut self, stop: &mut watch::Receiver<Stop>) -> Result<(), Fatal> {
        let lag = self.state.telemetry.histogram(metrics::FRONT_LAG, &[]);
        let mut questions = self.state.workers.answer();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                due = tick.tick() => {
                    lag.observe(due.elapsed().as_secs_f64());
                    self.tick()?;
                }
                // The page that asked may have timed out.
                Some(reply) = next(&mut questions) => drop(reply.send(self.seen())),
                Some(event) = self.events.recv() => self.handle(event)?,
                arrived = arrived(&mut self.ray) => self.cluster(arrived)?,
                fatal = self.engines.failed() => return Err(fatal),
                _ = stop.wait_for(|&stop| stop != Stop::No) => return Ok(()),
            }
        }
    }

    /// Asks all workers to end, waits for them unless there is no time, and kills those that have not ended.
    pub async fn end(&mut self, stop: &mut watch::Receiver<Stop>) {
        self.returning.end();
        for (index, slot) in self.slots.iter().enumerate() {
            match &slot.link {
                Some(link) if slot.life.is_up() => link.shutdown(),
                // A worker that is still loading has nothing to finish, and would not read the message for long.
                _ => self.kill(index, false),
            }
        }
        let all_gone = async {
            // No agent reports the end of a worker that is away with its machine; both end with their lease.
            let is_seen = |slot: &Slot| slot.at.as_ref().is_none_or(|at| self.agents.is_there(&at.agent));
            while self.slots.iter().any(|slot| slot.is_running && is_seen(slot)) {
                if let Some(index) = self.events.recv().await.and_then(|event| self.ended(&event)) {
                    self.slots[index].is_running = false;
                }
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(END_TIMEOUT, all_gone) => {}
            Ok(_) = stop.wait_for(|&stop| stop == Stop::AtOnce) => {}
        }
        let running = (0..self.slots.len()).filter(|&index| self.slots[index].is_running);
        running.for_each(|index| self.kill(index, false));
        if let Some(cluster) = self.ray.take() {
            cluster.provider.end().await;
        }
    }
}
