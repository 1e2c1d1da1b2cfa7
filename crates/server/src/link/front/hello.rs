//! The first frame of a worker's connection.

use crate::link::frame::kind::Kind;
use crate::link::frame::reader::FrameReader;
use std::io;
use std::time::Duration;
use tokio::io::AsyncRead;

/// A worker must send its hello within this time.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of a hello. The sender has proven nothing yet, so it gets no more memory than that.
const LONGEST_HELLO: usize = 4 << 10;

/// What a worker says first.
#[derive(Debug, serde::Deserialize)]
pub struct Hello {
    /// The version of jitney that it runs.
    pub version: String,
    /// The secret that its front gave it. It admits one connection.
    pub token: String,
    /// The machine that it runs on.
    pub host: String,
    /// The devices that it may use, as its environment names them; empty if it names none.
    pub devices: Vec<String>,
}

/// Reads the first frame of a new connection, which must be a hello.
pub async fn greet<R: AsyncRead + Unpin>(reader: &mut FrameReader<R>) -> io::Result<Hello> {
    let frame = tokio::time::timeout(HELLO_TIMEOUT, reader.next_within(LONGEST_HELLO)).await??;
    let frame = frame.ok_or(io::ErrorKind::UnexpectedEof)?;
    if frame.kind != Kind::Hello {
        return Err(io::Error::other("the first frame is not a hello"));
    }
    Ok(serde_json::from_slice(&frame.table)?)
}
