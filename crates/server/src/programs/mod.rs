//! Programs that call the models of a server: its end of their connections, and theirs.

pub mod accept;
pub mod dial;
mod frames;
mod life;
