//! Signs of life of the other end of a connection: what comes from it, and that it takes what did not fit into the socket. A
//! frame may take longer than any silence that is borne, and whoever is busy with one cannot say anything else meanwhile.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// When the last sign was seen.
#[derive(Clone, Debug)]
pub(super) struct Life {
    began: Instant,
    last_ms: Arc<AtomicU64>,
}

impl Life {
    /// Beginning now.
    pub(super) fn new() -> Life {
        Life { began: Instant::now(), last_ms: Arc::default() }
    }

    /// For how long there has been no sign.
    pub(super) fn silence(&self) -> Duration {
        self.began.elapsed().saturating_sub(Duration::from_millis(self.last_ms.load(Ordering::Relaxed)))
    }

    fn sign(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(now, Ordering::Relaxed);
    }
}

/// One direction of a connection, whose progress is a sign.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    life: Life,
    /// The socket was full: only the other end can have made room. What fits into it at once says nothing.
    was_full: bool,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, life: &Life) -> Watched<S> {
        Watched { stream, life: life.clone(), was_full: false }
    }

    fn wrote(&mut self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
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
        if buffer.filled().len() > before {
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
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
