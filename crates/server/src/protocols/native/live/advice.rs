//! What to do about a fault, in words: the same for the live page and for the log.

use crate::engine::deployment::live::why::{bytes, number};
use crate::engine::server_state::live::sampled::Slower;
use crate::engine::server_state::live::workers::Growth;
use crate::protocols::native::live::condition::Unusual;
use jitney_core::tables::outcome::Outcome;
use std::time::Duration;

/// Memory that lasts for longer at this pace is not said to end.
const SOON: Duration = Duration::from_secs(24 * 3600);

/// Items that have so many times as many bytes as before are a reason for a model to take longer.
const LARGER: u64 = 2;

/// What to look at if many requests end in this way.
pub(crate) fn remedy(reason: &str) -> &'static str {
    use Outcome::{
        CrashLooping, DeadlineExceeded, InvalidOutput, Loading, ModelFailed, Quarantined, QueueBytesFull, QueueFull,
        TooManyLanes, Unavailable, WaitTooLong, WorkerLost,
    };
    match Outcome::from_reason(reason) {
        Some(ModelFailed) => {
            "predict raises an exception: the log has its traceback; if a new version did it, roll back"
        }
        Some(InvalidOutput) => {
            "predict returns what cannot be an answer: the log says why; if a new version did it, roll back"
        }
        Some(WorkerLost) => "workers end while they compute: the log says how each one ended",
        Some(Quarantined) => {
            "an input kills workers, so equal inputs are refused for a minute: the log has the ids of its requests"
        }
        Some(CrashLooping) => "`jitney check` runs the model without a server; if a new version did it, roll back",
        Some(Unavailable) => "what the model needs is away: the answers and the log say what",
        Some(Loading) => "the model is still loading",
        Some(QueueFull | WaitTooLong) => "requests come faster than they are answered: add a replica, or send less",
        Some(QueueBytesFull) => {
            "the items that wait are large: raise max_queued_bytes if there is memory, or send less"
        }
        Some(TooManyLanes) => "too many group keys: group by fewer values",
        Some(DeadlineExceeded) => "clients wait for less long than answers take: add a replica, or raise their timeout",
        _ => "the log says more",
    }
}

/// What is unlike before, and what to do about it.
pub(crate) fn unusual(found: &Unusual) -> Option<(&'static str, String)> {
    let growth = found.growth.map(|growth| ("memory", grows(&growth, found.available_bytes)));
    growth.or_else(|| found.slower.map(|slower| ("slower", takes_longer(&slower))))
}

fn takes_longer(slower: &Slower) -> String {
    let Slower { now_ms, usual_ms, bytes: size, usual_bytes } = *slower;
    let cause = if size >= LARGER * usual_bytes.max(1) {
        format!("an item has {} on average, usual {}: larger items take longer", bytes(size), bytes(usual_bytes))
    } else {
        "its items are as large as before, so its device is shared or hot, or what it calls is slow, or a new version of it is".into()
    };
    let (now, usual, factor) = (number(now_ms), number(usual_ms), number(now_ms / usual_ms));
    format!("predict takes {now} ms for a batch, usual {usual}: {factor} times as long; {cause}")
}

fn grows(growth: &Growth, available: Option<u64>) -> String {
    let Growth { replica, bytes: now, by, seconds } = *growth;
    let left = available.map(|left| Duration::from_secs_f64(left as f64 * seconds as f64 / by.max(1) as f64));
    let ends = left.filter(|left| *left < SOON).map(|left| {
        format!(
            ", and at this pace the {} that are left last for {}",
            bytes(available.unwrap_or_default()),
            length(left)
        )
    });
    format!(
        "the memory of replica {replica} grows: {} more in {seconds} s, {} now{}; if it goes on, the model leaks: end its \
         process (another one is started), and look for lists and caches without a limit",
        bytes(by),
        bytes(now),
        ends.unwrap_or_default()
    )
}

fn length(length: Duration) -> String {
    match length.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_without_advice_is_in_the_log() {
        assert!(remedy("model_failed").contains("traceback") && remedy("queue_full").contains("add a replica"));
        assert_eq!([remedy("internal"), remedy("no such outcome")], ["the log says more"; 2]);
    }

    #[test]
    fn a_model_that_takes_longer_says_whether_its_items_are_larger() {
        let slower = Slower { now_ms: 210.0, usual_ms: 20.0, bytes: 64, usual_bytes: 60 };
        let says = "predict takes 210 ms for a batch, usual 20: 11 times as long; its items are as large as before";
        assert!(takes_longer(&slower).starts_with(says), "{}", takes_longer(&slower));
        let larger = takes_longer(&Slower { bytes: 40_000, ..slower });
        assert!(
            larger.ends_with("; an item has 40 kB on average, usual 60 bytes: larger items take longer"),
            "{larger}"
        );
    }

    #[test]
    fn memory_that_grows_says_when_it_ends() {
        let growth = Growth { replica: 1, bytes: 500_000_000, by: 200_000_000, seconds: 20 };
        let found = Unusual { growth: Some(growth), available_bytes: Some(6_000_000_000), ..Unusual::default() };
        let (kind, why) = unusual(&found).unwrap();
        let says = "the memory of replica 1 grows: 200 MB more in 20 s, 500 MB now, and at this pace the 6.0 GB that are \
                    left last for 10 min";
        assert!(kind == "memory" && why.starts_with(says), "{why}");
        let lasting = Unusual { available_bytes: Some(u64::MAX), ..found };
        assert!(unusual(&lasting).unwrap().1.contains("500 MB now; if"));
        assert!(unusual(&Unusual::default()).is_none());
    }
}
