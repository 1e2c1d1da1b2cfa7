//! What the front and the provider say to each other: one JSON object in a line, over the provider's standard input and output.

use crate::workers::needs::RayNeeds;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The front.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// The first line.
    Start(Start),
    /// All places that there should be; each line replaces the one before.
    Want(Want),
    /// The provider takes away every place, and ends.
    End {},
}

/// What the provider must know of the cluster and of the front.
#[derive(Clone, Serialize)]
pub(crate) struct Start {
    /// The address of the cluster, as the user wrote it.
    pub(crate) address: String,
    /// The namespace of the actors.
    pub(crate) namespace: String,
    /// The name of this front, with which the names of its actors begin.
    pub(crate) front: String,
    /// The secret with which the agents of these actors join.
    pub(crate) secret: String,
    /// The folder of the front: agents start there, if their machine has it.
    pub(crate) folder: String,
}

impl std::fmt::Debug for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Start").field("address", &self.address).field("front", &self.front).finish_non_exhaustive()
    }
}

/// All places that there should be.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Want {
    /// Where agents join the front.
    pub(crate) connect: String,
    /// What each place needs, by its name.
    pub(crate) places: BTreeMap<String, RayNeeds>,
    /// Those of them whose agent cannot be reached. Ray notices a lost machine later, and must not use it for another place.
    pub(crate) lost: Vec<String>,
}

/// The provider.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// It is connected to the cluster.
    Connected {
        /// The address of this machine, as the machines of the cluster reach it.
        host: String,
    },
    /// It cannot reach the cluster, and tries again.
    Unreachable {
        /// Where, and why not, in words that clients may read.
        why: String,
    },
    /// What each place waits for that has no machine yet, in words that clients may read. It replaces the one before.
    Pending(BTreeMap<String, String>),
    /// A place has no actor any more.
    Gone {
        /// Its name.
        place: String,
        /// Why, for the log.
        why: String,
    },
}
