//! One connection to the server: opened when it is needed, kept while the server keeps it.

use crate::rules::answer::{Answer, Loss, Reader};
use crate::rules::parts::Dialect;
use bytes::BytesMut;
use rustix::io::Errno;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::task::Poll;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Room for an answer of usual size.
const BUFFER: usize = 16 * 1024;
/// What is read at once of a large one.
const LARGE: u64 = 256 * 1024;

/// A connection that may or may not be open.
#[derive(Debug)]
pub(super) struct Connection {
    address: SocketAddr,
    stream: Option<TcpStream>,
    bytes: BytesMut,
}

impl Connection {
    pub(super) fn new(address: SocketAddr) -> Connection {
        Connection { address, stream: None, bytes: BytesMut::new() }
    }

    /// Sends a request and waits for its whole answer; `opened` is called when a connection had to be opened, and
    /// `came` with the number of parts that came together, if the answer comes in parts (`dialect`).
    ///
    /// The future owns the stream while it runs: dropping it closes the connection, and so
    /// cancels the request.
    pub(super) async fn ask(
        &mut self,
        request: &[u8],
        dialect: Option<Dialect>,
        opened: impl FnOnce(),
        mut came: impl FnMut(u64),
    ) -> Result<Answer, Loss> {
        let mut stream = match self.stream.take() {
            Some(stream) if is_usable(&stream).await => stream,
            _ => {
                let stream = TcpStream::connect(self.address).await.map_err(|error| loss(&error))?;
                stream.set_nodelay(true).map_err(|_| Loss::Connect)?;
                opened();
                stream
            }
        };
        self.bytes.clear();
        // A server that refuses a large body may answer and close before all of it is written: the answer counts.
        let written = stream.write_all(request).await;
        let (mut reader, mut parts) = (Reader::new(dialect), 0);
        loop {
            let room = reader.bytes_left().clamp(BUFFER as u64, LARGE) as usize;
            self.bytes.reserve(room);
            let read = match stream.read_buf(&mut self.bytes).await {
                Ok(0) => return reader.end().map(|read| read.answer),
                Ok(_) => reader.read(&mut self.bytes)?,
                Err(_) => return Err(Loss::Closed),
            };
            let streamed = read.as_ref().and_then(|read| read.answer.streamed.as_ref());
            let so_far = streamed.map_or_else(|| reader.parts(), |streamed| streamed.parts);
            if so_far > parts {
                came(so_far - parts);
                parts = so_far;
            }
            if let Some(read) = read {
                // What comes after the answer was not asked for.
                if !read.is_last && written.is_ok() && self.bytes.is_empty() {
                    self.stream = Some(stream);
                }
                return Ok(read.answer);
            }
        }
    }
}

/// Whose fault it is that there is no connection.
fn loss(error: &io::Error) -> Loss {
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    let is_ours = matches!(number, Some(Errno::MFILE | Errno::NFILE | Errno::ADDRNOTAVAIL));
    if is_ours { Loss::Sockets } else { Loss::Connect }
}

/// Whether the server has left an idle connection open. Costs no system call while it has.
async fn is_usable(stream: &TcpStream) -> bool {
    poll_fn(|context| {
        Poll::Ready(match stream.poll_read_ready(context) {
            Poll::Pending => true,
            // An end, an error, or bytes without a request; but readiness may also be a false alarm.
            Poll::Ready(Ok(())) => {
                matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
            }
            Poll::Ready(Err(_)) => false,
        })
    })
    .await
}
