//! What the live page shows: a sample of every deployment each second, kept for five minutes, and who watches.

pub mod hub;
pub(crate) mod machine;
pub(crate) mod points;
pub(crate) mod sampled;
pub(crate) mod workers;
