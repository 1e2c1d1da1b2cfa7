//! What the engine of a deployment publishes about its state: protocols and pages read it without asking the engine.

use crate::engine::deployment::demand::Demand;
use crate::engine::deployment::live::record::LiveRecord;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Numbers that the engine writes and others read, and one flag the other way. Clones are the same numbers.
#[derive(Clone, Debug, Default)]
pub struct Published(Arc<State>);

#[derive(Debug)]
struct State {
    replicas: AtomicUsize,
    most_waiting: AtomicU64,
    has_refused: AtomicBool,
    demand: Demand,
    live: LiveRecord,
}

impl Default for State {
    fn default() -> State {
        State {
            replicas: AtomicUsize::new(0),
            most_waiting: AtomicU64::new(u64::MAX),
            has_refused: AtomicBool::new(false),
            demand: Demand::default(),
            live: LiveRecord::default(),
        }
    }
}

impl Published {
    /// The number of replicas that a deployment has for its next batches. The option `replicas` only says how many there
    /// should be.
    pub fn replicas(&self) -> usize {
        self.0.replicas.load(Ordering::Relaxed)
    }

    pub(crate) fn set_replicas(&self, replicas: usize) {
        self.0.replicas.store(replicas, Ordering::Relaxed);
    }

    /// What is counted for the number of replicas.
    pub(crate) fn demand(&self) -> &Demand {
        &self.0.demand
    }

    /// What the live page shows of its requests and batches.
    pub(crate) fn live(&self) -> &LiveRecord {
        &self.0.live
    }

    /// How many items may wait until the next one is refused because its wait is too long; `u64::MAX` while nothing is
    /// known.
    pub fn most_waiting(&self) -> u64 {
        self.0.most_waiting.load(Ordering::Relaxed)
    }

    pub(crate) fn set_most_waiting(&self, items: u64) {
        self.0.most_waiting.store(items, Ordering::Relaxed);
    }

    /// Says to the engine that a request was refused for its wait before the engine had it: this is overload as well.
    pub(crate) fn refused(&self) {
        self.demand().turned_away(1);
        self.overloaded();
    }

    /// Says to the engine that a request was refused for its wait, which was counted already.
    pub(crate) fn overloaded(&self) {
        self.0.has_refused.store(true, Ordering::Relaxed);
    }

    /// Whether a request was refused so since the last question.
    pub(crate) fn take_refused(&self) -> bool {
        self.0.has_refused.load(Ordering::Relaxed) && self.0.has_refused.swap(false, Ordering::Relaxed)
    }
}
