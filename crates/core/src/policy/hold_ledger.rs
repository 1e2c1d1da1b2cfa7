//! Results of holds. A hold is a forecast that companions come; whether they came is counted, and holds of a kind that do
//! not pay are given up for some launches.

/// A balance of this many launch costs is as good, or as bad, as it gets: what is long ago does not describe the present.
const LARGEST_BALANCE: f64 = 2.0;
/// For so many launches holds are given up.
const PAUSE: u32 = 64;

/// Gains and losses of the holds of one kind, and whether they are given up for now.
#[derive(Clone, Copy, Debug, Default)]
pub struct HoldLedger {
    /// Gains minus losses, in launch costs.
    balance: f64,
    /// Launches until such holds are tried again; 0: they are allowed.
    pause: u32,
}

impl HoldLedger {
    /// Whether such holds are allowed.
    pub fn is_open(&self) -> bool {
        self.pause == 0
    }

    /// A batch has left, held or not.
    pub fn on_launch(&mut self) {
        self.pause = self.pause.saturating_sub(1);
    }

    /// A hold has ended that was worth `launches` launch costs; less than 0: it cost more than it brought.
    pub fn settle(&mut self, launches: f64) {
        self.balance = (self.balance + launches).min(LARGEST_BALANCE);
        if self.balance <= -LARGEST_BALANCE {
            (self.pause, self.balance) = (PAUSE, 0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Launches until a closed ledger opens.
    fn pause(ledger: &mut HoldLedger) -> u32 {
        let mut launches = 0;
        while !ledger.is_open() {
            ledger.on_launch();
            launches += 1;
        }
        launches
    }

    #[test]
    fn holds_that_cost_more_than_they_bring_are_given_up_for_some_launches() {
        let mut ledger = HoldLedger::default();
        for _ in 0..3 {
            (0..4).for_each(|_| ledger.settle(-0.5));
            assert_eq!(pause(&mut ledger), PAUSE);
        }
    }

    #[test]
    fn holds_that_pay_are_allowed_and_one_that_does_not_changes_nothing() {
        let mut ledger = HoldLedger::default();
        (0..100).for_each(|_| ledger.settle(1.0));
        ledger.settle(-1.0);
        assert!(ledger.is_open());
    }

    #[test]
    fn what_paid_long_ago_does_not_pay_for_losses_now() {
        let mut ledger = HoldLedger::default();
        (0..10_000).for_each(|_| ledger.settle(3.0));
        (0..8).for_each(|_| ledger.settle(-0.5));
        assert!(!ledger.is_open());
    }
}
