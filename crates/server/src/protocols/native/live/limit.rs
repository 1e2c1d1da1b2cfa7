//! What is at its limit: the model, the cores, the front, or what lies between the front and the model.

use crate::engine::deployment::live::why::{bytes, count, number};
use crate::engine::server_state::live::sampled::{Halved, Large};
use crate::protocols::native::live::condition::{Condition, FULL};
/// From this share on the cores of a machine have no time left for a further thread.
const CROWDED: f64 = 0.95;
/// A front that wakes later than this, in seconds, gets no core when it needs one.
const LATE_S: f64 = 0.05;
/// A queue with room for fewer batches for each replica is empty when a replica needs the next one.
const BATCHES_QUEUED: u64 = 2;

/// What is at its limit. In the order of `jitney bench`: the model, the cores, and the front if neither is.
pub(crate) fn limit(condition: &Condition) -> Option<String> {
    condition.halved.map(|halved| fewer_answers(&halved, condition)).or_else(|| full(condition))
}

/// What has no reserve.
fn full(condition: &Condition) -> Option<String> {
    let Condition { busy, occupied, is_waiting, .. } = *condition;
    let crowded = no_core(condition);
    if busy >= FULL {
        let computed = format!("the model computed {} of the time", percent(busy));
        return Some(format!(
            "{computed}; {}{}",
            crowded.unwrap_or_else(|| more_replicas(condition)),
            uneven(condition)
        ));
    }
    let used = condition.used_cores.filter(|&used| used >= FULL * condition.cores);
    if let (Some(used), Some(front)) = (used, condition.front_cores) {
        let (model, cores) = (used - front, condition.cores);
        return Some(format!(
            "all {cores:.0} cores are busy: the front uses {front:.1}, the workers {model:.1}; use a larger machine"
        ));
    }
    if let Some(crowded) = crowded.filter(|_| is_waiting) {
        return Some(crowded);
    }
    if let Some(front) = condition.front_cores.filter(|&front| is_waiting && front >= FULL) {
        return Some(format!(
            "the front uses {front:.1} cores and items wait; the model computed only {}",
            percent(busy)
        ));
    }
    (is_waiting && occupied >= FULL && busy < occupied / 2.0).then(|| {
        format!(
            "replicas had a batch {} of the time and computed only {} of it: the way to the worker, decoding or encoding \
             is the limit",
            percent(occupied),
            percent(busy)
        )
    })
}

fn more_replicas(condition: &Condition) -> String {
    if condition.mean_batch >= 0.9 * condition.most_batch as f64 {
        "its batches are full: add a replica, or make the model faster".into()
    } else {
        "add a replica, make the model faster, or let batches grow".into()
    }
}

fn uneven(condition: &Condition) -> String {
    let text = |(small, large)| {
        format!("; some items have {}, others {}: the small ones wait for the large ones", bytes(large), bytes(small))
    };
    condition.uneven.map_or(String::new(), text)
}

/// Answers that have halved, and why.
fn fewer_answers(halved: &Halved, condition: &Condition) -> String {
    let Halved { now_per_s, usual_per_s, oldest_s } = *halved;
    let Condition { ready, wanted, .. } = *condition;
    let cause = if let Some(Large { replica, silent_s, bytes: size, usual_bytes }) = condition.large {
        format!(
            "replica {replica} has computed an item of {} for {silent_s:.0} s, usual {}: lower max_body_bytes, or cut long \
             items in the model",
            bytes(size),
            bytes(usual_bytes)
        )
    } else if ready < wanted {
        format!("{ready} of {wanted} replicas are ready")
    } else if let Some(other) = full(condition).or_else(|| no_core(condition)) {
        other
    } else {
        format!("the model computed {} of the time{}", percent(condition.busy), uneven(condition))
    };
    format!(
        "{} answers/s, {}/s in the minutes before, and items wait for {} s; {cause}",
        number(now_per_s),
        number(usual_per_s),
        number(oldest_s)
    )
}

/// That the machine has no free core, how that shows, and what to do.
pub(crate) fn no_core(condition: &Condition) -> Option<String> {
    let late = condition.front_lag_s.filter(|&lag_s| lag_s > LATE_S);
    let late_ms = late.map(|lag_s| number(lag_s * 1e3));
    let Some(busy) = condition.machine_busy.filter(|&busy| busy >= CROWDED) else {
        return late_ms.map(|ms| {
            format!(
                "the front wakes {ms} ms late, so it has no free core: look at other programs, and at the CPU limit of its \
                 container"
            )
        });
    };
    let late = late_ms.map_or(String::new(), |ms| format!(", and the front wakes {ms} ms late"));
    let own = condition
        .used_cores
        .map_or(String::new(), |used| format!("; this server uses {} of {:.0} cores", number(used), condition.cores));
    Some(format!(
        "the machine has no free core: its cores are {} busy{late}{own}; use a larger machine, or end other programs",
        percent(busy)
    ))
}

