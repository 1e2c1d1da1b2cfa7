//! The worker's end, blocking: one thread reads while another one writes.

use crate::ends::acceptor::HANDSHAKE_TIMEOUT;
use crate::ends::challenge::PLAIN_WORKER;
use crate::ends::config::{self, BUFFERED};
use crate::ends::socket::{share, tune};
use crate::error::ChannelError;
use crate::proof::keys::Pin;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};
use rustls::ClientConnection;
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that are read from the socket at once.
const READ_BYTES: usize = 256 << 10;

/// A worker's connection to its front.
#[derive(Debug)]
pub enum Dialled {
    /// An encrypted one.
    Tls(BlockingStream),
    /// A socket without TLS.
    Plain(TcpStream),
}

/// Connects a worker to its front at `HOST:PORT`, which it knows in this way, within 10 s.
pub fn dial_worker(host_and_port: &str, front: &Pin) -> Result<Dialled, ChannelError> {
    let until = Instant::now() + HANDSHAKE_TIMEOUT;
    let mut socket = connect(host_and_port, until)?;
    tune(&socket)?;
    if *front == Pin::Plain {
        socket.write_all(PLAIN_WORKER)?;
        return Ok(Dialled::Plain(socket));
    }
    let (config, name) = (config::worker(front)?, config::name(host_and_port)?);
    let mut tls = ClientConnection::new(config, name).map_err(ChannelError::of_tls)?;
    tls.set_buffer_limit(Some(BUFFERED));
    tls.complete_io(&mut Hurried { socket: &socket, until }).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => ChannelError::Silent(HANDSHAKE_TIMEOUT.as_secs()),
        _ => ChannelError::of_handshake(error),
    })?;
    socket.set_read_timeout(None)?;
    socket.set_write_timeout(None)?;
    let incoming = Incoming { bytes: vec![0; READ_BYTES], start: 0, end: 0 };
    let shared = Shared {
        socket,
        tls: Mutex::new(tls),
        incoming: Mutex::new(incoming),
        writing: Mutex::default(),
        silence: OnceLock::new(),
    };
    Ok(Dialled::Tls(BlockingStream(Arc::new(shared))))
}

fn connect(host_and_port: &str, until: Instant) -> io::Result<TcpStream> {
    let addresses = host_and_port.to_socket_addrs().map(Iterator::collect::<Vec<_>>);
    let connected = addresses.and_then(|addresses| connect_one(&addresses, until));
    let connected = connected.map_err(|error| io::Error::new(error.kind(), format!("{host_and_port}: {error}")));
    connected?.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{host_and_port} has no address")))
}

/// Connects to the first of these addresses that answers; `None` if there is none. One that does not answer takes its share of the
/// time and no more.
fn connect_one(addresses: &[SocketAddr], until: Instant) -> io::Result<Option<TcpStream>> {
    let mut last = None;
    for (address, others) in addresses.iter().zip((0..addresses.len()).rev()) {
        match TcpStream::connect_timeout(address, share(left(until)?, others)) {
            Ok(socket) => return Ok(Some(socket)),
            Err(error) => last = Some(error),
        }
    }
    last.map_or(Ok(None), Err)
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// A socket during the handshake: also who sends one byte a second comes to its end.
struct Hurried<'a> {
    socket: &'a TcpStream,
    until: Instant,
}

impl Read for Hurried<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(left(self.until)?))?;
        self.socket.read(buffer)
    }
}

impl Write for Hurried<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(left(self.until)?))?;
        self.socket.write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(left(self.until)?))?;
        self.socket.write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An encrypted connection; clones are handles to the same one. One thread may read while another writes: both use the state
/// of TLS, but no thread waits for the network with it.
#[derive(Clone)]
pub struct BlockingStream(Arc<Shared>);

struct Shared {
    socket: TcpStream,
    tls: Mutex<ClientConnection>,
    /// Locked before `tls`, by the thread that reads.
    incoming: Mutex<Incoming>,
    /// Locked before `tls`, by the thread that writes.
    writing: Mutex<()>,
    /// The longest time without progress.
    silence: OnceLock<Duration>,
}

/// Bytes from the socket that TLS has not taken yet.
struct Incoming {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for BlockingStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockingStream").field("socket", &self.0.socket).finish_non_exhaustive()
    }
}

impl AsFd for BlockingStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.socket.as_fd()
    }
}

impl BlockingStream {
    /// Makes a read or a write fail that has no progress for this time. It is set once.
    pub fn limit_silence(&self, limit: Duration) -> io::Result<()> {
        // A second limit is not needed: a link sets one at its start.
        let _ = self.0.silence.set(limit);
        self.0.socket.set_read_timeout(Some(limit))
    }

