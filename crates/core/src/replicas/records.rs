//! The records of all replicas, found by number only. There is no way to walk over all of them: what must be found in another
//! way needs its own order, or its time grows with the number of replicas.

use crate::request::ReplicaId;
use rustc_hash::FxHashMap;

/// Records by the number of their replica.
#[derive(Debug)]
pub struct Records<T> {
    by_id: FxHashMap<ReplicaId, T>,
    #[cfg(test)]
    looked_at: std::cell::Cell<usize>,
}

impl<T> Default for Records<T> {
    fn default() -> Records<T> {
        Records {
            by_id: FxHashMap::default(),
            #[cfg(test)]
            looked_at: std::cell::Cell::new(0),
        }
    }
}

impl<T> Records<T> {
    /// The record of a replica.
    pub fn get(&self, id: ReplicaId) -> Option<&T> {
        self.count();
        self.by_id.get(&id)
    }

    /// The record of a replica, to be changed.
    pub fn get_mut(&mut self, id: ReplicaId) -> Option<&mut T> {
        self.count();
        self.by_id.get_mut(&id)
    }

    /// Adds the record of a replica.
    pub fn insert(&mut self, id: ReplicaId, record: T) {
        self.count();
        self.by_id.insert(id, record);
    }

    /// Removes the record of a replica.
    pub fn remove(&mut self, id: ReplicaId) -> Option<T> {
        self.count();
        self.by_id.remove(&id)
    }

    #[cfg(test)]
    fn count(&self) {
        self.looked_at.set(self.looked_at.get() + 1);
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "only tests count")]
    fn count(&self) {}

    /// How often a record was looked at since the last call.
    #[cfg(test)]
    pub fn take_looked_at(&self) -> usize {
        self.looked_at.take()
    }
}
