//! The first frame of a worker's connection.

use crate::link::agents::messages::one_line;
use crate::link::frame::kind::Kind;
use crate::link::frame::reader::{Frame, FrameReader};
use crate::link::front::link::Link;
use bytes::Bytes;
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
    #[serde(deserialize_with = "one_line")]
    pub host: String,
    /// The devices that it may use, as its environment names them; empty if it names none.
    pub devices: Vec<String>,
    /// The number of a worker on another machine, which it keeps when it connects again; empty on this one.
    #[serde(default)]
    pub id: String,
    /// The model that it has loaded, if it comes back with one.
    #[serde(default)]
    pub rejoin: Option<Rejoin>,
}

/// The model of a worker that comes back after its link was lost.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
pub struct Rejoin {
    /// The target that it imported.
    pub target: String,
    /// The deployment that it is a replica of.
    pub deployment: String,
    /// The number of the replica.
    pub replica: u32,
    /// What the front gave the worker as `options_hash` in its specification.
    pub options_hash: String,
}

/// A worker that comes back with the model that it has loaded.
#[derive(Debug)]
pub struct Returned {
    /// Its name.
    pub id: String,
    /// The machine that it runs on.
    pub host: String,
    /// What it has loaded.
    pub loaded: Rejoin,
    /// The manifest of its target (JSON).
    pub manifest: Bytes,
    /// Its new link.
    pub link: Link,
}

/// Reads the second frame of a worker that comes back, which must be its manifest.
pub async fn read_manifest<R: AsyncRead + Unpin>(reader: &mut FrameReader<R>) -> io::Result<Bytes> {
    match reader.next().await?.ok_or(io::ErrorKind::UnexpectedEof)? {
        Frame { kind: Kind::Manifest, table, .. } => Ok(table),
        _ => Err(io::Error::other("no manifest follows the hello")),
    }
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
