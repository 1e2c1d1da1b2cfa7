//! Bytes in several pieces, as a socket returned them.

use bytes::Bytes;
use smallvec::SmallVec;

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