    /// Whether a read would return without waiting, although the socket may be empty. Asked before the socket is watched
    /// with `poll`. The thread that asks is the one that may read.
    pub fn has_buffered(&self) -> bool {
        let mut incoming = lock(&self.0.incoming);
        let mut tls = lock(&self.0.tls);
        // An error comes again at the read.
        incoming.decrypt(&mut tls, &mut []).is_some()
    }

    /// Ends the connection: a thread that reads or writes returns.
    pub fn shutdown(&self) {
        // It may have ended already.
        let _ = self.0.socket.shutdown(std::net::Shutdown::Both);
    }

    fn write_pieces(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let shared = &*self.0;
        let _turn = lock(&shared.writing);
        let mut written = 0;
        loop {
            let is_full = {
                let mut tls = lock(&shared.tls);
                if written == 0 {
                    written = tls.writer().write_vectored(pieces)?;
                }
                drain(&mut tls, &shared.socket)?
            };
            if is_full {
                self.wait_for_room()?;
            } else if written > 0 || pieces.iter().all(|piece| piece.is_empty()) {
                return Ok(written);
            }
        }
    }

    fn wait_for_room(&self) -> io::Result<()> {
        let limit = self.0.silence.get().and_then(|&limit| limit.try_into().ok());
        match poll(&mut [PollFd::new(&self.0.socket, PollFlags::OUT)], limit.as_ref()) {
            Ok(0) => Err(io::ErrorKind::TimedOut.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Sends what TLS has ready, without waiting; true if the socket is full.
fn drain(tls: &mut ClientConnection, socket: &TcpStream) -> io::Result<bool> {
    while tls.wants_write() {
        match tls.write_tls(&mut Impatient(socket)) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// A blocking socket that is written to without waiting.
struct Impatient<'a>(&'a TcpStream);

const NO_WAIT: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

impl Write for Impatient<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.0, bytes, NO_WAIT)?)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(sendmsg(self.0, pieces, &mut SendAncillaryBuffer::default(), NO_WAIT)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Incoming {
    /// Decrypts what is here into `buffer`; `None` if more bytes must come first. With an empty buffer, whether something
    /// is there.
    fn decrypt(&mut self, tls: &mut ClientConnection, buffer: &mut [u8]) -> Option<io::Result<usize>> {
        let mut filled = 0;
        loop {
            let state = match tls.process_new_packets() {
                Ok(state) => state,
                Err(error) => return Some(Err(ChannelError::of_tls(error).into())),
            };
            if state.plaintext_bytes_to_read() > 0 {
                if buffer.is_empty() {
                    return Some(Ok(0));
                }
                match tls.reader().read(&mut buffer[filled..]) {
                    Ok(count) => filled += count,
                    Err(error) => return Some(Err(error)),
                }
            } else if state.peer_has_closed() {
                return Some(Ok(filled));
            }
            if filled > 0 && filled == buffer.len() {
                return Some(Ok(filled));
            }
            if self.start == self.end {
                return (filled > 0).then_some(Ok(filled));
            }
            match tls.read_tls(&mut &self.bytes[self.start..self.end]) {
                Ok(count) => self.start += count,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl Read for BlockingStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let shared = &*self.0;
        let mut incoming = lock(&shared.incoming);
        loop {
            if let Some(result) = incoming.decrypt(&mut lock(&shared.tls), buffer) {
                return result;
            }
            let count = (&shared.socket).read(&mut incoming.bytes)?;
            if count == 0 {
                // TLS says goodbye before it closes; without that somebody may have cut the connection.
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            (incoming.start, incoming.end) = (0, count);
        }
    }
}

impl Write for BlockingStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_pieces(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_pieces(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
    use std::net::TcpListener;

    #[test]
    fn an_address_that_does_not_answer_leaves_time_for_the_next_one() {
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        let dead = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&dead, &free).unwrap();
        // The kernel drops what asks for a connection while its queue is full.
        listen(&dead, 0).unwrap();
        let dead = TcpListener::from(dead);
        let address = dead.local_addr().unwrap();
        let mut waiting = Vec::new();
        while let Ok(socket) = TcpStream::connect_timeout(&address, Duration::from_millis(50)) {
            waiting.push(socket);
        }
        let next = TcpListener::bind(free).unwrap();
        let addresses = [address, next.local_addr().unwrap()];
        let until = Instant::now() + HANDSHAKE_TIMEOUT / 10;
        let connected = connect_one(&addresses, until).unwrap().unwrap();
        assert_eq!(connected.peer_addr().unwrap(), addresses[1]);
        assert!(connect_one(&[], until).unwrap().is_none());
    }
}
