//! What becomes of the items that a lost worker held, and of their like: they run again, alone, or not at all.

use super::{Batch, Place, World};
use jitney_core::replicas::loss_history::Loss;
use jitney_core::request::{BatchId, ItemId, ReplicaId};
use jitney_core::tables::outcome::Outcome;
use std::time::Duration;

/// The workers that were lost with an item or its like: all, those in which it was alone, whether it had started in one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Record {
    losses: u8,
    alone: u8,
    was_started: bool,
}

impl Record {
    pub(super) fn is_suspect(self) -> bool {
        self.was_started || self.losses >= 3
    }

    fn with(self, other: Record) -> Record {
        Record {
            losses: self.losses.max(other.losses),
            alone: self.alone.max(other.alone),
            was_started: self.was_started || other.was_started,
        }
    }
}

impl World {
    pub(crate) fn lose(&mut self, replica: ReplicaId, loss: Loss) {
        self.scheduler.replica_lost(self.now, replica, loss);
        let held = self.replicas.remove(&replica).map(|replica| replica.batches).unwrap_or_default();
        for (place, id) in held.into_iter().enumerate() {
            let mut batch = self.batches.remove(&id).expect("held batches are known");
            if loss == Loss::Away {
                batch.items.iter().for_each(|&item| self.item_away(item, id));
                continue;
            }
            batch.started |= place == 0 && self.rules.retry;
            let mut traces = Vec::new();
            for &item in &batch.items {
                traces.extend(self.item_lost(item, id, &batch, loss));
            }
            for (fingerprint, record) in traces {
                self.remember(fingerprint, record);
            }
        }
        self.settle();
    }

    /// An item whose worker is away waits where it waited before, if it may run twice; one that ended there leaves no trace.
    fn item_away(&mut self, id: ItemId, in_batch: BatchId) {
        if !self.has_last(id, in_batch) {
            return;
        }
        let Some(item) = self.items.get_mut(&id) else { return };
        if self.rules.retry {
            item.place = if item.record.is_suspect() { Place::Suspect } else { Place::Waiting };
        } else {
            self.foreseen.insert(id, Outcome::WorkerLost);
        }
    }

    /// What must become of an item whose worker died; `poison` checks apart from this that the rule itself is just. Returns
    /// what is remembered of an item that has ended: nothing more if it is found to be the cause.
    fn item_lost(&mut self, id: ItemId, in_batch: BatchId, batch: &Batch, loss: Loss) -> Option<(u64, Option<Record>)> {
        let live = self.items.get(&id).filter(|item| item.holders().contains(&in_batch));
        let mut item = live.or(batch.left.get(&id))?.clone();
        let is_live = live.is_some();
        item.record.losses += 1;
        let is_convicted = if batch.alone && (batch.started || item.record.losses >= 3) {
            item.record.alone += 1;
            loss == Loss::Crashed || item.record.alone >= 2
        } else {
            false
        };
        item.record.was_started |= batch.started || batch.alone;
        let (fingerprint, record) = (item.asked.fingerprint, item.record);
        let ends = is_convicted || batch.started && !self.rules.retry;
        if is_live && ends {
            self.foreseen.insert(id, Outcome::WorkerLost);
        }
        if is_live {
            self.items.insert(id, item);
            if !ends {
                self.runs_elsewhere(id, in_batch);
            }
        }
        (ends || !is_live).then_some((fingerprint, Some(record).filter(|_| !is_convicted)))
    }

    /// An item that has ended runs no more, but similar ones do: alone, or not at all.
    fn remember(&mut self, fingerprint: u64, record: Option<Record>) {
        let minute = Duration::from_secs(60);
        // What its like was lost with before counts too.
        let before = self.watched.iter().find(|(_, other, _)| *other == fingerprint).map(|&(.., record)| record);
        let record = record.map(|record| before.map_or(record, |before| record.with(before)));
        self.watched.retain(|&(_, other, _)| other != fingerprint);
        match record {
            Some(record) => self.watched.push((self.now + minute + self.rules.batch_timeout, fingerprint, record)),
            None => self.convicted.push((self.now + minute, fingerprint)),
        }
        let foreseen = &mut self.foreseen;
        let waiting = self.items.iter_mut().filter(|(_, item)| !matches!(item.place, Place::Batch(_)));
        for (id, item) in waiting.filter(|(_, item)| item.asked.fingerprint == fingerprint) {
            let Some(record) = record else {
                foreseen.insert(*id, Outcome::Quarantined);
                continue;
            };
            item.record = item.record.with(record);
            if item.place == Place::Waiting && item.record.is_suspect() {
                (item.place, item.is_like) = (Place::Suspect, true);
            }
        }
    }

    pub(super) fn record_of(&mut self, fingerprint: u64) -> Record {
        let now = self.now;
        self.watched.retain(|&(until, ..)| until > now);
        self.watched.iter().find(|(_, other, _)| *other == fingerprint).map(|&(.., record)| record).unwrap_or_default()
    }

    /// An item ran alone and was answered: its like is as good as any.
    pub(super) fn acquit(&mut self, fingerprint: u64) {
        self.watched.retain(|&(_, other, _)| other != fingerprint);
        let like = self.items.values_mut().filter(|item| item.asked.fingerprint == fingerprint && item.is_like);
        for item in like.filter(|item| item.place == Place::Suspect) {
            (item.place, item.record, item.is_like) = (Place::Waiting, Record::default(), false);
        }
    }

    /// An item ends while a worker has it, and without an answer.
    pub(super) fn leaves(&mut self, id: ItemId) {
        let Some(item) = self.items.get(&id) else { return };
        for batch in item.holders() {
            if let Some(batch) = self.batches.get_mut(&batch) {
                batch.left.insert(id, item.clone());
            }
        }
    }
}
