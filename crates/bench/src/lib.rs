//! Loads a server and reports the result. `rules` decide and count, without a clock; `motion` has the sockets.
//!
//! Floors, from the ground: `rules`, `motion`.

pub mod motion;
pub mod rules;
