//! The engine of one deployment: the task that owns its scheduler, and the handle by which protocols call it. Nothing here knows HTTP.

pub mod catalogue;
pub mod deployment;
pub mod large_request;
pub mod program_values;
pub mod readiness;
pub mod reply;
pub(crate) mod request;
pub(crate) mod room;
pub mod server_state;
pub mod task;
