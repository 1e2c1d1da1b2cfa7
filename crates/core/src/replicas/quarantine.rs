//! Which inputs kill workers. Items of a lost batch that had started are suspects: they run again alone, on one replica at a
//! time. A suspect whose worker dies while it is alone there is the cause: its input is blocked, and equal inputs are refused for
//! a while. An item that ended before it could run again leaves its fingerprint: an equal input that comes later runs alone.

use crate::replicas::loss_history::LossHistory;
use crate::request::ItemId;
use crate::time::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// How long inputs equal to a blocked one are refused, and how long at least inputs equal to a suspected one run alone.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);
/// Most blocked inputs that are remembered, and most suspects that have ended; the oldest are forgotten first.
const MOST_REMEMBERED: usize = 1024;

/// What is remembered of an input. Inputs are equal if both hashes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fingerprint {
    /// The hash of a small part of the input: if it differs, the input need not be read as a whole.
    pub sample: u64,
    /// The hash of the whole input.
    pub whole: u64,
}

/// What remains of an item that has ended before it was known whether its input kills workers.
#[derive(Clone, Copy, Debug)]
pub struct Evidence {
    /// The fingerprint of its input.
    pub fingerprint: Fingerprint,
    /// The workers that were lost with it.
    pub history: LossHistory,
}

/// What is known about an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The input is not blocked. Workers may have been lost with an equal one.
    Allowed(LossHistory),
    /// An equal input killed a worker a moment ago.
    Blocked,
}

/// The suspects that wait, and what is remembered of items that have ended.
#[derive(Debug, Default)]
pub struct Quarantine {
    suspects: VecDeque<ItemId>,
    running: Option<ItemId>,
    blocked: VecDeque<(Time, Fingerprint)>,
    suspected: VecDeque<(Time, Fingerprint, LossHistory)>,
}

impl Quarantine {
    /// Adds an item that must be computed alone, behind the suspects that wait already.
    pub fn add_suspect(&mut self, id: ItemId) {
        self.suspects.push_back(id);
    }

    /// Takes the next suspect to be computed alone; `None` while another one runs.
    pub fn launch(&mut self) -> Option<ItemId> {
        if self.running.is_some() {
            return None;
        }
        self.running = self.suspects.pop_front();
        self.running
    }

    /// Whether a suspect runs alone now.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether a suspect could be launched now.
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

    /// The batch of a suspect has ended, in whatever way.
    pub fn trial_ended(&mut self, id: ItemId) {
        if self.running == Some(id) {
            self.running = None;
        }
    }

    /// Removes a suspect that waits.
    pub fn remove(&mut self, id: ItemId) {
        self.suspects.retain(|&other| other != id);
    }

    /// Refuses inputs of this fingerprint for a while.
    pub fn block(&mut self, fingerprint: Fingerprint, now: Time) {
        self.clear(fingerprint);
        if self.blocked.len() == MOST_REMEMBERED {
            self.blocked.pop_front();
        }
        self.blocked.push_back((now + REMEMBERED_FOR, fingerprint));
    }

    /// Remembers an item that has ended, so that equal inputs run alone. It is remembered for `batch_timeout` longer than a
    /// blocked input: a hang is only seen that late, and must not make the earlier loss forgotten.
    pub fn suspect_input(&mut self, evidence: &Evidence, now: Time, batch_timeout: Duration) {
        let history = evidence.history.with(self.history_of(evidence.fingerprint).unwrap_or_default());
        self.clear(evidence.fingerprint);
        if self.suspected.len() == MOST_REMEMBERED {
            self.suspected.pop_front();
        }
        self.suspected.push_back((now + REMEMBERED_FOR + batch_timeout, evidence.fingerprint, history));
    }

    /// An equal input was computed alone and did no harm.
    pub fn clear(&mut self, fingerprint: Fingerprint) {
        self.suspected.retain(|&(_, other, _)| other != fingerprint);
    }

    /// Whether an input of this sample is suspected.
    pub fn suspects_sample(&self, sample: u64) -> bool {
        self.suspected.iter().any(|(_, other, _)| other.sample == sample)
    }

