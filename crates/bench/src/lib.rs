//! Loads a server and says what came of it. `rules` decide and count, without a clock; `motion` has the sockets.

pub mod motion;
pub mod rules;
