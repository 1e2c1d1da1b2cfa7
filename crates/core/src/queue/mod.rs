//! What waits: items in lanes, and the order in which they leave.

pub mod group_key;
pub mod groups;
pub mod lane;
pub mod lanes;
pub mod sorted;
pub mod waiting;
