//! What crosses between a protocol and the engine: an item as it came, an answer as it left the model.

use bytes::Bytes;
use jitney_core::group_key::GroupKey;
use jitney_core::outcome::Outcome;
use jitney_core::request::{ItemId, Priority};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::time::Duration;

/// How the bytes of a part are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Tag {
    /// A JSON document.
    Json = 0,
    /// A msgpack document.
    Msgpack = 1,
    /// UTF-8 text.
    Text = 2,
    /// Raw bytes.
    Bytes = 3,
    /// Row-major little-endian elements of an array; dtype and shape beside it.
    Tensor = 4,
}

impl Tag {
    /// The tag of this number on the link.
    pub fn from_u8(code: u8) -> Option<Tag> {
        [Tag::Json, Tag::Msgpack, Tag::Text, Tag::Bytes, Tag::Tensor].get(code as usize).copied()
    }
}

/// Element types of arrays, with numpy's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Dtype {
    /// one byte, 0 or 1
    Bool = 0,
    /// 8-bit unsigned
    Uint8 = 1,
    /// 16-bit unsigned
    Uint16 = 2,
    /// 32-bit unsigned
    Uint32 = 3,
    /// 64-bit unsigned
    Uint64 = 4,
    /// 8-bit signed
    Int8 = 5,
    /// 16-bit signed
    Int16 = 6,
    /// 32-bit signed
    Int32 = 7,
    /// 64-bit signed
    Int64 = 8,
    /// IEEE half
    Float16 = 9,
    /// IEEE single
    Float32 = 10,
    /// IEEE double
    Float64 = 11,
}

impl Dtype {
    /// Every dtype, by its number on the link.
    pub const ALL: [Dtype; 12] = [
        Dtype::Bool,
        Dtype::Uint8,
        Dtype::Uint16,
        Dtype::Uint32,
        Dtype::Uint64,
        Dtype::Int8,
        Dtype::Int16,
        Dtype::Int32,
        Dtype::Int64,
        Dtype::Float16,
        Dtype::Float32,
        Dtype::Float64,
    ];
    const NAMES: [&'static str; 12] = [
        "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32",
        "float64",
    ];
    const SIZES: [usize; 12] = [1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8];

    /// numpy's name.
    pub fn name(self) -> &'static str {
        Dtype::NAMES[self as usize]
    }

    /// Bytes per element.
    pub fn size(self) -> usize {
        Dtype::SIZES[self as usize]
    }

    /// The dtype of numpy's name.
    pub fn parse(name: &str) -> Option<Dtype> {
        Dtype::NAMES.iter().position(|&n| n == name).map(|i| Dtype::ALL[i])
    }

    /// The dtype of this number on the link.
    pub fn from_u8(code: u8) -> Option<Dtype> {
        Dtype::ALL.get(code as usize).copied()
    }
}

/// Dtype and shape of one array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorType {
    /// Element type.
    pub dtype: Dtype,
    /// All axes of this array.
    pub shape: SmallVec<[u64; 4]>,
}

impl TensorType {
    /// Bytes that an array of this type takes; `None` if no array can have that shape. As numpy has it, the axes of an
    /// empty array may not overflow either: those that are not zero are multiplied to see.
    pub fn byte_len(&self) -> Option<u64> {
        let bytes = self.shape.iter().try_fold(self.dtype.size() as u64, |n, &axis| n.checked_mul(axis.max(1)))?;
        let fits = i64::try_from(bytes).is_ok();
        fits.then_some(if self.shape.contains(&0) { 0 } else { bytes })
    }
}

/// Bytes as they arrived: several chunks, never joined unless something must read them in one piece.
#[derive(Clone, Debug, Default)]
pub struct Chunks(pub SmallVec<[Bytes; 1]>);

impl Chunks {
    /// Bytes in all chunks.
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// No bytes at all.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Bytes::is_empty)
    }

    /// One piece: free when there is one chunk, else a copy that replaces the chunks.
    pub fn contiguous(&mut self) -> &Bytes {
        if self.0.len() != 1 {
            let joined = self.0.concat();
            self.0 = SmallVec::from_elem(Bytes::from(joined), 1);
        }
        &self.0[0]
    }

    /// Takes the first `length` bytes off, or all if there are fewer; the rest stays where it is. Nothing is copied.
    #[must_use]
    pub fn split_to(&mut self, mut length: usize) -> Chunks {
        let mut whole = 0;
        while let Some(chunk) = self.0.get(whole).filter(|chunk| chunk.len() <= length) {
            length -= chunk.len();
            whole += 1;
        }
        let mut taken = Chunks(self.0.drain(..whole).collect());
        if let Some(first) = self.0.first_mut().filter(|_| length > 0) {
            taken.0.push(first.split_to(length));
        }
        taken
    }
}

