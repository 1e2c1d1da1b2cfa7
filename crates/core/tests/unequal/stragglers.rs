//! stragglers
