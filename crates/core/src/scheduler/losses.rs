//! What becomes of the items of a lost worker. They run again on another replica, or alone if they may be why the worker died,
//! or they end. Items whose clients no longer wait end here too; an equal input that comes later runs alone.

mod hedging;

use crate::replicas::batch::Batch;
use crate::replicas::held_items::HeldItem;
use crate::replicas::loss_history::{Loss, LossHistory};
use crate::replicas::quarantine::{Evidence, Fingerprint, Verdict};
use crate::replicas::replicas::LostBatch;
use crate::request::{BatchId, ItemId, ReplicaId};
use crate::scheduler::item::{Entry, Payload, Stage};
use crate::scheduler::state::Scheduler;
use crate::tables::outcome::Outcome;
use crate::time::Time;

/// An item that has ended with its worker, and whether it is the cause of the loss.
type Judgement = (Evidence, bool);

impl<P: Payload> Scheduler<P> {
    /// The inputs that are read as a whole when this replica is lost: those of the items that may end with it, and none for a
    /// replica that is away. A caller that has large ones can hash them elsewhere, and hand in the hashes before it reports the
    /// loss.
    pub fn inputs_to_read(&mut self, id: ReplicaId, loss: Loss) -> Vec<(ItemId, P::Input)> {
        if loss == Loss::Away {
            return Vec::new();
        }
        let Some(held) = self.replicas.items(id) else { return Vec::new() };
        let may_end = |item, held: &HeldItem<P::Input>| {
            if let Some(departed) = &held.departed {
                return Some(departed.input.clone());
            }
            let (entry, batch) = (self.entries.get(&item)?, self.batches.get(&held.batch)?);
            let may_end = batch.suspect == Some(item) || !(self.rules.retry && entry.payload.may_run_again());
            may_end.then(|| entry.payload.input().clone())
        };
        held.iter().filter_map(|(item, held)| Some((item, may_end(item, held)?))).collect()
    }

    /// The hash of the whole input of an item that this replica holds.
    pub fn fingerprinted(&mut self, id: ReplicaId, item: ItemId, whole: u64) {
        // A client may have stopped to wait for it a moment ago.
        match self.entries.get_mut(&item) {
            Some(entry) => entry.whole = Some(whole),
            None => self.replicas.items(id).into_iter().for_each(|held| held.fingerprinted(item, whole)),
        }
    }

    /// A replica died, or is away. Items that had not started go back to their lanes; items that had started run again alone, if
    /// they may. Of a replica that is away all go back to their lanes: no process died, so none of them is a suspect for it.
    pub fn replica_lost(&mut self, now: Time, id: ReplicaId, loss: Loss) {
        self.has_news = true;
        self.open_sets.remove(id);
        self.paces.remove(id);
        for (turn, held) in self.replicas.remove(id).into_iter().enumerate() {
            // Workers say that a batch has started only where it matters, which saves a message per batch: where items may
            // run again, the batch that was running is taken to have started. In an open set all of them run.
            let is_started = (turn == 0 || self.rules.joins) && self.rules.retry;
            self.batch_lost(now, held, is_started, loss);
        }
    }

