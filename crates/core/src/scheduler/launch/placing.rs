//! Which replica gets the next batch, where replicas differ in speed or distance: each waiting item would go to the replica that
//! is done with it first (list scheduling). From that rule follow two decisions. The batch goes to the fastest idle replica. And if
//! busy ones would be done with all that waits before that one is done with a single item, nothing leaves yet.

use crate::replicas::paces::idle_speeds::speed;
use crate::request::ReplicaId;
use crate::scheduler::item::Payload;
use crate::scheduler::state::Scheduler;
use crate::time::Time;
use std::time::Duration;

/// Busy replicas that are looked at for one decision. If more would be needed, the batch leaves.
const BUSY_LOOKED_AT: usize = 8;
/// A busy replica that is late by this share of what the idle one takes for an item is not relied on.
const LATE: f64 = 0.25;

/// Where the next batch goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// To this replica, now.
    Here(ReplicaId),
    /// One item goes to this replica, to see whether it is still slow.
    Trial(ReplicaId),
    /// Busy replicas will be done with all that waits sooner than the idle ones; it is decided again at this instant.
    LeftToBusy(Time),
    /// No replica is idle. From this instant on one is so nearly done that its next batch should be on its way.
    AllBusy(Option<Time>),
}

impl<P: Payload> Scheduler<P> {
    /// Where the next batch goes.
    pub(super) fn place(&self, now: Time) -> Place {
        let Some(idle) = self.replicas.idle() else {
            return match self.replicas.almost_free() {
                Some((at, replica)) if at <= now => Place::Here(replica),
                almost => Place::AllBusy(almost.map(|(at, _)| at)),
            };
        };
        if self.replicas.are_alike() {
            return Place::Here(idle);
        }
        if let Some(slow) = self.paces.trial().filter(|&slow| self.replicas.is_idle(slow)) {
            return Place::Trial(slow);
        }
        self.left_to_busy(now, idle).map_or(Place::Here(idle), Place::LeftToBusy)
    }

    /// When to decide again, if busy replicas that are faster than the fastest idle one would be done with all that waits before
    /// that one is done with one item.
    fn left_to_busy(&self, now: Time, idle: ReplicaId) -> Option<Time> {
        let (size_model, pace) = (self.models.of(self.replicas.class(idle)).all(), self.replicas.pace(idle));
        let one_s = size_model.seconds(1) * pace.factor + self.paces.both_ways(idle).as_secs_f64();
        let (done, allowance) = (now + Duration::from_secs_f64(one_s), Duration::from_secs_f64(LATE * one_s));
        let (mut left, mut again, mut looked_at) = (self.lanes.items(), Time(u64::MAX), 0);
        for (rank, ..) in self.replicas.busy().firsts().take_while(|&(rank, ..)| rank < pace.rank) {
            for (_, frees_at, id) in self.replicas.busy().of_rank(rank).take_while(|&(_, at, _)| at < done) {
                if looked_at == BUSY_LOOKED_AT {
                    return None;
                }
                looked_at += 1;
                if frees_at + allowance <= now {
                    continue;
                }
                let seconds = (done - frees_at.max(now)).as_secs_f64() - self.paces.both_ways(id).as_secs_f64();
                let fits = size_model.within(seconds / self.replicas.pace(id).factor, self.rules.batch.max_items);
                if fits > 0 {
                    again = again.min(frees_at + allowance);
                    left = left.saturating_sub(fits);
                }
                if left == 0 {
                    return Some(again);
                }
            }
        }
        None
    }

    /// How many replicas like this one are as good as all idle ones, for what waits: by their speed, or by how the items would be
    /// spread if each went to the replica that is done with it first. A slow one to which nothing would fall counts for nothing.
    pub(in crate::scheduler) fn idle_worth(&self, replica: ReplicaId) -> f64 {
        let idle = self.replicas.idle_count().max(1) as f64;
        if self.replicas.are_alike() {
            return idle;
        }
        let own = self.replicas.pace(replica).factor;
        let by_speed = (self.replicas.idle_speeds().sum as f64 / speed(own) as f64).max(1.0);
        let size_model = self.models.of(self.replicas.class(replica)).all();
        let (waiting, launch_s, item_s) = (self.lanes.items() as f64, size_model.launch_s(), size_model.item_s());
        if item_s <= 0.0 || !size_model.has_line() {
            return by_speed;
        }
        // All that get something are done at the same time: `seconds`, if they are the ranks so far.
        let (mut count, mut power, mut seconds) = (0.0, 0.0, f64::INFINITY);
        for (replicas, factor) in self.replicas.idle_speeds().ranks() {
            if factor * (launch_s + item_s) >= seconds {
                break;
            }
            count += f64::from(replicas);
            power += f64::from(replicas) / factor;
            seconds = (waiting * item_s + count * launch_s) / power;
        }
        let own_items = ((seconds / own - launch_s) / item_s).max(1.0);
        by_speed.min((waiting / own_items).max(1.0))
    }

    /// The busy replica that would be done with a full batch first, if it may be sent one ahead.
    pub(super) fn ready_for_ahead(&self, now: Time) -> Option<ReplicaId> {
        if self.replicas.are_alike() {
            return self.replicas.ready_for_ahead();
        }
        let full_s = self.group_models().all().seconds(self.rules.batch.max_items);
        let done =
            |frees_at: Time, id| frees_at.max(now) + Duration::from_secs_f64(full_s * self.replicas.pace(id).factor);
        let soonest = self.replicas.busy().firsts().min_by_key(|&(_, frees_at, id)| done(frees_at, id));
        soonest.map(|(.., id)| id).filter(|&id| self.replicas.may_get_ahead(id))
    }
}
