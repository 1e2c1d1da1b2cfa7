//! What the rules command: workers are started and killed, and the engines are notified.

use crate::base::fatal::Fatal;
use crate::engine::deployment::Inbound;
use crate::workers::engines::Served;
use crate::workers::slot::{Slot, WorkerFailure};
use crate::workers::supervisor::state::Supervisor;
use jitney_core::replicas::loss_history::Loss;
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
        let command = ask(&mut self.slots[index].life);
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
                    Some(Cause::Hung | Cause::LoadTimeout) => self.kill(index, true),
                    _ if command == Command::Kill => self.kill(index, false),
                    _ => {}
                }
                // It gets nothing more, although it is only gone when its process is.
                self.tell_engine(index, Inbound::Retire(worker));
            }
            Command::Up => {
                if let Some(link) = slot.link.clone() {
                    let (number, is_far) = (slot.names().1.unwrap_or_default(), slot.at.is_some());
                    self.tell_engine(index, Inbound::Up(worker, link));
                    self.tell_engine(index, Inbound::Placed(worker, number, is_far));
                }
            }
            Command::Doubt(is_doubtful) => {
                let what = if is_doubtful { "is silent, and gets nothing new" } else { "is heard again" };
                tracing::info!("{}: its worker {what}", self.name(index));
                self.tell_engine(index, Inbound::Doubt(worker, is_doubtful));
            }
            Command::Down(cause) => {
                let loss = match cause {
                    Cause::Away => Loss::Away,
                    Cause::Left if slot.exited.is_none() => Loss::Away,
                    Cause::Renewed | Cause::Left => Loss::Killed,
                    Cause::Died if slot.exited == Some(Loss::Killed) => Loss::Killed,
                    // A death that the supervisor itself ordered for a hang is the model's own doing.
                    _ => Loss::Crashed,
                };
                self.tell_engine(index, Inbound::Lost(worker, loss));
                self.lost(index, cause);
            }
            // An end may be reported twice, by the process and by the link; only the first one finds the place taken.
            Command::Ended(cause @ (Cause::Renewed | Cause::Left)) => self.lost(index, cause),
            // That it is away was counted before.
            Command::Ended(Cause::Away) => tracing::info!("{}: another worker is started", self.name(index)),
            Command::Ended(_) => self.lost(index, Cause::LoadFailed),
            Command::GiveUp(cause) => {
                let (name, why) = (self.name(index), self.why(index, cause));
                return Err(Fatal::new(format!("{name} cannot be loaded ({}): {why}", cause.label())));
            }
        }
        let is_over = match command {
            Command::Down(cause) => cause != Cause::Away,
            Command::Ended(_) => true,
            _ => false,
        };
        if is_over && let Some(output) = &mut self.output {
            // Its agent may never report that, if its machine is lost.
            output.end(&self.slots[index].id);
        }
        Ok(())
    }

    /// Notes that a worker has ended and will be replaced.
    pub(super) fn lost(&mut self, index: usize, cause: Cause) {
        let (name, why) = (self.name(index), self.why(index, cause));
        let now = self.clock.now();
        let slot = &mut self.slots[index];
        slot.link = None;
        if !matches!(cause, Cause::Renewed | Cause::Left) {
            (slot.losses, slot.last_loss) = (slot.losses + 1, Some(why.clone()));
        }
        let (deployment, replica) = slot.names();
        let reason = cause.label();
        if matches!(cause, Cause::Renewed | Cause::Left) {
            let next = match cause {
                Cause::Left if slot.is_surplus => "fewer replicas are needed",
                Cause::Left => "its machine goes away",
                _ => "the next one imports the changed files",
            };
            tracing::info!(deployment, replica, reason, "{name}: its worker has ended; {next}");
            slot.failure = None;
        } else {
            let next = if slot.life.awaits_change() {
                "its files are loaded again when they change"
            } else {
                "it will be replaced"
            };
            let host = slot.at.as_ref().map(|at| &*at.host);
            if slot.life.is_away() {
                let longest = slot.away_s(now);
                let why = format!("it cannot be reached; it may come back with its model for {longest} s");
                tracing::warn!(
                    deployment,
                    replica,
                    reason,
                    host,
                    "{name}: worker lost ({reason}): {why}; then another one is started, or as soon as a new agent of this \
                     machine joins"
                );
                slot.fail(WorkerFailure { cause, text: why, is_reported: false });
            } else {
                tracing::warn!(deployment, replica, reason, host, "{name}: worker lost ({reason}): {why}; {next}");
                slot.fail(WorkerFailure { cause, text: why, is_reported: false });
            }
        }
        if let Some(assignment) = slot.assignment.as_ref().filter(|_| !slot.is_surplus) {
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
