//! The live page: its samples, what they say of each deployment, and the events that its readers get.

pub(crate) mod advice;
pub(crate) mod condition;
pub(crate) mod deployments;
pub(crate) mod events;
pub(crate) mod fault_log;
pub(crate) mod judgement;
pub(crate) mod limit;
pub mod sampler;
pub(crate) mod snapshot;
pub(crate) mod texts;
