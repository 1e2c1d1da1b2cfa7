//! The engine's part in what models ask other deployments: an ask has the terms of the items for which it is made.

use crate::engine::program_values::Inherited;
use crate::engine::task::asks::{AskTerms, Asks, MOST_PER_PARENT, NOBODY_WAITS};
use crate::engine::task::{BEAT, Engine};
use crate::link::frame::header::{FrameError, Segments};
use crate::link::frame::kind::Kind;
use crate::link::frame::reader::Frame;
use crate::link::frame::table::TableReader;
use crate::values::answer::Failure;
use crate::values::metadata::FurtherMetadata;
use jitney_core::request::{ItemId, Priority, ReplicaId};
use jitney_core::scheduler::item::Asked;
use jitney_core::tables::outcome::Outcome;
use jitney_core::time::Time;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

impl Engine {
    /// Lets the models of its workers call other deployments.
    #[must_use]
    pub(crate) fn with_asks(mut self, asks: Asks) -> Engine {
        self.asks = asks;
        self
    }

    /// A worker sent a frame about what its model asks. A damaged frame is logged and has no answer.
    pub(super) fn asks(
        &mut self,
        now: Time,
        replica: ReplicaId,
        frame: &Frame,
        answers: &mpsc::UnboundedSender<Segments>,
    ) {
        let Some(session) = self.asks.session(replica, answers) else {
            return tracing::warn!("{}: a worker asks, and its model uses no other deployment", self.deployment);
        };
        let done = if frame.kind == Kind::Ask { self.ask(now, replica, frame) } else { session.take(frame) };
        if let Err(error) = done {
            tracing::error!("{}: a worker sent an ask that cannot be read: {error}", self.deployment);
        }
    }

    fn ask(&mut self, now: Time, replica: ReplicaId, frame: &Frame) -> Result<(), FrameError> {
        let AskHead { mut parents, number, items, rest } = read_head(&frame.table)?;
        let is_up = self.links.contains_key(&replica);
        let terms = if parents.is_empty() {
            // A model that loads waits for those that it uses.
            let asked = Asked { since: now, may_stream: false };
            let inherited = (!is_up).then_some((Inherited { asked, further: None }, Priority::Normal));
            Ok(AskTerms { inherited, timeout: (!is_up).then_some(LOADS_WITHIN) })
        } else {
            // Of a batch, some may have ended. Those of a lost worker are computed by others, although it may not know that.
            parents.retain(|id| is_up && self.scheduler.replica_of(*id) == Some(replica));
            parents.sort_unstable();
            parents.dedup();
            self.inherit(now, replica, &parents).ok_or_else(|| Failure::new(Outcome::Cancelled, NOBODY_WAITS))
        };
        let opened = terms.and_then(|terms| {
            if parents.is_empty() || self.asks.open(replica, number, items, &parents) {
                return Ok(terms);
            }
            let detail = format!("a model asks for more than {MOST_PER_PARENT} items at once for one item");
            Err(Failure::new(Outcome::QueueFull, detail))
        });
        let Some(session) = self.asks.sessions.get_mut(&replica) else { return Ok(()) };
        match opened {
            Ok(terms) => {
                // A model that waits for others does not hang.
                parents.iter().for_each(|&id| {
                    if let Some(batch) = self.scheduler.batch_of(replica, id) {
                        self.scheduler.progressed(now, batch);
                    }
                });
                session.ask(frame, rest, terms)
            }
            Err(failure) => session.refuse(rest, failure),
        }
    }

    /// The terms of an ask for these items; `None` if none of them is computed by this replica any more.
    fn inherit(&mut self, now: Time, replica: ReplicaId, parents: &[ItemId]) -> Option<AskTerms> {
        let terms = self.scheduler.parent_terms(replica, parents)?;
        let further = self.common_metadata(now, parents);
        let asked = Asked { since: terms.since, may_stream: terms.may_stream };
        let inherited = Some((Inherited { asked, further }, terms.priority));
        Some(AskTerms { inherited, timeout: Some(terms.deadline - now) })
    }

    /// Batches whose models wait for what they asked do not hang.
    pub(super) fn excuse_asking(&mut self, now: Time) {
        let every = BEAT.min(self.batch_timeout / 4);
        for (replica, id) in self.asks.sweep(now, every) {
            if let Some(batch) = self.scheduler.batch_of(replica, id) {
                self.scheduler.progressed(now, batch);
            }
        }
    }

    /// What the requests of these items say in addition to their ids, if they all say the same.
    fn common_metadata(&self, now: Time, parents: &[ItemId]) -> Option<Arc<FurtherMetadata>> {
        let mut all = parents.iter().filter_map(|&id| {
            let (pending, _) = self.scheduler.payload(id, now)?;
            Some(pending.call.metadata.as_ref().and_then(|metadata| metadata.further.as_ref()))
        });
        let first = all.next()??;
        if !all.all(|other| other.is_some_and(|other| Arc::ptr_eq(first, other) || first == other)) {
            return None;
        }
        // The spans of what is asked hang below `predict` of the batch that asks.
        let asks_in = parents.first().and_then(|&id| self.scheduler.payload(id, now)?.0.call.stay.as_ref());
        Some(match (&first.note, asks_in) {
            (Some(note), Some(stay)) => {
                let note = Some(note.below(stay.predict));
                Arc::new(FurtherMetadata { note, ..FurtherMetadata::clone(first) })
            }
            _ => first.clone(),
        })
    }
}

/// A model that loads may wait so long for the models that it uses. Its own `load_timeout_s` ends it earlier.
const LOADS_WITHIN: Duration = Duration::from_secs(3600);

/// How the table of an ask begins: the items for which it asks, its number, and how many items it has.
struct AskHead<'a> {
    parents: SmallVec<[ItemId; 4]>,
    number: u64,
    items: usize,
    /// The table of the request, as a program sends it.
    rest: &'a [u8],
}

fn read_head(table: &[u8]) -> Result<AskHead<'_>, FrameError> {
    let mut table = TableReader(table);
    let (number, items) = (table.u64()?, table.u32()? as usize);
    let count = table.count(8)?;
    let parents = (0..count).map(|_| table.u64().map(ItemId)).collect::<Result<_, _>>()?;
    Ok(AskHead { parents, number, items, rest: table.0 })
}

#[cfg(test)]
mod tests;