    /// What is known about an input. The sample is only computed if anything is remembered, and the hash of the whole input
    /// if the sample is one of those.
    pub fn verdict(&mut self, sample: impl FnOnce() -> u64, whole: impl FnOnce() -> u64, now: Time) -> Verdict {
        while self.blocked.front().is_some_and(|&(until, _)| until <= now) {
            self.blocked.pop_front();
        }
        while self.suspected.front().is_some_and(|&(until, ..)| until <= now) {
            self.suspected.pop_front();
        }
        if self.blocked.is_empty() && self.suspected.is_empty() {
            return Verdict::Allowed(LossHistory::default());
        }
        let sample = sample();
        if !self.suspects_sample(sample) && self.blocked.iter().all(|(_, other)| other.sample != sample) {
            return Verdict::Allowed(LossHistory::default());
        }
        let fingerprint = Fingerprint { sample, whole: whole() };
        if self.blocked.iter().any(|&(_, other)| other == fingerprint) {
            return Verdict::Blocked;
        }
        Verdict::Allowed(self.history_of(fingerprint).unwrap_or_default())
    }

    fn history_of(&self, fingerprint: Fingerprint) -> Option<LossHistory> {
        self.suspected.iter().find(|(_, other, _)| *other == fingerprint).map(|&(_, _, history)| history)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replicas::loss_history::Loss;

    fn input(whole: u64) -> Fingerprint {
        Fingerprint { sample: whole % 10, whole }
    }

    fn verdict(quarantine: &mut Quarantine, whole: u64, now: Time) -> Verdict {
        quarantine.verdict(|| whole % 10, || whole, now)
    }

    #[test]
    fn only_an_input_of_the_same_sample_is_read_as_a_whole() {
        let mut quarantine = Quarantine::default();
        quarantine.block(input(7), Time(0));
        let unread = || unreachable!("the samples differ");
        assert_eq!(quarantine.verdict(|| 8, unread, Time(0)), Verdict::Allowed(LossHistory::default()));
        assert_eq!(verdict(&mut quarantine, 17, Time(0)), Verdict::Allowed(LossHistory::default()));
        assert_eq!(verdict(&mut quarantine, 7, Time(0)), Verdict::Blocked);
    }

    #[test]
    fn suspects_run_one_at_a_time() {
        let mut quarantine = Quarantine::default();
        quarantine.add_suspect(ItemId(1));
        quarantine.add_suspect(ItemId(2));
        assert_eq!(quarantine.launch(), Some(ItemId(1)));
        assert_eq!(quarantine.launch(), None);
        quarantine.trial_ended(ItemId(1));
        assert_eq!(quarantine.launch(), Some(ItemId(2)));
    }

    #[test]
    fn blocked_inputs_are_forgotten_and_bounded() {
        let mut quarantine = Quarantine::default();
        quarantine.block(input(7), Time(0));
        assert_eq!(verdict(&mut quarantine, 7, Time(0)), Verdict::Blocked);
        assert_eq!(verdict(&mut quarantine, 8, Time(0)), Verdict::Allowed(LossHistory::default()));
        assert_eq!(verdict(&mut quarantine, 7, Time(0) + REMEMBERED_FOR), Verdict::Allowed(LossHistory::default()));
        (0..2000).for_each(|n| quarantine.block(input(n), Time(0)));
        assert_eq!(quarantine.blocked.len(), MOST_REMEMBERED);
    }

    #[test]
    fn inputs_of_items_that_have_ended_are_forgotten_cleared_and_bounded() {
        let (mut quarantine, mut history, minute) =
            (Quarantine::default(), LossHistory::default(), Duration::from_secs(60));
        assert!(!history.add(Loss::Crashed, true, false) && history.is_suspect());
        let evidence = |whole| Evidence { fingerprint: input(whole), history };
        quarantine.suspect_input(&evidence(7), Time(0), minute);
        let last = Time(0) + REMEMBERED_FOR + Duration::from_secs(59);
        assert_eq!(
            verdict(&mut quarantine, 7, last),
            Verdict::Allowed(history),
            "longer than the next hang takes to be seen"
        );
        assert_eq!(verdict(&mut quarantine, 8, last), Verdict::Allowed(LossHistory::default()));
        assert_eq!(verdict(&mut quarantine, 7, Time(0) + 2 * minute), Verdict::Allowed(LossHistory::default()));
        (0..2000).for_each(|n| quarantine.suspect_input(&evidence(n), Time(0), minute));
        assert_eq!(quarantine.suspected.len(), MOST_REMEMBERED);
        quarantine.clear(input(1999));
        assert_eq!(verdict(&mut quarantine, 1999, Time(0)), Verdict::Allowed(LossHistory::default()));
    }
}
