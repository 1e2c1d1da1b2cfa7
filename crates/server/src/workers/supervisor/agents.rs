//! What agents report: that they join and leave, and what becomes of their workers.

use crate::base::fatal::Fatal;
use crate::link::agents::agent_link::{AgentEvent, ConnectionId};
use crate::link::agents::messages::{Ended, Join, Report};
use crate::link::front::worker_event::WorkerEvent;
use crate::workers::supervisor::state::Supervisor;
use jitney_core::supervisor::event::Event;
use jitney_core::time::Time;
use std::collections::BTreeMap;

impl Supervisor {
    /// An agent says something, or its connection is lost.
    pub(super) fn agent(&mut self, agent: &str, connection: ConnectionId, event: AgentEvent) -> Result<(), Fatal> {
        match event {
            AgentEvent::Joined(join, link) => {
                self.agents.join(&join, link);
                self.ray.iter_mut().for_each(|cluster| cluster.places.joined(&join.agent));
                self.joined(&join)
            }
            AgentEvent::Lost => self.agent_lost(agent, connection),
            AgentEvent::Said(_) if !self.agents.is_present(agent, connection) => Ok(()),
            AgentEvent::Said(Report::Leaving) => self.leave(agent),
            AgentEvent::Said(Report::Ended(ended)) => self.worker_ended(agent, &ended),
            AgentEvent::Said(Report::Started(started)) => match self.slots.of_id(&started.id) {
                Some(index) => self.event(index, Event::Spawned),
                None => Ok(()),
            },
            AgentEvent::Said(Report::Stacks(stacks)) => {
                if let Some(index) = self.slots.of_id(&stacks.id) {
                    self.log_stacks(index, &stacks.text);
                }
                Ok(())
            }
            AgentEvent::Said(Report::Output(output)) => {
                if let Some(printed) = &mut self.output {
                    printed.print(output.id, output.is_stdout, output.lines);
                }
                Ok(())
            }
        }
    }

    /// An agent has joined. What it does not name of its workers has ended while it was away.
    fn joined(&mut self, join: &Join) -> Result<(), Fatal> {
        let Join { host, python, workers, places, .. } = join;
        let (places, workers) = (places.len(), workers.len());
        tracing::info!(host, "an agent has joined: {host}, Python {python}, places: {places}, workers: {workers}");
        let now = self.clock.now();
        for running in &join.workers {
            match self.slots.of_id(&running.id) {
                Some(index) => self.settle(index),
                None => self.returning.name(running, now),
            }
        }
        let mut ended: BTreeMap<&str, &Ended> = join.ended.iter().map(|ended| (&*ended.id, ended)).collect();
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            let is_its = slot.is_running && slot.at.as_ref().is_some_and(|at| *at.agent == *join.agent);
            if is_its && join.workers.iter().all(|worker| worker.id != slot.id) {
                let unseen =
                    Ended { id: slot.id.clone(), how: "its agent has no such worker".into(), was_killed: true };
                let ended = ended.remove(&*slot.id).cloned().unwrap_or(unseen);
                self.worker_ended(&join.agent, &ended)?;
            }
        }
        if join.is_leaving { self.leave(&join.agent) } else { Ok(()) }
    }

    /// The connection of an agent is lost. Each of its workers has a separate link; what becomes of one that has none yet cannot be known.
    fn agent_lost(&mut self, agent: &str, connection: ConnectionId) -> Result<(), Fatal> {
        if !self.agents.lose(agent, connection, self.clock.now()) {
            return Ok(());
        }
        match self.slots_at(agent).len() {
            0 => tracing::info!(agent, "an agent has disconnected; it had no workers"),
            workers => {
                tracing::warn!(agent, workers, "the connection of an agent is lost; its workers ({workers}) go on");
            }
        }
        for index in self.slots_at(agent) {
            let slot = &self.slots[index];
            if slot.link.is_none() && !slot.life.is_away() {
                self.event(index, Event::Away)?;
            }
        }
        Ok(())
    }

    /// The machine of an agent goes away: its replicas answer what they have, and end.
    fn leave(&mut self, agent: &str) -> Result<(), Fatal> {
        self.agents.leave(agent);
        let slots = self.slots_at(agent);
        tracing::info!(agent, "an agent leaves; workers that finish what they have: {}", slots.len());
        for index in slots {
            self.event(index, Event::Leave)?;
        }
        Ok(())
    }

    fn worker_ended(&mut self, agent: &str, ended: &Ended) -> Result<(), Fatal> {
        self.agents.free(agent, &ended.id);
        self.returning.forget(&ended.id);
        self.output.iter_mut().for_each(|output| output.end(&ended.id));
        match self.slots.of_id(&ended.id) {
            Some(index) => self.exited(index, &ended.how, ended.loss()),
            None => Ok(()),
        }
    }

    pub(super) fn slots_at(&self, agent: &str) -> Vec<usize> {
        let is_its = |index: &usize| {
            let slot = &self.slots[*index];
            slot.is_running && slot.at.as_ref().is_some_and(|at| *at.agent == *agent)
        };
        (0..self.slots.len()).filter(is_its).collect()
    }

    /// Agents that are silent are lost.
    pub(super) fn watch_agents(&mut self, now: Time, must_ping: bool) -> Result<(), Fatal> {
        for (agent, connection) in self.agents.tick(now, must_ping) {
            self.agent_lost(&agent, connection)?;
        }
        Ok(())
    }

    /// The slot whose worker has ended, by an event that says so.
    pub(super) fn ended(&self, event: &WorkerEvent) -> Option<usize> {
        match event {
            WorkerEvent::Exited(worker, _, _) => self.slots.of_worker(*worker),
            WorkerEvent::Agent(_, _, AgentEvent::Said(Report::Ended(ended))) => self.slots.of_id(&ended.id),
            _ => None,
        }
    }
}
