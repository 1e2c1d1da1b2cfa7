//! What has arrived in a worker and was not taken yet.

use crate::link::batch_frame;
use crate::link::batch_frame::ReceivedBatch;
use crate::link::frame::kind::Kind;
use crate::link::worker::stream::ReceivedFrame;
use jitney_core::request::{BatchId, ItemId};
use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use std::io;
use std::time::Instant;

/// A control message from the front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// The replica that this worker becomes (JSON).
    Assign(Vec<u8>),
    /// Finish and exit.
    Shutdown,
}

/// A received batch.
#[derive(Debug)]
pub struct Delivered {
    /// The batch.
    pub batch: ReceivedBatch,
    /// The number of the link that it came over. Its results may go over no other: the ids of another front are the same.
    pub link: u64,
    /// When its header arrived: the remaining time of its items counts from then, so the transfer is part of it.
    pub arrived: Instant,
}

/// What there is to do, without waiting for it.
#[derive(Debug)]
pub enum Taken {
    /// A batch.
    Batch(Delivered),
    /// Nothing now.
    Nothing,
    /// Nothing, now or later.
    Ended,
}

#[derive(serde::Deserialize)]
struct NextToken {
    token: String,
}

/// Messages from the front, by kind.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// Links that were lost before this one.
    pub(super) link: u64,
    /// The token for the next connection, once the front has sent it.
    pub(super) token: Option<String>,
    controls: VecDeque<Control>,
    batches: VecDeque<Delivered>,
    /// Inputs that were asked for again.
    inputs: Option<ReceivedBatch>,
    /// Items of batches that are here; cancels of other items are dropped.
    here: FxHashSet<ItemId>,
    cancelled: FxHashSet<ItemId>,
    /// Items whose clients do not read.
    pub(super) paused: FxHashSet<ItemId>,
    /// Messages that have arrived and that may change what is to be computed.
    pub(super) changes: u64,
    /// The connection to the front has ended.
    pub(super) is_closed: bool,
}

impl Inbox {
    /// Files a frame. True for a ping, which is to be answered.
    pub(super) fn deliver(&mut self, frame: ReceivedFrame) -> io::Result<bool> {
        let ReceivedFrame { kind, table, payload, arrived } = frame;
        self.changes += u64::from(!matches!(kind, Kind::Ping | Kind::Pong));
        match kind {
            Kind::Ping => return Ok(true),
            Kind::Pong => {}
            Kind::Batch => {
                let batch = batch_frame::decode(&table, payload)?;
                self.here.extend(batch.items.iter().map(|item| item.id));
                self.batches.push_back(Delivered { batch, link: self.link, arrived });
            }
            Kind::Inputs => self.inputs = Some(batch_frame::decode(&table, payload)?),
            Kind::Cancel => {
                let id = table.as_slice().try_into().map_err(|_| io::Error::other("an item id has 8 bytes"))?;
                let id = ItemId(u64::from_le_bytes(id));
                if self.here.contains(&id) {
                    self.cancelled.insert(id);
                }
            }
            Kind::Pause => {
                let (id, is_paused) =
                    table.split_first_chunk().ok_or_else(|| io::Error::other("a pause has 9 bytes"))?;
                let id = ItemId(u64::from_le_bytes(*id));
                if is_paused == [1] && self.here.contains(&id) {
                    self.paused.insert(id);
                } else {
                    self.paused.remove(&id);
                }
            }
            Kind::Token => {
                let next: NextToken = serde_json::from_slice(&table)?;
                self.token = Some(next.token);
            }
            Kind::Assign => self.controls.push_back(Control::Assign(table)),
            Kind::Shutdown => self.controls.push_back(Control::Shutdown),
            other => return Err(io::Error::other(format!("a front does not send {other:?}"))),
        }
        Ok(false)
    }

    /// The next control message; `Shutdown` after the connection to the front has ended.
    pub(super) fn control(&mut self) -> Option<Control> {
        let control = self.controls.pop_front();
        control.or_else(|| self.is_closed.then_some(Control::Shutdown))
    }

    /// The next batch. There is none after a shutdown, or after the connection to the front has ended.
    pub(super) fn take(&mut self) -> Taken {
        match self.batches.pop_front() {
            Some(batch) => Taken::Batch(batch),
            None if self.is_closed || self.controls.contains(&Control::Shutdown) => Taken::Ended,
            None => Taken::Nothing,
        }
    }

    /// The inputs of this batch that the worker asked for again: none after its link was lost, as its items are cancelled then;
    /// an error after the connection to the front has ended.
    pub(super) fn take_inputs(&mut self, link: u64, batch: BatchId) -> Option<io::Result<ReceivedBatch>> {
        if self.link != link {
            return Some(Ok(ReceivedBatch { id: batch, method: "".into(), items: Vec::new(), payload: Vec::new() }));
        }
        let inputs = self.inputs.take_if(|inputs| inputs.id == batch);
        inputs.map(Ok).or_else(|| self.is_closed.then(|| Err(io::ErrorKind::ConnectionAborted.into())))
    }

    /// Per item of a batch: neither cancelled nor expired.
    pub(super) fn wanted(&self, delivered: &Delivered) -> Vec<bool> {
        let (elapsed, is_here) = (delivered.arrived.elapsed(), delivered.link == self.link);
        let items = delivered.batch.items.iter();
        items.map(|item| is_here && item.remaining > elapsed && !self.cancelled.contains(&item.id)).collect()
    }

    /// Per item of a batch: whether the front has cancelled it, or was lost.
    pub(super) fn cancelled(&self, delivered: &Delivered) -> Vec<bool> {
        let is_lost = delivered.link != self.link;
        delivered.batch.items.iter().map(|item| is_lost || self.cancelled.contains(&item.id)).collect()
    }

    /// The link was lost: the front gives all that came over it to other workers. False if the worker is to end anyway.
    pub(super) fn cut(&mut self) -> bool {
        self.link += 1;
        self.changes += 1;
        self.batches.clear();
        self.inputs = None;
        self.here.clear();
        self.cancelled.clear();
        self.paused.clear();
        !self.controls.contains(&Control::Shutdown)
    }

    /// These items, which came over this link, have ended here.
    pub(super) fn forget(&mut self, link: u64, items: impl Iterator<Item = ItemId>) {
        if link != self.link {
            return;
        }
        for id in items {
            self.here.remove(&id);
            self.cancelled.remove(&id);
            self.paused.remove(&id);
        }
    }
}
