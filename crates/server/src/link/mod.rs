//! The connection to one worker: one frame format, used at both ends.

pub mod batch_frame;
pub mod frame;
pub mod front;
pub mod results_frame;
pub mod worker;
