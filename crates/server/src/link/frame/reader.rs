//! Reads frames from a byte stream.

use crate::link::frame::header::{FrameError, HEADER_LEN, Header};
use crate::link::frame::kind::Kind;
use crate::link::frame::payload::Payload;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::io;
use std::ops::Range;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Most memory that is allocated because a header announces it; a larger frame gets more as its bytes come.
pub(crate) const AT_ONCE: usize = 64 << 20;
/// Bytes of the buffer that a reader keeps between frames.
const STANDING: usize = 64 << 10;
/// A value of this many bytes or more has separate memory: it can be kept without its neighbours, and is not copied.
pub(crate) const OWN_BYTES: usize = 64 << 10;

/// The same bytes without the frame of a worker that they are a slice of: a short value shares its memory with all short values
/// of its batch, and those are in no account.
pub(crate) fn detached(data: Bytes) -> Bytes {
    if data.len() >= OWN_BYTES || data.is_unique() { data } else { Bytes::copy_from_slice(&data) }
}

/// Reads from the table which ranges of a payload get separate memory, in ascending order.
pub(crate) type Cuts = fn(kind: Kind, table: &[u8], payload: usize) -> Result<Vec<Range<usize>>, FrameError>;

/// Most bytes of the table that is returned of a frame that was skipped before its table had arrived.
const SKIPPED_TABLE: usize = 4 << 10;

/// Counts bytes that have arrived. False if there is no room for them.
pub(crate) type Grow<'a> = dyn FnMut(usize) -> bool + Send + 'a;

