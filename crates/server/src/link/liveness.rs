//! Signs of life of the other end of a connection: bytes that come from it, and room that it makes in a full socket. A
//! large frame may take longer than the longest silence that is allowed, and no pong can pass it, in either direction.

use crate::base::clock::Clock;
use jitney_core::time::Time;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// When the last sign of life of one connection was seen; cheap to share.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    clock: Clock,
    signs: Arc<Signs>,
}

#[derive(Debug)]
struct Signs {
    last: AtomicU64,
    /// Bytes that came.
    received: AtomicU64,
}

impl Life {
    /// The other end lives now.
    pub(crate) fn new(clock: Clock) -> Life {
        let signs = Signs { last: AtomicU64::new(clock.now().0), received: AtomicU64::new(0) };
        Life { clock, signs: Arc::new(signs) }
    }

    /// The time of the last sign.
    pub(crate) fn last(&self) -> Time {
        Time(self.signs.last.load(Ordering::Relaxed))
    }

    /// The time since the last sign.
    pub(crate) fn silence(&self) -> Duration {
        self.clock.now() - self.last()
    }

    /// Bytes that have come from the other end.
    pub(crate) fn received(&self) -> u64 {
        self.signs.received.load(Ordering::Relaxed)
    }

    /// Counts as a sign at this time, although none was seen: this end was not listening.
    pub(crate) fn excuse(&self, now: Time) {
        self.signs.last.store(now.0, Ordering::Relaxed);
    }

    fn sign(&self) {
        self.excuse(self.clock.now());
    }
}

/// One direction of a connection, whose progress is a sign of life.
#[derive(Debug)]
pub(crate) struct Watched<S> {
    stream: S,
    life: Life,
    /// Whether the last write found the socket full. Then only the other end can have made room, so it is alive. A
    /// write that fits into the socket immediately does not show that.
    was_full: bool,
}

impl<S> Watched<S> {
    pub(crate) fn new(stream: S, life: &Life) -> Watched<S> {
        Watched { stream, life: life.clone(), was_full: false }
    }

    fn wrote<T>(&mut self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() && self.was_full {
            self.life.sign();
        }
        self.was_full = result.is_pending();
        result
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Watched<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let received = buffer.filled().len() - before;
        if received > 0 {
            self.life.signs.received.fetch_add(received as u64, Ordering::Relaxed);
            self.life.sign();
        }
        result
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Watched<W> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wrote(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.wrote(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.wrote(result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
