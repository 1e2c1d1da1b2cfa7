//! Places in a Ray cluster. The provider, a child process of the front, asks Ray for one actor per place; each actor runs an agent,
//! which joins the front like any other. The front decides which places there should be, and does not load Ray itself.

pub(crate) mod cluster;
pub(crate) mod messages;
pub(crate) mod places;
pub(crate) mod provider;
