//! What each replica holds: the batch that runs and, if it was full, one that was sent ahead.

use crate::request::{BatchId, ReplicaId};
use crate::time::Time;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

#[derive(Debug)]
struct Replica {
    /// With what each should take. The first one runs, the second was sent ahead.
    batches: VecDeque<(BatchId, Duration)>,
    /// Since when it is free, or since when its first batch runs.
    since: Time,
    /// Its batch is a suspect, which must be alone: nothing is sent ahead to it.
    holds_suspect: bool,
    /// Told to end, or to die because it hangs: gets nothing more.
    is_condemned: bool,
}

/// The replicas that are up.
#[derive(Debug, Default)]
pub struct Replicas {
    all: BTreeMap<ReplicaId, Replica>,
}

impl Replicas {
    /// A replica is loaded and free.
    pub fn add(&mut self, id: ReplicaId, now: Time) {
        self.all
            .insert(id, Replica { batches: VecDeque::new(), since: now, holds_suspect: false, is_condemned: false });
    }

    /// A replica is gone; returns what it held, the running batch first.
    pub fn remove(&mut self, id: ReplicaId) -> Vec<BatchId> {
        let replica = self.all.remove(&id);
        replica.map(|replica| replica.batches.into_iter().map(|(batch, _)| batch).collect()).unwrap_or_default()
    }

    /// Gives a replica nothing more.
    pub fn condemn(&mut self, id: ReplicaId) {
        if let Some(replica) = self.all.get_mut(&id) {
            replica.is_condemned = true;
        }
    }

    /// Replicas that work.
    pub fn len(&self) -> usize {
        self.all.values().filter(|r| !r.is_condemned).count()
    }

    /// Whether no replica works.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Replicas that hold nothing.
    pub fn idle_count(&self) -> usize {
        self.all.values().filter(|r| !r.is_condemned && r.batches.is_empty()).count()
    }

    /// The replica that has been free for longest.
    pub fn idle(&self) -> Option<ReplicaId> {
        self.longest(|replica| replica.batches.is_empty())
    }

    /// The replica that may be sent a full batch ahead: the one whose batch has run for longest.
    pub fn ready_for_ahead(&self) -> Option<ReplicaId> {
        self.longest(|replica| replica.batches.len() == 1 && !replica.holds_suspect)
    }

    fn longest(&self, fits: impl Fn(&Replica) -> bool) -> Option<ReplicaId> {
        let fitting = self.all.iter().filter(|(_, r)| !r.is_condemned && fits(r));
        fitting.min_by_key(|(id, r)| (r.since, **id)).map(|(id, _)| *id)
    }

    /// Batches that wait at a busy replica for their turn.
    pub fn sent_ahead(&self) -> usize {
        let working = self.all.values().filter(|replica| !replica.is_condemned);
        working.map(|replica| replica.batches.len().saturating_sub(1)).sum()
    }

    /// When the next busy replica should be free; `None` if none is busy.
    pub fn next_free(&self) -> Option<Time> {
        let busy = self.all.values().filter(|replica| !replica.is_condemned && !replica.batches.is_empty());
        busy.map(|replica| replica.batches.iter().fold(replica.since, |at, &(_, takes)| at + takes)).min()
    }

    /// A batch that should take so long goes to a replica; true if it runs at once.
    pub fn launch(&mut self, id: ReplicaId, batch: BatchId, takes: Duration, is_suspect: bool, now: Time) -> bool {
        let replica = self.all.get_mut(&id).expect("launches go to replicas that are up");
        replica.batches.push_back((batch, takes));
        replica.holds_suspect = is_suspect;
        let runs = replica.batches.len() == 1;
        if runs {
            replica.since = now;
        }
        runs
    }

    /// A batch is done; returns since when it ran, if it did, and the batch that takes its turn.
    pub fn finish(&mut self, id: ReplicaId, batch: BatchId, now: Time) -> Option<(Option<Time>, Option<BatchId>)> {
        let replica = self.all.get_mut(&id)?;
        let place = replica.batches.iter().position(|&(b, _)| b == batch)?;
        replica.batches.remove(place);
        replica.holds_suspect = false;
        if place > 0 {
            return Some((None, None)); // Out of turn: the running one still runs.
        }
        let since = std::mem::replace(&mut replica.since, now);
        Some((Some(since), replica.batches.front().map(|&(batch, _)| batch)))
    }
}
