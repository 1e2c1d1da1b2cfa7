//! What replicas and their workers report, except that they are lost.

pub mod steps;

use crate::learn::batch_cost::BatchCost;
use crate::learn::transfer_limit::MOVING_S_PER_BYTE;
use crate::queue::group_key::GroupKey;
use crate::replicas::batch::Batch;
use crate::replicas::paces::link_way::LinkWay;
use crate::replicas::paces::replica_pace::Measured;
use crate::request::{BatchId, GroupId, ItemId, ReplicaClass, ReplicaId};
use crate::scheduler::action::Action;
use crate::scheduler::item::{EndedItem, Payload, Stage};
use crate::scheduler::state::{Availability, Scheduler};
use crate::tables::outcome::Outcome;
use crate::time::Time;
use std::time::Duration;

/// Batches after which a duration that the line through all sizes predicts is compared with what came.
const SURE_AFTER: u64 = 32;

impl<P: Payload> Scheduler<P> {
    /// A replica is loaded and idle.
    pub fn replica_up(&mut self, now: Time, id: ReplicaId, class: ReplicaClass) {
        self.replicas.add(id, class, now);
        self.paces.add(id);
        if self.rules.joins {
            self.open_sets.add(id);
        }
        self.availability = Availability::Ready;
        self.has_news = true;
    }

    /// The link to a replica that is up leaves this machine: what the way takes is learned.
    pub fn replica_is_far(&mut self, id: ReplicaId) {
        self.paces.set_far(id);
    }

    /// Treats all replicas as equal whatever they take. A simulation compares with it.
    pub fn treat_replicas_as_equal(&mut self) {
        self.paces.turn_off();
    }

