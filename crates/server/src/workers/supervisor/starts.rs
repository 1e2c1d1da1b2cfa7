//! Where workers are started and how they are killed: on this machine, or at an agent.

use crate::base::fatal::Fatal;
use crate::workers::backends::agents::At;
use crate::workers::backends::backend::WorkerLog;
use crate::workers::backends::backend::WorkerSpec;
use crate::workers::backends::ray::places::STARTING;
use crate::workers::needs::{Elsewhere, Needs, RAY, Where};
use crate::workers::slot::Slot;
use crate::workers::supervisor::state::Supervisor;
use jitney_core::supervisor::event::Event;

/// So many workers start at once although none is up.
const FIRST_STARTS: usize = 8;
/// What a slot waits for begins with this if no place is free.
pub(super) const WAITS_FOR_A_PLACE: &str = "waits for a place: ";
/// So many workers that have not connected yet may be starting. With more of them, one could be refused: the port for workers ends
/// one of 64 connections that have proven nothing.
const MOST_CONNECTING: usize = 48;

impl Supervisor {
    /// Starts the worker of a slot, if there is room for it. If not, the slot waits and is asked for again with the next tick.
    pub(super) fn spawn(&mut self, index: usize) -> Result<(), Fatal> {
        let needs = self.needs(index);
        let at = match self.place(index, &needs) {
            Ok(at) => at,
            Err(why) => {
                self.say_wait(index, &why);
                let now = self.clock.now();
                let slot = &mut self.slots[index];
                slot.life.apply(now, Event::NoPlace);
                slot.waits_for = Some(why);
                return Ok(());
            }
        };
        self.starts_left = self.starts_left.saturating_sub(1);
        let worker = self.registry.number();
        let no_random = |error| Fatal::new(format!("no random numbers: {error}"));
        let id = self.registry.name().map_err(no_random)?;
        let token = match &at {
            None => self.registry.expect(worker).map_err(no_random)?,
            Some(_) => self.registry.expect_remote(worker, &id),
        };
        let share = self.import_share();
        let is_further = self.slots[..index].iter().any(|slot| slot.target == self.slots[index].target);
        self.registry.forget(self.slots[index].worker);
        let slot = &self.slots[index];
        let own_share = slot.assignment.as_ref().map_or(share, |assignment| assignment.cpu_threads);
        let cpu_threads = at.as_ref().map_or(own_share, |at| at.room.cores.max(1));
        let target = &self.settings.targets[slot.target];
        let spec = WorkerSpec {
            address: self.address(at.as_ref()),
            token,
            worker: worker.0,
            // A worker of this machine ends with its link.
            id: if at.is_some() { id.clone() } else { String::new() },
            options_hash: if at.is_some() { self.options_hash(target) } else { String::new() },
            target: target.target.clone(),
            overrides: target.overrides.clone(),
            cpu_threads,
            is_further: is_further && slot.assignment.is_none(),
            path: if at.is_some() { Vec::new() } else { self.settings.path.clone() },
            logs_json: self.settings.worker_log() != WorkerLog::Text,
            variables: Vec::new(),
        };
        let deployment = slot.assignment.as_ref().map(|assignment| assignment.deployment.clone());
        self.slots.begin(index, worker, id, cpu_threads, at.clone());
        self.slots[index].life.placed(at.is_some());
        let now = self.clock.now();
        self.slots[index].asked.get_or_insert(now);
        match &at {
            None => self.backend.start(worker, spec),
            Some(at) => {
                self.output.iter_mut().for_each(|output| output.begin(&spec.id, &spec.target, &at.host));
                self.agents.start(at, &spec, deployment.as_deref(), &needs);
            }
        }
        Ok(())
    }

    /// Logs what a slot waits for, once for each deployment. That Ray starts an agent is not said.
    fn say_wait(&self, index: usize, why: &str) {
        let slot = &self.slots[index];
        let whose = slot.names().0;
        let is_known = |other: &Slot| {
            other.target == slot.target && other.names().0 == whose && other.waits_for.as_deref() == Some(why)
        };
        let said = self.ray.as_ref().and_then(|cluster| cluster.obstacle());
        let Some(what) = why.strip_prefix(WAITS_FOR_A_PLACE).filter(|what| Some(*what) != said && *what != STARTING)
        else {
            return;
        };
        if !self.slots.iter().any(is_known) {
            let whose = whose.unwrap_or(&self.settings.targets[slot.target].target);
            tracing::warn!("{whose}: {WAITS_FOR_A_PLACE}{what}");
        }
    }

