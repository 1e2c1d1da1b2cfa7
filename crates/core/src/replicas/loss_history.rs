//! The workers that were lost while they held an item, and what follows from it.

/// How a replica was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The worker crashed or ended by itself, or was killed because it hung. A suspect that was alone in it is the cause.
    Crashed,
    /// Something killed the worker: the model, the kernel (out of memory) or an operator. One such loss does not prove that an
    /// item is the cause: the item must have been alone in two workers that were killed.
    Killed,
    /// The link to the worker is lost, and its process was not seen to die: its machine or the network is away. That says nothing about
    /// the items, which run again as if they had never left.
    Away,
}

/// An item that this many lost workers held is a suspect even if `predict` never began on it: decoding the item may be what
/// kills them, and that may happen before its batch's turn.
const LOSSES_OF_A_SUSPECT: u8 = 3;

/// The workers that were lost with an item, or with an equal input before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossHistory {
    losses: u8,
    losses_alone: u8,
    was_started: bool,
}

impl LossHistory {
    /// Adds the loss of a worker that held the item; `is_trial` says that the worker held no other item. Returns whether that
    /// proves that the item is the cause. A worker that is away counts for nothing.
    pub fn add(&mut self, loss: Loss, was_started: bool, is_trial: bool) -> bool {
        if loss == Loss::Away {
            return false;
        }
        self.losses = self.losses.saturating_add(1);
        let was_alone = is_trial && (was_started || self.losses >= LOSSES_OF_A_SUSPECT);
        self.was_started |= was_started || is_trial;
        self.losses_alone = self.losses_alone.saturating_add(u8::from(was_alone));
        was_alone && (loss == Loss::Crashed || self.losses_alone > 1)
    }

    /// Whether the item must be computed alone from now on.
    pub fn is_suspect(self) -> bool {
        self.was_started || self.losses >= LOSSES_OF_A_SUSPECT
    }

    /// The history of two items of equal input.
    #[must_use]
    pub fn with(self, other: LossHistory) -> LossHistory {
        LossHistory {
            losses: self.losses.max(other.losses),
            losses_alone: self.losses_alone.max(other.losses_alone),
            was_started: self.was_started || other.was_started,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_alone_convicts_a_kill_only_the_second_time_and_company_never() {
        let mut history = LossHistory::default();
        assert!(!history.add(Loss::Crashed, true, false), "other items were there");
        assert!(!history.add(Loss::Killed, true, true), "something else may have killed the worker");
        assert!(history.add(Loss::Killed, true, true));
        assert!(LossHistory::default().add(Loss::Crashed, true, true));
    }

    #[test]
    fn a_worker_that_is_away_says_nothing() {
        let mut history = LossHistory::default();
        (0..9).for_each(|_| assert!(!history.add(Loss::Away, true, true), "no process died"));
        assert_eq!(history, LossHistory::default());
    }

    #[test]
    fn an_item_that_was_never_started_is_a_suspect_after_three_losses() {
        let mut history = LossHistory::default();
        let suspected = [(); 3].map(|()| {
            history.add(Loss::Crashed, false, false);
            history.is_suspect()
        });
        assert_eq!(suspected, [false, false, true]);
    }
}
