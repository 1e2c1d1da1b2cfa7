//! What the engine notes of the items of traced requests: their launches, their results and the ends of their batches. Without
//! traced items each of these costs one branch.

use crate::base::traces::notes::{BatchLaunch, BatchTrace, Stages};
use crate::engine::task::Engine;
use crate::engine::task::pending::{Pending, Traced};
use crate::link::batch_end::Durations;
use crate::values::call::BatchSpan;
use jitney_core::learn::batch_cost::Measure;
use jitney_core::replicas::loss_history::Loss;
use jitney_core::request::ReplicaId;
use jitney_core::scheduler::action::Launch;
use jitney_core::scheduler::item::EndedItem;
use jitney_core::time::Time;
use std::sync::Arc;
use std::time::Duration;

impl Engine {
    /// Notes the launch of a batch with traced items, before its frame is written: the frame has the context of each item.
    pub(in crate::engine::task) fn trace_launch(
        &mut self,
        now: Time,
        launch: &Launch,
        traced: Traced,
    ) -> Arc<BatchTrace> {
        let facts = BatchLaunch {
            deployment: self.deployment.clone(),
            number: launch.batch.0,
            replica: self.meters.number(launch.replica),
            reason: launch.reason.label(),
            items: launch.items.len() as u64,
            cost: launch.load.units(Measure::Cost) as u64,
            padded_cost: launch.load.units(Measure::Padded) as u64,
            held: launch.held,
            left_waiting: self.scheduler.queued_items() as u64,
            replicas: self.scheduler.replicas(),
            launched: self.clock.instant(now),
        };
        let batch = BatchTrace::new(traced.keeper, traced.is_sampled, facts);
        for (position, &id) in launch.items.iter().enumerate() {
            let Some(pending) = self.scheduler.item_of(launch.batch, id) else { continue };
            let Some(note) = pending.call.note() else { continue };
            let before = pending.call.stay.as_ref().map(|stay| &stay.batch);
            let predict = note.launched(&batch, before, position);
            pending.call.stay = Some(BatchSpan { batch: batch.clone(), predict });
        }
        batch
    }

    /// Notes that an item has ended with its batch.
    pub(in crate::engine::task) fn trace_result(&self, now: Time, ended: &EndedItem<Pending>, predict: Duration) {
        let call = &ended.payload.call;
        if let (Some(stay), Some(note), Some(launched)) = (&call.stay, call.note(), ended.launched) {
            let times = [ended.arrival, launched, now].map(|time| self.clock.instant(time));
            note.answered(&stay.batch, times, predict);
        }
    }

    /// Notes the end of a batch.
    pub(in crate::engine::task) fn trace_end(
        &self,
        now: Time,
        batch: Option<&Arc<BatchTrace>>,
        durations: Option<Durations>,
    ) {
        let stages = durations.map(|Durations { decode, predict, encode }| Stages { decode, predict, encode });
        batch.into_iter().for_each(|batch| batch.end(self.clock.instant(now), stages));
    }

    /// Notes that a replica is lost with the batches that it has.
    pub(in crate::engine::task) fn trace_loss(&self, now: Time, replica: ReplicaId, loss: Loss) {
        let held = self.answered.values().filter(|answered| answered.replica == replica);
        for batch in held.filter_map(|answered| answered.trace.as_ref()) {
            let why = match loss {
                Loss::Crashed => "it crashed or ended",
                Loss::Killed => "it was killed",
                Loss::Away => "its machine or the network is away",
            };
            batch.lost(self.clock.instant(now), why.to_owned());
        }
    }
}
