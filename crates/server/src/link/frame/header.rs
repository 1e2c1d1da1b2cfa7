//! The header of a frame, and what can be wrong with the bytes of one.

use crate::link::frame::kind::Kind;
use bytes::{Buf, Bytes};

/// Bytes of the header.
pub const HEADER_LEN: usize = 16;
/// The version of all frames; both ends must have the same.
pub const FRAME_VERSION: u8 = 3;
const MAGIC: u16 = u16::from_le_bytes(*b"JY");
/// Most bytes of a table: enough for a batch of a million items.
const MAX_TABLE: u32 = 256 << 20;
/// Most bytes of a payload region.
const MAX_PAYLOAD: u64 = 16 << 30;

/// The bytes are not a frame of ours. The link they came over is of no more use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It does not begin like a frame.
    #[error("not a frame: it begins with {0:#06x}")]
    Magic(u16),
    /// The other end speaks another version.
    #[error("the other end speaks frame version {0}, this end {FRAME_VERSION}; install one version of jitney on both")]
    Version(u8),
    /// No kind has this number.
    #[error("no frame kind has number {0}")]
    Kind(u8),
    /// A length above its limit.
    #[error("a frame of {table} + {payload} bytes is above the limit")]
    TooLarge {
        /// declared table bytes
        table: u32,
        /// declared payload bytes
        payload: u64,
    },
    /// The table ends too early, or points outside the payload.
    #[error("the table of a frame is damaged: {0}")]
    Table(&'static str),
}

impl From<FrameError> for std::io::Error {
    fn from(error: FrameError) -> std::io::Error {
        std::io::Error::new(std::io::ErrorKind::InvalidData, error)
    }
}

/// A header whose lengths are within their limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the frame says.
    pub kind: Kind,
    /// Bytes of its table.
    pub table: usize,
    /// Bytes of its payload.
    pub payload: usize,
}

impl Header {
    /// Writes a header.
    pub fn encode(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0..2].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[2] = FRAME_VERSION;
        bytes[3] = self.kind as u8;
        bytes[4..8].copy_from_slice(&(self.table as u32).to_le_bytes());
        bytes[8..16].copy_from_slice(&(self.payload as u64).to_le_bytes());
        bytes
    }

    /// Reads and checks a header.
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Header, FrameError> {
        let mut bytes = &bytes[..];
        let magic = bytes.get_u16_le();
        if magic != MAGIC {
            return Err(FrameError::Magic(magic));
        }
        let (version, kind) = (bytes.get_u8(), bytes.get_u8());
        if version != FRAME_VERSION {
            return Err(FrameError::Version(version));
        }
        let kind = Kind::from_u8(kind).ok_or(FrameError::Kind(kind))?;
        let (table, payload) = (bytes.get_u32_le(), bytes.get_u64_le());
        if table > MAX_TABLE || payload > MAX_PAYLOAD {
            return Err(FrameError::TooLarge { table, payload });
        }
        Ok(Header { kind, table: table as usize, payload: payload as usize })
    }
}

/// A whole frame, ready to be written: its pieces in order. Large pieces were not copied.
pub type Segments = Vec<Bytes>;

/// A frame without payload region: control messages, whose table is JSON or a few numbers.
pub fn small_frame(kind: Kind, table: &[u8]) -> Segments {
    let header = Header { kind, table: table.len(), payload: 0 };
    vec![Bytes::from([&header.encode(), table].concat())]
}
