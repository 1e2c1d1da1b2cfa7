//! Which item kills workers. Items of a lost batch that had started are suspects and run again alone, on one replica
//! at a time; a suspect in whose company nobody was when the next worker died is convicted, and its like is refused
//! for a while. For whoever has ended before it could run again, its like does when it comes.

use crate::request::ItemId;
use crate::scheduler::Loss;
use crate::time::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// How long the like of a convicted item is refused, and at least how long that of a suspect which has ended runs alone.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);
/// Most convictions remembered, and most suspects that have ended; the oldest go first.
const MOST_REMEMBERED: usize = 1024;
/// An item that this many lost workers held is a suspect even if `predict` never began on it: decoding it may be what
/// kills them, and that may happen before its batch's turn.
const LOSSES_OF_A_SUSPECT: u8 = 3;

/// The workers that were lost with an item, or with its like before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    losses: u8,
    losses_alone: u8,
    was_started: bool,
}

impl Record {
    /// A worker was lost with the item; `is_trial` says that it was the only one there. Returns whether that convicts it.
    pub fn lost(&mut self, loss: Loss, was_started: bool, is_trial: bool) -> bool {
        self.losses = self.losses.saturating_add(1);
        let was_alone = is_trial && (was_started || self.losses >= LOSSES_OF_A_SUSPECT);
        self.was_started |= was_started || is_trial;
        self.losses_alone = self.losses_alone.saturating_add(u8::from(was_alone));
        was_alone && (loss == Loss::Crashed || self.losses_alone > 1)
    }

    /// Whether the item must run alone from now on.
    pub fn is_suspect(self) -> bool {
        self.was_started || self.losses >= LOSSES_OF_A_SUSPECT
    }

    /// Of two of the same bytes.
    #[must_use]
    pub fn with(self, other: Record) -> Record {
        Record {
            losses: self.losses.max(other.losses),
            losses_alone: self.losses_alone.max(other.losses_alone),
            was_started: self.was_started || other.was_started,
        }
    }
}

/// What is left of an item that has ended before it was known whether it kills.
#[derive(Clone, Copy, Debug)]
pub struct Trace {
    /// Of its payload.
    pub fingerprint: u64,
    /// Its bytes: what differs in their number need not be read to be told apart.
    pub bytes: u64,
    /// The workers that were lost with it.
    pub record: Record,
}

/// What is known of an item that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing, or that its like was lost with so many workers.
    Record(Record),
    /// Its like was convicted a moment ago.
    Convicted,
}

/// Suspects that wait, and what is remembered of those that have ended.
#[derive(Debug, Default)]
pub struct Quarantine {
    suspects: VecDeque<ItemId>,
    running: Option<ItemId>,
    convicted: VecDeque<(Time, u64)>,
    watched: VecDeque<(Time, u64, Record)>,
}

impl Quarantine {
    /// An item must run alone from now on, after the suspects that wait already.
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
        self.clear(fingerprint);
        if self.convicted.len() == MOST_REMEMBERED {
            self.convicted.pop_front();
        }
        self.convicted.push_back((now + REMEMBERED_FOR, fingerprint));
    }

    /// Nobody waits for this item any more, so its like runs alone when it comes. That a batch of `batch_timeout` passes
    /// before the next death is seen must not be enough to be forgotten.
    pub fn watch(&mut self, trace: &Trace, now: Time, batch_timeout: Duration) {
        let before =
            self.watched.iter().find(|(_, other, _)| *other == trace.fingerprint).map(|&(_, _, record)| record);
        let record = trace.record.with(before.unwrap_or_default());
        self.clear(trace.fingerprint);
        if self.watched.len() == MOST_REMEMBERED {
            self.watched.pop_front();
        }
        self.watched.push_back((now + REMEMBERED_FOR + batch_timeout, trace.fingerprint, record));
    }

    /// The like of this item ran alone and did no harm.
    pub fn clear(&mut self, fingerprint: u64) {
        self.watched.retain(|&(_, other, _)| other != fingerprint);
    }

    /// What is known of an item. The fingerprint is only computed if anything is remembered.
    pub fn known(&mut self, fingerprint: impl FnOnce() -> u64, now: Time) -> Known {
        while self.convicted.front().is_some_and(|&(until, _)| until <= now) {
            self.convicted.pop_front();
        }
        while self.watched.front().is_some_and(|&(until, ..)| until <= now) {
            self.watched.pop_front();
        }
        if self.convicted.is_empty() && self.watched.is_empty() {
            return Known::Record(Record::default());
        }
        let fingerprint = fingerprint();
        if self.convicted.iter().any(|&(_, other)| other == fingerprint) {
            return Known::Convicted;
        }
        let record = self.watched.iter().find(|(_, other, _)| *other == fingerprint).map(|&(_, _, record)| record);
        Known::Record(record.unwrap_or_default())
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
        assert_eq!(quarantine.known(|| 7, Time(0)), Known::Convicted);
        assert_eq!(quarantine.known(|| 8, Time(0)), Known::Record(Record::default()));
        assert_eq!(quarantine.known(|| 7, Time(0) + REMEMBERED_FOR), Known::Record(Record::default()));
        (0..2000).for_each(|n| quarantine.convict(n, Time(0)));
        assert_eq!(quarantine.convicted.len(), MOST_REMEMBERED);
    }

    #[test]
    fn the_records_of_those_that_have_ended_are_forgotten_cleared_and_bounded() {
        let (mut quarantine, mut record, minute) = (Quarantine::default(), Record::default(), Duration::from_secs(60));
        assert!(!record.lost(Loss::Crashed, true, false) && record.is_suspect());
        let trace = |fingerprint| Trace { fingerprint, bytes: 1, record };
        quarantine.watch(&trace(7), Time(0), minute);
        let last = Time(0) + REMEMBERED_FOR + Duration::from_secs(59);
        assert_eq!(quarantine.known(|| 7, last), Known::Record(record), "longer than the next hang takes to be seen");
        assert_eq!(quarantine.known(|| 8, last), Known::Record(Record::default()));
        assert_eq!(quarantine.known(|| 7, Time(0) + 2 * minute), Known::Record(Record::default()));
        (0..2000).for_each(|n| quarantine.watch(&trace(n), Time(0), minute));
        assert_eq!(quarantine.watched.len(), MOST_REMEMBERED);
        quarantine.clear(1999);
        assert_eq!(quarantine.known(|| 1999, Time(0)), Known::Record(Record::default()));
    }

    #[test]
    fn a_crash_alone_convicts_a_kill_only_the_second_time_and_company_never() {
        let mut record = Record::default();
        assert!(!record.lost(Loss::Crashed, true, false), "in company");
        assert!(!record.lost(Loss::Killed, true, true), "somebody else may have killed it");
        assert!(record.lost(Loss::Killed, true, true));
        assert!(Record::default().lost(Loss::Crashed, true, true));
        let mut ahead = Record::default();
        assert_eq!(
            [(); 3].map(|()| (ahead.lost(Loss::Crashed, false, false), ahead.is_suspect()).1),
            [false, false, true]
        );
    }
}
