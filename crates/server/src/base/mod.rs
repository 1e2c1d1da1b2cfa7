//! What everything else stands on: the clock, telemetry, the ledger of memory, keys, work off the fast path.

pub mod access_log;
pub mod clock;
pub mod fatal;
pub mod keys;
pub mod ledger;
pub(crate) mod offload;
pub(crate) mod refusal_pacing;
pub(crate) mod self_wake;
pub mod telemetry;
pub mod traces;
