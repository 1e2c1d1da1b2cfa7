//! Slots that come and go: how many a deployment has, where that follows its load. The rule is `jitney_core::replicas::scaling`.

use crate::base::fatal::Fatal;
use crate::workers::engines::Served;
use crate::workers::placement::elastic::Elastic;
use crate::workers::placement::plan::{Assignment, device};
use crate::workers::slot::Slot;
use crate::workers::supervisor::state::Supervisor;
use jitney_core::config::manifest::DeploymentManifest;
use jitney_core::config::options::length;
use jitney_core::config::rules::Rules;
use jitney_core::replicas::scaling::rule::{ReplicaBounds, Scaling, Situation};
use jitney_core::replicas::scaling::sharing::{self, Share};
use jitney_core::replicas::scaling::start_time::StartTime;
use jitney_core::supervisor::event::Event;
use jitney_core::supervisor::worker_life::WorkerLife;
use jitney_core::tables::metrics;
use jitney_core::time::Time;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// How often the rule is asked.
const EVERY: Duration = Duration::from_secs(1);

impl Supervisor {
    /// From now on, the number of slots of this deployment follows its load.
    pub(super) fn follow_load(&mut self, manifest: &DeploymentManifest, rules: &Rules) {
        let (name, options) = (manifest.deployment(), &manifest.options);
        let Some(first) = self.slots.iter().find(|slot| slot.is_of(name)) else { return };
        let Some(pattern) = first.assignment.clone() else { return };
        let (min, max) = options.replica_bounds();
        let bounds = ReplicaBounds { min, max, target: rules.target, stays: options.scale_down_after_s.map(length) };
        let elastic = Elastic {
            scaling: Scaling::new(bounds, options.first_replicas()),
            start_time: StartTime::default(),
            pattern,
            devices: options.devices.clone(),
            target: first.target,
            fewest: min,
            slept: false,
            decided: Time(0),
        };
        self.elastic.insert(name.to_owned(), elastic);
    }

    /// A worker is ready: how long it took is learned.
    pub(super) fn started(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let Some((asked, assignment)) = slot.asked.take().zip(slot.assignment.as_ref()) else { return };
        slot.load = Some(self.clock.now() - asked);
        if let Some(elastic) = self.elastic.get_mut(&assignment.deployment) {
            elastic.start_time.learn(self.clock.now() - asked);
        }
    }

    /// The slots without a worker that should have one, in the order in which they get places: deployments that lack most come
    /// first, so that none starves when there are fewer places than replicas.
    pub(super) fn in_order_of_lack(&self) -> Vec<usize> {
        let is_due = |slot: &Slot| slot.life.is_vacant() && !slot.is_surplus;
        if !self.slots.iter().any(is_due) {
            return Vec::new();
        }
        let (mut vacant, mut shares): (BTreeMap<&str, VecDeque<usize>>, BTreeMap<&str, Share>) = Default::default();
        for (index, slot) in self.slots.iter().enumerate().filter(|(_, slot)| !slot.is_surplus) {
            // A worker that imports a target belongs to no deployment yet, and comes first.
            let name = slot.names().0.unwrap_or_default();
            let fewest = || self.elastic.get(name).map_or(u32::MAX, |elastic| elastic.fewest);
            let share = shares.entry(name).or_insert_with(|| Share { has: 0, fewest: fewest(), wanted: 0 });
            share.wanted += 1;
            if is_due(slot) {
                vacant.entry(name).or_default().push_back(index);
            } else {
                share.has += 1;
            }
        }
        let (mut shares, mut vacant): (Vec<_>, Vec<_>) =
            vacant.into_iter().map(|(name, indices)| (shares[name], indices)).unzip();
        let mut order = Vec::new();
        while let Some(chosen) = sharing::next(&shares) {
            shares[chosen].has += 1;
            order.extend(vacant[chosen].pop_front());
        }
        order
    }

    /// Gives each deployment as many slots as its load needs.
    pub(super) fn scale(&mut self, now: Time) -> Result<(), Fatal> {
        if self.was_ready {
            let mut all = std::mem::take(&mut self.elastic);
            let scaled = all.iter_mut().try_for_each(|(name, elastic)| self.scale_one(now, name, elastic));
            self.elastic = all;
            scaled?;
        }
        for index in (0..self.slots.len()).rev() {
            if self.slots[index].is_surplus && self.slots[index].life.is_vacant() {
                let slot = self.slots.remove(index);
                self.registry.forget(slot.worker);
            }
        }
        Ok(())
    }

