//! The life of workers: when they are started, replaced and given up.

pub mod event;
pub mod worker_life;
