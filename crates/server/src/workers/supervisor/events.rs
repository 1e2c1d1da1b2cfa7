//! What happens to workers: each event that is reported, and what time alone brings.

use crate::base::clock::AWAY;
use crate::base::fatal::Fatal;
use crate::engine::deployment::Inbound;
use crate::link::frame::kind::Kind;
use crate::link::front::worker_event::WorkerEvent;
use crate::workers::placement::warm_up;
use crate::workers::slot::WorkerFailure;
use crate::workers::supervisor::state::Supervisor;
use jitney_core::replicas::loss_history::Loss;
use jitney_core::supervisor::event::{Cause, Event};
use std::fmt::Write;
use std::time::Duration;

/// What a worker sent before its process ended must have arrived within this.
const LAST_MESSAGES: Duration = Duration::from_millis(300);
/// The stage in which a worker fails that was ready: its model is broken.
const SERVING: &str = "serving";
/// The stage in which a worker imports its target.
const IMPORTING: &str = "importing";
/// How often a worker is asked for a sign of life.
const PING_EVERY: Duration = Duration::from_secs(1);

impl Supervisor {
    pub(super) fn handle(&mut self, event: WorkerEvent) -> Result<(), Fatal> {
        if let WorkerEvent::Agent(agent, connection, event) = event {
            self.agent(&agent, connection, event)?;
            self.publish();
            return Ok(());
        }
        let Some(worker) = event.worker() else { return self.renew() };
        if let WorkerEvent::Returned(_, returned) = event {
            self.returned(worker, *returned)?;
            self.publish();
            return Ok(());
        }
        let Some(index) = self.slots.of_worker(worker) else {
            // A worker that was replaced, and killed for that; or the old link of one that has come back.
            if matches!(event, WorkerEvent::LinkLost(_)) {
                self.returning.lost(worker);
            }
            return Ok(());
        };
        match event {
            WorkerEvent::FilesChanged
            | WorkerEvent::Agent(..)
            | WorkerEvent::Printed(..)
            | WorkerEvent::Returned(..) => {}
            WorkerEvent::Started(_) => self.event(index, Event::Spawned)?,
            WorkerEvent::Connected(_, link) => {
                let slot = &mut self.slots[index];
                if slot.at.is_some() {
                    link.token(&self.registry.next_token(&slot.id));
                }
                (slot.link, slot.has_connected) = (Some(link), true);
                self.assign(index);
                self.event(index, Event::Connected)?;
            }
            WorkerEvent::Message(_, kind, body) => self.message(index, kind, &body)?,
            WorkerEvent::Served(_) => self.event(index, Event::Served)?,
            WorkerEvent::Slow(_, factor) => self.slow(index, factor),
            WorkerEvent::Trial(_, begins) => self.event(index, Event::Trial(begins))?,
            WorkerEvent::Hung(_, requests) => {
                self.slots[index].hung_requests = requests;
                self.event(index, Event::Failed(Cause::Hung))?;
            }
            WorkerEvent::Stacks(_, stacks) => self.log_stacks(index, &stacks),
            WorkerEvent::LinkLost(_) => {
                let slot = &mut self.slots[index];
                slot.link = None;
                let had_exited = slot.last_messages_until.take().is_some();
                let is_watched = slot.at.as_ref().is_none_or(|at| self.agents.is_there(&at.agent));
                let event = if had_exited { Event::Exited } else { Event::LinkLost { is_watched } };
                let worker = self.slots[index].worker;
                if !had_exited && self.slots[index].at.is_some() {
                    self.tell_engine(index, Inbound::Retire(worker));
                }
                self.event(index, event)?;
            }
            WorkerEvent::Exited(_, how, loss) => self.exited(index, &how, loss)?,
        }
        self.publish();
        Ok(())
    }

    fn slow(&self, index: usize, factor: f64) {
        let (name, (deployment, replica)) = (self.name(index), self.slots[index].names());
        let host = self.slots[index].at.as_ref().map(|at| &*at.host);
        tracing::warn!(
            deployment,
            replica,
            host,
            "{name}: slow: its batches take {factor:.1} times as long as usual; it gets fewer items, and is not replaced; look at its device"
        );
    }

    pub(super) fn exited(&mut self, index: usize, how: &str, loss: Loss) -> Result<(), Fatal> {
        let slot = &mut self.slots[index];
        slot.is_running = false;
        slot.exited = Some(loss);
        slot.fail(WorkerFailure { cause: Cause::Died, text: format!("the worker ended: {how}"), is_reported: false });
        let worker = slot.worker;
        if slot.link.is_none() && (slot.has_connected || slot.life.is_dying()) {
            self.registry.forget(worker);
            return self.event(index, Event::Exited);
        }
        // What it sent last may still be on the link, and even its connection may still wait to be accepted: a quick
        // failure of the import, above all. Wait for the end of the link, but not for long (see `tick`).
        slot.last_messages_until = Some(self.clock.now() + LAST_MESSAGES);
        self.tell_engine(index, Inbound::Retire(worker));
        Ok(())
    }