    /// What is believed of each replica's speed: how many times as long as the median one it takes.
    pub fn factors(&self) -> impl Iterator<Item = (ReplicaId, f64)> + '_ {
        self.paces.factors()
    }

    /// The measured ways to replicas on other machines.
    pub fn link_ways(&self) -> impl Iterator<Item = (ReplicaId, &LinkWay)> + '_ {
        self.paces.link_ways()
    }

    /// A replica will end when it has finished what it holds: it gets nothing more.
    pub fn retire(&mut self, id: ReplicaId) {
        self.replicas.condemn(id);
        self.open_sets.condemn(id);
    }

    /// Batches of a class of replicas took this long when they were tried before serving. What was measured while serving says
    /// more: then, and when another replica of the class has reported, this changes nothing.
    pub fn profiled(&mut self, class: ReplicaClass, batches: impl IntoIterator<Item = (BatchCost, Duration)>) {
        let models = self.models.learn_of(class);
        if models.all().count() == 0 {
            batches.into_iter().for_each(|(load, length)| models.profiled(load, length));
        }
    }

    /// Batches of one method of a model that has several took this long when they were tried before serving. `key` is the group
    /// key of these batches.
    pub fn method_profiled(
        &mut self,
        class: ReplicaClass,
        key: &GroupKey,
        batches: impl IntoIterator<Item = (BatchCost, Duration)>,
    ) {
        let group = self.lanes.number(key);
        self.models.learn_of(class).profiled_of(group, batches);
    }

    /// The replica that holds a batch; `None` if the batch has ended.
    pub fn holder(&self, batch: BatchId) -> Option<ReplicaId> {
        self.batches.get(&batch).map(|batch| batch.replica)
    }

    /// `predict` begins on a batch.
    pub fn batch_started(&mut self, id: BatchId) {
        if let Some(batch) = self.batches.get(&id)
            && let Some(items) = self.replicas.items(batch.replica)
        {
            items.start(id);
        }
    }

    /// The payload of an item that is in this batch and has not ended.
    pub fn item_of(&mut self, batch: BatchId, id: ItemId) -> Option<&mut P> {
        let entry = self.entries.get_mut(&id).filter(|entry| entry.stage == Stage::Batch(batch))?;
        Some(&mut entry.payload)
    }

    /// An item of a batch has its result. Returns the item, exactly once, to be answered; `None` if no client waits for it any
    /// more, or if it is not in this batch.
    pub fn item_ended(&mut self, batch: BatchId, id: ItemId) -> Option<EndedItem<P>> {
        let cost =
            self.holder(batch).and_then(|replica| self.replicas.items(replica)).and_then(|items| items.end(batch, id));
        self.answered_by(batch, id);
        let ended = match self.entries.get(&id) {
            Some(entry) if entry.stage == Stage::Batch(batch) => {
                self.clear(id);
                self.end(id)
            }
            _ => None,
        };
        if let Some(cost) = cost.filter(|_| self.rules.joins) {
            self.place_is_free(batch, cost);
        }
        ended
    }

    /// A worker sent something of a batch that goes on: it does not hang.
    pub fn progressed(&mut self, now: Time, batch: BatchId) {
        if let Some(batch) = self.batches.get_mut(&batch) {
            batch.progressed = Some(now);
        }
    }

    /// A worker sent a part of an item's answer, and goes on. The first one moves the deadline of the item, unless its client
    /// gave a time-out. Each one shows that the batch does not hang.
    pub fn part_sent(&mut self, now: Time, batch: BatchId, id: ItemId) {
        self.progressed(now, batch);
        self.answered_by(batch, id);
        let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.stage == Stage::Batch(batch)) else { return };
        if std::mem::take(&mut entry.may_stream) {
            let deadline = entry.waiting.arrival + self.rules.stream_timeout;
            self.deadlines.remove(&(entry.deadline, id));
            self.deadlines.insert((deadline, id));
            entry.deadline = deadline;
            if self.rules.side_by_side
                && let Some(&Batch { class, runs_since: Some(joined), .. }) = self.batches.get(&batch)
            {
                self.models.learn_of(class).stays.first_part(now - joined);
            }
        }
    }

    /// A worker is done with a batch. Items that it left without a result are failed. `is_clean` says that the duration of
    /// the batch teaches something: it neither raised nor was split.
    pub fn batch_ended(&mut self, now: Time, replica: ReplicaId, id: BatchId, is_clean: bool) {
        let Some(finished) = self.replicas.finish(replica, id, now) else { return };
        self.has_news = true;
        let Some(batch) = self.remove_batch(id) else { return };
        for (item, _) in finished.items {
            if !self.goes_on(id, item) {
                self.fail(item, Outcome::Internal);
            }
        }
        let is_clean = is_clean && !batch.was_doubtful;
        if let Some(group) = batch.group {
            if is_clean {
                if let Some(since) = finished.ran_since {
                    self.learn_pace(&batch, group, now - since);
                }
                self.memory_limits.fitted(group, batch.computed.items, self.rules.batch.max_items);
            }
            self.traffic.answered(now, group, batch.size, self.models.of(Some(batch.class)).all());
        }
        if let Some(next) = finished.next {
            self.run_batch(next, now);
        }
    }

    /// How many items of a batch that ends were computed: the worker refused the others, or no client waited for them any more.
    /// The duration of the batch is learned for this number.
    pub fn computed(&mut self, id: BatchId, items: usize) {
        if let Some(batch) = self.batches.get_mut(&id).filter(|batch| items < batch.size) {
            // Which ones is not known: as if each had cost the same.
            let cost = batch.computed.cost / batch.size.max(1) as u64 * items as u64;
            batch.computed = BatchCost { items, cost, largest: batch.computed.largest };
        }
    }

    /// What a batch took teaches how fast its replica is, and what batches take on a usual one.
    fn learn_pace(&mut self, batch: &Batch, group: GroupId, took: Duration) {
        let mut length = took;
        if let Some(way) = self.paces.way_mut(batch.replica) {
            // The front's time holds the way, which is not the model's.
            let Some(worked) = batch.worked else { return };
            if !batch.is_ahead {
                way.learn(took.saturating_sub(worked), batch.bytes);
            }
            length = worked;
        }
        let group_models = self.models.of(Some(batch.class));
        let cost_model = group_models.cost_model_of(group);
        let size_model = cost_model.size_model();
        let (expected, scatter) = (cost_model.seconds(batch.computed), size_model.scatter());
        // A line through many sizes says enough of one that was never seen: a trial is one item.
        let is_sure = || size_model.has_line() && size_model.count() >= SURE_AFTER;
        if size_model.is_known() && (size_model.has_seen(batch.computed.units(cost_model.measure())) || is_sure()) {
            let one_s = group_models.all().seconds(1);
            let measured = self.paces.learn(batch.replica, length.as_secs_f64(), expected, scatter, one_s);
            if let Some(Measured { pace, is_slow }) = measured {
                // A lead shorter than the end of a batch is uncertain would bind items too early, half of the time.
                let uncertain = Duration::from_secs_f64(expected * pace.factor * scatter);
                let lead = Some(self.paces.both_ways(batch.replica)).filter(|&lead| lead > uncertain);
                self.replicas.set_pace(batch.replica, pace, lead.unwrap_or_default());
                self.pending.extend(is_slow.map(|factor| Action::Slow(batch.replica, factor)));
            }
        }
        let factor = self.paces.of(batch.replica).factor;
        self.models.learn_of(batch.class).learn(group, batch.computed, length.div_f64(factor));
    }

    /// The bytes of a batch's answers, how long it took to compute once its inputs were there, and how long its worker had it.
    pub fn moved(&mut self, id: BatchId, answers: u64, computing: Duration, worked: Duration) {
        let Some(batch) = self.batches.get_mut(&id) else { return };
        batch.worked = Some(worked);
        batch.bytes = batch.bytes.saturating_add(answers);
        let learns = self.policy.learns_transfer_limits();
        if let Some(group) = batch.group.filter(|_| learns) {
            let measured = self.paces.way(batch.replica).map_or(0.0, LinkWay::s_per_byte);
            let s_per_byte = if measured > 0.0 { measured } else { MOVING_S_PER_BYTE };
            self.transfer_limits.learn(group, batch.size, batch.bytes, computing, s_per_byte);
        }
    }

    /// A running batch was too large for the memory of its device. Returns how many items of its group are taken to fit. Of a model
    /// that works in steps all items of the replica were too many, of whatever group.
    pub fn too_large(&mut self, now: Time, id: BatchId) -> Option<usize> {
        let batch = self.batches.get(&id)?;
        if self.rules.joins {
            let replica = batch.replica;
            return Some(self.open_set_too_large(now, replica));
        }
        Some(self.memory_limits.too_large(batch.group?, batch.size, now))
    }
}
