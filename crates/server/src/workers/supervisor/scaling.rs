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
use jitney_core::replicas::scaling::start_time::StartTime;
use jitney_core::supervisor::event::Event;
use jitney_core::supervisor::worker_life::WorkerLife;
use jitney_core::tables::metrics;
use jitney_core::time::Time;
use std::cmp::Reverse;
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
            decided: Time(0),
        };
        self.elastic.insert(name.to_owned(), elastic);
    }

    /// A worker is ready: how long it took is learned.
    pub(super) fn started(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let Some((asked, assignment)) = slot.asked.take().zip(slot.assignment.as_ref()) else { return };
        if let Some(elastic) = self.elastic.get_mut(&assignment.deployment) {
            elastic.start_time.learn(self.clock.now() - asked);
        }
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
            if self.slots[index].goes && self.slots[index].life.is_vacant() {
                let slot = self.slots.remove(index);
                self.registry.forget(slot.worker);
            }
        }
        Ok(())
    }

    fn scale_one(&mut self, now: Time, name: &str, elastic: &mut Elastic) -> Result<(), Fatal> {
        let Some(Served { demand, .. }) = self.engines.get(name) else { return Ok(()) };
        let demand = demand.clone();
        let stays = || self.slots.iter().filter(|slot| slot.is_of(name) && !slot.goes);
        let (have, up) = (stays().count() as u32, stays().filter(|slot| slot.is_serving()).count() as u32);
        let without_place = stays().filter(|slot| slot.life.is_vacant() && slot.waits_for.is_some()).count() as u32;
        let oldest = stays().filter_map(|slot| Some(now - slot.asked?)).max();
        let start = elastic.start_time.expected(oldest);
        let is_asleep = elastic.may_sleep() && up == 0;
        demand.set_ready_in(is_asleep.then(|| start.saturating_sub(oldest.unwrap_or_default())));
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
        for _ in have..reasons.wanted {
            self.add_slot(name, elastic);
        }
        for _ in reasons.wanted..have {
            self.remove_slot(name)?;
        }
        if reasons.wanted == 0 {
            demand.set_ready_in(Some(start));
        }
        Ok(())
    }

    fn add_slot(&mut self, name: &str, elastic: &Elastic) {
        let is_free = |replica: &u32| {
            let is_it =
                |slot: &Slot| slot.is_of(name) && slot.assignment.as_ref().is_some_and(|a| a.replica == *replica);
            !self.slots.iter().any(is_it)
        };
        let replica = (0..=self.slots.len() as u32).find(is_free).unwrap_or_default();
        let assignment = Assignment { replica, device: device(&elastic.devices, replica), ..elastic.pattern.clone() };
        let mut slot = self.slot(elastic.target, assignment);
        slot.life = WorkerLife::of_proven(slot.life.load_timeout(), self.settings.renews);
        self.slots.push(slot);
    }

    /// Ends the replica that is missed least: one that has no worker, then one that still loads, then one of the machine with the
    /// fewest workers, so that machines become free, then the youngest. It finishes the batches that it has.
    fn remove_slot(&mut self, name: &str) -> Result<(), Fatal> {
        let candidates = self.slots.iter().enumerate().filter(|(_, slot)| slot.is_of(name) && !slot.goes);
        let machine = |slot: &Slot| slot.at.as_ref().map(|at| at.agent.clone());
        let neighbours = |slot: &Slot| self.slots.iter().filter(|other| machine(other) == machine(slot)).count();
        let missed = |(_, slot): &(usize, &Slot)| {
            (slot.is_serving(), !slot.life.is_vacant(), neighbours(slot), Reverse(slot.worker.0))
        };
        let Some((index, _)) = candidates.min_by_key(missed) else { return Ok(()) };
        self.slots[index].goes = true;
        if self.slots[index].life.is_vacant() { Ok(()) } else { self.event(index, Event::Leave) }
    }
}
