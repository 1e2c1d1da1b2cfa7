//! The connection between the front and one worker or program: the frame format, and both ends of a worker's link.

pub mod agents;
pub mod answer_limit;
pub mod batch_end;
pub mod batch_frame;
pub mod frame;
pub mod front;
pub(crate) mod liveness;
pub mod results_frame;
pub mod step_frame;
pub mod worker;
