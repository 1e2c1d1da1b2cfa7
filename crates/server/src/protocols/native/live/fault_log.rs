//! Lines of the log about faults that hold for seconds: each says what the live page says, once.

use crate::protocols::native::live::judgement::{Judgement, Word};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// A fault that is over within so many samples has no line.
const HOLDS: u32 = 3;
/// Without a fault for so many samples, the deployment is well again.
const WELL: u32 = 30;
/// The same fault has a line again after so long.
const AGAIN: Duration = Duration::from_secs(300);

/// What the log has said of one deployment.
#[derive(Debug, Default)]
pub(crate) struct FaultLog {
    /// The last samples that had a fault, of whatever kind.
    faulty: u32,
    /// Samples without a fault.
    well: u32,
    /// When the first fault had its line, if the deployment is not well again.
    since: Option<Instant>,
    /// When each fault had its last line since then.
    last_logged: BTreeMap<&'static str, Instant>,
}

impl FaultLog {
    /// Takes the judgement of one more second. Returns what is due, and whether it is bad news.
    pub(crate) fn next(&mut self, judgement: &Judgement, now: Instant) -> Option<(bool, String)> {
        let Some(fault) = judgement.fault else { return self.is_well(now).map(|text| (false, text)) };
        (self.faulty, self.well) = (self.faulty.saturating_add(1), 0);
        let is_due = self.last_logged.get(fault).is_none_or(|&at| now - at >= AGAIN);
        if self.faulty < HOLDS || !is_due {
            return None;
        }
        self.last_logged.insert(fault, now);
        self.since.get_or_insert(now);
        let what = match judgement.word {
            Word::Failing => "failing: ",
            Word::Refusing => "refusing: ",
            _ => "",
        };
        Some((true, format!("{what}{}", judgement.why)))
    }

    fn is_well(&mut self, now: Instant) -> Option<String> {
        self.faulty = 0;
        self.well = self.well.saturating_add(1);
        let since = self.since.filter(|_| self.well >= WELL)?;
        self.since = None;
        self.last_logged.clear();
        Some(format!("no fault for {WELL} s; the first one was {} s ago", (now - since).as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(fault: Option<&'static str>) -> Judgement {
        let word = if fault.is_some() { Word::Failing } else { Word::Fine };
        Judgement { word, why: "9 of 10 requests failed".into(), fault }
    }

    /// What is said of seconds that have these faults.
    async fn said(seconds: impl IntoIterator<Item = (u32, Option<&'static str>)>) -> Vec<(bool, String)> {
        let mut log = FaultLog::default();
        let mut said = Vec::new();
        for (seconds, fault) in seconds {
            for _ in 0..seconds {
                said.extend(log.next(&judged(fault), Instant::now()));
                tokio::time::advance(Duration::from_secs(1)).await;
            }
        }
        said
    }

    fn bad() -> (bool, String) {
        (true, "failing: 9 of 10 requests failed".into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_fault_that_holds_is_said_once_and_its_end_too() {
        let faults = [(2, Some("model_failed")), (1, None), (9, Some("model_failed")), (5, Some("worker_lost"))];
        let all = faults.into_iter().chain([(20, None), (5, Some("model_failed")), (60, None)]);
        let well = (false, "no fault for 30 s; the first one was 66 s ago".to_owned());
        assert_eq!(said(all).await, [bad(), bad(), well]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_fault_that_returns_after_its_end_is_said_again() {
        let well = (false, "no fault for 30 s; the first one was 30 s ago".to_owned());
        let faults = [(3, Some("model_failed")), (30, None), (3, Some("model_failed")), (20, None)];
        assert_eq!(said(faults).await, [bad(), well, bad()]);
    }

    #[tokio::test(start_paused = true)]
    async fn faults_that_take_turns_are_said() {
        let turns = (0..100).map(|second| (1, Some(if second % 2 == 0 { "queue_full" } else { "model_failed" })));
        assert_eq!(said(turns).await, [bad(), bad()]);
    }
}
