//! Replicas in a Ray cluster: places are asked for and given up as slots need them.

use crate::base::fatal::Fatal;
use crate::workers::backends::ray::cluster::Arrived;
use crate::workers::backends::ray::messages::Report;
use crate::workers::backends::ray::places::{AgentState, For, PlaceDemand};
use crate::workers::backends::ray::provider::ProviderEvent;
use crate::workers::needs::{RAY, Where};
use crate::workers::slot::Slot;
use crate::workers::supervisor::starts::WAITS_FOR_A_PLACE;
use crate::workers::supervisor::state::Supervisor;
use jitney_core::replicas::loss_history::Loss;
use jitney_core::time::Time;
use std::collections::{BTreeMap, HashSet};

impl Supervisor {
    pub(super) fn cluster(&mut self, arrived: Arrived) -> Result<(), Fatal> {
        let now = self.clock.now();
        let Some(cluster) = &mut self.ray else { return Ok(()) };
        match arrived {
            Arrived::Provider(ProviderEvent::Said(Report::Connected { host })) => {
                tracing::info!("connected to the Ray cluster; this machine is {host} there");
                cluster.connected(&host);
            }
            Arrived::Provider(ProviderEvent::Said(Report::Pending(why))) => cluster.places.pending(why),
            Arrived::Provider(ProviderEvent::Said(Report::Gone { place, why })) => {
                if cluster.places.gone(now, &place) {
                    tracing::warn!(place, "Ray: the actor of {place} has ended: {why}");
                    self.place_gone(&place)?;
                }
            }
            Arrived::Provider(ProviderEvent::Said(Report::Unreachable { why })) => {
                if cluster.unreachable(why.clone()) {
                    tracing::warn!("{why}; trying again");
                }
            }
            Arrived::Provider(ProviderEvent::Ended(why)) => {
                if cluster.ended(&why) {
                    tracing::warn!("the connection to the Ray cluster has ended; it is made again: {why}");
                }
            }
            Arrived::Port(Ok(ports)) => {
                for port in &ports.ports {
                    let address = port.local_address().map_err(|error| Fatal::new(format!("no address: {error}")))?;
                    cluster.listens_at(address);
                }
                tracing::info!("replicas in the Ray cluster connect to {}", cluster.connect);
                cluster.tell();
                self.registry.open(*ports, RAY);
            }
            Arrived::Port(Err(why)) => return Err(Fatal::new(why)),
        }
        self.follow_places(now)?;
        self.publish();
        Ok(())
    }

    /// Asks for the places that slots need, and gives up the others. A replica whose machine is lost moves into a new place as
    /// soon as there is one.
    pub(super) fn follow_places(&mut self, now: Time) -> Result<(), Fatal> {
        if self.ray.is_none() {
            return Ok(());
        }
        let lost: Vec<usize> = (0..self.slots.len()).filter(|index| self.can_move(*index)).collect();
        for index in lost {
            self.exited(index, "its machine cannot be reached", Loss::Killed)?;
        }
        let mut demand: BTreeMap<For, PlaceDemand> = BTreeMap::new();
        for index in (0..self.slots.len()).filter(|index| self.needs_cluster(*index)) {
            let whose = self.slots[index].names().0.map(str::to_owned);
            let needs = || self.needs(index).ray;
            demand.entry(whose).or_insert_with(|| PlaceDemand { count: 0, needs: needs() }).count += 1;
        }
        let is_running = |slot: &&Slot| slot.is_running;
        let working: HashSet<&str> =
            self.slots.iter().filter(is_running).filter_map(|slot| slot.at.as_ref()).map(|at| &*at.agent).collect();
        let agents = &self.agents;
        let state = |name: &str| AgentState { is_there: agents.is_there(name), has_worker: working.contains(name) };
        if let Some(cluster) = &mut self.ray
            && cluster.places.follow(now, &demand, state)
        {
            cluster.tell();
        }
        Ok(())
    }

    /// Whether a slot needs a place in the cluster, or has one.
    fn needs_cluster(&self, index: usize) -> bool {
        let slot = &self.slots[index];
        if slot.is_running {
            return slot.at.as_ref().is_some_and(|at| self.agents.engine(&at.agent) == RAY);
        }
        if slot.life.is_given_up() || slot.is_surplus {
            return false;
        }
        match self.needs(index).place {
            Where::Engine(RAY) => true,
            // What has room on this machine or at another agent does not wait.
            Where::Any => slot.waits_for.as_ref().is_some_and(|why| why.starts_with(WAITS_FOR_A_PLACE)),
            _ => false,
        }
    }

    /// Whether the worker of a slot is lost with its machine and there is a new place for its replica.
    fn can_move(&self, index: usize) -> bool {
        let slot = &self.slots[index];
        let Some(at) = slot.at.as_ref().filter(|_| slot.life.is_away()) else { return false };
        !self.agents.is_there(&at.agent) && self.ray_choice(index).is_some()
    }

    fn ray_choice(&self, index: usize) -> Option<()> {
        let needs = self.needs(index);
        if needs.place != Where::Engine(RAY) {
            return None;
        }
        self.choose(index, &needs).ok().map(drop)
    }

    /// An actor has ended. The link decides whether its worker is lost: Ray may be wrong about a machine that it cannot reach.
    fn place_gone(&mut self, place: &str) -> Result<(), Fatal> {
        for index in self.slots_at(place) {
            if self.slots[index].link.is_none() {
                self.exited(index, "Ray has ended its actor", Loss::Killed)?;
            }
        }
        Ok(())
    }

    /// The place in which a target was imported is that of the replica which its worker has become.
    pub(super) fn give_place(&mut self, index: usize) {
        let slot = &self.slots[index];
        if let (Some(cluster), Some(at), Some(assignment)) = (&mut self.ray, &slot.at, &slot.assignment) {
            cluster.places.give(&at.agent, &assignment.deployment, &assignment.needs.ray);
        }
    }

    /// What a slot waits for that needs a place in the cluster.
    pub(super) fn ray_waits_for(&self, whose: Option<&str>) -> Option<String> {
        let cluster = self.ray.as_ref()?;
        cluster.obstacle().map(str::to_owned).or_else(|| cluster.places.why(whose))
    }
}