    /// What the worker of a slot needs.
    pub(super) fn needs(&self, index: usize) -> Needs {
        match &self.slots[index].assignment {
            Some(assignment) => assignment.needs.clone(),
            None => Needs::of_import(self.elsewhere()),
        }
    }

    /// Where it is started: `None` on this machine. An error says what it waits for.
    fn place(&self, index: usize, needs: &Needs) -> Result<Option<At>, String> {
        if self.starts_left == 0 {
            return Err("waits for the start of others".into());
        }
        let is_local = |slot: &Slot| slot.is_running && slot.at.is_none();
        let has_room = || {
            self.state
                .options
                .local
                .is_none_or(|most| self.slots.iter().filter(|slot| is_local(slot)).count() < most as usize)
        };
        if self.is_kept_for_returning(index) {
            return Err("waits for workers that come back with their models".into());
        }
        if needs.may_be_local() && has_room() {
            return Ok(None);
        }
        if needs.place == Where::Local {
            return Err("waits for a place: every place on this machine is taken".into());
        }
        self.choose(index, needs).map(Some).map_err(|why| {
            let of_ray = if needs.fit_engine(RAY) { self.ray_waits_for(self.slots[index].names().0) } else { None };
            format!("{WAITS_FOR_A_PLACE}{}", of_ray.unwrap_or(why))
        })
    }

    /// A place at an agent. A place in a Ray cluster is only for those for whom it was asked for.
    pub(super) fn choose(&self, index: usize, needs: &Needs) -> Result<At, String> {
        let deployment = self.slots[index].names().0;
        let is_for = |agent: &str| self.ray.as_ref().is_some_and(|cluster| cluster.places.is_for(agent, deployment));
        self.agents.choose(needs, &self.settings.targets[self.slots[index].target].target, deployment, is_for)
    }

    fn address(&self, at: Option<&At>) -> String {
        let Some(at) = at else { return self.registry.address().into() };
        let is_of_people = self.agents.engine(&at.agent).is_empty();
        let advertised = self.state.options.workers_advertise.as_deref().filter(|_| is_of_people);
        advertised.or(self.agents.dialled(&at.agent)).unwrap_or_default().to_owned()
    }

    /// Where workers may run apart from this machine.
    pub(super) fn elsewhere(&self) -> Elsewhere {
        let options = &self.state.options;
        Elsewhere { agents: !options.workers_listen.is_empty(), ray: options.ray_address.is_some() }
    }

    /// How many workers may be started until the next tick. A thousand interpreters that start at once read the same files. A worker
    /// that waits for others does not count: for the targets that have not been imported, or for the models that it uses.
    pub(super) fn allow_starts(&mut self) {
        let waits = |slot: &Slot| match &slot.assignment {
            None => self.manifests.get(slot.target).is_some_and(Option::is_some),
            Some(assignment) => self.engines.get(&assignment.deployment).is_some_and(|one| !one.uses.is_empty()),
        };
        let up = self.slots.iter().filter(|slot| slot.life.is_up()).count();
        let starting = self.slots.iter().filter(|slot| slot.life.is_starting() && !waits(slot)).count();
        let connecting = self.slots.iter().filter(|slot| slot.life.is_starting() && !slot.has_connected).count();
        let most = (FIRST_STARTS + 2 * up).saturating_sub(starting);
        self.starts_left = most.min(MOST_CONNECTING.saturating_sub(connecting));
    }

    /// Kills the worker of a slot; with `stacks` it first says where its threads are.
    pub(super) fn kill(&self, index: usize, stacks: bool) {
        let slot = &self.slots[index];
        match &slot.at {
            Some(_) => self.agents.kill(&slot.id, stacks),
            None if stacks => self.backend.kill_with_stacks(slot.worker),
            None => self.backend.kill(slot.worker),
        }
    }
}
