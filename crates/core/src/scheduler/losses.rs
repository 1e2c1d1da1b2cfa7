//! What becomes of the items of a lost worker: elsewhere, alone, or to an end. Those that nobody waits for any more can be
//! none of it, but they may be what killed: their like runs alone when it comes.

use super::{Entry, Loss, Payload, Place, Scheduler};
use crate::outcome::Outcome;
use crate::quarantine::{Known, Record, Trace};
use crate::request::{BatchId, ItemId, ReplicaId};
use crate::time::Time;

impl<P: Payload> Scheduler<P> {
    /// A replica died. What had not started goes back to its lane; what had started runs again alone, if it may.
    pub fn replica_lost(&mut self, now: Time, id: ReplicaId, loss: Loss) {
        self.has_news = true;
        for (place, batch) in self.replicas.remove(id).into_iter().enumerate() {
            if place == 0 && self.rules.retry {
                // Workers say that a batch has started only where it matters, which saves a message per batch: where
                // items may run again, the one that was running is taken to have started.
                self.batch_started(batch);
            }
            self.batch_lost(now, batch, loss);
        }
    }

    fn batch_lost(&mut self, now: Time, id: BatchId, loss: Loss) {
        let Some(mut batch) = self.remove_batch(id) else { return };
        let mut traces = Vec::new();
        for item in batch.items {
            let is_trial = batch.suspect == Some(item);
            if let Some(mut trace) = batch.left.remove(&item) {
                let is_guilty = trace.record.lost(loss, batch.started, is_trial);
                traces.push((trace, is_guilty));
                continue;
            }
            let Some(entry) = self.entries.get_mut(&item) else {
                continue; // It has its answer.
            };
            let is_guilty = entry.record.lost(loss, batch.started, is_trial);
            let record = entry.record;
            if is_guilty || batch.started && !self.rules.retry {
                traces.push((entry.trace(), is_guilty));
                self.fail(item, Outcome::WorkerLost);
            } else if record.is_suspect() {
                entry.place = Place::Suspect;
                self.queued_bytes += entry.bytes;
                self.quarantine.suspect(item);
            } else {
                let bytes = entry.bytes;
                self.put_back(item);
                self.queued_bytes += bytes;
            }
        }
        self.judge(now, &traces);
    }

    /// Remembers those that have ended, and who of them is guilty. Their like that waits fares as if it came now.
    fn judge(&mut self, now: Time, traces: &[(Trace, bool)]) {
        for (trace, is_guilty) in traces {
            if *is_guilty {
                self.quarantine.convict(trace.fingerprint, now);
            } else {
                self.quarantine.watch(trace, now, self.rules.batch_timeout);
            }
        }
        let traces: Vec<Trace> = traces.iter().map(|(trace, _)| *trace).collect();
        for (id, fingerprint) in self.likes(&traces, |entry| !matches!(entry.place, Place::Batch(_))) {
            match self.quarantine.known(|| fingerprint, now) {
                Known::Convicted => self.fail(id, Outcome::Quarantined),
                Known::Record(record) => self.set_apart(id, record),
            }
        }
    }

    /// An item leaves while a worker has it, and nobody waits for it any more.
    pub(super) fn leaves(&mut self, id: ItemId) {
        let Some(entry) = self.entries.get(&id) else { return };
        let Place::Batch(batch) = entry.place else { return };
        if let Some(batch) = self.batches.get_mut(&batch) {
            batch.left.insert(id, entry.trace());
        }
    }

    /// An item of a batch is about to be answered. If it ran alone, it is innocent, and so is its like that waits for its turn.
    pub(super) fn acquit(&mut self, id: ItemId) {
        let Some(entry) = self.entries.get(&id) else { return };
        let Place::Batch(batch) = entry.place else { return };
        if self.batches.get(&batch).is_none_or(|batch| batch.suspect != Some(id)) {
            return;
        }
        let trace = entry.trace();
        self.quarantine.clear(trace.fingerprint);
        // Only these are read: there are suspects by the batch, and much may wait.
        for (id, _) in self.likes(&[trace], |entry| entry.is_like && entry.place == Place::Suspect) {
            let entry = self.entries.get_mut(&id).expect("what waits is known");
            (entry.is_like, entry.record) = (false, Record::default());
            self.quarantine.remove(id);
            self.put_back(id);
        }
    }

    /// Who of those that are asked is the like of one of these, in order of arrival, with its fingerprint.
    fn likes(&self, traces: &[Trace], is_asked: impl Fn(&Entry<P>) -> bool) -> Vec<(ItemId, u64)> {
        let asked = self.entries.iter().filter(|(_, entry)| is_asked(entry));
        let as_long = asked.filter(|(_, entry)| traces.iter().any(|trace| trace.bytes == entry.bytes));
        let read = as_long.map(|(&id, entry)| (entry.waiting.arrival, id, entry.payload.fingerprint()));
        let like = read.filter(|(.., fingerprint)| traces.iter().any(|trace| trace.fingerprint == *fingerprint));
        let mut like: Vec<_> = like.collect();
        like.sort_unstable();
        like.into_iter().map(|(_, id, fingerprint)| (id, fingerprint)).collect()
    }

    /// What waits runs alone if its like is suspected.
    fn set_apart(&mut self, id: ItemId, record: Record) {
        let entry = self.entries.get_mut(&id).expect("what waits is known");
        entry.record = entry.record.with(record);
        if let Place::Lane(lane) = entry.place
            && entry.record.is_suspect()
        {
            self.lanes.remove(lane, entry.priority, entry.waiting);
            (entry.place, entry.is_like) = (Place::Suspect, true);
            self.quarantine.suspect(id);
        }
    }

    /// Back to where it waited; its bytes are counted elsewhere.
    fn put_back(&mut self, id: ItemId) {
        let entry = self.entries.get_mut(&id).expect("what waits is known");
        entry.place = Place::Lane(self.lanes.push(&entry.group, entry.priority, entry.waiting));
    }
}
