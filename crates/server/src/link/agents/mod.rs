//! The connection between the front and an agent, which starts and ends workers on another machine.

pub mod agent_link;
pub mod messages;
