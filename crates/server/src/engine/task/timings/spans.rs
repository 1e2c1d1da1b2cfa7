//! What the engine notes of the items of traced requests: their launches, their results and the ends of their batches. Without
//! traced items each of these costs one branch.

use crate::base::traces::notes::{BatchLaunch, BatchTrace, ItemStay, Stages, Traced};
use crate::base::traces::why::facts::BatchFacts;
use crate::engine::task::Engine;
use crate::engine::task::pending::Pending;
use crate::link::batch_end::Durations;
use crate::values::call::{BatchSpan, Call};
use jitney_core::learn::batch_cost::Measure;
use jitney_core::replicas::loss_history::Loss;
use jitney_core::request::{ItemId, ReplicaId};
use jitney_core::scheduler::action::Launch;
use jitney_core::scheduler::item::EndedItem;
use jitney_core::time::Time;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// An item in a batch that began then, and has no results.
fn item_stay<'b>(call: &Call, stay: &'b BatchSpan, began: Instant) -> ItemStay<'b> {
    let BatchSpan { batch, position, attempt, .. } = stay;
    ItemStay {
        batch,
        ahead: call.ahead,
        position: *position,
        attempt: *attempt,
        bytes: call.bytes(),
        cost: call.cost,
        arrival: None,
        began,
        results: None,
        predict_took: Duration::ZERO,
    }
}

impl Engine {
    /// Notes the launch of a batch with traced items, before its frame is written: the frame has the context of each item.
    pub(in crate::engine::task) fn trace_launch(
        &mut self,
        now: Time,
        launch: &Launch,
        batch: BatchFacts,
        traced: Traced,
    ) -> Arc<BatchTrace> {
        let factor = self.scheduler.factors().find(|(other, _)| *other == launch.replica);
        let factor = factor.map_or(batch.factor, |(_, factor)| factor);
        let replica = self.meters.number(launch.replica);
        let facts = BatchLaunch {
            deployment: self.deployment.clone(),
            number: launch.batch.0,
            replica,
            batch: BatchFacts { replica: u32::try_from(replica).unwrap_or(u32::MAX), factor, ..batch },
            usual: self.published.live().usual(),
            cost: launch.load.units(Measure::Cost) as u64,
            padded_cost: launch.load.units(Measure::Padded) as u64,
            left_waiting: self.scheduler.queued_items() as u64,
            replicas: self.scheduler.replicas(),
            launched: self.clock.instant(now),
        };
        let batch = BatchTrace::new(traced.keeper, traced.is_sampled, facts);
        for (position, &id) in launch.items.iter().enumerate() {
            let Some(pending) = self.scheduler.item_of(launch.batch, id) else { continue };
            let Some(note) = pending.call.note() else { continue };
            let before = pending.call.stay.as_ref();
            if let Some(stay) = before {
                // That batch gave it no result.
                note.stayed(&item_stay(&pending.call, stay, stay.batch.facts().launched));
            }
            let attempt = before.map_or(1, |stay| stay.attempt + 1);
            let predict = note.predict(&batch);
            pending.call.stay = Some(BatchSpan { batch: batch.clone(), predict, position: position as u32, attempt });
        }
        batch
    }

    /// Notes that an item has ended, if that may be of interest: its request is sampled, or it fails, or it took long.
    pub(in crate::engine::task) fn trace_result(
        &self,
        now: Time,
        ended: &EndedItem<Pending>,
        predict: Duration,
        is_failed: bool,
    ) {
        let call = &ended.payload.call;
        let Some(note) = call.note() else { return };
        if !is_failed && !note.is_noted() && now - ended.arrival < note.request.keeper.least_slow() {
            return;
        }
        let (Some(stay), Some(launched)) = (&call.stay, ended.launched) else { return note.waited(call.ahead) };
        note.stayed(&ItemStay {
            arrival: Some(self.clock.instant(ended.arrival)),
            results: stay.batch.ended().lost.is_none().then(|| self.clock.instant(now)),
            // Where items join one by one, the worker does not say how long it computed one of them.
            predict_took: if self.joins { now - launched } else { predict },
            ..item_stay(call, stay, self.clock.instant(launched))
        });
    }

    /// An item is cancelled: its caller has dropped its end of the reply.
    pub(in crate::engine::task) fn cancelled(&mut self, now: Time, id: ItemId) {
        let ended = self.cancel(id);
        ended.iter().for_each(|ended| self.trace_result(now, ended, Duration::ZERO, true));
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
            batch.lost(self.clock.instant(now), why);
        }
    }
}
