//! Agents that have joined: the places that they have, and which workers are in them.

use crate::link::agents::agent_link::{AgentLink, ConnectionId};
use crate::link::agents::messages::{Join, Room, Running, Start};
use crate::workers::backends::backend::WorkerSpec;
use crate::workers::needs::{Needs, thousandths};
use jitney_core::supervisor::worker_life::{LEASE, SILENT_AFTER};
use jitney_core::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One place of one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct At {
    /// The agent's name.
    pub(crate) agent: Arc<str>,
    /// Its machine.
    pub(crate) host: Arc<str>,
    /// The place among those of the agent.
    pub(crate) place: usize,
    /// What the place has.
    pub(crate) room: Room,
}

impl At {
    /// For a worker of this machine whose agent has not joined yet: nothing is known about its place.
    pub(crate) fn unknown(host: &str) -> At {
        At { agent: "".into(), host: host.into(), place: 0, room: Room::default() }
    }

    /// The name of its first device for its worker, whose environment shows it only those of its place.
    pub(crate) fn first_device(&self) -> String {
        let kind = self.room.devices.first().map_or("cuda", |device| device.split(':').next().unwrap_or(device));
        if kind == "cpu" { kind.to_owned() } else { format!("{kind}:0") }
    }
}

/// A worker in a place.
#[derive(Clone, Debug)]
struct Tenant {
    id: String,
    /// Its deployment, if this server has started it and knows it.
    deployment: Option<String>,
    /// What it takes of the agent's resources, in thousandths.
    resources: BTreeMap<String, u64>,
}

#[derive(Debug)]
struct Place {
    room: Room,
    tenant: Option<Tenant>,
}

impl Place {
    /// Whether the worker of this name is in it.
    fn is_of(&self, id: &str) -> bool {
        self.tenant.as_ref().is_some_and(|tenant| tenant.id == id)
    }
}

#[derive(Debug)]
struct Agent {
    host: Arc<str>,
    /// `None` while the connection is lost.
    link: Option<AgentLink>,
    lost_at: Option<Time>,
    dialled: String,
    /// The engine that has started it; empty if people or their tools have.
    engine: String,
    /// What its machine has of other things, in thousandths.
    resources: BTreeMap<String, u64>,
    labels: BTreeMap<String, String>,
    /// The targets that it can import; empty: every target.
    targets: Vec<String>,
    places: Vec<Place>,
    is_leaving: bool,
}

/// All agents, by name.
#[derive(Debug, Default)]
pub(crate) struct Agents {
    agents: BTreeMap<Arc<str>, Agent>,
    /// Free places of agents that are there, so that a slot that waits costs nothing.
    free: usize,
}

impl Agents {
    /// An agent has joined, or joined again. Its places hold the workers that it names.
    pub(crate) fn join(&mut self, join: &Join, link: AgentLink) {
        let deployments: BTreeMap<String, Tenant> = self
            .agents
            .remove(&*join.agent)
            .into_iter()
            .flat_map(|known| known.places)
            .filter_map(|place| place.tenant.map(|tenant| (tenant.id.clone(), tenant)))
            .collect();
        let place = |(index, room): (usize, &Room)| {
            let running = join.workers.iter().find(|worker| worker.place == index);
            let tenant = running.map(|Running { id, .. }| {
                let unknown = || Tenant { id: id.clone(), deployment: None, resources: BTreeMap::new() };
                deployments.get(id).cloned().unwrap_or_else(unknown)
            });
            Place { room: room.clone(), tenant }
        };
        let agent = Agent {
            host: join.host.as_str().into(),
            link: Some(link),
            lost_at: None,
            dialled: join.dialled.clone(),
            engine: join.engine.clone(),
            resources: join.resources.iter().map(|(name, amount)| (name.clone(), thousandths(*amount))).collect(),
            labels: join.labels.clone(),
            targets: join.targets.clone(),
            places: join.places.iter().enumerate().map(place).collect(),
            is_leaving: join.is_leaving,
        };
        self.agents.insert(join.agent.as_str().into(), agent);
        self.count();
    }

