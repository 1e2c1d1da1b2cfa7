//! Workers that come back with the model that they have loaded: to the front that lost their link, or to a front that was
//! started again. Nothing is loaded then.

use crate::base::fatal::Fatal;
use crate::link::front::hello::{Rejoin, Returned};
use crate::workers::backends::agents::At;
use crate::workers::placement::manifest_diff;
use crate::workers::settings::Target;
use crate::workers::slot::Slot;
use crate::workers::supervisor::state::Supervisor;
use jitney_core::config::manifest::Manifest;
use jitney_core::request::ReplicaId;
use jitney_core::supervisor::event::Event;
use jitney_core::time::Time;

impl Supervisor {
    /// A worker has come back over a new link, which has this number.
    pub(super) fn returned(&mut self, worker: ReplicaId, returned: Returned) -> Result<(), Fatal> {
        self.returning.forget(&returned.id);
        // Also one that waits may lose its link again.
        returned.link.token(&self.registry.next_token(&returned.id));
        if let Some(index) = self.slots.of_id(&returned.id).filter(|index| !self.slots[*index].life.is_vacant()) {
            return self.take_up_again(index, worker, returned);
        }
        let (target, manifest) = match self.recognize(&returned) {
            Ok(recognized) => recognized,
            Err(why) => {
                refuse(&returned, &why);
                return Ok(());
            }
        };
        let is_open = self.manifests.iter().all(Option::is_some);
        if is_open {
            return self.seat(worker, returned);
        }
        self.returning.wait(worker, returned);
        if self.manifests[target].is_none() { self.learn_manifest(target, manifest) } else { Ok(()) }
    }

    /// The worker of a slot is back in it.
    fn take_up_again(&mut self, index: usize, worker: ReplicaId, returned: Returned) -> Result<(), Fatal> {
        if !self.slots[index].life.is_away() {
            // The new link is here before the loss of the old one was noticed.
            self.event(index, Event::Away)?;
        }
        if !self.slots[index].life.is_away() {
            refuse(&returned, "it was about to end");
            return Ok(());
        }
        self.slots.rejoin(index, worker, returned.link);
        self.seated(index, &returned.host)
    }

    /// The target of a worker of an earlier front, and its manifest; an error says why it is of no use here.
    fn recognize(&self, returned: &Returned) -> Result<(usize, Manifest), String> {
        if self.agents.leaves_with(&returned.id) {
            return Err("its machine goes away".into());
        }
        let Rejoin { target, deployment, options_hash, .. } = &returned.loaded;
        let targets = || self.settings.targets.iter().enumerate().filter(|(_, one)| one.target == *target);
        if targets().next().is_none() {
            return Err(format!("this server does not serve {target}"));
        }
        let same = targets().find(|(_, one)| self.options_hash(one) == *options_hash);
        let (index, _) = same.ok_or_else(|| format!("{target} was started with other options"))?;
        let manifest = manifest_diff::read(&returned.manifest)?;
        let known = self.manifests[index].as_ref();
        match known.and_then(|known| manifest_diff::find(known, &manifest, deployment, false)) {
            Some(changed) => Err(format!("{changed} since it was loaded")),
            None => Ok((index, manifest)),
        }
    }

    /// Every replica is known by now: the workers that wait for that get their slots.
    pub(super) fn seat_waiting(&mut self) -> Result<(), Fatal> {
        self.returning.take_waiting().into_iter().try_for_each(|(worker, returned)| self.seat(worker, returned))
    }

    /// Gives a worker of an earlier front a slot of its deployment.
    fn seat(&mut self, worker: ReplicaId, returned: Returned) -> Result<(), Fatal> {
        let Some(index) = self.vacancy(&returned.loaded) else {
            refuse(&returned, "every replica has a worker by now");
            return Ok(());
        };
        if let (false, Some(assignment)) = (self.slots[index].life.is_vacant(), &self.slots[index].assignment) {
            let slot = self.slot(self.slots[index].target, assignment.clone());
            self.kill(index, false);
            self.registry.forget(self.slots[index].worker);
            self.slots.replace(index, slot);
        }
        let Returned { id, host, loaded, link, .. } = returned;
        self.output
            .iter_mut()
            .for_each(|output| output.begin(&id, &format!("{}/{}", loaded.deployment, loaded.replica), &host));
        let cpu_threads = self.slots[index].assignment.as_ref().map_or(1, |assignment| assignment.cpu_threads);
        self.slots.begin(index, worker, id, cpu_threads, Some(At::unknown(&host)));
        self.settle(index);
        self.slots.rejoin(index, worker, link);
        self.seated(index, &host)
    }

    /// The slot for a worker that has loaded this: one without a worker, best the one that it had, or one whose worker still
    /// loads.
    fn vacancy(&self, loaded: &Rejoin) -> Option<usize> {
        let is_free = |slot: &Slot| slot.life.is_vacant() && !slot.life.awaits_change() || slot.life.is_starting();
        let fits = |slot: &Slot| slot.is_of(&loaded.deployment) && !slot.is_surplus && is_free(slot);
        let candidates = self.slots.iter().enumerate().filter(|(_, slot)| fits(slot));
        let rank = |slot: &Slot| (slot.life.is_starting(), slot.names().1 != Some(loaded.replica));
        candidates.min_by_key(|(_, slot)| rank(slot)).map(|(index, _)| index)
    }

    /// A worker whose agent has joined is in one of the agent's places.
    pub(super) fn settle(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let Some(assignment) = &slot.assignment else { return };
        if let Some(at) = self.agents.adopt(&slot.id, &assignment.deployment, &assignment.needs) {
            slot.at = Some(at);
        }
    }

    fn seated(&mut self, index: usize, host: &str) -> Result<(), Fatal> {
        let (deployment, replica) = self.slots[index].names();
        tracing::info!(
            deployment,
            replica,
            host,
            "{}: its worker has come back from {host} with its model",
            self.name(index)
        );
        self.attach(index);
        self.event(index, Event::Rejoined)
    }

    /// Whether a slot waits with its start, because a worker with the model may connect at any moment.
    pub(super) fn is_kept_for_returning(&self, index: usize) -> bool {
        let target = self.slots[index].target;
        let expected = self.returning.expected(&self.settings.targets[target].target, self.clock.now());
        let others = self.slots.iter().filter(|slot| slot.target == target && slot.life.is_vacant()).count();
        others < expected
    }

    /// What time alone brings to workers that come back.
    pub(super) fn watch_returning(&mut self, now: Time, must_ping: bool) {
        if must_ping {
            self.returning.ping();
        }
        for id in self.returning.overdue(now) {
            self.agents.kill(&id, false);
        }
    }

    /// Whether a target has other options than before is known by this, also after a restart of the front.
    pub(super) fn options_hash(&self, target: &Target) -> String {
        self.registry.fingerprint(&serde_json::json!([target.target, target.overrides]).to_string())
    }
}

/// Ends a worker that is of no use any more.
fn refuse(returned: &Returned, why: &str) {
    let Returned { host, loaded, link, .. } = returned;
    tracing::warn!(
        host,
        "{}/{}: a worker that came back from {host} is ended: {why}",
        loaded.deployment,
        loaded.replica
    );
    link.shutdown();
}
