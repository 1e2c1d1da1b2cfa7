//! The front's end of a worker's link: one task reads, one writes.

pub mod agents;
pub mod events;
pub mod hello;
pub mod link;
pub mod output_room;
pub mod port;
pub mod receiver;
pub mod worker_event;
