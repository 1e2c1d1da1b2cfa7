//! Programs that call the models of a server: their frames, the end of the server and that of the program.

pub(crate) mod answer_frames;
pub(crate) mod call_frame;
pub mod client;
pub(crate) mod gathering;
pub(crate) mod greeting;
pub(crate) mod part_frames;
pub mod server;
