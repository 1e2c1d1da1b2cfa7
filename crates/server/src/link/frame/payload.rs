//! The payload region of a received frame.

use crate::link::frame::header::FrameError;
use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;
use std::ops::Range;

/// The payload region of a frame. A large value has separate memory, so that it can be kept without its neighbours.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    /// In order, each with the place at which it begins.
    pieces: SmallVec<[(usize, Bytes); 1]>,
    len: usize,
}

impl Payload {
    /// Bytes in all pieces.
    pub fn len(&self) -> usize {
        self.len
    }

    /// No bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A range of it that lies within one piece.
    pub fn slice(&self, range: Range<usize>) -> Result<Bytes, FrameError> {
        let after = self.pieces.partition_point(|(start, _)| *start <= range.start);
        let within = after.checked_sub(1).and_then(|place| {
            let (start, piece) = &self.pieces[place];
            (range.end - start <= piece.len()).then(|| piece.slice(range.start - start..range.end - start))
        });
        match within {
            Some(bytes) => Ok(bytes),
            None if range.is_empty() => Ok(Bytes::new()),
            None => Err(FrameError::Table("values overlap")),
        }
    }

    /// All of it in one piece, which costs a copy if there are several.
    pub fn to_bytes(&self) -> Bytes {
        match &self.pieces[..] {
            [(_, piece)] => piece.clone(),
            pieces => {
                let mut all = BytesMut::with_capacity(self.len);
                pieces.iter().for_each(|(_, piece)| all.extend_from_slice(piece));
                all.freeze()
            }
        }
    }

    pub(crate) fn push(&mut self, piece: Bytes) {
        let start = self.len;
        self.len += piece.len();
        self.pieces.push((start, piece));
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Payload {
        Payload { len: bytes.len(), pieces: SmallVec::from_elem((0, bytes), 1) }
    }
}