    /// The connection of an agent is lost. False if it has another one by now.
    pub(crate) fn lose(&mut self, agent: &str, connection: ConnectionId, now: Time) -> bool {
        let Some(agent) = self.agents.get_mut(agent) else { return false };
        if agent.link.as_ref().is_none_or(|link| link.connection != connection) {
            return false;
        }
        (agent.link, agent.lost_at) = (None, Some(now));
        self.count();
        true
    }

    /// Whether this connection of the agent is the present one.
    pub(crate) fn is_present(&self, agent: &str, connection: ConnectionId) -> bool {
        self.agents.get(agent).and_then(|agent| agent.link.as_ref()).is_some_and(|link| link.connection == connection)
    }

    /// Whether an agent is connected.
    pub(crate) fn is_there(&self, agent: &str) -> bool {
        self.agents.get(agent).is_some_and(|agent| agent.link.is_some())
    }

    /// Whether an agent was here before, since this front runs or within its lease.
    pub(crate) fn knows(&self, agent: &str) -> bool {
        self.agents.contains_key(agent)
    }

    /// The machine of an agent; empty if it is not known.
    pub(crate) fn host(&self, agent: &str) -> &str {
        self.agents.get(agent).map_or("", |agent| &agent.host)
    }

    /// Whether the worker of this name is in a place of this agent.
    pub(crate) fn has(&self, agent: &str, id: &str) -> bool {
        self.agents.get(agent).is_some_and(|agent| agent.has(id))
    }

    /// Whether the worker of this name is in a place of another agent.
    pub(crate) fn is_of_another(&self, agent: &str, id: &str) -> bool {
        self.agents.iter().any(|(name, other)| **name != *agent && other.has(id))
    }

    /// Takes workers out of what an agent says that it has: those that are in a place of another agent, or in no place. How many
    /// they were.
    pub(crate) fn strike_foreign(&self, join: &mut Join) -> usize {
        let (before, mut taken) = (join.workers.len(), BTreeSet::new());
        let (agent, places) = (&join.agent, join.places.len());
        join.workers.retain(|worker| {
            worker.place < places && !self.is_of_another(agent, &worker.id) && taken.insert(worker.place)
        });
        before - join.workers.len()
    }

    /// The machine of an agent goes away: nothing new is started there.
    pub(crate) fn leave(&mut self, agent: &str) {
        if let Some(agent) = self.agents.get_mut(agent) {
            agent.is_leaving = true;
        }
        self.count();
    }

    /// Whether the agent that has this worker goes away.
    pub(crate) fn leaves_with(&self, id: &str) -> bool {
        self.agents.values().any(|agent| agent.is_leaving && agent.has(id))
    }

    /// Which of these agents are silent; agents that were lost for too long are forgotten.
    pub(crate) fn tick(&mut self, now: Time, must_ping: bool) -> Vec<(Arc<str>, ConnectionId)> {
        self.agents.retain(|_, agent| agent.lost_at.is_none_or(|lost| now - lost < LEASE));
        let mut silent = Vec::new();
        for (name, agent) in &self.agents {
            let Some(link) = &agent.link else { continue };
            if must_ping {
                link.ping();
            }
            if now - link.heard() >= SILENT_AFTER {
                silent.push((name.clone(), link.connection));
            }
        }
        silent
    }

    /// This process did not run: no agent counts as silent.
    pub(crate) fn excuse(&self, now: Time) {
        self.agents.values().filter_map(|agent| agent.link.as_ref()).for_each(|link| link.excuse(now));
    }

