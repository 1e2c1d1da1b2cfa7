//! What each replica holds, and which inputs kill workers.

pub mod batch;
pub mod held_items;
pub mod loss_history;
pub mod open_sets;
pub mod paces;
pub mod pauses;
pub mod quarantine;
pub mod records;
#[allow(clippy::module_inception, reason = "the folder is named after what it is about")]
pub mod replicas;
pub mod scaling;