impl From<Bytes> for Chunks {
    fn from(bytes: Bytes) -> Chunks {
        Chunks(SmallVec::from_elem(bytes, 1))
    }
}

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

/// One input as it came, with everything that the engine asks about it.
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
    /// From now; `None` is the deployment's `request_timeout_s`.
    pub timeout: Option<Duration>,
    /// Its class.
    pub priority: Priority,
}

impl Call {
    /// What it counts against the queue's limit of bytes.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.data.len() as u64).sum()
    }
}

/// One value of an answer, as it left the worker.
#[derive(Clone, Debug)]
pub struct OutputPart {
    /// Empty when the answer is one unnamed value, else the name of this array.
    pub name: Box<str>,
    /// How to read `data`.
    pub tag: Tag,
    /// Set when `tag` is `Tensor`: this item's row, without the batch axis.
    pub tensor: Option<TensorType>,
    /// Set when `tag` is `Bytes`, e.g. `image/png`.
    pub media_type: Option<Box<str>>,
    /// The bytes, a slice of the worker's buffer.
    pub data: Bytes,
}

/// A request that ended without a result.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which row of the table.
    pub outcome: Outcome,
    /// What was wrong, with which value, and what to do: shown to the client.
    pub detail: String,
    /// The field of the input that is to blame, e.g. `$.width`.
    pub field: Option<String>,
    /// A status that the model's author chose instead of the table's.
    pub status: Option<u16>,
    /// When to come back.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure with nothing but its reason.
    pub fn new(outcome: Outcome, detail: impl Into<String>) -> Failure {
        Failure { outcome, detail: detail.into(), field: None, status: None, retry_after: None }
    }
}

/// Where the time of a request went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    /// From arrival to the launch of its batch.
    pub queue: Duration,
    /// From launch to results, without the model.
    pub batch: Duration,
    /// `predict` itself.
    pub model: Duration,
    /// Items in the batch; 0 if it never rode in one.
    pub batch_size: u32,
}

/// How a call ended. Every call gets exactly one.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The values, or why there are none.
    pub result: Result<SmallVec<[OutputPart; 1]>, Failure>,
    /// Where the time went.
    pub timing: Timing,
    /// How many tokens it took, from models that count them.
    pub tokens: Option<u64>,
}

/// The name of the part in which a worker sends how many tokens an item took. No parameter or field can be called so.
const TOKENS: &str = "$tokens";

/// Takes the count of tokens out of what a worker sent; what is left is the answer itself.
pub(crate) fn take_tokens(parts: &mut SmallVec<[OutputPart; 1]>) -> Option<u64> {
    let place = parts.iter().position(|part| &*part.name == TOKENS)?;
    let part = parts.remove(place);
    let bytes = part.data.as_ref().try_into().ok()?;
    u64::try_from(i64::from_le_bytes(bytes)).ok()
}

/// A value of the client's in a message: printable, and bounded.
pub fn quoted(bytes: &[u8]) -> String {
    const SHOWN: usize = 80;
    let text: String = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)])
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    format!("`{text}{}`", if bytes.len() > SHOWN { "…" } else { "" })
}

/// A text that may quote a whole value of the client's: of a long one the beginning, and the end, which says where.
pub fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let (mut head, mut tail) = (most * 3 / 4, text.len() - most / 4);
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    Cow::Owned(format!("{}…{}", &text[..head], &text[tail..]))
}

/// What a parser says, in a message: bounded.
pub fn told(error: &dyn std::fmt::Display) -> String {
    shortened(&error.to_string(), 240).into_owned()
}

impl Answer {
    /// Of a call that never reached a model.
    pub fn failed(failure: Failure) -> Answer {
        Answer { result: Err(failure), timing: Timing::default(), tokens: None }
    }

    /// Which row of the table.
    pub fn outcome(&self) -> Outcome {
        self.result.as_ref().map_or_else(|failure| failure.outcome, |_| Outcome::Ok)
    }
}
