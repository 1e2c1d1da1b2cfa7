//! What becomes of the items of a lost worker. They run again on another replica, or alone if they may be why the worker died,
//! or they end. Items whose clients no longer wait end here too; an equal input that comes later runs alone.

use crate::replicas::batch::Batch;
use crate::replicas::held_items::HeldItem;
use crate::replicas::loss_history::{Loss, LossHistory};
use crate::replicas::quarantine::{Evidence, Verdict};
use crate::replicas::replicas::LostBatch;
use crate::request::{ItemId, ReplicaId};
use crate::scheduler::item::{Entry, Payload, Stage};
use crate::scheduler::state::Scheduler;
use crate::tables::outcome::Outcome;
use crate::time::Time;

/// An item that has ended with its worker, and whether it is the cause of the loss.
type Judgement = (Evidence, bool);

impl<P: Payload> Scheduler<P> {
    /// A replica died. Items that had not started go back to their lanes; items that had started run again alone, if they may.
    pub fn replica_lost(&mut self, now: Time, id: ReplicaId, loss: Loss) {
        self.has_news = true;
        for (turn, held) in self.replicas.remove(id).into_iter().enumerate() {
            // Workers say that a batch has started only where it matters, which saves a message per batch: where items may
            // run again, the batch that was running is taken to have started.
            let is_started = turn == 0 && self.rules.retry;
            self.batch_lost(now, held, is_started, loss);
        }
    }

    fn batch_lost(&mut self, now: Time, held: LostBatch<P::Input>, is_started: bool, loss: Loss) {
        let Some(batch) = self.remove_batch(held.batch) else { return };
        let mut judged = Vec::new();
        for (item, mut held) in held.items {
            held.is_started |= is_started;
            judged.extend(self.item_lost(item, held, &batch, loss));
        }
        self.judge(now, &judged);
    }

    fn item_lost(&mut self, id: ItemId, held: HeldItem<P::Input>, batch: &Batch, loss: Loss) -> Option<Judgement> {
        let is_trial = batch.suspect == Some(id);
        if let Some(mut departed) = held.departed {
            let is_cause = departed.history.add(loss, held.is_started, is_trial);
            let fingerprint = P::fingerprint(&departed.input);
            let evidence = Evidence { fingerprint, bytes: departed.bytes, history: departed.history };
            return Some((evidence, is_cause));
        }
        let entry = self.entries.get_mut(&id)?;
        let is_cause = entry.history.add(loss, held.is_started, is_trial);
        if is_cause || held.is_started && !(self.rules.retry && entry.payload.may_run_again()) {
            let evidence = entry.evidence();
            self.fail(id, Outcome::WorkerLost);
            return Some((evidence, is_cause));
        }
        self.queued_bytes += entry.bytes;
        if entry.history.is_suspect() {
            entry.stage = Stage::Suspect;
            self.quarantine.add_suspect(id);
        } else {
            self.put_back(id);
        }
        None
    }

    /// Remembers the items that have ended with their worker. Waiting items of equal input are treated as if they came now.
    fn judge(&mut self, now: Time, judged: &[Judgement]) {
        for (evidence, is_cause) in judged {
            if *is_cause {
                self.quarantine.block(evidence.fingerprint, now);
            } else {
                self.quarantine.suspect_input(evidence, now, self.rules.batch_timeout);
            }
        }
        let evidence: Vec<Evidence> = judged.iter().map(|(evidence, _)| *evidence).collect();
        for (id, fingerprint) in self.equal_inputs(&evidence, |entry| !matches!(entry.stage, Stage::Batch(_))) {
            match self.quarantine.verdict(|| fingerprint, now) {
                Verdict::Blocked => self.fail(id, Outcome::Quarantined),
                Verdict::Allowed(history) => self.set_apart(id, history),
            }
        }
    }

    /// An item of a batch is about to be answered. If it was computed alone, it did no harm, and waiting items of equal input
    /// are suspects no longer.
    pub(super) fn clear(&mut self, id: ItemId) {
        let Some(entry) = self.entries.get(&id) else { return };
        let Stage::Batch(batch) = entry.stage else { return };
        if self.batches.get(&batch).is_none_or(|batch| batch.suspect != Some(id)) {
            return;
        }
        let evidence = entry.evidence();
        self.quarantine.clear(evidence.fingerprint);
        let may_be_cleared = |entry: &Entry<P>| entry.is_suspected_by_fingerprint && entry.stage == Stage::Suspect;
        for (id, _) in self.equal_inputs(&[evidence], may_be_cleared) {
            let entry = self.entries.get_mut(&id).expect("what waits is known");
            (entry.is_suspected_by_fingerprint, entry.history) = (false, LossHistory::default());
            self.quarantine.remove(id);
            self.put_back(id);
        }
    }

    /// The items whose input is equal to one of these, among those that fulfil a condition; in order of arrival, each with
    /// its fingerprint. Only inputs of the same length are read.
    fn equal_inputs(&self, evidence: &[Evidence], condition: impl Fn(&Entry<P>) -> bool) -> Vec<(ItemId, u64)> {
        let mut equal = Vec::new();
        for (&id, entry) in self.entries.iter().filter(|(_, entry)| condition(entry)) {
            if evidence.iter().any(|evidence| evidence.bytes == entry.bytes) {
                let fingerprint = entry.fingerprint();
                if evidence.iter().any(|evidence| evidence.fingerprint == fingerprint) {
                    equal.push((entry.waiting.arrival, id, fingerprint));
                }
            }
        }
        equal.sort_unstable();
        equal.into_iter().map(|(_, id, fingerprint)| (id, fingerprint)).collect()
    }

    /// A waiting item is computed alone if an equal input is suspected.
    fn set_apart(&mut self, id: ItemId, history: LossHistory) {
        let entry = self.entries.get_mut(&id).expect("what waits is known");
        entry.history = entry.history.with(history);
        if let Stage::Lane(lane) = entry.stage
            && entry.history.is_suspect()
        {
            self.lanes.remove(lane, entry.waiting);
            (entry.stage, entry.is_suspected_by_fingerprint) = (Stage::Suspect, true);
            self.quarantine.add_suspect(id);
        }
    }

    /// Puts an item back to its place in its lane; its bytes are counted already.
    fn put_back(&mut self, id: ItemId) {
        let entry = self.entries.get_mut(&id).expect("what waits is known");
        entry.stage = Stage::Lane(self.lanes.push(&entry.group, entry.waiting));
    }
}
