//! What an engine counts for the rule that chooses the number of replicas, and what that rule says.

use jitney_core::replicas::scaling::capacity::Capacity;
use jitney_core::replicas::scaling::explanation::Reasons;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Counts of one deployment. Clones are the same counts.
#[derive(Clone, Debug, Default)]
pub struct Demand(Arc<State>);

#[derive(Debug)]
struct State {
    arrived: AtomicU64,
    refused: AtomicU64,
    waiting: AtomicUsize,
    is_busy: AtomicBool,
    /// Milliseconds until a replica is ready, where none is; `u64::MAX` otherwise.
    ready_in_ms: AtomicU64,
    capacity: Mutex<Option<Capacity>>,
    reasons: Mutex<Option<Reasons>>,
}

impl Default for State {
    fn default() -> State {
        State {
            arrived: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            is_busy: AtomicBool::new(false),
            ready_in_ms: AtomicU64::new(u64::MAX),
            capacity: Mutex::default(),
            reasons: Mutex::default(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Demand {
    /// Items have arrived.
    pub(crate) fn arrived(&self, items: usize) {
        self.0.arrived.fetch_add(items as u64, Ordering::Relaxed);
    }

    /// An item was refused that a further replica would have computed.
    pub(crate) fn refused(&self) {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Items were refused before the engine had them, because there were too few replicas.
    pub(crate) fn turned_away(&self, items: usize) {
        self.arrived(items);
        self.refused();
    }

    /// Items that have arrived, and items of them that were refused.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.0.arrived.load(Ordering::Relaxed), self.0.refused.load(Ordering::Relaxed))
    }

    pub(crate) fn set_waiting(&self, waiting: usize, is_busy: bool) {
        self.0.waiting.store(waiting, Ordering::Relaxed);
        self.0.is_busy.store(is_busy, Ordering::Relaxed);
    }

    /// Items that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// Whether any item waits or runs.
    pub(crate) fn is_busy(&self) -> bool {
        self.0.is_busy.load(Ordering::Relaxed)
    }

    pub(crate) fn set_capacity(&self, capacity: Option<Capacity>) {
        *lock(&self.0.capacity) = capacity;
    }

    /// What one replica can do, as learned.
    pub(crate) fn capacity(&self) -> Option<Capacity> {
        *lock(&self.0.capacity)
    }

    /// Sets the time until a replica is ready, for a deployment that has none because it is not used.
    pub(crate) fn set_ready_in(&self, ready_in: Option<Duration>) {
        let ms = ready_in.map_or(u64::MAX, |length| u64::try_from(length.as_millis()).unwrap_or(u64::MAX - 1));
        self.0.ready_in_ms.store(ms, Ordering::Relaxed);
    }

    /// The time until a replica is ready; `None` if the deployment does not sleep.
    pub(crate) fn ready_in(&self) -> Option<Duration> {
        let ms = self.0.ready_in_ms.load(Ordering::Relaxed);
        (ms != u64::MAX).then(|| Duration::from_millis(ms))
    }

    pub(crate) fn explain(&self, reasons: Reasons) {
        *lock(&self.0.reasons) = Some(reasons);
    }

    /// Why there are as many replicas as there are; `None` where their number is fixed.
    pub(crate) fn reasons(&self) -> Option<Reasons> {
        *lock(&self.0.reasons)
    }
}
