//! The state machine of one deployment: events in, actions out. It owns every item from its admission to its answer.
//!
//! The engine reports what happened and then calls `poll` until there is nothing left to do. The payload of an item is opaque:
//! the engine gets it back exactly once, when the item ends.
//!
//! The state is in `state`; each other file adds the methods of one concern to it.

pub mod action;
pub mod admission;
pub mod explanation;
mod intake;
pub mod item;
mod launch;
mod losses;
mod poll;
pub mod results;
pub mod state;