/// A frame for which there was no room. The next frame of its stream can be read.
#[derive(Debug)]
pub(crate) struct Skipped {
    /// Its kind.
    pub(crate) kind: Kind,
    /// Its table, or the first bytes of it.
    pub(crate) table: Bytes,
}

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
        FrameReader { stream, buffer: BytesMut::with_capacity(STANDING), cuts: |_, _, _| Ok(Vec::new()) }
    }

    /// The same reader over another view of its stream, with what it has already read.
    pub(crate) fn map<S>(self, view: impl FnOnce(R) -> S) -> FrameReader<S> {
        FrameReader { stream: view(self.stream), buffer: self.buffer, cuts: self.cuts }
    }

    /// Whether bytes of the next frame have come already.
    pub(crate) fn has_begun(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Sets how large payloads are cut from now on.
    pub(crate) fn cut_by(&mut self, cuts: Cuts) {
        self.cuts = cuts;
    }

    /// The next frame; `None` when the stream ends between two frames.
    pub async fn next(&mut self) -> io::Result<Option<Frame>> {
        self.next_within(usize::MAX).await
    }

    /// The next frame; an error if table and payload have more than `most` bytes.
    pub async fn next_within(&mut self, most: usize) -> io::Result<Option<Frame>> {
        let frame = self.next_counted(most, &mut |_| true).await?;
        Ok(frame.and_then(Result::ok))
    }

    /// The next frame; an error if table and payload have more than `most` bytes. `grow` counts the bytes of a frame of `OWN_BYTES` and more as they arrive. When it says that there is no room
    /// for them the frame is skipped: what has arrived is freed at once, and the rest is dropped as it arrives.
    pub(crate) async fn next_counted(
        &mut self,
        most: usize,
        grow: &mut Grow<'_>,
    ) -> io::Result<Option<Result<Frame, Skipped>>> {
        let always = &mut |_| true;
        if !self.fill(HEADER_LEN, always).await.map_err(Stop::into_io)? {
            return Ok(None);
        }
        let mut header = [0; HEADER_LEN];
        header.copy_from_slice(&self.buffer[..HEADER_LEN]);
        let header = Header::decode(&header)?;
        if header.table + header.payload > most {
            let (table, payload) = (header.table as u32, header.payload as u64);
            return Err(FrameError::TooLarge { table, payload }.into());
        }
        let is_counted = header.table + header.payload >= OWN_BYTES;
        let grow = if is_counted { grow } else { always };
        let mut table = Bytes::new();
        let mut left = HEADER_LEN + header.table + header.payload;
        match self.rest(&header, &mut table, &mut left, grow).await {
            Ok(payload) => Ok(Some(Ok(Frame { kind: header.kind, table, payload }))),
            Err(Stop::Io(error)) => Err(error),
            Err(Stop::NoRoom) => {
                if table.is_empty() {
                    let end = self.buffer.len().min(HEADER_LEN + header.table.min(SKIPPED_TABLE));
                    table = Bytes::copy_from_slice(&self.buffer[HEADER_LEN..end]);
                }
                self.skip(left).await?;
                Ok(Some(Err(Skipped { kind: header.kind, table })))
            }
        }
    }

    /// Reads what follows the header: the table, and the payload, which is returned. `left` are the bytes of the frame that have
    /// not been taken out of the stream and the standing buffer.
    async fn rest(
        &mut self,
        header: &Header,
        table: &mut Bytes,
        left: &mut usize,
        grow: &mut Grow<'_>,
    ) -> Result<Payload, Stop> {
        // A small payload shares the standing buffer with its table and its neighbours.
        let standing = HEADER_LEN + header.table + if header.payload < OWN_BYTES { header.payload } else { 0 };
        if !self.fill(standing, grow).await? {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let mut frame = self.buffer.split_to(standing).freeze();
        *left -= standing;
        frame.advance(HEADER_LEN);
        *table = frame.split_to(header.table);
        if header.payload < OWN_BYTES {
            Ok(frame.into())
        } else {
            self.pieces(header.kind, table, header.payload, left, grow).await
        }
    }

    async fn pieces(
        &mut self,
        kind: Kind,
        table: &[u8],
        len: usize,
        left: &mut usize,
        grow: &mut Grow<'_>,
    ) -> Result<Payload, Stop> {
        let mut payload = Payload::default();
        for cut in (self.cuts)(kind, table, len)? {
            for end in [cut.start, cut.end] {
                if end > payload.len() {
                    let piece = self.piece(end - payload.len(), left, grow).await?;
                    payload.push(piece);
                }
            }
        }
        if len > payload.len() {
            let piece = self.piece(len - payload.len(), left, grow).await?;
            payload.push(piece);
        }
        Ok(payload)
    }

    /// The next bytes, in separate memory.
    async fn piece(&mut self, len: usize, left: &mut usize, grow: &mut Grow<'_>) -> Result<Bytes, Stop> {
        let mut piece = BytesMut::with_capacity(len.min(AT_ONCE));
        let here = self.buffer.len().min(len);
        piece.extend_from_slice(&self.buffer.split_to(here));
        let mut arrived = here;
        loop {
            *left -= arrived;
            if !grow(arrived) {
                return Err(Stop::NoRoom);
            }
            if piece.len() == len {
                return Ok(piece.freeze());
            }
            if piece.len() == piece.capacity() {
                piece.reserve(piece.len().min(len - piece.len()));
            }
            let room = len - piece.len();
            arrived = self.stream.read_buf(&mut (&mut piece).limit(room)).await?;
            if arrived == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
    }

    /// Has at least `needed` bytes in the standing buffer; false if the stream ended before the first of them.
    async fn fill(&mut self, needed: usize, grow: &mut Grow<'_>) -> Result<bool, Stop> {
        let mut must_reserve = true;
        let mut counted = 0;
        loop {
            let here = self.buffer.len().min(needed);
            if !grow(here - counted) {
                return Err(Stop::NoRoom);
            }
            counted = here;
            if here == needed {
                return Ok(true);
            }
            if must_reserve {
                // A large table gets its buffer once, a huge one in steps that double.
                let missing = needed - self.buffer.len();
                self.buffer.reserve(missing.clamp(16 << 10, AT_ONCE.max(self.buffer.len())));
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                let eof = || Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                return if self.buffer.is_empty() { Ok(false) } else { eof() };
            }
            must_reserve = self.buffer.len() == self.buffer.capacity();
        }
    }

    /// Drops the next bytes of the stream, and the memory of a large standing buffer.
    async fn skip(&mut self, mut left: usize) -> io::Result<()> {
        let old = std::mem::replace(&mut self.buffer, BytesMut::with_capacity(STANDING));
        let here = old.len().min(left);
        self.buffer.extend_from_slice(&old[here..]);
        drop(old);
        left -= here;
        while left > 0 {
            self.buffer.reserve(STANDING);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let here = self.buffer.len().min(left);
            self.buffer.advance(here);
            left -= here;
        }
        Ok(())
    }
}

/// Why a frame was not read.
enum Stop {
    NoRoom,
    Io(io::Error),
}

impl Stop {
    fn into_io(self) -> io::Error {
        match self {
            Stop::NoRoom => io::ErrorKind::OutOfMemory.into(),
            Stop::Io(error) => error,
        }
    }
}

impl<E: Into<io::Error>> From<E> for Stop {
    fn from(error: E) -> Stop {
        Stop::Io(error.into())
    }
}

/// The frame that these segments are, read as a stream.
#[cfg(test)]
pub(crate) fn received(segments: &[Bytes]) -> Frame {
    let bytes = segments.concat();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { FrameReader::new(&bytes[..]).next().await.unwrap().unwrap() })
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
            reader.cut_by(|_, _, len| Ok(vec![len / 3..len / 2, len / 2..len - 1]));
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

    /// Wherever the room ends, in the table or in the payload, the frame is skipped and the next one is read.
    #[test]
    fn a_frame_that_finds_no_room_is_skipped() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let long_table = Header { kind: Kind::Results, table: 1 << 20, payload: 9 };
        let long_table = [&long_table.encode()[..], &vec![7; 1 << 20], b"123456789"].concat();
        let small = frame(10);
        for (large, beginning) in [(frame(1 << 20), b"abc".to_vec()), (long_table, vec![7; SKIPPED_TABLE])] {
            let stream = [&small[..], &large, &small].concat();
            for room in [0, 1000, 300_000, (1 << 20) - 1, large.len()] {
                for step in [50_000, stream.len()] {
                    let (mut near, far) = tokio::io::duplex(step);
                    let mut reader = FrameReader::new(far);
                    let (mut counted, mut most) = (0, 0);
                    let mut grow = |bytes: usize| {
                        counted += bytes;
                        most = counted.min(room);
                        counted <= room
                    };
                    let frames = runtime.block_on(async {
                        use tokio::io::AsyncWriteExt;
                        let read = async {
                            let mut frames = vec![];
                            while let Some(frame) = reader.next_counted(usize::MAX, &mut grow).await.unwrap() {
                                frames.push(frame);
                            }
                            frames
                        };
                        let write = async {
                            near.write_all(&stream).await.unwrap();
                            drop(near);
                        };
                        tokio::join!(read, write).0
                    });
                    let [Ok(first), middle, Ok(last)] = &frames[..] else { panic!("{} frames", frames.len()) };
                    assert!(
                        first.table == "abc"
                            && last.table == "abc"
                            && last.payload.to_bytes() == small[HEADER_LEN + 3..]
                    );
                    match middle {
                        Ok(frame) => assert_eq!(
                            (room, frame.table.len() + frame.payload.len()),
                            (large.len(), large.len() - HEADER_LEN)
                        ),
                        Err(skipped) => {
                            assert!(room < large.len() && skipped.kind == Kind::Results);
                            assert!(beginning.starts_with(&skipped.table), "{} bytes", skipped.table.len());
                            assert!(reader.buffer.capacity() <= 4 * STANDING);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_memory_of_a_large_value_is_its_own() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let bytes = [frame(8 << 20), frame(5)].concat();
        let (large, small) = runtime.block_on(async {
            let mut reader = FrameReader::new(&bytes[..]);
            reader.cut_by(|_, _, _| Ok(vec![100..1 << 20, 1 << 20..2 << 20]));
            (reader.next().await.unwrap().unwrap(), reader.next().await.unwrap().unwrap())
        });
        // After the frame is dropped, each value is the only user of its memory.
        let Frame { payload, .. } = large;
        let values =
            [0..100, 100..1 << 20, 1 << 20..2 << 20, 2 << 20..8 << 20].map(|range| payload.slice(range).unwrap());
        assert!(payload.slice(50..150).is_err(), "across two pieces");
        drop(payload);
        assert!(values.iter().all(Bytes::is_unique));
        drop(small);
    }
}
