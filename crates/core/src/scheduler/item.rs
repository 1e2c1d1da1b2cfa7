//! An item on its way through the scheduler.

use crate::queue::group_key::GroupKey;
use crate::queue::lanes::LaneId;
use crate::queue::waiting::Waiting;
use crate::replicas::held_items::Departed;
use crate::replicas::loss_history::LossHistory;
use crate::replicas::quarantine::{Evidence, Fingerprint};
use crate::request::{BatchId, ItemId, Priority};
use crate::time::Time;
use std::fmt::Debug;
use std::time::Duration;

/// What the engine needs to compute and to answer an item.
pub trait Payload {
    /// The input of an item. A clone is cheap: it shares the memory of the payload.
    type Input: Clone + Debug;

    /// The input of this item.
    fn input(&self) -> &Self::Input;

    /// A hash of the whole input: equal inputs have equal hashes.
    fn fingerprint(input: &Self::Input) -> u64;

    /// A hash of a small part of the input. It is computed in a time that does not grow with the input.
    fn sample(input: &Self::Input) -> u64 {
        Self::fingerprint(input)
    }

    /// Whether the item may be given to another worker when its own is lost: not once a part of its answer was sent.
    fn may_run_again(&self) -> bool {
        true
    }

    /// What it has of the requests for which a model of this server asks; `None` of an item of a client.
    fn asked(&self) -> Option<Asked> {
        None
    }

    /// It waits again: its worker was lost or is silent, or its model had no room for it.
    fn waits_again(&mut self) {}

    /// It waits no longer: the silent worker that has it is heard again.
    fn waits_no_longer(&mut self) {}
}

/// What an item has of the requests behind it, because a model of this server asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// When the oldest of these requests arrived.
    pub since: Time,
    /// Its time-out is what these requests have left, and the first part of an answer may give them more: so it moves the
    /// deadline of this item too.
    pub may_stream: bool,
}

/// An item that asks to enter.
#[derive(Debug)]
pub struct NewItem<P> {
    /// The item; no other one has this number.
    pub id: ItemId,
    /// What the items of one batch must agree on.
    pub group: GroupKey,
    /// What it counts against a batch's cost limit, in cost units.
    pub cost: u64,
    /// What it counts against the queue's byte limit.
    pub bytes: u64,
    /// Its priority class.
    pub priority: Priority,
    /// From now until its deadline; `None` is the deployment's request time-out.
    pub timeout: Option<Duration>,
    /// What the engine needs to compute and to answer it.
    pub payload: P,
}

/// What is asked about a request before its items enter.
#[derive(Clone, Copy, Debug)]
pub struct RequestTerms<'a> {
    /// The group of its first item.
    pub group: &'a GroupKey,
    /// Its priority class.
    pub priority: Priority,
    /// The cost of its first item, in cost units.
    pub cost: u64,
    /// The bytes of all its items.
    pub bytes: u64,
    /// From now until its deadline; `None` is the deployment's request time-out.
    pub timeout: Option<Duration>,
    /// These are further items of a request that was admitted before. They enter while the server drains, and a refusal of them
    /// does not count as overload.
    pub continues: bool,
    /// A model of this server asks, for items that were admitted: only the bytes of the queue bound them.
    pub asked: bool,
}

/// An item that has left the scheduler, with what its answer says about its time.
#[derive(Debug)]
pub struct EndedItem<P> {
    /// The item.
    pub id: ItemId,
    /// What the engine gave.
    pub payload: P,
    /// When it entered.
    pub arrival: Time,
    /// When its batch began to run; for a batch that has not begun, when it was launched; `None` if the item was in no batch.
    pub launched: Option<Time>,
    /// Items in its batch at the launch.
    pub batch_size: u32,
    /// It failed because its batch ran for longer than `batch_timeout_s` when no other item was left in it.
    pub hung_alone: bool,
}

/// Where an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits in a lane.
    Lane(LaneId),
    /// It waits to be computed alone.
    Suspect,
    /// A replica has it.
    Batch(BatchId),
}

/// An item that has not ended.
#[derive(Debug)]
pub(super) struct Entry<P> {
    pub(super) stage: Stage,
    /// Further batches that have it. Their replicas were silent when it was given to others.
    pub(super) copies: Vec<BatchId>,
    pub(super) group: GroupKey,
    pub(super) waiting: Waiting,
    pub(super) bytes: u64,
    pub(super) deadline: Time,
    /// When the request arrived for which it is computed: before it entered, if a model asks.
    pub(super) since: Time,
    /// The first part of its answer moves its deadline: no client gave a time-out, and no part has come.
    pub(super) may_stream: bool,
    pub(super) launched: Option<Time>,
    pub(super) batch_size: u32,
    pub(super) history: LossHistory,
    /// It waits as a suspect because an equal input is suspected, not for what it did itself.
    pub(super) is_suspected_by_fingerprint: bool,
    /// The hash of the whole input, if it was computed.
    pub(super) whole: Option<u64>,
    pub(super) payload: P,
}

impl<P: Payload> Entry<P> {
    pub(super) fn sample(&self) -> u64 {
        P::sample(self.payload.input())
    }

    /// Reads the whole input, unless that was done before.
    pub(super) fn fingerprint(&self) -> Fingerprint {
        let whole = self.whole.unwrap_or_else(|| P::fingerprint(self.payload.input()));
        Fingerprint { sample: self.sample(), whole }
    }

    pub(super) fn evidence(&self) -> Evidence {
        Evidence { fingerprint: self.fingerprint(), history: self.history }
    }

    /// What stays with the replica when no client waits for the item any more.
    pub(super) fn departed(&self) -> Departed<P::Input> {
        Departed { input: self.payload.input().clone(), whole: self.whole, history: self.history }
    }
}
