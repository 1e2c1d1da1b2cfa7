//! Carries out the supervisor's rules: starts workers, hears what they say, tells the engines, and says when ready.

use crate::changes;
use crate::clock::Clock;
use crate::deployment::{Deployment, Inbound};
use crate::engine::Engine;
use crate::host::{Fatal, Settings};
use crate::link::frame::Kind;
use crate::link::front::Link;
use crate::plan::{Assignment, Plan};
use crate::profile;
use crate::report::Report;
use crate::site::{Readiness, Site};
use crate::spawn::{self, Launch, Spawner};
use crate::workers;
use jitney_core::manifest::Manifest;
use jitney_core::metrics;
use jitney_core::outcome::Outcome;
use jitney_core::request::ReplicaId;
use jitney_core::scheduler::{Door, Loss};
use jitney_core::supervisor::{Cause, Command, Event, Place};
use jitney_core::time::Time;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// How often the rules are asked what time alone commands.
const TICK: Duration = Duration::from_millis(100);
/// A tick that comes this late means that this process did not run.
pub(crate) const AWAY: Duration = Duration::from_secs(2);
/// How often a worker is asked for a sign of life.
const PING_EVERY: Duration = Duration::from_secs(1);
/// Workers that were told to end may take this long.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// What a worker said before its process ended must have arrived within this.
const LAST_WORDS: Duration = Duration::from_millis(300);
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

/// One place for a worker, with the worker that is in it.
#[derive(Debug)]
struct Slot {
    place: Place,
    target: usize,
    assignment: Option<Assignment>,
    worker: ReplicaId,
    pid: Option<u32>,
    link: Option<Link>,
    /// Since when its process is gone, and how it went.
    exited: Option<(Time, Loss)>,
    /// Whether it said itself why it fails, which says more than how its process ended.
    has_said_why: bool,
    error: Option<String>,
}

impl Slot {
    /// Why its worker ended, in words.
    fn why(&self, cause: Cause) -> String {
        let limit = self.place.load_timeout().as_secs_f64();
        match (cause, &self.assignment) {
            (Cause::LoadTimeout, Some(_)) => format!("it did not load within load_timeout_s = {limit}"),
            (Cause::LoadTimeout, None) => format!("its target was not imported within {limit} s"),
            _ => self.error.clone().unwrap_or_else(|| cause.label().into()),
        }
    }
}

#[derive(Debug)]
struct Served {
    engine: mpsc::UnboundedSender<Inbound>,
    min_ready: usize,
    example_cost: Option<u64>,
}

/// All workers of a server.
#[derive(Debug)]
pub struct Supervisor {
    settings: Arc<Settings>,
    site: Arc<Site>,
    clock: Clock,
    address: String,
    secret: String,
    reports: mpsc::UnboundedReceiver<Report>,
    reports_tx: mpsc::UnboundedSender<Report>,
    spawner: Spawner,
    slots: Vec<Slot>,
    next_worker: u32,
    manifests: Vec<Option<Manifest>>,
    served: BTreeMap<String, Served>,
    engines: JoinSet<()>,
    was_ready: bool,
    pinged: Time,
    ticked: Time,
}

impl Supervisor {
    /// Listens for workers and starts one per target.
    pub fn start(settings: Arc<Settings>, site: Arc<Site>, directory: &std::path::Path) -> Result<Supervisor, Fatal> {
        let path = directory.join(SOCKET);
        let listener = UnixListener::bind(&path).map_err(|error| Fatal::new(format!("{}: {error}", path.display())))?;
        let (reports_tx, reports) = mpsc::unbounded_channel();
        let spawner = Spawner::start(reports_tx.clone()).map_err(|error| Fatal::new(format!("no thread: {error}")))?;
        let clock = Clock::default();
        let secret = workers::secret().map_err(|error| Fatal::new(format!("no randomness: {error}")))?;
        tokio::spawn(workers::accept(listener, secret.clone(), clock, reports_tx.clone()));
        let mut supervisor = Supervisor {
            manifests: vec![None; settings.targets.len()],
            settings,
            site,
            clock,
            address: format!("unix:{}", path.display()),
            secret,
            reports,
            reports_tx,
            spawner,
            slots: Vec::new(),
            next_worker: 0,
            served: BTreeMap::new(),
            engines: JoinSet::new(),
            was_ready: false,
            pinged: Time(0),
            ticked: clock.now(),
        };
        for target in 0..supervisor.settings.targets.len() {
            supervisor.add_slot(target, None, IMPORT_TIMEOUT);
        }
        Ok(supervisor)
    }

