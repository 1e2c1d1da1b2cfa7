//! All slots of a server, found by the number or the name of their workers without a walk.

use crate::link::front::link::Link;
use crate::workers::backends::agents::At;
use crate::workers::slot::Slot;
use jitney_core::request::ReplicaId;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};

/// The slots, in a fixed order.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    list: Vec<Slot>,
    by_worker: HashMap<ReplicaId, usize>,
    by_id: HashMap<String, usize>,
}

impl Slots {
    /// The slot of the worker with this number; `None` if the worker was replaced.
    pub(crate) fn of_worker(&self, worker: ReplicaId) -> Option<usize> {
        self.by_worker.get(&worker).copied()
    }

    /// The slot of the worker with this name; `None` if the worker was replaced.
    pub(crate) fn of_id(&self, id: &str) -> Option<usize> {
        self.by_id.get(id).copied()
    }

    /// Another worker is in a slot from now on.
    pub(crate) fn begin(&mut self, index: usize, worker: ReplicaId, id: String, cpu_threads: u32, at: Option<At>) {
        self.forget(index);
        self.by_worker.insert(worker, index);
        self.by_id.insert(id.clone(), index);
        self.list[index].begin(worker, id, cpu_threads, at);
    }

    /// The worker in a slot has come back over another link, which has this number.
    pub(crate) fn rejoin(&mut self, index: usize, worker: ReplicaId, link: Link) {
        let slot = &mut self.list[index];
        self.by_worker.remove(&slot.worker);
        self.by_worker.insert(worker, index);
        (slot.worker, slot.link, slot.has_connected) = (worker, Some(link), true);
        (slot.asked, slot.failure) = (None, None);
    }

    /// A further slot.
    pub(crate) fn push(&mut self, slot: Slot) {
        self.list.push(slot);
    }

    /// Replaces a slot, and forgets its worker.
    pub(crate) fn replace(&mut self, index: usize, slot: Slot) -> Slot {
        self.forget(index);
        std::mem::replace(&mut self.list[index], slot)
    }

    /// Takes a slot away. The indices of those behind it change.
    pub(crate) fn remove(&mut self, index: usize) -> Slot {
        self.forget(index);
        let slot = self.list.remove(index);
        let indices = self.by_worker.values_mut().chain(self.by_id.values_mut());
        indices.filter(|other| **other > index).for_each(|other| *other -= 1);
        slot
    }

    fn forget(&mut self, index: usize) {
        let slot = &self.list[index];
        self.by_worker.remove(&slot.worker);
        self.by_id.remove(&slot.id);
    }
}

impl Deref for Slots {
    type Target = [Slot];

    fn deref(&self) -> &[Slot] {
        &self.list
    }
}

impl DerefMut for Slots {
    fn deref_mut(&mut self) -> &mut [Slot] {
        &mut self.list
    }
}

impl FromIterator<Slot> for Slots {
    fn from_iter<I: IntoIterator<Item = Slot>>(slots: I) -> Slots {
        Slots { list: slots.into_iter().collect(), ..Slots::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn workers_are_found_also_after_a_slot_in_front_of_them_has_gone() {
        let new = || Slot::new(0, None, Duration::ZERO, false);
        let mut slots: Slots = (0..3).map(|_| new()).collect();
        for index in 0..3 {
            slots.begin(index, ReplicaId(index as u32), format!("w{index}"), 1, None);
        }
        slots.remove(0);
        assert_eq!([0, 1, 2].map(|worker| slots.of_worker(ReplicaId(worker))), [None, Some(0), Some(1)]);
        slots.begin(1, ReplicaId(9), "w9".into(), 1, None);
        assert_eq!((slots.of_worker(ReplicaId(2)), slots.of_id("w2")), (None, None));
        assert_eq!((slots.of_worker(ReplicaId(9)), slots.of_id("w9")), (Some(1), Some(1)));
        slots.replace(1, new());
        assert_eq!(slots.of_id("w9"), None);
    }
}
