//! How replicas differ: how fast each one computes, and how far away it is.

pub mod idle_speeds;
pub mod link_way;
pub mod order;
pub mod replica_pace;