    fn scale_one(&mut self, now: Time, name: &str, elastic: &mut Elastic) -> Result<(), Fatal> {
        let Some(Served { demand, .. }) = self.engines.get(name) else { return Ok(()) };
        let demand = demand.clone();
        let stays = || self.slots.iter().filter(|slot| slot.is_of(name) && !slot.is_surplus);
        let (have, up) = (stays().count() as u32, stays().filter(|slot| slot.is_serving()).count() as u32);
        let without_place = stays().filter(|slot| slot.life.is_vacant() && slot.waits_for.is_some()).count() as u32;
        let oldest = stays().filter_map(|slot| Some(now - slot.asked?)).max();
        let start = elastic.start_time.expected(oldest);
        elastic.slept = elastic.sleeps(up as usize);
        demand.set_ready_in(elastic.slept.then(|| start.saturating_sub(oldest.unwrap_or_default())));
        // A first request does not wait for the second in which it is counted.
        let wakes = have == 0 && demand.is_busy();
        if now - elastic.decided < EVERY && !wakes {
            return Ok(());
        }
        elastic.decided = now;
        let (arrived, refused) = demand.counts();
        let situation = Situation {
            arrived,
            refused,
            waiting: demand.waiting(),
            is_busy: demand.is_busy(),
            up,
            without_place,
            capacity: demand.capacity(),
            start,
        };
        let was = elastic.scaling.wanted();
        let reasons = elastic.scaling.decide(now, &situation);
        demand.explain(reasons);
        self.state.telemetry.gauge(metrics::WANTED_REPLICAS, &[name]).set(reasons.wanted.into());
        if reasons.wanted != was {
            tracing::info!(deployment = name, "{name}: {was} -> {} replicas: {reasons}", reasons.wanted);
        }
        self.add_slots(name, elastic, reasons.wanted.saturating_sub(have));
        self.remove_slots(name, have.saturating_sub(reasons.wanted))?;
        if reasons.wanted == 0 {
            demand.set_ready_in(Some(start));
        }
        Ok(())
    }

    pub(super) fn add_slots(&mut self, name: &str, elastic: &Elastic, count: u32) {
        let replica = |slot: &Slot| slot.assignment.as_ref().map(|assignment| assignment.replica);
        let taken: HashSet<u32> = self.slots.iter().filter(|slot| slot.is_of(name)).filter_map(replica).collect();
        for replica in (0..).filter(|replica| !taken.contains(replica)).take(count as usize) {
            let assignment =
                Assignment { replica, device: device(&elastic.devices, replica), ..elastic.pattern.clone() };
            let mut slot = self.slot(elastic.target, assignment);
            slot.life = WorkerLife::of_proven(slot.life.load_timeout(), self.settings.renews);
            self.slots.push(slot);
        }
    }

    /// Ends the replicas that are missed least: first those that have no worker, then those that still load, then those of the
    /// machines with the fewest workers, so that machines become free, then the youngest. They finish the batches that they have.
    pub(super) fn remove_slots(&mut self, name: &str, count: u32) -> Result<(), Fatal> {
        if count == 0 {
            return Ok(());
        }
        let machine = |slot: &Slot| slot.at.as_ref().map(|at| at.agent.clone());
        let mut workers: HashMap<Option<Arc<str>>, usize> = HashMap::new();
        self.slots.iter().for_each(|slot| *workers.entry(machine(slot)).or_default() += 1);
        let missed = |slot: &Slot| {
            let neighbours = workers.get(&machine(slot)).copied();
            (slot.is_serving(), !slot.life.is_vacant(), neighbours, Reverse(slot.worker.0))
        };
        let candidates = self.slots.iter().enumerate().filter(|(_, slot)| slot.is_of(name) && !slot.is_surplus);
        let mut candidates: Vec<_> = candidates.map(|(index, slot)| (missed(slot), index)).collect();
        candidates.sort_unstable();
        for (_, index) in candidates.into_iter().take(count as usize) {
            self.slots[index].is_surplus = true;
            if !self.slots[index].life.is_vacant() {
                self.event(index, Event::Leave)?;
            }
        }
        Ok(())
    }
}
