//! Reads frames from a byte stream.

use crate::link::frame::header::{FrameError, HEADER_LEN, Header};
use crate::link::frame::kind::Kind;
use crate::link::frame::payload::Payload;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::ops::Range;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Most memory that is allocated because a header announces it; a larger frame gets more as its bytes come.
pub(crate) const AT_ONCE: usize = 64 << 20;
/// Bytes of the buffer that a reader keeps between frames.
const STANDING: usize = 64 << 10;
/// A value from this size on has memory of its own: it can be kept without its neighbours, and is not copied.
pub(crate) const OWN_BYTES: usize = 64 << 10;

/// The ranges of a payload, ascending, that get memory of their own, read from the table.
pub(crate) type Cuts = fn(table: &[u8], payload: usize) -> Result<Vec<Range<usize>>, FrameError>;

/// A frame that has arrived.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Its kind.
    pub kind: Kind,
    /// Its table.
    pub table: Bytes,
    /// Its payload region.
    pub payload: Payload,
}

/// Reads frames from a stream; bytes may come split at any place.
#[derive(Debug)]
pub struct FrameReader<R> {
    stream: R,
    buffer: BytesMut,
    cuts: Cuts,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// A reader of this stream, which stands between two frames.
    pub fn new(stream: R) -> FrameReader<R> {
        FrameReader { stream, buffer: BytesMut::with_capacity(STANDING), cuts: |_, _| Ok(Vec::new()) }
    }

    /// The same reader over another view of its stream, with what it has already read.
    pub(crate) fn map<S>(self, view: impl FnOnce(R) -> S) -> FrameReader<S> {
        FrameReader { stream: view(self.stream), buffer: self.buffer, cuts: self.cuts }
    }

    /// Sets how large payloads are cut from now on.
    pub(crate) fn cut_by(&mut self, cuts: Cuts) {
        self.cuts = cuts;
    }

    /// The next frame; `None` when the stream ends between two frames.
    pub async fn next(&mut self) -> std::io::Result<Option<Frame>> {
        self.next_within(usize::MAX).await
    }