    /// Where it can be told what happened.
    pub fn reports(&self) -> mpsc::UnboundedSender<Report> {
        self.reports_tx.clone()
    }

    /// Runs until something fatal happens, or until it is told to stop.
    pub async fn run(&mut self, stop: &mut watch::Receiver<Stop>) -> Result<(), Fatal> {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => self.tick()?,
                Some(report) = self.reports.recv() => self.hear(report)?,
                Some(ended) = self.engines.join_next() => return Err(engine_ended(ended)),
                _ = stop.wait_for(|&stop| stop != Stop::No) => return Ok(()),
            }
        }
    }

    /// Tells all workers to end, waits unless there is no time for that, and kills those that have not.
    pub async fn end(&mut self, stop: &mut watch::Receiver<Stop>) {
        for slot in &self.slots {
            match &slot.link {
                Some(link) if slot.place.is_up() => link.shutdown(),
                // Who is still loading has nothing to finish, and would not hear of it for long.
                _ => slot.pid.into_iter().for_each(spawn::kill_group),
            }
        }
        let all_gone = async {
            while self.slots.iter().any(|slot| slot.pid.is_some()) {
                if let Some(Report::Exited(worker, _, _)) = self.reports.recv().await {
                    self.slots.iter_mut().filter(|slot| slot.worker == worker).for_each(|slot| slot.pid = None);
                }
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(END_TIMEOUT, all_gone) => {}
            Ok(_) = stop.wait_for(|&stop| stop == Stop::AtOnce) => {}
        }
        self.slots.iter().filter_map(|slot| slot.pid).for_each(spawn::kill_group);
    }

    fn hear(&mut self, report: Report) -> Result<(), Fatal> {
        let Some(worker) = report.worker() else { return self.renew() };
        let Some(index) = self.slots.iter().position(|slot| slot.worker == worker) else {
            // A worker that was replaced. It has been killed, unless it was not yet there to be killed.
            if let Report::Spawned(_, Some(pid)) = report {
                spawn::kill_group(pid);
            }
            return Ok(());
        };
        match report {
            Report::Renew => {}
            Report::Spawned(_, pid) => {
                self.slots[index].pid = pid;
                let place = &self.slots[index].place;
                if place.is_dying() || place.is_vacant() {
                    self.obey(index, Some(Command::Kill))?; // It was commanded before there was anybody to be killed.
                }
            }
            Report::Connected(_, link) => {
                self.slots[index].link = Some(link);
                self.attach(index);
                self.event(index, Event::Connected)?;
            }
            Report::Said(_, kind, body) => self.said(index, kind, &body)?,
            Report::Served(_) => self.event(index, Event::Served)?,
            Report::Trial(_, begins) => self.event(index, Event::Trial(begins))?,
            Report::Hung(_) => self.event(index, Event::Failed(Cause::Hung))?,
            Report::LinkLost(_) => {
                self.slots[index].link = None;
                let event = if self.slots[index].exited.is_some() { Event::Exited } else { Event::Failed(Cause::Died) };
                self.event(index, event)?;
            }
            Report::Exited(_, how, loss) => {
                let now = self.clock.now();
                let slot = &mut self.slots[index];
                slot.pid = None;
                slot.exited = Some((now, loss));
                if !slot.has_said_why {
                    slot.error = Some(format!("the worker ended: {how}"));
                }
                // Its last words may still be on the link: wait for the end of it, but not for long (see `tick`).
                if slot.link.is_none() {
                    self.event(index, Event::Exited)?;
                } else {
                    self.tell_engine(index, Inbound::Retire(worker));
                }
            }
        }
        self.show();
        Ok(())
    }

    fn said(&mut self, index: usize, kind: Kind, body: &[u8]) -> Result<(), Fatal> {
        let name = self.name(index);
        match kind {
            _ if self.slots[index].place.is_dying() => {} // It was quicker than its kill; the reason stays.
            Kind::Manifest => self.manifest(index, body)?,
            Kind::Ready => {
                tracing::info!("{name}: loaded and warm");
                self.slots[index].error = None;
                if let Some(served) = self.served_by(index) {
                    tell(&served.engine, Inbound::Profiled(profile::measured(body, served.example_cost)));
                }
                self.event(index, Event::Ready)?;
            }
            Kind::Failed => {
                let said: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
                let text = |key: &str| said[key].as_str().unwrap_or("?").to_owned();
                self.unfit(index, format!("{} failed: {}", text("stage"), text("error")))?;
            }
            _ => {
                let said: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
                tracing::info!("{name}: {}", said["stage"].as_str().unwrap_or("starting"));
            }
        }
        Ok(())
    }

    /// It cannot serve, for a reason that its last words do not change.
    fn unfit(&mut self, index: usize, why: String) -> Result<(), Fatal> {
        (self.slots[index].error, self.slots[index].has_said_why) = (Some(why), true);
        self.event(index, Event::Failed(Cause::LoadFailed))
    }

    fn tick(&mut self) -> Result<(), Fatal> {
        let now = self.clock.now();
        if now - std::mem::replace(&mut self.ticked, now) >= AWAY {
            // It was this process that was stopped (Ctrl-Z, a frozen container): nobody's silence can be told from it.
            self.slots.iter().filter_map(|slot| slot.link.as_ref()).for_each(|link| link.excuse(now));
        }
        let must_ping = now - self.pinged >= PING_EVERY;
        if must_ping {
            self.pinged = now;
        }
        for index in 0..self.slots.len() {
            if let Some(link) = &self.slots[index].link {
                let heard = link.heard();
                if must_ping {
                    link.ping();
                }
                // An event at the time at which it happened.
                self.slots[index].place.on(heard, Event::Heard);
            }
            if self.slots[index].exited.is_some_and(|(at, _)| now - at >= LAST_WORDS)
                && self.slots[index].link.take().is_some()
            {
                self.event(index, Event::Exited)?;
            }
            self.apply(index, |place| place.tick(now))?;
        }
        self.show();
        Ok(())
    }

    fn event(&mut self, index: usize, event: Event) -> Result<(), Fatal> {
        let now = self.clock.now();
        self.apply(index, |place| place.on(now, event))?;
        // A place that is due for a new worker gets it now and not at the next tick. All else can wait: silence, above all,
        // must not be judged before the tick has seen whether this process ran.
        if self.slots[index].place.is_vacant() { self.apply(index, |place| place.tick(now)) } else { Ok(()) }
    }

    /// The files have changed: workers of the old ones end when they have finished what they hold.
    fn renew(&mut self) -> Result<(), Fatal> {
        if !self.was_ready {
            // Nothing is served yet that could be kept.
            return Err(Fatal { code: crate::host::CHANGED, text: "files changed; starting again".into() });
        }
        for index in 0..self.slots.len() {
            self.slots[index].error = None;
            self.event(index, Event::Renew)?;
        }
        Ok(())
    }

    /// Asks the rules and does what they command.
    fn apply(&mut self, index: usize, ask: impl FnOnce(&mut Place) -> Option<Command>) -> Result<(), Fatal> {
        let place = &mut self.slots[index].place;
        let was_vacant = place.is_vacant();
        let command = ask(place);
        if command.is_none() && place.is_vacant() && !was_vacant {
            // It went while it was loading again, which no engine knows of. An end may be told twice, by the process and
            // by the link; only the first one finds the place taken.
            let cause = if place.is_outdated() { Cause::Renewed } else { Cause::LoadFailed };
            self.lost(index, cause);
        }
        self.obey(index, command)
    }

    fn obey(&mut self, index: usize, command: Option<Command>) -> Result<(), Fatal> {
        let name = self.name(index);
        let slot = &mut self.slots[index];
        match command {
            None => {}
            Some(Command::Spawn) => self.spawn(index),
            Some(command @ (Command::Kill | Command::End)) => {
                slot.pid.filter(|_| command == Command::Kill).into_iter().for_each(spawn::kill_group);
                // It gets nothing more, although it is only gone when its process is.
                let worker = slot.worker;
                self.tell_engine(index, Inbound::Retire(worker));
            }
            Some(Command::Up) => {
                if let Some(link) = slot.link.clone() {
                    let worker = slot.worker;
                    self.tell_engine(index, Inbound::Up(worker, link));
                }
            }
            Some(Command::Down(cause)) => {
                // A death that the supervisor itself ordered for a hang is the model's own doing.
                let killed = cause == Cause::Died && slot.exited.is_some_and(|(_, loss)| loss == Loss::Killed)
                    || cause == Cause::Renewed;
                let loss = if killed { Loss::Killed } else { Loss::Crashed };
                self.tell_engine(index, Inbound::Lost(self.slots[index].worker, loss));
                self.lost(index, cause);
            }
            Some(Command::GiveUp(cause)) => {
                let why = slot.why(cause);
                return Err(Fatal::new(format!("{name} cannot be loaded ({}): {why}", cause.label())));
            }
        }
        Ok(())
    }

    /// A worker is gone and will be replaced.
    fn lost(&mut self, index: usize, cause: Cause) {
        let name = self.name(index);
        let slot = &mut self.slots[index];
        slot.link = None;
        let why = slot.why(cause);
        if cause == Cause::Renewed {
            tracing::info!("{name}: its worker has ended; the next one reads the files as they are now");
        } else {
            tracing::warn!("{name}: worker lost ({}): {why}; it will be replaced", cause.label());
        }
        if let Some(assignment) = &slot.assignment {
            let labels = [assignment.deployment.as_str(), cause.label()];
            self.site.telemetry.counter(metrics::WORKERS_LOST, &labels).inc();
        }
        self.close_if_crash_looping(index);
    }

    fn close_if_crash_looping(&self, index: usize) {
        let deployment = |slot: &Slot| slot.assignment.as_ref().map(|a| a.deployment.clone());
        let mine = deployment(&self.slots[index]);
        let mut siblings = self.slots.iter().filter(|slot| deployment(slot) == mine);
        if siblings.all(|slot| !slot.place.is_up() && slot.place.is_crash_looping()) {
            self.tell_engine(index, Inbound::Door(Door::Closed(Outcome::CrashLooping)));
        }
    }

    fn add_slot(&mut self, target: usize, assignment: Option<Assignment>, load_timeout: Duration) {
        let place = Place::new(load_timeout);
        let worker = ReplicaId(u32::MAX);
        self.slots.push(Slot {
            place,
            target,
            assignment,
            worker,
            pid: None,
            link: None,
            exited: None,
            has_said_why: false,
            error: None,
        });
    }

    fn spawn(&mut self, index: usize) {
        let worker = ReplicaId(self.next_worker);
        self.next_worker += 1;
        let share = self.scout_share();
        let slot = &mut self.slots[index];
        (slot.worker, slot.link, slot.pid, slot.exited, slot.has_said_why) = (worker, None, None, None, false);
        let target = &self.settings.targets[slot.target];
        let assignment = slot.assignment.as_ref();
        let spec = serde_json::json!({
            "address": self.address,
            "secret": self.secret,
            "worker": worker.0,
            "target": target.target,
            "overrides": target.overrides,
            "deployment": assignment.map(|a| &a.deployment),
            "replica": assignment.map_or(0, |a| a.replica),
            "device": assignment.and_then(|a| a.device.as_ref()),
            "cpu_threads": assignment.map_or(share, |a| a.cpu_threads),
            "most_items": assignment.and_then(|a| a.most_items),
            "parent": std::process::id(),
            "path": self.settings.path,
        });
        slot.place.on(self.clock.now(), Event::Spawned);
        self.spawner.launch(Launch { worker, python: self.settings.python.clone(), spec: spec.to_string() });
    }

    /// Batches of a worker go to and come from the engine of its deployment.
    fn attach(&self, index: usize) {
        if let (Some(served), Some(link)) = (self.served_by(index), &self.slots[index].link) {
            link.attach(served.engine.clone());
        }
    }

    /// What the worker of this place serves, once that is known.
    fn served_by(&self, index: usize) -> Option<&Served> {
        self.served.get(&self.slots[index].assignment.as_ref()?.deployment)
    }

    fn tell_engine(&self, index: usize, message: Inbound) {
        if let Some(served) = self.served_by(index) {
            tell(&served.engine, message);
        }
    }

    fn manifest(&mut self, index: usize, body: &[u8]) -> Result<(), Fatal> {
        let target = self.slots[index].target;
        let manifest = match changes::read(body) {
            Ok(manifest) => manifest,
            Err(why) if self.was_ready => return self.unfit(index, why),
            Err(why) => return Err(Fatal::new(why)),
        };
        if let (Some(assignment), Some(known)) = (&self.slots[index].assignment, &self.manifests[target]) {
            // Before all are up no file has changed, unless it is being worked on: it says something else in each process.
            let all = self.settings.renews && self.was_ready;
            let Some(changed) = changes::find(known, &manifest, &assignment.deployment, all) else { return Ok(()) };
            if self.settings.renews {
                return Err(Fatal { code: crate::host::CHANGED, text: format!("{changed}; starting again") });
            }
            if self.was_ready {
                return self.unfit(index, format!("{changed} since the server was started; restart it"));
            }
            tracing::warn!("{changed} from one worker to the next; what the first one said counts");
            return Ok(());
        }
        self.manifests[target] = Some(manifest);
        if self.manifests.iter().all(Option::is_some) {
            let manifests: Vec<Manifest> = self.manifests.iter().flatten().cloned().collect();
            let settings = &self.settings;
            let plan = Plan::new(&manifests, settings.cores).map_err(Fatal::new)?;
            plan.check_names(&settings.override_names, &settings.environment_names).map_err(Fatal::new)?;
            self.open(plan);
        }
        Ok(())
    }

    /// Starts the engines, opens the routes and gives every replica its place.
    fn open(&mut self, plan: Plan) {
        let mut deployments = BTreeMap::new();
        let mut load_timeouts = BTreeMap::new();
        for (name, (manifest, rules)) in plan.deployments {
            let (engine, inbound) = mpsc::unbounded_channel();
            let telemetry = &self.site.telemetry;
            let task = Engine::new(&name, rules, self.clock, inbound, self.reports_tx.clone(), telemetry);
            self.engines.spawn(task.run());
            let min_ready = manifest.options.min_ready_replicas.min(manifest.options.replicas) as usize;
            let load_timeout = Duration::try_from_secs_f64(manifest.options.load_timeout_s);
            load_timeouts.insert(name.clone(), load_timeout.unwrap_or(Duration::MAX));
            let example_cost = profile::example_cost(&manifest);
            deployments.insert(name.clone(), Deployment::new(manifest, engine.clone(), telemetry));
            self.served.insert(name, Served { engine, min_ready, example_cost });
        }
        self.site.open(deployments);
        for (target, replicas) in plan.replicas.into_iter().enumerate() {
            let mut replicas = replicas.into_iter();
            if let Some(first) = replicas.next() {
                let load_timeout = load_timeouts[&first.deployment];
                self.assign_scout(target, first, load_timeout);
            }
            for assignment in replicas {
                let load_timeout = load_timeouts[&assignment.deployment];
                self.add_slot(target, Some(assignment), load_timeout);
            }
        }
    }

    /// The share of the cores with which a target is imported, before anybody knows how many replicas it has.
    fn scout_share(&self) -> u32 {
        (self.settings.cores / self.settings.targets.len().max(1) as u32).max(1)
    }

    /// The worker that imported a target becomes its first replica, if it has the right share of the cores: thread
    /// variables only count before the first import.
    fn assign_scout(&mut self, target: usize, assignment: Assignment, load_timeout: Duration) {
        let share = self.scout_share();
        let index = self.slots.iter().position(|slot| slot.target == target).expect("every target has its first slot");
        let fits = assignment.cpu_threads == share;
        self.slots[index].assignment = Some(assignment);
        self.attach(index);
        let slot = &mut self.slots[index];
        match &slot.link {
            Some(link) if fits => {
                let assignment = serde_json::to_vec(&slot.assignment).expect("an assignment is plain data");
                link.assign(&assignment);
                slot.place.assigned(self.clock.now(), load_timeout);
            }
            _ => {
                slot.pid.into_iter().for_each(spawn::kill_group);
                slot.place = Place::new(load_timeout);
                slot.worker = ReplicaId(u32::MAX);
                (slot.link, slot.pid) = (None, None);
            }
        }
    }

    fn name(&self, index: usize) -> String {
        let slot = &self.slots[index];
        match &slot.assignment {
            Some(assignment) => format!("{}/{}", assignment.deployment, assignment.replica),
            None => self.settings.targets[slot.target].target.clone(),
        }
    }

    fn show(&mut self) {
        let is_planned = !self.served.is_empty();
        let all_up = is_planned && self.slots.iter().all(|slot| slot.place.is_up());
        self.was_ready |= all_up;
        let mut reasons = Vec::new();
        for (name, served) in &self.served {
            let mine =
                || self.slots.iter().filter(|slot| slot.assignment.as_ref().is_some_and(|a| &a.deployment == name));
            let up = mine().filter(|slot| slot.place.is_up()).count();
            let needed = if self.was_ready { served.min_ready } else { mine().count() };
            if up < needed {
                let why =
                    mine().find_map(|slot| slot.error.as_ref()).map(|error| format!(": {error}")).unwrap_or_default();
                reasons.push(format!("{name}: {up} of {needed} replicas are ready{why}"));
            }
        }
        if !is_planned {
            reasons.push("the targets are being imported".into());
        }
        let old = self.site.readiness();
        let new = Readiness { ready: reasons.is_empty(), reasons, draining: false };
        // Once shutdown has begun there is nothing more to say.
        if *old != new && !old.draining {
            self.site.set_readiness(new);
        }
    }
}

fn tell(engine: &mpsc::UnboundedSender<Inbound>, message: Inbound) {
    // An engine that has ended is noticed by `run`, which ends the server.
    let _ = engine.send(message);
}

fn engine_ended(ended: Result<(), tokio::task::JoinError>) -> Fatal {
    let how = ended.map_or_else(|error| error.to_string(), |()| "it returned".into());
    Fatal { code: crate::host::BROKEN, text: format!("an engine has ended: {how}; please report this") }
}

#[cfg(test)]
mod tests;
