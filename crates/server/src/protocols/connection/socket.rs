//! One accepted socket: TCP or Unix, with the bytes that were read to find out the protocol, and notes for the time-outs.

use crate::base::ledger::{Account, Ledger};
use crate::protocols::connection::backlog::ResponseBacklog;
use crate::protocols::connection::discard::DiscardTurns;
use crate::protocols::connection::limits::{AHEAD_BYTES, SNIFF_BYTES};
use crate::protocols::connection::tls::{NotedTcp, NotesWrites, Tls};
use bytes::{Buf, BytesMut};
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

/// What happens on a connection, as numbers that its driver compares with the time-outs.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Requests whose answer has not been handed to the protocol yet.
    active: AtomicU32,
    /// Those of them whose answer is there: only the peer keeps it from being handed over.
    replying: AtomicU32,
    /// Answers that have been handed over so far, or that the peer has given up.
    taken: AtomicU64,
    /// In HTTP/1: the request has been read, its answer is not there yet.
    computing: AtomicBool,
    /// Requests ever begun.
    begun: AtomicU64,
    /// Bytes came in while no request was active, and none has begun since.
    head_started: AtomicBool,
    /// The peer takes no more bytes.
    write_blocked: AtomicBool,
    /// Bytes ever written.
    written: AtomicU64,
    /// A request was answered before its body was read, and the peer may still be sending.
    unread: AtomicBool,
    /// The accounts of this connection.
    pub(crate) ledger: Ledger,
    /// Answers that the peer has not taken yet.
    pub(crate) backlog: Arc<ResponseBacklog>,
    /// HTTP/2: the answers of the stream that was opened last, until its task takes them.
    pub(crate) opened: OpenedStream,
    /// We have said all that we will say, and only wait for the peer to notice.
    lingering: AtomicBool,
    /// Bytes that were discarded while lingering.
    dropped: AtomicU64,
}

/// A stream that the service knows and that has no task yet.
#[derive(Debug, Default)]
pub(crate) struct OpenedStream(Mutex<Option<Arc<ResponseBacklog>>>);

impl OpenedStream {
    /// Opens a stream whose answers count in `account`.
    pub(crate) fn open(&self, account: &Account) -> Arc<ResponseBacklog> {
        let backlog = Arc::new(ResponseBacklog::new(account.clone()));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(backlog.clone());
        backlog
    }

    /// The stream that was opened last, once.
    pub(crate) fn take(&self) -> Option<Arc<ResponseBacklog>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// One look at an `Activity`.
#[allow(clippy::struct_excessive_bools, reason = "independent facts, compared as a whole")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) active: bool,
    pub(crate) replying: u32,
    pub(crate) taken: u64,
    pub(crate) begun: u64,
    pub(crate) head_started: bool,
    pub(crate) write_blocked: bool,
    pub(crate) written: u64,
    pub(crate) lingering: bool,
    pub(crate) dropped: u64,
}

impl Activity {
    /// Of a new connection, with its accounts.
    pub(crate) fn new(ledger: Ledger) -> Activity {
        let backlog = Arc::new(ResponseBacklog::new(ledger.untaken.clone()));
        Activity { ledger, backlog, ..Activity::default() }
    }

    /// A request begins; it lasts until the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Active {
        self.active.fetch_add(1, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.head_started.store(false, Ordering::Relaxed);
        Active { activity: self.clone(), replying: false }
    }

    /// The state now.
    pub(crate) fn seen(&self) -> Seen {
        Seen {
            active: self.active.load(Ordering::Relaxed) > 0,
            replying: self.replying.load(Ordering::Relaxed),
            taken: self.taken.load(Ordering::Relaxed),
            begun: self.begun.load(Ordering::Relaxed),
            head_started: self.head_started.load(Ordering::Relaxed),
            write_blocked: self.write_blocked.load(Ordering::Relaxed),
            written: self.written.load(Ordering::Relaxed),
            lingering: self.lingering.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
        }
    }

    /// The body of the last request will not be read; its connection ends, but not before the peer can see why.
    pub(crate) fn leave_unread(&self) {
        self.unread.store(true, Ordering::Relaxed);
    }

    fn read(&self, bytes: usize) {
        if bytes > 0 && self.active.load(Ordering::Relaxed) == 0 {
            self.head_started.store(true, Ordering::Relaxed);
        }
    }

    fn wrote(&self, result: &Poll<io::Result<usize>>) {
        match result {
            Poll::Pending => self.write_blocked.store(true, Ordering::Relaxed),
            Poll::Ready(Ok(bytes)) => {
                self.written.fetch_add(*bytes as u64, Ordering::Relaxed);
                self.write_blocked.store(false, Ordering::Relaxed);
            }
            Poll::Ready(Err(_)) => {}
        }
    }
}

impl NotesWrites for Arc<Activity> {
    fn wrote(&self, result: &Poll<io::Result<usize>>) {
        Activity::wrote(self, result);
    }
}

/// Marks a request as active.
#[derive(Debug)]
pub(crate) struct Active {
    activity: Arc<Activity>,
    replying: bool,
}

impl Active {
    /// See `Activity::leave_unread`.
    pub(crate) fn leave_unread(&self) {
        self.activity.leave_unread();
    }

