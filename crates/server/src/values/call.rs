//! One unchanged item of a client, with all that the engine has to know of it.

use crate::base::traces::notes::BatchTrace;
use crate::base::traces::notes::TraceNote;
use crate::values::chunks::Chunks;
use crate::values::metadata::Metadata;
use crate::values::tensor::{Tag, TensorType};
use bytes::Bytes;
use jitney_core::queue::group_key::GroupKey;
use jitney_core::request::{ItemId, Priority};
use jitney_core::scheduler::item::Asked;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One value of an item: the whole item, or one of its named arrays.
#[derive(Clone, Debug)]
pub struct Part {
    /// How to read `data`.
    pub tag: Tag,
    /// Set when `tag` is `Tensor`.
    pub tensor: Option<TensorType>,
    /// The bytes.
    pub data: Chunks,
}

/// What a struct comes back as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Encoding {
    /// JSON
    #[default]
    Json = 0,
    /// msgpack
    Msgpack = 1,
}

/// One unchanged input, with everything that the engine asks about it.
#[derive(Clone, Debug)]
pub struct Call {
    /// Unique in this process: from `next_item_id`.
    pub id: ItemId,
    /// One part, or one per array parameter of `predict`, in the manifest's order.
    pub parts: SmallVec<[Part; 1]>,
    /// What a struct comes back as.
    pub encoding: Encoding,
    /// What it must share with its batch.
    pub group: GroupKey,
    /// What it counts against `max_batch_cost`.
    pub cost: u64,
    /// Whether the caller takes the answer in parts. Otherwise the worker puts them together.
    pub streams: bool,
    /// A number of its group key, for models that work in steps: only items of one key share a step. 0 for all others.
    pub key: u64,
    /// From now; `None` is the deployment's `request_timeout_s`.
    pub timeout: Option<Duration>,
    /// Its class.
    pub priority: Priority,
    /// What it has of the requests for which a model of this server asks; `None` of an item of a client.
    pub asked: Option<Asked>,
    /// What its request says in addition to the values; shared by all items of the request.
    pub metadata: Option<Metadata>,
    /// Of an item of a traced request: the batch that it is in, or was in last.
    pub stay: Option<BatchSpan>,
    /// Of an item of a traced request: how many items waited before it.
    pub ahead: u32,
}

/// The batch that an item of a traced request is in.
#[derive(Clone, Debug)]
pub struct BatchSpan {
    pub(crate) batch: Arc<BatchTrace>,
    /// The span of `predict` in the trace of the request.
    pub(crate) predict: u64,
    /// How many items of the batch stand before it.
    pub(crate) position: u32,
    /// 1, or more if it was in a batch before that gave no result.
    pub(crate) attempt: u32,
}

impl Call {
    /// An item of these values whose caller says nothing else.
    pub fn new(parts: SmallVec<[Part; 1]>, encoding: Encoding) -> Call {
        Call {
            id: next_item_id(),
            parts,
            encoding,
            group: GroupKey::default(),
            cost: 1,
            streams: false,
            key: 0,
            timeout: None,
            priority: Priority::default(),
            asked: None,
            metadata: None,
            stay: None,
            ahead: 0,
        }
    }

    /// What is noted of its request, if that is traced.
    pub(crate) fn note(&self) -> Option<&TraceNote> {
        self.metadata.as_ref()?.further.as_ref()?.note.as_ref()
    }

    /// What it counts against the queue's limit of bytes.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.data.len() as u64).sum()
    }

    /// Copies its values, so that they share no memory with the message that they came in.
    pub(crate) fn detach(&mut self) {
        for part in &mut self.parts {
            part.data = Chunks::from(Bytes::from(part.data.0.concat()));
        }
    }
}

/// A new id for an item. Ids are never reused.
pub fn next_item_id() -> ItemId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    ItemId(NEXT.fetch_add(1, Ordering::Relaxed))
}
