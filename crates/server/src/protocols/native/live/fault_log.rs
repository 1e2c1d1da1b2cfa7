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
    /// The fault of the last samples, and of how many.
    holds: Option<(&'static str, u32)>,
    /// Samples without a fault.
    well: u32,
    /// The first fault that was said, if the deployment is not well again.
    since: Option<Instant>,
    /// When each fault was said last.
    said: BTreeMap<&'static str, Instant>,
}

impl FaultLog {
    /// Takes the judgement of one more second. Returns what is due, and whether it is bad news.
    pub(crate) fn next(&mut self, judgement: &Judgement, now: Instant) -> Option<(bool, String)> {
        let Some(fault) = judgement.fault else { return self.is_well(now).map(|text| (false, text)) };
        let samples = self.holds.filter(|(last, _)| *last == fault).map_or(0, |(_, samples)| samples) + 1;
        (self.holds, self.well) = (Some((fault, samples)), 0);
        let is_new = self.said.get(fault).is_none_or(|&at| now - at >= AGAIN);
        if samples < HOLDS || !is_new {
            return None;
        }
        self.said.insert(fault, now);
        self.since.get_or_insert(now);
        let what = match judgement.word {
            Word::Failing => "failing: ",
            Word::Refusing => "refusing: ",
            _ => "",
        };
        Some((true, format!("{what}{}", judgement.why)))
    }

    fn is_well(&mut self, now: Instant) -> Option<String> {
        self.holds = None;
        self.well = self.well.saturating_add(1);
        let since = self.since.filter(|_| self.well >= WELL)?;
        self.since = None;
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

    #[tokio::test(start_paused = true)]
    async fn a_fault_that_holds_is_said_once_and_its_end_too() {
        let mut log = FaultLog::default();
        let mut said = Vec::new();
        let faults = [(2, Some("model_failed")), (1, None), (9, Some("model_failed")), (5, Some("worker_lost"))];
        for (seconds, fault) in faults.into_iter().chain([(20, None), (5, Some("model_failed")), (60, None)]) {
            for _ in 0..seconds {
                said.extend(log.next(&judged(fault), Instant::now()));
                tokio::time::advance(Duration::from_secs(1)).await;
            }
        }
        let bad = (true, "failing: 9 of 10 requests failed".to_owned());
        let well = (false, "no fault for 30 s; the first one was 66 s ago".to_owned());
        assert_eq!(said, [bad.clone(), bad, well]);
    }
}