    /// A free place with what a worker needs, where its target can be imported; an error says what it waits for. `is_for` says
    /// whether an agent that an engine has started is for this worker.
    pub(crate) fn choose(
        &self,
        needs: &Needs,
        target: &str,
        deployment: Option<&str>,
        is_for: impl Fn(&str) -> bool,
    ) -> Result<At, String> {
        if self.free == 0 {
            return Err(if self.agents.values().any(|agent| agent.link.is_some() && !agent.is_leaving) {
                "every place of every agent is taken".into()
            } else {
                "no agent has joined".into()
            });
        }
        let is_one = |(name, agent): &(&Arc<str>, &Agent)| {
            agent.is_open()
                && needs.fit_engine(&agent.engine)
                && (agent.engine.is_empty() || is_for(name))
                && (agent.targets.is_empty() || agent.targets.iter().any(|one| one == target))
        };
        let open = self.agents.iter().filter(is_one);
        let candidates = open.filter_map(|(name, agent)| {
            let place = agent.places.iter().position(|place| place.tenant.is_none() && needs.fit(&place.room))?;
            let fits = needs.fit_resources(&agent.left()) && needs.fit_labels(&agent.labels);
            fits.then_some((name, agent, place))
        });
        let load = |agent: &Agent| {
            let tenants = || agent.places.iter().filter_map(|place| place.tenant.as_ref());
            let same = tenants().filter(|tenant| deployment.is_some() && tenant.deployment.as_deref() == deployment);
            let (same, all) = (same.count() as i64, tenants().count() as i64);
            // Spread over machines, or fill the fullest one first.
            if needs.spread { (same, all) } else { (-all, 0) }
        };
        let best = candidates.min_by_key(|(_, agent, _)| load(agent));
        let none = || match needs.to_string() {
            needs if needs.is_empty() => format!("no free place fits {target}"),
            needs => format!("no free place fits {target} ({needs})"),
        };
        let (name, agent, place) = best.ok_or_else(none)?;
        let room = agent.places[place].room.clone();
        Ok(At { agent: name.clone(), host: agent.host.clone(), place, room })
    }

    /// Starts a worker in a free place.
    pub(crate) fn start(&mut self, at: &At, spec: &WorkerSpec, deployment: Option<&str>, needs: &Needs) {
        let Some(agent) = self.agents.get_mut(&at.agent) else { return };
        let tenant = Tenant {
            id: spec.id.clone(),
            deployment: deployment.map(str::to_owned),
            resources: needs.resources.clone(),
        };
        agent.places[at.place].tenant = Some(tenant);
        if let Some(link) = &agent.link {
            let spec = serde_json::to_value(spec).expect("a specification is plain data");
            link.start(&Start { place: at.place, spec });
        }
        self.count();
    }

    /// The address of the front as this agent has dialled it.
    pub(crate) fn dialled(&self, agent: &str) -> Option<&str> {
        self.agents.get(agent).map(|agent| &*agent.dialled)
    }

    /// The engine that has started an agent; empty if none has.
    pub(crate) fn engine(&self, agent: &str) -> &str {
        self.agents.get(agent).map_or("", |agent| &agent.engine)
    }

    /// A worker that was started by an earlier front is of this deployment; where it is, if its agent has named it.
    pub(crate) fn adopt(&mut self, id: &str, deployment: &str, needs: &Needs) -> Option<At> {
        let (name, agent) = self.agents.iter_mut().find(|(_, agent)| agent.has(id))?;
        let index = agent.places.iter().position(|place| place.is_of(id))?;
        let place = &mut agent.places[index];
        if let Some(tenant) = &mut place.tenant {
            (tenant.deployment, tenant.resources) = (Some(deployment.to_owned()), needs.resources.clone());
        }
        Some(At { agent: name.clone(), host: agent.host.clone(), place: index, room: place.room.clone() })
    }

    /// A worker of this name has ended: its place is free.
    pub(crate) fn free(&mut self, agent: &str, id: &str) {
        if let Some(agent) = self.agents.get_mut(agent) {
            agent.places.iter_mut().filter(|place| place.is_of(id)).for_each(|place| place.tenant = None);
        }
        self.count();
    }

    /// Kills a worker, wherever it is, if its agent is there.
    pub(crate) fn kill(&self, id: &str, stacks: bool) {
        let owner = self.agents.values().find(|agent| agent.has(id));
        if let Some(link) = owner.and_then(|agent| agent.link.as_ref()) {
            link.kill(id, stacks);
        }
    }

    fn count(&mut self) {
        let open = self.agents.values().filter(|agent| agent.is_open());
        self.free = open.flat_map(|agent| &agent.places).filter(|place| place.tenant.is_none()).count();
    }
}

impl Agent {
    /// Whether workers can be started there.
    fn is_open(&self) -> bool {
        self.link.is_some() && !self.is_leaving
    }

