//! What is learned of the model and of the traffic.

pub mod batch_cost;
pub mod class_models;
pub mod cost_model;
pub mod group_models;
pub mod group_transitions;
pub mod memory_limits;
pub mod size_model;
pub mod step_model;
pub mod traffic;
pub mod transfer_limit;
