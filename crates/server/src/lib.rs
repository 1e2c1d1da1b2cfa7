//! The motion of jitney: sockets, protocols, the engine task that owns the lanes, links to workers.
//!
//! Floors, from the ground: `base`, `values`, `items`, `open_inference`, `link`, `engine`, `workers`, `protocols`, `clients`,
//! `run`. A module imports from its own floor and from those named before it.

pub mod base;
pub mod clients;
pub mod engine;
pub mod items;
pub mod link;
pub mod open_inference;
pub mod protocols;
pub mod run;
pub mod values;
pub mod workers;
