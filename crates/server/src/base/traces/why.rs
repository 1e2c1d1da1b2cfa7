//! Why a request was slow, or failed, in one sentence: its longest phase and the cause of that.

use std::fmt::Write;
use std::time::Duration;

/// What is known about a request that has ended. Phases add up to `total`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Story<'s> {
    pub(crate) total: Duration,
    /// The median of its deployment.
    pub(crate) usual: Option<Duration>,
    /// The reason of its outcome; `None` if it was answered.
    pub(crate) failure: Option<&'s str>,
    pub(crate) receive: Duration,
    pub(crate) queue: Duration,
    pub(crate) predict: Duration,
    /// With a worker and not in `predict`.
    pub(crate) link: Duration,
    pub(crate) render: Duration,
    /// Items that waited before it.
    pub(crate) ahead: u64,
    /// Replicas that were up at its launch.
    pub(crate) replicas: usize,
    /// Whether its batch was closed because it was full.
    pub(crate) is_full: bool,
    /// Items of its batch.
    pub(crate) items: u64,
    pub(crate) cost: u64,
    pub(crate) padded_cost: u64,
    /// For how long a replica had been idle while its batch was held open.
    pub(crate) held: Duration,
    /// How many batches it was in, one after the other.
    pub(crate) attempts: u64,
    /// Why its first worker gave no result.
    pub(crate) lost: Option<String>,
}

/// The sentence.
pub(crate) fn sentence(story: &Story<'_>) -> String {
    let mut text = sayable(story.total);
    if let Some(failure) = story.failure {
        let _ = write!(text, " until {failure}");
    }
    if let Some(usual) = story.usual {
        let _ = write!(text, ", usual {}", sayable(usual));
    }
    text.push_str(": ");
    if let Some(lost) = &story.lost {
        let _ = write!(text, "its worker was lost ({lost})");
        if story.attempts > 1 {
            let _ = write!(text, " and attempt {} followed", story.attempts);
        }
        text.push_str("; ");
    }
    let phases = [
        (story.queue, queued as fn(&Story<'_>) -> String),
        (story.predict, predicted),
        (story.link, |_| "on the way to its worker and back, with decoding and encoding".into()),
        (story.receive, |_| "until its body had arrived and was read".into()),
        (story.render, |_| "until its answer was written and taken by the client".into()),
    ];
    let (length, cause) = phases.into_iter().max_by_key(|(length, _)| *length).unwrap_or_else(|| unreachable!());
    text + &sayable(length) + " " + &cause(story)
}

fn queued(story: &Story<'_>) -> String {
    let replicas = match story.replicas {
        0 => return waiting(story) + ", while no replica was ready",
        1 => "the replica".to_owned(),
        2 => "both replicas".to_owned(),
        many => format!("all {many} replicas"),
    };
    if story.held * 2 > story.queue {
        return format!(
            "in the queue, of which {} because its batch was held open for more items",
            sayable(story.held)
        );
    }
    match (story.ahead, story.is_full) {
        (0, _) => "in the queue, behind no other item".into(),
        (_, true) => waiting(story) + &format!(" while {replicas} ran full batches"),
        (_, false) => {
            waiting(story) + &format!(" while {replicas} {} busy", if story.replicas == 1 { "was" } else { "were" })
        }
    }
}

fn waiting(story: &Story<'_>) -> String {
    format!("in the queue behind {}", items(story.ahead))
}

fn predicted(story: &Story<'_>) -> String {
    let batch = format!("in predict, in a batch of {}", items(story.items));
    // Then more than half of the computation is padding.
    if story.items > 1 && story.padded_cost > 2 * story.cost {
        return format!(
            "{batch} that was padded to a cost of {} by its largest ones; their own costs add up to {}",
            story.padded_cost, story.cost
        );
    }
    batch
}

fn items(count: u64) -> String {
    if count == 1 { "1 item".into() } else { format!("{count} items") }
}

/// Milliseconds without decimals where these say nothing, and seconds from 10 s on.
fn sayable(length: Duration) -> String {
    let ms = length.as_secs_f64() * 1e3;
    match ms {
        _ if ms >= 10_000.0 => format!("{:.1} s", ms / 1e3),
        _ if ms >= 10.0 => format!("{ms:.0} ms"),
        _ => format!("{ms:.1} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(length: u64) -> Duration {
        Duration::from_millis(length)
    }

    #[test]
    fn the_longest_phase_has_a_cause() {
        let story =
            Story { total: ms(312), usual: Some(ms(40)), attempts: 1, replicas: 2, items: 32, ..Story::default() };
        let queue = Story { queue: ms(270), predict: ms(40), ahead: 61, is_full: true, ..story.clone() };
        let predict = Story { predict: ms(300), cost: 500, padded_cost: 16_384, ..story.clone() };
        for (story, expected) in [
            (&queue, "312 ms, usual 40 ms: 270 ms in the queue behind 61 items while both replicas ran full batches"),
            (
                &Story { is_full: false, replicas: 1, ahead: 1, ..queue.clone() },
                "312 ms, usual 40 ms: 270 ms in the queue behind 1 item while the replica was busy",
            ),
            (
                &Story { held: ms(200), usual: None, ..queue.clone() },
                "312 ms: 270 ms in the queue, of which 200 ms because its batch was held open for more items",
            ),
            (
                &predict,
                "312 ms, usual 40 ms: 300 ms in predict, in a batch of 32 items that was padded to a cost of 16384 by its \
                 largest ones; their own costs add up to 500",
            ),
            (
                &Story { lost: Some("signal 9".into()), attempts: 2, padded_cost: 0, ..predict.clone() },
                "312 ms, usual 40 ms: its worker was lost (signal 9) and attempt 2 followed; 300 ms in predict, in a batch of \
                 32 items",
            ),
            (
                &Story { receive: ms(310), failure: Some("invalid_request"), ..story.clone() },
                "312 ms until invalid_request, usual 40 ms: 310 ms until its body had arrived and was read",
            ),
            (
                &Story { queue: ms(312), replicas: 0, ahead: 3, ..story.clone() },
                "312 ms, usual 40 ms: 312 ms in the queue behind 3 items, while no replica was ready",
            ),
        ] {
            assert_eq!(sentence(story), expected);
        }
    }
}
