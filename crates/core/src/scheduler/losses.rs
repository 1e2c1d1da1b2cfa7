//! What becomes of the items of a lost worker: elsewhere, alone, or to an end.

use super::{Loss, Payload, Place, Scheduler};
use crate::outcome::Outcome;
use crate::request::{BatchId, ReplicaId};
use crate::time::Time;

/// An item that this many lost workers held is a suspect even if `predict` never began on it: decoding it may be what
/// kills them, and that may happen before its batch's turn.
const LOSSES_OF_A_SUSPECT: u8 = 3;

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
        let Some(batch) = self.remove_batch(id) else { return };
        for item in batch.items {
            let Some(entry) = self.entries.get_mut(&item) else {
                continue;
            };
            entry.losses = entry.losses.saturating_add(1);
            let is_suspect = batch.started || entry.losses >= LOSSES_OF_A_SUSPECT;
            let was_alone = batch.suspect == Some(item) && is_suspect;
            entry.losses_alone += u8::from(was_alone);
            if was_alone && (loss == Loss::Crashed || entry.losses_alone > 1) {
                let fingerprint = entry.payload.fingerprint();
                self.quarantine.convict(fingerprint, now);
                self.fail(item, Outcome::WorkerLost);
            } else if batch.started && !self.rules.retry {
                self.fail(item, Outcome::WorkerLost);
            } else if is_suspect || batch.suspect == Some(item) {
                entry.place = Place::Suspect;
                self.queued_bytes += entry.bytes;
                self.quarantine.suspect(item);
            } else {
                let (group, priority, waiting, bytes) =
                    (entry.group.clone(), entry.priority, entry.waiting, entry.bytes);
                entry.place = Place::Lane(self.lanes.push(&group, priority, waiting));
                self.queued_bytes += bytes;
            }
        }
    }
}
