//! What becomes of the items of a lost replica; why items are refused, or end without a result, as clients read it.

use crate::engine::deployment::live::record::now_ms;
use crate::engine::deployment::live::why::{BatchFacts, Lengths, RequestFacts};
use crate::engine::task::lost_inputs::InputsRead;
use crate::engine::task::pending::Pending;
use crate::engine::task::timings::{expired, sayable};
use crate::engine::task::{Engine, SHORTEST_WAIT};
use crate::values::answer::{Failure, Timing};
use jitney_core::replicas::loss_history::Loss;
use jitney_core::request::{BatchId, ReplicaId};
use jitney_core::scheduler::admission::refusal::Refusal;
use jitney_core::scheduler::item::EndedItem;
use jitney_core::tables::outcome::{Ending, Outcome};
use jitney_core::time::Time;
use std::time::Duration;

impl Engine {
    /// A replica was lost. Its inputs that may be the cause are read first.
    pub(super) fn lost(&mut self, now: Time, replica: ReplicaId, loss: Loss) {
        let inputs = self.scheduler.inputs_to_read(replica, loss);
        if self.lost_inputs.read(replica, loss, inputs) {
            self.scheduler.retire(replica);
        } else {
            self.scheduler.replica_lost(now, replica, loss);
        }
    }

    pub(super) fn inputs_read(&mut self, now: Time, read: InputsRead) {
        let InputsRead { replica, loss, hashes } = read;
        for (item, hash) in hashes {
            self.scheduler.fingerprinted(replica, item, hash);
        }
        self.scheduler.replica_lost(now, replica, loss);
        if self.is_crash_looping {
            // Its items would wait for a replica that does not come.
            self.scheduler.crash_looping();
        }
    }

    pub(super) fn refused(&self, refusal: Refusal) -> Failure {
        let name = &self.deployment;
        let queued = self.scheduler.queued_items();
        // An item that was refused when its turn came would not wait any longer: its wait is left out.
        let wait = refusal.predicted_wait.filter(|&wait| wait >= SHORTEST_WAIT);
        let waiting = waiting(queued, name, wait);
        let detail = match refusal.outcome {
            Outcome::QueueFull => {
                format!("{waiting}: no more may wait (max_queued_items); come back later")
            }
            Outcome::QueueBytesFull => {
                let bytes = self.scheduler.queued_bytes();
                format!("{waiting}, with {bytes} bytes: no more may wait (max_queued_bytes); come back later")
            }
            Outcome::WaitTooLong => {
                format!("{waiting}: longer than a request may wait (max_wait_s); come back later")
            }
            Outcome::WouldBeLate => {
                format!("{waiting}: the answer would miss latency_target_ms; come back later")
            }
            Outcome::TooManyLanes => format!("{name} has as many group keys waiting as it may; come back later"),
            Outcome::DeadlineUnreachable => {
                format!("{waiting}: the deadline of this request cannot be met")
            }
            Outcome::TooLarge => {
                return Failure::new(
                    Outcome::TooLarge,
                    format!(
                        "this item alone costs more than a replica of {name} may hold (max_batch_cost); send a smaller one"
                    ),
                );
            }
            Outcome::ScaledToZero => {
                let ready_in = refusal.predicted_wait.unwrap_or_default().as_secs_f64();
                format!(
                    "{name} has no replica because it was not used; one is being loaded and is ready in about \
                     {ready_in:.1} s, and the request may not wait that long; try again then, or give it more time"
                )
            }
            Outcome::Quarantined => {
                format!("the same input killed a worker of {name} a moment ago; it is refused for a minute")
            }
            other => return self.closed(other, refusal.retry_after),
        };
        Failure { retry_after: refusal.retry_after, ..Failure::new(refusal.outcome, detail) }
    }

    pub(super) fn closed(&self, outcome: Outcome, retry_after: Option<Duration>) -> Failure {
        let detail = match outcome {
            Outcome::Loading => "is still loading its model",
            Outcome::CrashLooping => "has no working replica: its workers keep dying; see the server's log",
            _ => "takes nothing new: the server is shutting down",
        };
        Failure { retry_after, ..Failure::new(outcome, format!("{} {detail}", self.deployment)) }
    }

