//! An item that waits, and the order in which items leave.

use crate::request::{ItemId, Priority};
use crate::time::Time;
use std::cmp::Ordering;
use std::time::Duration;

/// The rank of an item that arrives now: its arrival, shifted by its class. Items of smaller rank leave first, so a class is
/// a bounded head start.
pub fn rank(arrival: Time, priority: Priority, boost: Duration) -> Time {
    arrival + boost.saturating_mul(priority as u32)
}

/// One item that waits.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// Decides the order: the item of the smallest rank leaves first. It stays the same when a lost worker sends the item
    /// back.
    pub rank: Time,
    /// When the item arrived.
    pub arrival: Time,
    /// The item.
    pub id: ItemId,
    /// The class of the item. Its rank holds the head start already.
    pub priority: Priority,
    /// What the item counts against a batch's cost limit, in the deployment's cost units.
    pub cost: u64,
    /// When the answer is wanted: the deadline, or the latency target if that is sooner.
    pub due: Time,
    /// Launches that left the item behind and took one of a later rank.
    pub passed: u32,
}

impl Waiting {
    fn key(&self) -> (Time, ItemId) {
        (self.rank, self.id)
    }
}

// An item is the same however often it was passed.
impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> Ordering {
        self.key().cmp(&other.key())
    }
}
