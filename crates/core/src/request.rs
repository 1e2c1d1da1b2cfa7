//! The identities that travel everywhere, and the priority classes.

use serde::{Deserialize, Serialize};

/// One item, unique for the life of the process. It travels to the worker and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ItemId(pub u64);

/// One batch, unique for the life of its deployment's engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BatchId(pub u64);

/// One loaded copy of a model. A worker that replaces another one gets a new number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReplicaId(pub u32);

/// A class of replicas that compute equally fast: what batches take is learned for each class. Today there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaClass(pub u16);

/// A group of items that may share a batch: those with equal group keys. The number stays the same while the group is in use,
/// also while no item of it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u64);

/// A priority class. A higher class has a bounded head start over the next one: see `rank`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// Ranked as if it had arrived `priority_boost_s` earlier.
    High,
    /// Ranked by its arrival.
    #[default]
    Normal,
    /// Ranked as if it had arrived `priority_boost_s` later.
    Low,
}

impl Priority {
    /// All classes, most urgent first.
    pub const ALL: [Priority; 3] = [Priority::High, Priority::Normal, Priority::Low];

    /// The class of this name, as clients write it.
    pub fn parse(name: &str) -> Option<Priority> {
        match name {
            "high" => Some(Priority::High),
            "normal" => Some(Priority::Normal),
            "low" => Some(Priority::Low),
            _ => None,
        }
    }
}