    fn batch_lost(&mut self, now: Time, held: LostBatch<P::Input>, is_started: bool, loss: Loss) {
        let Some(batch) = self.remove_batch(held.batch) else { return };
        let mut judged = Vec::new();
        if loss == Loss::Away {
            // What no client waits for any more is forgotten.
            return held.items.into_iter().for_each(|(item, _)| self.item_away(item, batch.id));
        }
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
            let whole = departed.whole.unwrap_or_else(|| P::fingerprint(&departed.input));
            let fingerprint = Fingerprint { sample: P::sample(&departed.input), whole };
            let evidence = Evidence { fingerprint, history: departed.history };
            return Some((evidence, is_cause));
        }
        let entry = self.entries.get_mut(&id)?;
        let is_cause = entry.history.add(loss, held.is_started, is_trial);
        if is_cause || held.is_started && !(self.rules.retry && entry.payload.may_run_again()) {
            let evidence = entry.evidence();
            self.fail(id, Outcome::WorkerLost);
            return Some((evidence, is_cause));
        }
        if !self.goes_on(batch.id, id) {
            self.put_back += 1;
            self.wait_again(id);
        }
        None
    }

    /// An item whose replica is away waits again. If it must not run twice it ends: the report that `predict` has begun may have
    /// been lost on the way.
    fn item_away(&mut self, id: ItemId, batch: BatchId) {
        if self.goes_on(batch, id) {
            return;
        }
        match self.entries.get(&id) {
            Some(entry) if self.rules.retry && entry.payload.may_run_again() => {
                self.put_back += 1;
                self.wait_again(id);
            }
            Some(_) => self.fail(id, Outcome::WorkerLost),
            None => {}
        }
    }

    /// An item that a lost replica had goes back to its former place in its lane, or to the suspects if it is one.
    pub(super) fn wait_again(&mut self, id: ItemId) {
        let entry = self.entries.get_mut(&id).expect("the item has not ended");
        self.queued_bytes += entry.bytes;
        entry.payload.waits_again();
        self.pauses.remove(id);
        if entry.history.is_suspect() {
            entry.stage = Stage::Suspect;
            self.quarantine.add_suspect(id);
        } else {
            self.put_back(id);
        }
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
            match self.quarantine.verdict(|| fingerprint.sample, || fingerprint.whole, now) {
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
        let sample = entry.sample();
        let may_be_cleared = |entry: &Entry<P>| entry.is_suspected_by_fingerprint && entry.stage == Stage::Suspect;
        let waits = || self.entries.values().any(|entry| may_be_cleared(entry) && entry.sample() == sample);
        if !self.quarantine.suspects_sample(sample) && !waits() {
            return;
        }
        let evidence = entry.evidence();
        self.quarantine.clear(evidence.fingerprint);
        for (id, _) in self.equal_inputs(&[evidence], may_be_cleared) {
            let entry = self.entries.get_mut(&id).expect("what waits is known");
            (entry.is_suspected_by_fingerprint, entry.history) = (false, LossHistory::default());
            self.quarantine.remove(id);
            self.put_back(id);
        }
    }

    /// The items whose input is equal to one of these, among those that fulfil a condition; in order of arrival, each with
    /// its fingerprint. Only inputs of the same sample are read as a whole.
    fn equal_inputs(&self, evidence: &[Evidence], condition: impl Fn(&Entry<P>) -> bool) -> Vec<(ItemId, Fingerprint)> {
        if evidence.is_empty() {
            return Vec::new();
        }
        let mut equal = Vec::new();
        for (&id, entry) in self.entries.iter().filter(|(_, entry)| condition(entry)) {
            let sample = entry.sample();
            if evidence.iter().any(|evidence| evidence.fingerprint.sample == sample) {
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
    pub(super) fn put_back(&mut self, id: ItemId) {
        let entry = self.entries.get_mut(&id).expect("what waits is known");
        entry.stage = Stage::Lane(self.lanes.push(&entry.group, entry.waiting));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::options::DeploymentOptions;
    use crate::config::rules::Rules;
    use crate::queue::group_key::GroupKey;
    use crate::request::{Priority, ReplicaClass};
    use crate::scheduler::action::Action;
    use crate::scheduler::item::NewItem;
    use std::cell::Cell;

    thread_local! {
        /// Inputs that were read as a whole.
        static READ: Cell<usize> = const { Cell::new(0) };
    }

    /// An input and its sample.
    #[derive(Debug)]
    struct Input((u64, u64));

    impl Payload for Input {
        type Input = (u64, u64);

        fn input(&self) -> &(u64, u64) {
            &self.0
        }

        fn fingerprint(input: &(u64, u64)) -> u64 {
            READ.set(READ.get() + 1);
            input.0
        }

        fn sample(input: &(u64, u64)) -> u64 {
            input.1
        }
    }

    fn submit(scheduler: &mut Scheduler<Input>, id: u64, input: (u64, u64)) {
        let (group, priority, payload) = (GroupKey::default(), Priority::Normal, Input(input));
        let item = NewItem { id: ItemId(id), group, cost: 1, bytes: 9, priority, timeout: None, payload };
        assert!(scheduler.submit(Time(0), item).is_ok());
    }

    #[test]
    fn only_inputs_that_may_be_equal_are_read_and_each_once() {
        let rules = Rules::new(&DeploymentOptions { max_batch_size: 1, ..DeploymentOptions::for_test() })
            .expect("the options are valid");
        let (mut scheduler, replica) = (Scheduler::new(rules), ReplicaId(1));
        scheduler.replica_up(Time(0), replica, ReplicaClass::default());
        submit(&mut scheduler, 1, (10, 7));
        assert!(matches!(scheduler.poll(Time(0)), Some(Action::Launch(_))));
        assert!(scheduler.inputs_to_read(replica, Loss::Crashed).is_empty(), "a client waits: it will run again");
        assert!(scheduler.cancel(ItemId(1)).is_some());
        for (id, input) in [(2, (10, 7)), (3, (20, 7)), (4, (30, 8))] {
            submit(&mut scheduler, id, input);
        }
        assert!(scheduler.inputs_to_read(replica, Loss::Away).is_empty(), "no input is why a link is lost");
        assert_eq!(scheduler.inputs_to_read(replica, Loss::Crashed), [(ItemId(1), (10, 7))]);
        scheduler.fingerprinted(replica, ItemId(1), 10);
        scheduler.replica_lost(Time(0), replica, Loss::Crashed);
        assert_eq!(READ.get(), 2, "those of the same sample, and not the one that was read elsewhere");
        let suspects = [2, 3, 4].map(|id| scheduler.entries[&ItemId(id)].stage == Stage::Suspect);
        assert_eq!(suspects, [true, false, false]);
        submit(&mut scheduler, 5, (40, 9));
        assert_eq!(READ.get(), 2, "it cannot be equal");
        submit(&mut scheduler, 6, (10, 7));
        assert_eq!((READ.get(), scheduler.entries[&ItemId(6)].stage), (3, Stage::Suspect));
    }
}