    /// The accounts of its connection.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.activity.ledger
    }

    /// The request has been read whole; only we keep its client waiting.
    pub(crate) fn body_is_read(&self) {
        self.activity.computing.store(true, Ordering::Relaxed);
    }

    /// The answer is there.
    pub(crate) fn reply(&mut self) {
        self.replying = true;
        self.activity.computing.store(false, Ordering::Relaxed);
        self.activity.replying.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        if self.replying {
            self.activity.replying.fetch_sub(1, Ordering::Relaxed);
            self.activity.taken.fetch_add(1, Ordering::Relaxed);
        }
        self.activity.computing.store(false, Ordering::Relaxed);
        self.activity.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Either kind of stream, as it was accepted.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// The address at the other end; `None` over a Unix socket.
    pub(crate) fn peer(&self) -> Option<IpAddr> {
        match self {
            Stream::Tcp(stream) => stream.peer_addr().ok().map(|peer| peer.ip().to_canonical()),
            Stream::Unix(_) => None,
        }
    }
}

/// What carries the bytes of HTTP.
#[derive(Debug)]
enum Transport {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// It notes itself what the peer takes.
    Tls(Box<TlsStream<NotedTcp<Arc<Activity>>>>),
}

/// The stream with its notes.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: Transport,
    /// Read already, to be read again by the protocol.
    prefix: BytesMut,
    /// hyper's last read found nothing, so it will be woken by what comes, the end of the connection included.
    is_heard: bool,
    protocol: HttpVersion,
    activity: Arc<Activity>,
    dropping: Option<DiscardTurns>,
}

/// Which protocol the first bytes speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpVersion {
    Http1,
    Http2,
}

const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

impl Socket {
    /// A fresh socket. With `tls` it is one after the handshake, if it is a TCP connection.
    pub(crate) async fn open(stream: Stream, tls: Option<Tls>, activity: Arc<Activity>) -> io::Result<Socket> {
        let stream = match (stream, tls) {
            // On the heap: a handshake needs kilobytes, and a connection without TLS should not keep room for one.
            (Stream::Tcp(tcp), Some(tls)) => {
                Transport::Tls(Box::new(Box::pin(tls.accept(tcp, activity.clone())).await?))
            }
            (Stream::Tcp(tcp), None) => Transport::Tcp(tcp),
            (Stream::Unix(unix), _) => Transport::Unix(unix),
        };
        Ok(Socket {
            stream,
            prefix: BytesMut::new(),
            is_heard: false,
            protocol: HttpVersion::Http1,
            activity,
            dropping: None,
        })
    }

    /// Reads until the protocol is clear; what was read will be read again. `None` if the peer left.
    pub(crate) async fn sniff(&mut self) -> io::Result<Option<HttpVersion>> {
        // Room for a whole head: hyper would ask again after a short piece, and double its buffer for that.
        let mut first = BytesMut::with_capacity(SNIFF_BYTES);
        let protocol = loop {
            if self.read_buf(&mut first).await? == 0 {
                return Ok(None);
            }
            let have = first.len().min(PREFACE.len());
            if first[..have] != PREFACE[..have] {
                break HttpVersion::Http1;
            }
            if have == PREFACE.len() {
                break HttpVersion::Http2;
            }
        };
        self.prefix = first;
        self.protocol = protocol;
        Ok(Some(protocol))
    }

    fn poll_stream(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Transport::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Transport::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            Transport::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }

    /// Looks for the end of what the peer sends where hyper does not: while it holds bytes of a next request, it reads no
    /// further before the current one is answered. What is there is read ahead, up to a bound.
    fn listen(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let mut scratch = [0; 1024];
        while self.prefix.len() < AHEAD_BYTES {
            let mut buf = ReadBuf::new(&mut scratch);
            match self.poll_stream(cx, &mut buf)? {
                Poll::Pending => break,
                Poll::Ready(()) if buf.filled().is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
                Poll::Ready(()) => self.prefix.extend_from_slice(buf.filled()),
            }
        }
        Ok(())
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.prefix.is_empty() {
            let length = self.prefix.len().min(buf.remaining());
            buf.put_slice(&self.prefix[..length]);
            self.prefix.advance(length);
            if self.prefix.is_empty() {
                self.prefix = BytesMut::new();
            }
            self.is_heard = false;
            self.activity.read(length);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let read = self.poll_stream(cx, buf);
        self.is_heard = read.is_pending();
        ready!(read)?;
        self.activity.read(buf.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = match &mut self.stream {
            Transport::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Transport::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
            Transport::Tls(stream) => return Pin::new(stream).poll_write(cx, buf),
        };
        self.activity.wrote(&result);
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = match &mut self.stream {
            Transport::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Transport::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Transport::Tls(stream) => return Pin::new(stream).poll_write_vectored(cx, bufs),
        };
        self.activity.wrote(&result);
        result
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// hyper flushes at the end of each of its turns.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_heard && self.protocol == HttpVersion::Http1 && self.activity.computing.load(Ordering::Relaxed) {
            self.listen(cx)?;
        }
        match &mut self.stream {
            Transport::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.activity.lingering.load(Ordering::Relaxed) {
            ready!(match &mut self.stream {
                Transport::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
                Transport::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
                Transport::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            })?;
            if !self.activity.unread.load(Ordering::Relaxed) {
                return Poll::Ready(Ok(()));
            }
            self.activity.lingering.store(true, Ordering::Relaxed);
            self.dropping = DiscardTurns::begin();
        }
        let Some(dropping) = &mut self.dropping else { return Poll::Ready(Ok(())) };
        ready!(dropping.poll_turn(cx));
        let mut scratch = [0; 8192];
        loop {
            let mut buf = ReadBuf::new(&mut scratch);
            ready!(self.poll_stream(cx, &mut buf))?;
            let length = buf.filled().len() as u64;
            if length == 0 {
                return Poll::Ready(Ok(()));
            }
            self.activity.dropped.fetch_add(length, Ordering::Relaxed);
            if self.dropping.as_mut().is_some_and(|dropping| dropping.read(length)) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }
}