/// That the queue refuses items although it holds few.
pub(crate) fn small_queue(condition: &Condition) -> Option<String> {
    let Condition { most_queued, most_batch, wanted, .. } = *condition;
    let room = BATCHES_QUEUED * most_batch * wanted.max(1);
    (most_queued < room).then(|| {
        format!(
            "the queue holds at most {} items (max_queued_items), fewer than two batches of {} for each replica: raise it to {} \
             or more",
            count(most_queued),
            count(most_batch),
            count(room)
        )
    })
}

/// A share as people say it.
pub(crate) fn percent(share: f64) -> String {
    format!("{} %", number((share * 100.0).round()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two replicas that answer 300 items per second on a machine with two cores.
    fn condition() -> Condition {
        Condition {
            length_s: 10.0,
            answered: 3000,
            ready: 2,
            wanted: 2,
            busy: 0.3,
            occupied: 0.4,
            mean_batch: 3.0,
            most_batch: 16,
            most_queued: 4096,
            cores: 2.0,
            front_cores: Some(0.3),
            used_cores: Some(0.9),
            machine_busy: Some(0.5),
            front_lag_s: Some(0.001),
            ..Condition::default()
        }
    }

    #[test]
    fn the_way_to_the_worker_is_the_limit_only_if_most_of_the_time_goes_there() {
        let waiting = |occupied, busy| Condition { is_waiting: true, occupied, busy, ..condition() };
        assert_eq!(limit(&waiting(0.88, 0.68)), None);
        assert_eq!(limit(&waiting(0.87, 0.6)), None);
        let says = "replicas had a batch 94 % of the time and computed only 19 % of it: the way to the worker";
        assert!(limit(&waiting(0.94, 0.19)).unwrap().starts_with(says));
        let crowded = Condition { machine_busy: Some(0.98), front_lag_s: Some(0.16), ..waiting(0.94, 0.19) };
        let says = "the machine has no free core: its cores are 98 % busy, and the front wakes 160 ms late; this server uses 0.9 \
                    of 2 cores; use a larger machine, or end other programs";
        assert_eq!(limit(&crowded).unwrap(), says);
        assert_eq!(limit(&Condition { is_waiting: false, ..crowded }), None, "nothing waits");
    }

    #[test]
    fn a_front_that_wakes_late_has_no_core() {
        let late = Condition { front_lag_s: Some(0.16), ..condition() };
        assert!(no_core(&late).unwrap().starts_with("the front wakes 160 ms late, so it has no free core: "));
        assert_eq!(no_core(&condition()), None);
        let busy = Condition { machine_busy: Some(0.96), used_cores: None, ..condition() };
        let says = "the machine has no free core: its cores are 96 % busy; use a larger machine, or end other programs";
        assert_eq!(no_core(&busy).unwrap(), says);
    }

    #[test]
    fn a_replica_more_is_no_advice_without_a_core_for_it() {
        let full = Condition { busy: 0.97, ..condition() };
        assert!(limit(&full).unwrap().contains("add a replica"));
        let crowded = limit(&Condition { machine_busy: Some(0.99), ..full }).unwrap();
        assert!(
            crowded.contains("97 % of the time; the machine has no free core") && !crowded.contains("add"),
            "{crowded}"
        );
    }

    #[test]
    fn a_queue_is_small_if_it_has_no_two_batches_for_each_replica() {
        let queue = |most_queued| small_queue(&Condition { most_queued, ..condition() });
        let says = "the queue holds at most 16 items (max_queued_items), fewer than two batches of 16 for each replica: \
                    raise it to 64 or more";
        assert_eq!((queue(16).as_deref(), queue(64)), (Some(says), None));
    }

    #[test]
    fn answers_that_halve_say_why() {
        let halved = Some(Halved { now_per_s: 25.0, usual_per_s: 350.0, oldest_s: 6.2 });
        let large = Some(Large { replica: 0, silent_s: 6.4, bytes: 1_000_000, usual_bytes: 60 });
        let said = |condition: Condition| limit(&Condition { halved, ..condition }).unwrap();
        let says = "25 answers/s, 350/s in the minutes before, and items wait for 6.2 s; replica 0 has computed an item of \
                    1.0 MB for 6 s, usual 60 bytes: lower max_body_bytes, or cut long items in the model";
        assert_eq!(said(Condition { large, ..condition() }), says);
        assert!(said(Condition { ready: 1, ..condition() }).ends_with("; 1 of 2 replicas are ready"));
        assert!(said(Condition { machine_busy: Some(1.0), ..condition() }).contains("no free core"));
        let uneven = Condition { uneven: Some((6, 1_000_000)), ..condition() };
        assert!(said(uneven).contains("some items have 1.0 MB, others 6 bytes"));
    }
}
