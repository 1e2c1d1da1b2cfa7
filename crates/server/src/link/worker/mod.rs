//! The worker's end of a link, blocking. The thread that waits for a batch reads the socket itself, so that a batch need
//! not be handed from thread to thread. While the model computes a thread of the link's own reads.

pub mod answers;
pub mod inbox;
pub mod lease;
pub mod link;
mod reading;
pub mod stream;
