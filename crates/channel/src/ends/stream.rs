//! A connection between machines, as the front and an agent have it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// Bytes that are read from a socket at once. TLS itself asks for 4 KiB.
const READ_BYTES: usize = 64 << 10;

/// The socket below TLS.
pub(crate) type Socket = BufReader<TcpStream>;

pub(crate) fn buffered(tcp: TcpStream) -> Socket {
    BufReader::with_capacity(READ_BYTES, tcp)
}

/// A connection. What was written is only sent for certain after a flush.
#[derive(Debug)]
pub struct Stream(Way);

#[derive(Debug)]
enum Way {
    Tls(Box<TlsStream<Socket>>),
    Plain(Socket),
}

impl Stream {
    pub(crate) fn tls(stream: TlsStream<Socket>) -> Stream {
        Stream(Way::Tls(Box::new(stream)))
    }

    pub(crate) fn plain(socket: Socket) -> Stream {
        Stream(Way::Plain(socket))
    }
}

/// Calls a method of whatever the stream is.
macro_rules! on {
    ($stream:expr, $method:ident($($argument:expr),*)) => {
        match &mut $stream.0 {
            Way::Tls(stream) => Pin::new(stream).$method($($argument),*),
            Way::Plain(socket) => Pin::new(socket).$method($($argument),*),
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        on!(self, poll_read(cx, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        on!(self, poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on!(self, poll_write_vectored(cx, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on!(self, poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on!(self, poll_shutdown(cx))
    }
}