    fn has(&self, id: &str) -> bool {
        self.places.iter().any(|place| place.is_of(id))
    }

    /// What its workers leave of its resources.
    fn left(&self) -> BTreeMap<String, u64> {
        let mut left = self.resources.clone();
        for (name, amount) in
            self.places.iter().filter_map(|place| place.tenant.as_ref()).flat_map(|one| &one.resources)
        {
            let left = left.entry(name.clone()).or_default();
            *left = left.saturating_sub(*amount);
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::Clock;
    use crate::link::liveness::Life;

    #[test]
    fn as_many_parts_fit_as_the_machine_has() {
        let tenant = |number: usize| Tenant {
            id: format!("w{number}"),
            deployment: None,
            resources: BTreeMap::from([("tpu".into(), thousandths(0.1))]),
        };
        let place = |number| Place { room: Room::default(), tenant: Some(tenant(number)) };
        let mut agent = Agent {
            host: "h".into(),
            link: None,
            lost_at: None,
            dialled: String::new(),
            engine: String::new(),
            resources: BTreeMap::from([("tpu".into(), thousandths(2.0))]),
            labels: BTreeMap::new(),
            targets: Vec::new(),
            places: (0..19).map(place).collect(),
            is_leaving: false,
        };
        assert_eq!(agent.left()["tpu"], thousandths(0.1));
        agent.places.push(place(19));
        assert_eq!(agent.left()["tpu"], 0);
    }

    /// An agent with one place, which has this label and can import these targets.
    fn joined(agents: &mut Agents, name: &str, zone: &str, targets: &[&str]) {
        let (outgoing, _) = tokio::sync::mpsc::unbounded_channel();
        let reader = tokio::spawn(async {}).abort_handle();
        let link = AgentLink { connection: ConnectionId(1), outgoing, life: Life::new(Clock::default()), reader };
        let join = Join {
            agent: name.into(),
            host: name.into(),
            places: vec![Room::default()],
            labels: BTreeMap::from([("zone".into(), zone.into())]),
            targets: targets.iter().map(|&target| target.to_owned()).collect(),
            ..Join::default()
        };
        agents.join(&join, link);
    }

    #[tokio::test]
    async fn a_worker_gets_a_machine_with_its_labels_that_can_import_its_target() {
        let mut agents = Agents::default();
        joined(&mut agents, "one", "a", &["m.py"]);
        joined(&mut agents, "two", "b", &[]);
        let needs = |zone: Option<&str>| Needs {
            labels: zone.into_iter().map(|zone| ("zone".to_owned(), zone.to_owned())).collect(),
            ..Needs::default()
        };
        let chosen = |zone, target| agents.choose(&needs(zone), target, None, |_| false).map(|at| at.host.to_string());
        assert_eq!(chosen(None, "m.py"), Ok("one".into()));
        assert_eq!(chosen(None, "n.py"), Ok("two".into()));
        assert_eq!(chosen(Some("b"), "m.py"), Ok("two".into()));
        assert_eq!(chosen(Some("a"), "n.py"), Err("no free place fits n.py (node label zone=a)".into()));
    }
    #[tokio::test]
    async fn an_agent_has_only_workers_of_its_own_places() {
        let mut agents = Agents::default();
        let running = |id: &str, place| Running { id: id.into(), place, target: "m.py".into() };
        joined(&mut agents, "honest", "a", &[]);
        let at = agents.choose(&Needs::default(), "m.py", None, |_| false).unwrap();
        let spec = WorkerSpec { id: "w1".into(), ..WorkerSpec::for_test(jitney_core::request::ReplicaId(0)) };
        agents.start(&at, &spec, None, &Needs::default());
        let mut join = Join {
            agent: "liar".into(),
            places: vec![Room::default()],
            workers: vec![running("w1", 0), running("ghost", 7), running("own", 0), running("twice", 0)],
            ..Join::default()
        };
        assert_eq!(agents.strike_foreign(&mut join), 3);
        assert_eq!(join.workers, [running("own", 0)]);
        assert!(agents.has("honest", "w1") && !agents.has("liar", "w1"));
        assert!(agents.is_of_another("liar", "w1") && !agents.is_of_another("honest", "w1"));
    }
}
