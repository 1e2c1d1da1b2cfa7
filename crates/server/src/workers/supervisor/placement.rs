//! Which replica each worker is: manifests are read, engines are started, every replica gets its slot.

use crate::base::fatal::Fatal;
use crate::workers::placement::changes::{Change, OccupiedPlace, Unassigned, changes};
use crate::workers::placement::manifest_diff;
use crate::workers::placement::plan::{Assignment, Plan};
use crate::workers::slot::Slot;
use crate::workers::supervisor::state::Supervisor;
use jitney_core::config::manifest::Manifest;
use jitney_core::supervisor::event::Cause;
use std::time::Duration;

impl Supervisor {
    pub(super) fn manifest(&mut self, index: usize, body: &[u8]) -> Result<(), Fatal> {
        let target = self.slots[index].target;
        let manifest = match manifest_diff::read(body) {
            Ok(manifest) => manifest,
            Err(why) if self.was_ready => return self.refuse(index, why, Cause::LoadFailed),
            Err(why) => return Err(Fatal::new(why)),
        };
        if let Some(known) = &self.manifests[target] {
            let deployment = self.slots[index].assignment.as_ref().map(|assignment| assignment.deployment.as_str());
            // Before all are up no file has changed, unless it is being worked on: it says something else in each process.
            let all = self.settings.renews && self.was_ready || deployment.is_none();
            let Some(changed) = manifest_diff::find(known, &manifest, deployment.unwrap_or_default(), all) else {
                return Ok(());
            };
            if self.settings.renews {
                return Err(Fatal::changed(&changed));
            }
            if self.was_ready {
                let why = format!("{changed} since the server was started; restart it");
                return self.refuse(index, why, Cause::LoadFailed);
            }
            tracing::warn!("{changed} from one worker to the next; what the first one said counts");
            return Ok(());
        }
        self.learn_manifest(target, manifest)
    }

    /// The first worker of a target says what it holds. When all targets are known, engines and routes are opened.
    pub(super) fn learn_manifest(&mut self, target: usize, manifest: Manifest) -> Result<(), Fatal> {
        self.manifests[target] = Some(manifest);
        if self.manifests.iter().all(Option::is_some) {
            let manifests: Vec<Manifest> = self.manifests.iter().flatten().cloned().collect();
            let settings = &self.settings;
            let plan = Plan::new(&manifests, settings.cores, self.elsewhere()).map_err(Fatal::new)?;
            plan.check_names(&settings.override_names, &settings.environment_names).map_err(Fatal::new)?;
            self.open(plan);
            self.seat_waiting()?;
        }
        Ok(())
    }

    /// Starts the engines, opens the routes and gives every replica its slot.
    pub(super) fn open(&mut self, plan: Plan) {
        let mut deployments = Vec::new();
        let mut elastic = Vec::new();
        let mut composed = Vec::new();
        for (methods, rules) in plan.deployments.into_values() {
            if methods.iter().any(|method| method.composed.is_some()) {
                composed.extend(methods);
                continue;
            }
            elastic
                .extend(methods.first().filter(|first| first.options.is_elastic()).map(|first| (first.clone(), rules)));
            let events = self.events_tx.clone();
            deployments.extend(self.engines.start(methods, rules, self.clock, events, &self.state));
        }
        self.engines.compose(composed, &mut deployments, self.clock, &self.state);
        self.state.serve(deployments.into_iter().collect());
        let unassigned = self.slots.iter().enumerate().map(|(index, slot)| Unassigned {
            slot: index,
            target: slot.target,
            cpu_threads: slot.at.is_none().then_some(slot.cpu_threads),
            place: slot
                .at
                .as_ref()
                .map(|at| OccupiedPlace { room: at.room.clone(), engine: self.agents.engine(&at.agent).to_owned() }),
        });
        let mut removed = Vec::new();
        for change in changes(&unassigned.collect::<Vec<_>>(), plan.replicas) {
            match change {
                Change::Assign(index, assignment) => {
                    self.slots[index].assignment = Some(assignment);
                    self.give_place(index);
                    self.assign(index);
                }
                Change::Restart(index, assignment) => {
                    self.kill(index, false);
                    self.registry.forget(self.slots[index].worker);
                    let slot = self.slot(self.slots[index].target, assignment);
                    self.slots.replace(index, slot);
                }
                Change::Add(target, assignment) => {
                    let slot = self.slot(target, assignment);
                    self.slots.push(slot);
                }
                Change::Remove(index) => removed.push(index),
            }
        }
        removed.sort_unstable();
        for index in removed.into_iter().rev() {
            self.kill(index, false);
            self.registry.forget(self.slots[index].worker);
            self.slots.remove(index);
        }
        elastic.into_iter().for_each(|(manifest, rules)| self.follow_load(&manifest, &rules));
    }

    pub(super) fn slot(&self, target: usize, assignment: Assignment) -> Slot {
        let load_timeout = self.engines.get(&assignment.deployment).map_or(Duration::MAX, |served| served.load_timeout);
        Slot::new(target, Some(assignment), load_timeout, self.settings.renews)
    }

    /// Sends a worker the number of its replica, as soon as that is known and its link exists.
    pub(super) fn assign(&mut self, index: usize) {
        self.attach(index);
        let slot = &mut self.slots[index];
        let (Some(assignment), Some(link)) = (&slot.assignment, &slot.link) else { return };
        let Some(served) = self.engines.get(&assignment.deployment) else { return };
        let mut assignment = assignment.clone();
        if let Some(at) = &slot.at {
            assignment.cpu_threads = slot.cpu_threads;
            // Its environment shows it the devices of its place and no others.
            assignment.device = if at.room.devices.is_empty() { assignment.device } else { Some(at.first_device()) };
        }
        let mut assignment = serde_json::to_value(assignment).expect("an assignment is plain data");
        if let Some(asking) = self.state.asking.get().filter(|_| !served.uses.is_empty()) {
            assignment["calls"] = asking.welcome(&served.uses);
        }
        link.assign(&serde_json::to_vec(&assignment).expect("an assignment is plain data"));
        if let (Some(at), (Some(deployment), Some(replica)), Some(output)) = (&slot.at, slot.names(), &mut self.output)
        {
            output.begin(&slot.id, &format!("{deployment}/{replica}"), &at.host);
        }
        slot.life.assigned(self.clock.now(), served.load_timeout);
    }

    /// What the worker of a slot says of batches goes to the engine of its deployment.
    pub(super) fn attach(&self, index: usize) {
        let (Some(served), Some(link)) = (self.served(index), &self.slots[index].link) else { return };
        link.limit_answers(served.max_answer_bytes, served.max_batch_size, self.state.options.max_body_bytes);
        link.attach(served.engine.clone());
    }

    /// The share of the cores with which a target is imported, before it is known how many replicas it has.
    pub(super) fn import_share(&self) -> u32 {
        let workers: u32 = self.settings.targets.iter().map(|target| target.workers.max(target.shares).max(1)).sum();
        (self.settings.cores / workers.max(1)).max(1)
    }

    /// A replica, or the target of a worker that has none yet, for the log; with the machine of its worker, if that is another one.
    pub(super) fn name(&self, index: usize) -> String {
        let slot = &self.slots[index];
        let name = match &slot.assignment {
            Some(assignment) => format!("{}/{}", assignment.deployment, assignment.replica),
            None => self.settings.targets[slot.target].target.clone(),
        };
        match &slot.at {
            Some(at) => format!("{name}@{}", at.host),
            None => name,
        }
    }
}
