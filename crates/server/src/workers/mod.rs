//! Workers: which ones there should be, where they run, their links, and their life from start to end.

pub mod backends;
pub(crate) mod engines;
pub mod needs;
pub mod placement;
pub(crate) mod readiness;
pub(crate) mod registry;
pub mod settings;
mod slot;
mod slots;
pub mod supervisor;
