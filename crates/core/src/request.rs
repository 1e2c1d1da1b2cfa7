//! The identities that travel everywhere, and the priority classes.

use serde::{Deserialize, Serialize};

/// One item, unique for the life of the process. It travels to the worker and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ItemId(pub u64);

/// One batch, unique for the life of its deployment's engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BatchId(pub u64);

/// One place for a loaded model. A worker that is restarted in the same place gets a new id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReplicaId(pub u32);

/// A class is a bounded head start, not a separate world: see `lane`.
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
