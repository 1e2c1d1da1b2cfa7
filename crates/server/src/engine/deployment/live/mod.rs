//! What the requests and batches of a deployment leave behind for the live page.

pub(crate) mod histogram;
pub(crate) mod record;
pub(crate) mod why;
