//! Which item kills workers. Items of a lost batch that had started are suspects and run again alone, on one replica
//! at a time; a suspect in whose company nobody was when the next worker died is convicted, and its like is refused
//! for a while.

use crate::request::ItemId;
use crate::time::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// How long the like of a convicted item is refused.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);
/// Most convictions remembered; the oldest go first.
const MOST_REMEMBERED: usize = 1024;

/// Suspects that wait, and what was convicted.
#[derive(Debug, Default)]
pub struct Quarantine {
    suspects: VecDeque<ItemId>,
    running: Option<ItemId>,
    convicted: VecDeque<(Time, u64)>,
}

impl Quarantine {
    /// An item must run alone from now on. One that was just released by its lost worker goes first again.
    pub fn suspect(&mut self, id: ItemId) {
        self.suspects.push_back(id);
    }

    /// The next suspect to run alone, if none runs already.
    pub fn launch(&mut self) -> Option<ItemId> {
        if self.running.is_some() {
            return None;
        }
        self.running = self.suspects.pop_front();
        self.running
    }

    /// Whether a suspect could run now.
    pub fn is_ready(&self) -> bool {
        self.running.is_none() && !self.suspects.is_empty()
    }

    /// Suspects that wait.
    pub fn len(&self) -> usize {
        self.suspects.len()
    }

    /// Whether no suspect waits.
    pub fn is_empty(&self) -> bool {
        self.suspects.is_empty()
    }

    /// The batch of the running suspect has ended, in whatever way.
    pub fn ended(&mut self, id: ItemId) {
        if self.running == Some(id) {
            self.running = None;
        }
    }

    /// An item that waits as a suspect has left.
    pub fn remove(&mut self, id: ItemId) {
        self.suspects.retain(|&other| other != id);
    }

    /// Refuses the like of this item for a while.
    pub fn convict(&mut self, fingerprint: u64, now: Time) {
        if self.convicted.len() == MOST_REMEMBERED {
            self.convicted.pop_front();
        }
        self.convicted.push_back((now + REMEMBERED_FOR, fingerprint));
    }

    /// Whether the like of this item was convicted a moment ago. The fingerprint is only computed if anything was.
    pub fn refuses(&mut self, fingerprint: impl FnOnce() -> u64, now: Time) -> bool {
        while self.convicted.front().is_some_and(|&(until, _)| until <= now) {
            self.convicted.pop_front();
        }
        if self.convicted.is_empty() {
            return false;
        }
        let fingerprint = fingerprint();
        self.convicted.iter().any(|&(_, other)| other == fingerprint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspects_run_one_at_a_time() {
        let mut quarantine = Quarantine::default();
        quarantine.suspect(ItemId(1));
        quarantine.suspect(ItemId(2));
        assert_eq!(quarantine.launch(), Some(ItemId(1)));
        assert_eq!(quarantine.launch(), None);
        quarantine.ended(ItemId(1));
        assert_eq!(quarantine.launch(), Some(ItemId(2)));
    }

    #[test]
    fn convictions_are_forgotten_and_bounded() {
        let mut quarantine = Quarantine::default();
        quarantine.convict(7, Time(0));
        assert!(quarantine.refuses(|| 7, Time(0)));
        assert!(!quarantine.refuses(|| 8, Time(0)));
        assert!(!quarantine.refuses(|| 7, Time(0) + REMEMBERED_FOR));
        (0..2000).for_each(|n| quarantine.convict(n, Time(0)));
        assert_eq!(quarantine.convicted.len(), MOST_REMEMBERED);
    }
}
