//! What the rules command: workers are started and killed, and the engines are notified.

use crate::base::fatal::Fatal;
use crate::engine::deployment::Inbound;
use crate::workers::backend::WorkerSpec;
use crate::workers::engines::Served;
use crate::workers::slot::{Slot, WorkerFailure};
use crate::workers::supervisor::state::Supervisor;
use jitney_core::replicas::loss_history::Loss;
use jitney_core::request::ReplicaId;
use jitney_core::supervisor::event::{Cause, Command};
use jitney_core::supervisor::worker_life::WorkerLife;
use jitney_core::tables::metrics;

impl Supervisor {
    /// Asks the rules and does what they command.
    pub(super) fn apply(
        &mut self,
        index: usize,
        ask: impl FnOnce(&mut WorkerLife) -> Option<Command>,
    ) -> Result<(), Fatal> {
        let life = &mut self.slots[index].life;
        let was_vacant = life.is_vacant();
        let command = ask(life);
        if command.is_none() && life.is_vacant() && !was_vacant {
            // It went while it was loading again, which no engine knows of. An end may be reported twice, by the process
            // and by the link; only the first one finds the place taken.
            let cause = if life.is_outdated() { Cause::Renewed } else { Cause::LoadFailed };
            self.lost(index, cause);
        }
        match command {
            Some(command) => self.carry_out(index, command),
            None => Ok(()),
        }
    }

    pub(super) fn carry_out(&mut self, index: usize, command: Command) -> Result<(), Fatal> {
        let slot = &self.slots[index];
        let worker = slot.worker;
        match command {
            Command::Spawn => self.spawn(index)?,
            Command::Kill | Command::End => {
                match slot.life.ends_for() {
                    Some(Cause::Hung | Cause::LoadTimeout) => self.backend.kill_with_stacks(worker),
                    _ if command == Command::Kill => self.backend.kill(worker),
                    _ => {}
                }
                // It gets nothing more, although it is only gone when its process is.
                self.tell_engine(index, Inbound::Retire(worker));
            }
            Command::Up => {
                if let Some(link) = slot.link.clone() {
                    self.tell_engine(index, Inbound::Up(worker, link));
                }
            }
            Command::Down(cause) => {
                // A death that the supervisor itself ordered for a hang is the model's own doing.
                let killed = cause == Cause::Died && slot.exited == Some(Loss::Killed) || cause == Cause::Renewed;
                let loss = if killed { Loss::Killed } else { Loss::Crashed };
                self.tell_engine(index, Inbound::Lost(worker, loss));
                self.lost(index, cause);
            }
            Command::GiveUp(cause) => {
                let (name, why) = (self.name(index), self.why(index, cause));
                return Err(Fatal::new(format!("{name} cannot be loaded ({}): {why}", cause.label())));
            }
        }
        Ok(())
    }

    /// Notes that a worker has ended and will be replaced.
    pub(super) fn lost(&mut self, index: usize, cause: Cause) {
        let (name, why) = (self.name(index), self.why(index, cause));
        let slot = &mut self.slots[index];
        slot.link = None;
        let (deployment, replica) = slot.names();
        let reason = cause.label();
        if cause == Cause::Renewed {
            tracing::info!(
                deployment,
                replica,
                reason,
                "{name}: its worker has ended; the next one imports the changed files"
            );
        } else {
            let next = if slot.life.awaits_change() {
                "its files are loaded again when they change"
            } else {
                "it will be replaced"
            };
            tracing::warn!(deployment, replica, reason, "{name}: worker lost ({reason}): {why}; {next}");
            slot.fail(WorkerFailure { cause, text: why, is_reported: false });
        }
        if let Some(assignment) = &slot.assignment {
            let labels = [assignment.deployment.as_str(), cause.label()];
            self.state.telemetry.counter(metrics::WORKERS_LOST, &labels).inc();
        }
        self.close_if_crash_looping(index);
    }

    pub(super) fn close_if_crash_looping(&self, index: usize) {
        let deployment = |slot: &Slot| slot.assignment.as_ref().map(|a| a.deployment.clone());
        let mine = deployment(&self.slots[index]);
        let mut siblings = self.slots.iter().filter(|slot| deployment(slot) == mine);
        let is_looping = siblings.all(|slot| !slot.life.is_up() && slot.life.is_crash_looping());
        // A server that ends stays closed for that reason.
        if is_looping && !self.state.readiness().draining {
            self.tell_engine(index, Inbound::CrashLooping);
        }
    }

    pub(super) fn spawn(&mut self, index: usize) -> Result<(), Fatal> {
        let worker = ReplicaId(self.next_worker);
        self.next_worker += 1;
        let share = self.import_share();
        let token = self.registry.expect(worker).map_err(|error| Fatal::new(format!("no random numbers: {error}")))?;
        let is_further = self.slots[..index].iter().any(|slot| slot.target == self.slots[index].target);
        let slot = &mut self.slots[index];
        self.registry.forget(slot.worker);
        let cpu_threads = slot.assignment.as_ref().map_or(share, |assignment| assignment.cpu_threads);
        slot.begin(worker, cpu_threads);
        let target = &self.settings.targets[slot.target];
        let spec = WorkerSpec {
            address: self.registry.address().into(),
            token,
            worker: worker.0,
            target: target.target.clone(),
            overrides: target.overrides.clone(),
            cpu_threads,
            is_further: is_further && slot.assignment.is_none(),
            path: self.settings.path.clone(),
        };
        self.backend.start(worker, spec);
        Ok(())
    }

    pub(super) fn served(&self, index: usize) -> Option<&Served> {
        self.engines.get(&self.slots[index].assignment.as_ref()?.deployment)
    }

    pub(super) fn tell_engine(&self, index: usize, message: Inbound) {
        if let Some(assignment) = &self.slots[index].assignment {
            self.engines.send(&assignment.deployment, message);
        }
    }

    pub(super) fn why(&self, index: usize, cause: Cause) -> String {
        let batch_timeout_s = self.served(index).map_or(f64::INFINITY, |served| served.batch_timeout_s);
        self.slots[index].why(cause, batch_timeout_s)
    }
}