    pub(super) fn message(&mut self, index: usize, kind: Kind, body: &[u8]) -> Result<(), Fatal> {
        if self.slots[index].life.is_dying() {
            return Ok(()); // It was sent before the kill; the reason for that stays.
        }
        let name = self.name(index);
        match kind {
            Kind::Manifest => self.manifest(index, body)?,
            Kind::Measured => {
                let deployment = self.slots[index].names().0.unwrap_or_default();
                if let Err(why) = self.state.telemetry.measured(deployment, body) {
                    tracing::warn!(deployment, "{name}: {why}; it is left out");
                }
            }
            Kind::Ready => {
                let (deployment, replica) = self.slots[index].names();
                tracing::info!(deployment, replica, "{name}: loaded and warm");
                self.slots[index].failure = None;
                self.started(index);
                if let Some(served) = self.served(index) {
                    for (key, batches) in warm_up::measured(body, &served.examples) {
                        self.tell_engine(index, Inbound::Profiled(key, batches));
                    }
                }
                self.event(index, Event::Ready)?;
            }
            Kind::Failed => {
                let failed: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
                let text = |key: &str| failed[key].as_str().unwrap_or("?").to_owned();
                let (why, cause) = match failed["stage"].as_str() {
                    Some(SERVING) => (text("error"), Cause::Broken),
                    stage => {
                        let at = self.slots[index].at.as_ref();
                        let hint = at
                            .filter(|_| stage == Some(IMPORTING))
                            .map(|at| format!(" (on {}: start the agent there in the folder of the target)", at.host));
                        let hint = hint.unwrap_or_default();
                        (format!("{} failed: {}{hint}", text("stage"), text("error")), Cause::LoadFailed)
                    }
                };
                self.refuse(index, why, cause)?;
            }
            _ => {
                let progress: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
                let (deployment, replica) = self.slots[index].names();
                tracing::info!(deployment, replica, "{name}: {}", progress["stage"].as_str().unwrap_or("starting"));
            }
        }
        Ok(())
    }

    /// A worker cannot serve, for a reason that is more than how its process will end.
    pub(super) fn refuse(&mut self, index: usize, text: String, cause: Cause) -> Result<(), Fatal> {
        self.slots[index].fail(WorkerFailure { cause, text, is_reported: true });
        self.event(index, Event::Failed(cause))
    }

    /// Logs where the threads of a worker were that hung, and the requests of its batch.
    pub(super) fn log_stacks(&self, index: usize, stacks: &str) {
        /// More ids than these are counted: a log has limits for a line.
        const MOST: usize = 32;
        let slot = &self.slots[index];
        let (deployment, replica) = slot.names();
        let mut requests = slot.hung_requests.iter().take(MOST).map(|id| &**id).collect::<Vec<_>>().join(", ");
        if slot.hung_requests.len() > MOST {
            let _ = write!(requests, " and {} more", slot.hung_requests.len() - MOST);
        }
        let of = if requests.is_empty() { String::new() } else { format!(", requests {requests}") };
        let mut message = format!("{}: where its threads are{of}", self.name(index));
        if self.state.options.log_format != "json" {
            // There the fields are not shown. Indented, so that no line looks like one of the log.
            stacks.lines().for_each(|line| message.extend(["\n  ", line]));
        }
        tracing::warn!(deployment, replica, request_ids = requests, stacks, "{message}");
    }

    pub(super) fn tick(&mut self) -> Result<(), Fatal> {
        let now = self.clock.now();
        if now - std::mem::replace(&mut self.ticked, now) >= AWAY {
            // It was this process that was stopped (Ctrl-Z, a frozen container), so no worker counts as silent.
            self.slots.iter().filter_map(|slot| slot.link.as_ref()).for_each(|link| link.excuse(now));
            self.agents.excuse(now);
        }
        let must_ping = now - self.pinged >= PING_EVERY;
        if must_ping {
            self.pinged = now;
        }
        self.watch_agents(now, must_ping)?;
        self.watch_returning(now, must_ping);
        self.allow_starts();
        for index in 0..self.slots.len() {
            if let Some(link) = &self.slots[index].link {
                let heard = link.heard();
                if must_ping {
                    link.ping();
                }
                // An event at the time at which it happened.
                self.slots[index].life.apply(heard, Event::Heard);
            }
            if let Some(at) = &self.slots[index].at {
                let is_watched = self.agents.is_there(&at.agent);
                self.slots[index].life.watched(now, is_watched);
            }
            if self.slots[index].last_messages_until.is_some_and(|until| now >= until) {
                let slot = &mut self.slots[index];
                (slot.link, slot.last_messages_until) = (None, None);
                self.registry.forget(slot.worker);
                self.event(index, Event::Exited)?;
            }
            if !self.slots[index].life.is_vacant() {
                self.apply(index, |life| life.tick(now))?;
            }
        }
        for index in self.in_order_of_lack() {
            self.apply(index, |life| life.tick(now))?;
        }
        self.scale(now)?;
        self.follow_places(now)?;
        self.publish();
        Ok(())
    }

    pub(super) fn event(&mut self, index: usize, event: Event) -> Result<(), Fatal> {
        let now = self.clock.now();
        self.apply(index, |life| life.apply(now, event))?;
        // A slot that is due for a new worker gets it now and not at the next tick. All else can wait: silence, above all,
        // must not be judged before the tick has seen whether this process ran.
        let slot = &self.slots[index];
        if slot.life.is_vacant() && !slot.is_surplus { self.apply(index, |life| life.tick(now)) } else { Ok(()) }
    }

    /// The files have changed: workers of the old ones end when they have finished what they hold.
    pub(super) fn renew(&mut self) -> Result<(), Fatal> {
        if !self.was_ready {
            // Nothing is served yet that could be kept.
            return Err(Fatal::changed("files changed"));
        }
        for index in 0..self.slots.len() {
            self.slots[index].failure = None;
            self.event(index, Event::Renew)?;
        }
        self.publish();
        Ok(())
    }
}
