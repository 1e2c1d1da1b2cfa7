//! No clock and no I/O: an instant is a number of nanoseconds since the run began.

pub mod answer;
pub mod arrivals;
pub mod histogram;
pub mod intervals;
pub mod parts;
pub mod plan;
pub mod summary;
pub mod totals;
