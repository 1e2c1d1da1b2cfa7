//! How many replicas of a deployment work now, for those who are not its engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of replicas that a deployment has for its next batches. Its engine writes it; the option `replicas` only says
/// how many there should be. Clones are the same number.
#[derive(Clone, Debug, Default)]
pub struct ReplicaCount(Arc<AtomicUsize>);

impl ReplicaCount {
    /// The number now.
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Says how many there are now.
    pub(crate) fn set(&self, replicas: usize) {
        self.0.store(replicas, Ordering::Relaxed);
    }
}
