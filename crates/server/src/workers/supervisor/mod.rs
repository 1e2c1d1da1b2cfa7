//! Carries out the supervisor's rules: starts workers, handles what is reported of them, notifies the engines, and publishes
//! whether the server is ready.
//!
//! The state is in `state`; each other file adds the methods of one concern to it.

mod agents;
mod commands;
mod events;
mod placement;
mod ray;
mod readiness;
mod rejoining;
mod scaling;
mod starts;
pub mod state;

#[cfg(test)]
mod tests;
