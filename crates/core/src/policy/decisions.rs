//! The last decisions of a policy, for people who ask why a batch left.

use crate::policy::batch_policy::CloseReason;
use crate::time::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// Decisions that are remembered.
const REMEMBERED: usize = 16;

/// One batch that left.
#[derive(Clone, Copy, Debug)]
pub struct LaunchDecision {
    /// When it left.
    pub at: Time,
    /// How many items it took.
    pub items: usize,
    /// How many items went on waiting, in all lanes.
    pub left: usize,
    /// For how long a replica had been idle while the items waited.
    pub held: Duration,
    /// Why it was closed.
    pub reason: CloseReason,
}

/// The last decisions.
#[derive(Clone, Debug, Default)]
pub struct Decisions(VecDeque<LaunchDecision>);

impl Decisions {
    /// Remembers a decision; the oldest is forgotten.
    pub fn add(&mut self, decision: LaunchDecision) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(decision);
    }

    /// The decisions, newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &LaunchDecision> {
        self.0.iter().rev()
    }
}
