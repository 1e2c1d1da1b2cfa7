//! Places in a Ray cluster. A process beside the front, the provider, asks Ray for one actor per place; each actor runs an agent,
//! which joins the front like any other. The front decides which places there should be, and loads nothing of Ray.

pub(crate) mod cluster;
pub(crate) mod messages;
pub(crate) mod places;
pub(crate) mod provider;
