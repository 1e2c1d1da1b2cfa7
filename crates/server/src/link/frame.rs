//! The frame: a fixed header, a table, a payload region. Everything that crosses a link is one.
//!
//! ```text
//! magic "JY" u16 | version u8 | kind u8 | table length u32 | payload length u64 | table … | payload …
//! ```
//! Little-endian throughout. Lengths are checked against the limits before anything is allocated.

use crate::clock::Clock;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes of the header.
pub const HEADER_LEN: usize = 16;
/// The version of everything below; the ends must agree.
pub const VERSION: u8 = 2;
const MAGIC: u16 = u16::from_le_bytes(*b"JY");
/// No table is larger: a batch of a million items would fit.
const MAX_TABLE: u32 = 256 << 20;
/// No payload region is larger.
const MAX_PAYLOAD: u64 = 16 << 30;
/// Most memory that a header gets on its word; a larger frame gets more as its bytes come.
pub(super) const AT_ONCE: usize = 64 << 20;
/// What a reader holds between frames.
const STANDING: usize = 64 << 10;
/// A value from this size on has memory of its own: it can then be kept without its neighbours, and need not be copied.
pub(crate) const OWN_BYTES: usize = 64 << 10;

/// Lets as much of a frame be on its way at once as the kernel allows: each time that the buffer is full costs two
/// switches between the processes.
pub(crate) fn widen(socket: &impl std::os::fd::AsFd) {
    // A wish: the kernel may grant less, and then it only takes longer.
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(socket, 1 << 20);
}

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Worker: who it is, with the secret (JSON).
    Hello = 1,
    /// Worker: what its target holds (JSON).
    Manifest = 2,
    /// Worker: how far it is (JSON).
    Progress = 3,
    /// Worker: loaded and warm (JSON).
    Ready = 4,
    /// Worker: cannot load (JSON).
    Failed = 5,
    /// Worker: the answer to a ping.
    Pong = 6,
    /// Front: which replica this worker is (JSON).
    Assign = 16,
    /// Front: finish and end.
    Shutdown = 17,
    /// Front: are you there?
    Ping = 18,
    /// Front: a batch.
    Batch = 32,
    /// Front: nobody waits for this item any more.
    Cancel = 33,
    /// Worker: `predict` begins on this batch.
    Started = 34,
    /// Worker: outcomes of items. Frames of kind 36 (partial results) and 37 (a request of a model) come later.
    Results = 35,
    /// Program: who it is, with its key (JSON).
    Dial = 48,
    /// Front: what a program may call (JSON).
    Welcome = 49,
    /// Front: why a program may not call (JSON); the connection ends.
    Refused = 50,
    /// Program: the items of one request.
    Call = 51,
    /// Front: what became of them.
    Answers = 52,
    /// Program: nobody waits for this request any more.
    Hangup = 53,
}

impl Kind {
    const ALL: [Kind; 19] = [
        Kind::Hello,
        Kind::Manifest,
        Kind::Progress,
        Kind::Ready,
        Kind::Failed,
        Kind::Pong,
        Kind::Assign,
        Kind::Shutdown,
        Kind::Ping,
        Kind::Batch,
        Kind::Cancel,
        Kind::Started,
        Kind::Results,
        Kind::Dial,
        Kind::Welcome,
        Kind::Refused,
        Kind::Call,
        Kind::Answers,
        Kind::Hangup,
    ];

    fn from_u8(code: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|&kind| kind as u8 == code)
    }
}

/// The bytes are not a frame of ours. The link they came over is of no more use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It does not begin like a frame.
    #[error("not a frame: it begins with {0:#06x}")]
    Magic(u16),
    /// The other end speaks another version.
    #[error("the other end speaks frame version {0}, this end {VERSION}; install one version of jitney on both")]
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
        bytes[2] = VERSION;
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
        if version != VERSION {
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

/// A whole frame, ready to be written: pieces in order, the large ones as they came.
pub type Segments = Vec<Bytes>;

/// A frame without payload region: control messages, whose table is JSON or a few numbers.
pub fn small_frame(kind: Kind, table: &[u8]) -> Segments {
    let header = Header { kind, table: table.len(), payload: 0 };
    vec![Bytes::from([&header.encode(), table].concat())]
}

/// The payload region of a frame. What is large has memory of its own, so that it can be kept without its neighbours.
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

    fn push(&mut self, piece: Bytes) {
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

/// Says of a table which ranges of the payload, ascending, get memory of their own.
pub(super) type Cuts = fn(table: &[u8], payload: usize) -> Result<Vec<Range<usize>>, FrameError>;

/// A frame that has arrived.
#[derive(Clone, Debug)]
pub struct Frame {
    /// What it says.
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
    heard: Option<(Arc<AtomicU64>, Clock)>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Reads from here on.
    pub fn new(stream: R) -> FrameReader<R> {
        FrameReader { stream, buffer: BytesMut::with_capacity(STANDING), cuts: |_, _| Ok(Vec::new()), heard: None }
    }

    /// From here on large payloads are cut like this.
    pub(super) fn cut_by(&mut self, cuts: Cuts) {
        self.cuts = cuts;
    }

    /// From here on it is noted when bytes come: a large frame may take longer than any silence that is borne.
    pub(super) fn note(&mut self, heard: Arc<AtomicU64>, clock: Clock) {
        self.heard = Some((heard, clock));
    }

    fn hear(&self) {
        if let Some((heard, clock)) = &self.heard {
            heard.store(clock.now().0, Ordering::Relaxed);
        }
    }

    /// The next frame; `None` when the stream ends between two frames.
    pub async fn next(&mut self) -> std::io::Result<Option<Frame>> {
        self.next_within(usize::MAX).await
    }

    /// The next frame, refused if table and payload have more than `most` bytes: from a stranger.
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
            self.hear();
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
            self.hear();
            must_reserve = self.buffer.len() == self.buffer.capacity();
        }
        Ok(true)
    }
}

/// Reads the numbers and strings of a table, checking every length.
#[derive(Clone, Debug)]
pub(crate) struct TableReader<'a>(pub(crate) &'a [u8]);

impl<'a> TableReader<'a> {
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], FrameError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(FrameError::Table("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FrameError> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, FrameError> {
        self.take(2).map(|mut bytes| bytes.get_u16_le())
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FrameError> {
        self.take(4).map(|mut bytes| bytes.get_u32_le())
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FrameError> {
        self.take(8).map(|mut bytes| bytes.get_u64_le())
    }

    /// A string with its length in four bytes before it.
    pub(crate) fn text(&mut self) -> Result<&'a str, FrameError> {
        let len = self.u32()? as usize;
        std::str::from_utf8(self.take(len)?).map_err(|_| FrameError::Table("a text is not UTF-8"))
    }

    /// A count of entries that take at least `size` bytes each: never more than what is left can hold.
    pub(crate) fn count(&mut self, size: usize) -> Result<usize, FrameError> {
        let count = self.u32()? as usize;
        if count.saturating_mul(size) > self.0.len() {
            return Err(FrameError::Table("it announces more entries than it holds"));
        }
        Ok(count)
    }
}

/// Appends a string with its length before it.
pub(crate) fn put_text(table: &mut Vec<u8>, text: &str) {
    table.extend_from_slice(&(text.len() as u32).to_le_bytes());
    table.extend_from_slice(text.as_bytes());
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
