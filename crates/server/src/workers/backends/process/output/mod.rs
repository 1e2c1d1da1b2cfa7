//! What workers print: read line by line, and written to the output of this process with the name of the replica.

mod lines;
pub(super) mod relay;
pub(super) mod remote;
mod writing;
