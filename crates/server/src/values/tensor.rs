//! Element types, shapes, and how the bytes of a value are encoded.

use smallvec::SmallVec;

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
    /// Row-major little-endian elements of an array; dtype and shape are kept next to it.
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