    /// The next frame; an error if table and payload have more than `most` bytes.
    pub async fn next_within(&mut self, most: usize) -> std::io::Result<Option<Frame>> {
        if !self.fill(HEADER_LEN).await? {
            return Ok(None);
        }
        let mut header = [0; HEADER_LEN];
        header.copy_from_slice(&self.buffer[..HEADER_LEN]);
        let header = Header::decode(&header)?;
        if header.table + header.payload > most {
            let (table, payload) = (header.table as u32, header.payload as u64);
            return Err(FrameError::TooLarge { table, payload }.into());
        }
        // A small payload shares the standing buffer with its table and its neighbours.
        let standing = HEADER_LEN + header.table + if header.payload < OWN_BYTES { header.payload } else { 0 };
        if !self.fill(standing).await? {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let mut frame = self.buffer.split_to(standing).freeze();
        frame.advance(HEADER_LEN);
        let table = frame.split_to(header.table);
        let payload =
            if header.payload < OWN_BYTES { frame.into() } else { self.pieces(&table, header.payload).await? };
        Ok(Some(Frame { kind: header.kind, table, payload }))
    }

    async fn pieces(&mut self, table: &[u8], len: usize) -> std::io::Result<Payload> {
        let mut payload = Payload::default();
        for cut in (self.cuts)(table, len)? {
            for end in [cut.start, cut.end] {
                if end > payload.len() {
                    let piece = self.piece(end - payload.len()).await?;
                    payload.push(piece);
                }
            }
        }
        if len > payload.len() {
            let piece = self.piece(len - payload.len()).await?;
            payload.push(piece);
        }
        Ok(payload)
    }

    /// The next bytes, in memory of their own.
    async fn piece(&mut self, len: usize) -> std::io::Result<Bytes> {
        let mut piece = BytesMut::with_capacity(len.min(AT_ONCE));
        let here = self.buffer.len().min(len);
        piece.extend_from_slice(&self.buffer.split_to(here));
        while piece.len() < len {
            if piece.len() == piece.capacity() {
                piece.reserve(piece.len().min(len - piece.len()));
            }
            let room = len - piece.len();
            if self.stream.read_buf(&mut (&mut piece).limit(room)).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(piece.freeze())
    }

    /// Has at least `needed` bytes in the standing buffer; false if the stream ended before the first of them.
    async fn fill(&mut self, needed: usize) -> std::io::Result<bool> {
        let mut must_reserve = true;
        while self.buffer.len() < needed {
            if must_reserve {
                // A large table gets its buffer once, a huge one in steps that double.
                let missing = needed - self.buffer.len();
                self.buffer.reserve(missing.clamp(16 << 10, AT_ONCE.max(self.buffer.len())));
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return if self.buffer.is_empty() { Ok(false) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) };
            }
            must_reserve = self.buffer.len() == self.buffer.capacity();
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(payload: usize) -> Vec<u8> {
        let header = Header { kind: Kind::Results, table: 3, payload };
        let payload = (0..payload).map(|place| (place % 251) as u8).collect();
        [header.encode().to_vec(), b"abc".to_vec(), payload].concat()
    }

    /// Reads these frames from pieces of the stream, and says how large the standing buffer was after each.
    fn capacities(frames: &[Vec<u8>], pieces: &[&[u8]]) -> Vec<usize> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (mut near, far) = tokio::io::duplex(16 << 20);
            let mut reader = FrameReader::new(far);
            // A cut in each large payload, wherever it is.
            reader.cut_by(|_, len| Ok(vec![len / 3..len / 2, len / 2..len - 1]));
            let read = async {
                let mut capacities = vec![];
                for frame in frames {
                    let read = reader.next().await.unwrap().unwrap();
                    assert_eq!(read.table, &frame[HEADER_LEN..HEADER_LEN + 3]);
                    assert!(read.payload.to_bytes() == frame[HEADER_LEN + 3..]);
                    capacities.push(reader.buffer.capacity());
                }
                assert!(reader.next().await.unwrap().is_none());
                capacities
            };
            let write = async {
                use tokio::io::AsyncWriteExt;
                for piece in pieces {
                    near.write_all(piece).await.unwrap();
                    tokio::task::yield_now().await;
                }
                drop(near);
            };
            tokio::join!(read, write).0
        })
    }

    #[test]
    fn a_large_payload_leaves_the_standing_buffer_alone_wherever_it_is_cut() {
        // Of odd sizes; two large ones in a row, and several small ones in one read.
        let frames = [10, 9 << 20, 20, 30, OWN_BYTES + 1, 3 << 20, 40, 0, OWN_BYTES, OWN_BYTES - 1, 50].map(frame);
        let stream = frames.concat();
        let mut cuts = vec![0];
        for frame in &frames {
            let end = cuts[cuts.len() - 1] + frame.len();
            cuts.push(end);
        }
        let ends = cuts.clone();
        for cut in ends.iter().flat_map(|&end| [end, end + 1, end + HEADER_LEN, end + HEADER_LEN + 4, end + 70_000]) {
            let (before, after) = stream.split_at(cut.min(stream.len()));
            let capacities = capacities(&frames, &[before, after]);
            assert!(capacities.iter().all(|&capacity| capacity <= 4 * STANDING), "cut at {cut}: {capacities:?}");
        }
    }

    #[test]
    fn the_memory_of_a_large_value_is_its_own() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let bytes = [frame(8 << 20), frame(5)].concat();
        let (large, small) = runtime.block_on(async {
            let mut reader = FrameReader::new(&bytes[..]);
            reader.cut_by(|_, _| Ok(vec![100..1 << 20, 1 << 20..2 << 20]));
            (reader.next().await.unwrap().unwrap(), reader.next().await.unwrap().unwrap())
        });
        // Nobody else holds what a value was read into, once the frame itself is gone.
        let Frame { payload, .. } = large;
        let values =
            [0..100, 100..1 << 20, 1 << 20..2 << 20, 2 << 20..8 << 20].map(|range| payload.slice(range).unwrap());
        assert!(payload.slice(50..150).is_err(), "across two pieces");
        drop(payload);
        assert!(values.iter().all(Bytes::is_unique));
        drop(small);
    }
}
