//! Byte streams that a worker's link can run over, and frames read from and written to them while blocking.

use crate::link::frame::header::{HEADER_LEN, Header};
use crate::link::frame::kind::Kind;
use crate::link::frame::reader::AT_ONCE;
use jitney_channel::BlockingStream;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A connected socket.
pub trait ByteStream: Read + Write + AsFd + Send + Sync {
    /// Another handle to the same socket.
    fn duplicate(&self) -> io::Result<Box<dyn ByteStream>>;

    /// Makes a read or a write fail that has no progress for this time. The front pings every second. So such a silence
    /// means that the front or the network to it has failed.
    fn limit_silence(&self, limit: Duration) -> io::Result<()>;

    /// Ends the connection: a thread that reads or writes returns.
    fn close(&self);

    /// Whether a read returns without waiting although the socket may be empty: bytes that were decrypted before. Asked
    /// before the socket is watched.
    fn has_buffered(&self) -> bool {
        false
    }
}

impl ByteStream for BlockingStream {
    fn duplicate(&self) -> io::Result<Box<dyn ByteStream>> {
        Ok(Box::new(self.clone()))
    }

    fn limit_silence(&self, limit: Duration) -> io::Result<()> {
        BlockingStream::limit_silence(self, limit)
    }

    fn close(&self) {
        self.shutdown();
    }

    fn has_buffered(&self) -> bool {
        BlockingStream::has_buffered(self)
    }
}

macro_rules! socket {
    ($socket:ty) => {
        impl ByteStream for $socket {
            fn duplicate(&self) -> io::Result<Box<dyn ByteStream>> {
                Ok(Box::new(self.try_clone()?))
            }

            fn limit_silence(&self, limit: Duration) -> io::Result<()> {
                self.set_read_timeout(Some(limit))?;
                self.set_write_timeout(Some(limit))
            }

            fn close(&self) {
                // It may have ended already.
                let _ = self.shutdown(Shutdown::Both);
            }
        }
    };
}

socket!(UnixStream);
socket!(TcpStream);

/// A received frame.
#[derive(Debug)]
pub(super) struct ReceivedFrame {
    pub(super) kind: Kind,
    pub(super) table: Vec<u8>,
    pub(super) payload: Vec<u8>,
    /// When its header had arrived; the rest may take long.
    pub(super) arrived: Instant,
}

/// Receives one frame; `None` at the end of the stream.
pub(super) fn receive(reader: &mut impl Read) -> io::Result<Option<ReceivedFrame>> {
    let mut header = [0; HEADER_LEN];
    match reader.read_exact(&mut header) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let arrived = Instant::now();
    let header = Header::decode(&header)?;
    let table = read_exactly(reader, header.table)?;
    let payload = read_exactly(reader, header.payload)?;
    Ok(Some(ReceivedFrame { kind: header.kind, table, payload, arrived }))
}

/// Reads into fresh memory, which is not cleared before. The memory of a huge frame grows as its bytes arrive.
fn read_exactly(reader: &mut impl Read, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(len.min(AT_ONCE));
    reader.take(len as u64).read_to_end(&mut bytes)?;
    if bytes.len() < len { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
}

/// Writes all pieces, in as few system calls as the kernel allows.
pub(super) fn write_all_vectored(writer: &mut impl Write, pieces: &[&[u8]]) -> io::Result<()> {
    /// The kernel takes at most this many pieces at once (`IOV_MAX`).
    const MOST: usize = 1024;
    let mut slices: Vec<IoSlice> = pieces.iter().filter(|p| !p.is_empty()).map(|p| IoSlice::new(p)).collect();
    let mut rest = &mut slices[..];
    while !rest.is_empty() {
        let most = rest.len().min(MOST);
        match writer.write_vectored(&rest[..most]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut rest, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