    pub(super) fn failed(&mut self, now: Time, ended: &EndedItem<Pending>, outcome: Outcome) -> Failure {
        match outcome {
            Outcome::DeadlineExceeded => expired(now, ended),
            Outcome::TooSlow => {
                let detail = "the client did not read the parts of its answer for too long (body_timeout_s)";
                Failure::new(outcome, detail)
            }
            Outcome::WorkerLost => {
                let name = &self.deployment;
                let detail = if ended.hung_alone {
                    let limit = self.batch_timeout.as_secs_f64();
                    format!(
                        "{name} computed this input alone for longer than batch_timeout_s = {limit}, so its worker is replaced; \
                         the input is not tried again"
                    )
                } else if ended.payload.sequence > 0 {
                    format!("the worker of {name} died or hung after it had sent a part of this answer")
                } else if ended.batch_size <= 1 {
                    format!(
                        "the worker of {name} died or hung while it computed this input alone; the input is not tried again"
                    )
                } else {
                    format!(
                        "the worker of {name} died or hung while it computed this input, and the deployment says retry=False"
                    )
                };
                Failure::new(outcome, detail)
            }
            Outcome::WouldBeLate => {
                let refusal = self.scheduler.refusal_of_late(now);
                self.refused(refusal)
            }
            // While this item waited, the same input killed workers and was put into quarantine.
            Outcome::Quarantined => self.refused(Refusal::never(outcome)),
            Outcome::DeadlineUnreachable => {
                Failure::new(outcome, format!("{} cannot answer before the deadline of this request", self.deployment))
            }
            Outcome::Internal => Failure::new(outcome, "the worker ended the batch without a result for this item"),
            other => self.closed(other, Some(Duration::from_secs(1))),
        }
    }

    /// Remembers an item that took long or failed, for the live page. Refusals for load are counted and no more.
    pub(super) fn note(&self, pending: &Pending, batch: Option<BatchId>, timing: &Timing, failure: Option<&Failure>) {
        let live = self.published.live();
        let is_notable = match failure {
            Some(Failure { outcome, .. }) => outcome.ending() == Ending::Failed && *outcome != Outcome::Cancelled,
            None => live.is_slow(timing.total()),
        };
        if !is_notable {
            return;
        }
        let (link, predict) =
            if self.joins { (Duration::ZERO, timing.batch + timing.model) } else { (timing.batch, timing.model) };
        let answered = batch.and_then(|batch| self.answered.get(&batch));
        let replica = answered.map(|answered| answered.replica);
        let factor =
            self.scheduler.factors().find(|(other, _)| Some(*other) == replica).map_or(1.0, |(_, factor)| factor);
        let request_id = pending.call.metadata.as_ref().map(|metadata| metadata.request_id.text().into());
        let facts = RequestFacts {
            request_id: request_id.unwrap_or_default(),
            at_ms: now_ms(),
            lengths: Lengths { queue: timing.queue, link, predict },
            ahead: pending.ahead as usize,
            bytes: pending.call.bytes(),
            cost: pending.call.cost,
            returns: pending.returns,
            replicas: self.scheduler.replicas(),
            batch: answered.map(|answered| BatchFacts { factor, ..answered.batch }),
            failure: failure.cloned(),
            usual: None,
        };
        live.remember(facts, replica);
    }
}

/// Says how many items wait, and for how long a further one would.
fn waiting(queued: usize, name: &str, wait: Option<Duration>) -> String {
    let who = match queued {
        0 => format!("all replicas of {name} are busy"),
        1 => format!("1 item waits for {name}"),
        _ => format!("{queued} items wait for {name}"),
    };
    match wait {
        Some(wait) => format!("{who}, a wait of about {}", sayable(wait)),
        None => who,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_items_only_if_some_wait() {
        let wait = Some(Duration::from_millis(1500));
        for (queued, wait, says) in [
            (0, wait, "all replicas of m are busy, a wait of about 1.5 s"),
            (0, None, "all replicas of m are busy"),
            (1, None, "1 item waits for m"),
            (7, wait, "7 items wait for m, a wait of about 1.5 s"),
        ] {
            assert_eq!(waiting(queued, "m", wait), says);
        }
    }
}
