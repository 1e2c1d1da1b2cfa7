//! What a worker reports of an open set: of a model that works in steps, or of items that run side by side.

use crate::engine::task::{Engine, report};
use crate::link::front::worker_event::WorkerEvent;
use crate::link::results_frame::{ItemOutcome, ReceivedResults};
use jitney_core::request::{BatchId, ReplicaId};
use jitney_core::scheduler::results::steps::Step;
use jitney_core::time::Time;
use std::time::Duration;

impl Engine {
    /// A step was made, or items that run side by side have news. Items may be of several batches, and each ends by itself.
    pub(super) fn stepped(&mut self, now: Time, replica: ReplicaId, step: Step, results: ReceivedResults) {
        if step.is_out_of_memory {
            let most = self.scheduler.open_set_too_large(now, replica);
            self.warn_of_memory("the items of a step were", most);
        }
        self.scheduler.stepped(now, replica, step);
        self.published.live().stepped(replica, Duration::ZERO);
        self.meters.steps.iter().for_each(|steps| steps.stepped(&step));
        if step.active > 0 {
            self.meters.model_seconds.observe(step.took.as_secs_f64());
            let ended = results.items.iter().filter(|result| result.outcome.is_end()).count();
            self.meters.worked(replica, step.took, ended);
            if !self.side_by_side {
                self.published.live().stepped(replica, step.took);
            }
        }
        for result in results.items {
            let Some(batch) = self.scheduler.batch_of(replica, result.id) else { continue };
            let is_last = result.outcome.is_end();
            if matches!(result.outcome, ItemOutcome::Later) {
                self.scheduler.later(now, batch, result.id);
            } else {
                let took = if self.side_by_side { self.scheduler.runs_for(now, batch) } else { step.took };
                if self.side_by_side && is_last {
                    self.meters.model_seconds.observe(took.as_secs_f64());
                    self.meters.worked(replica, took, 1);
                    // The replica is full when it has as many items as it may.
                    self.published.live().stepped(replica, took / self.most_items.max(1) as u32);
                }
                self.result(now, batch, took, result);
            }
            if is_last && !self.scheduler.has_batch(batch) {
                self.joined_batch_ended(now, replica, batch);
            }
        }
    }

    /// The last item of those that joined together has ended.
    fn joined_batch_ended(&mut self, now: Time, replica: ReplicaId, batch: BatchId) {
        let answered = self.answered.remove(&batch);
        self.trace_end(now, answered.as_ref().and_then(|one| one.trace.as_ref()), None);
        self.published.live().batch_ended(replica, Duration::ZERO);
        if self.trials.remove(&replica) {
            report(&self.reports, WorkerEvent::Trial(replica, false));
        }
    }
}
