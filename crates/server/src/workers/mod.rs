//! Workers: which ones there should be, where they run, their links, and their life from start to end.

pub mod backend;
pub(crate) mod engines;
pub mod inline;
pub mod placement;
pub mod process;
pub(crate) mod readiness;
pub(crate) mod registry;
pub mod settings;
mod slot;
pub mod supervisor;
