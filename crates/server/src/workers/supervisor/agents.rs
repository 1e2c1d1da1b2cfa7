//! What agents report: that they join and leave, and what becomes of their workers.

use crate::base::fatal::Fatal;
use crate::link::agents::agent_link::{AgentEvent, ConnectionId};
use crate::link::agents::messages::{Ended, Join, Report, Stacks, Started};
use crate::link::front::worker_event::WorkerEvent;
use crate::workers::supervisor::state::Supervisor;
use jitney_core::supervisor::event::Event;
use jitney_core::time::Time;
use std::collections::BTreeMap;

impl Supervisor {
    /// An agent says something, or its connection is lost.
    pub(super) fn agent(&mut self, agent: &str, connection: ConnectionId, event: AgentEvent) -> Result<(), Fatal> {
        match event {
            AgentEvent::Joined(mut join, link) => {
                let foreign = self.agents.strike_foreign(&mut join);
                if foreign > 0 {
                    let host = &join.host;
                    tracing::warn!(
                        host,
                        "the agent at {host} names {foreign} workers that are not in its places; they are ignored"
                    );
                }
                let is_new = !self.agents.knows(&join.agent);
                self.agents.join(&join, link);
                self.ray.iter_mut().for_each(|cluster| cluster.places.joined(&join.agent));
                self.joined(&join)?;
                if is_new { self.replaced(&join) } else { Ok(()) }
            }
            AgentEvent::Lost => self.agent_lost(agent, connection),
            AgentEvent::Said(_) if !self.agents.is_present(agent, connection) => Ok(()),
            AgentEvent::Said(Report::Leaving) => self.leave(agent),
            AgentEvent::Said(
                Report::Ended(Ended { id, .. }) | Report::Started(Started { id }) | Report::Stacks(Stacks { id, .. }),
            ) if !self.agents.has(agent, &id) => {
                let host = self.agents.host(agent);
                tracing::debug!(host, "what the agent at {host} says of a worker that is not in its places is ignored");
                Ok(())
            }
            AgentEvent::Said(Report::Output(output, _)) if self.agents.is_of_another(agent, &output.id) => Ok(()),
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
            AgentEvent::Said(Report::Output(output, _room)) => {
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

    /// A new agent has joined. If another one of its machine has disconnected, and the links of that one's workers are lost too, they have ended
    /// with it: an agent takes its workers with it.
    fn replaced(&mut self, join: &Join) -> Result<(), Fatal> {
        let host = &join.host;
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            let Some(at) = slot.at.as_ref().filter(|at| *at.host == **host && !self.agents.is_there(&at.agent)) else {
                continue;
            };
            if slot.is_running && slot.link.is_none() && slot.life.is_away() {
                let how = format!("its agent has disconnected, and a new agent of {host} has joined");
                let ended = Ended { id: slot.id.clone(), how, was_killed: true };
                self.worker_ended(&at.agent.clone(), &ended)?;
            }
        }
        Ok(())
    }

    /// The connection of an agent is lost. Each of its workers has a separate link; what becomes of one that has none yet cannot be known.
    fn agent_lost(&mut self, agent: &str, connection: ConnectionId) -> Result<(), Fatal> {
        if !self.agents.lose(agent, connection, self.clock.now()) {
            return Ok(());
        }
        let host = self.agents.host(agent);
        match self.slots_at(agent).len() {
            0 => tracing::info!(agent, host, "the agent at {host} has disconnected; it had no workers"),
            workers => tracing::warn!(
                agent,
                host,
                workers,
                "the connection of the agent at {host} is lost; its workers ({workers}) have their own links"
            ),
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
        let (host, workers) = (self.agents.host(agent), slots.len());
        tracing::info!(agent, host, "the agent at {host} leaves; workers that finish what they have: {workers}");
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
