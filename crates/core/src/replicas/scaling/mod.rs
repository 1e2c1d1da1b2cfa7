//! How many replicas a deployment needs, from what its requests ask for and from what its model was measured to do.

pub mod arrivals;
pub mod capacity;
pub mod explanation;
pub mod rule;
pub mod sharing;
pub mod start_time;
