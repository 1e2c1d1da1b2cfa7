//! An agent's end of its connection to the front.

use crate::link::agents::agent_link::frame;
use crate::link::agents::messages::{Join, JoinRefused, Joined};
use crate::link::frame::kind::Kind;
use crate::link::frame::reader::{Frame, FrameReader};
use serde::Serialize;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, WriteHalf};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// A front from which nothing comes for so long is lost, or the network to it. It pings every second.
const SILENCE: Duration = Duration::from_secs(10);
/// Frames of the front that wait to be handled.
const WAITING: usize = 64;

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum NotJoined {
    /// Another try may succeed.
    Later(String),
    /// None will: the reason for the terminal, and the exit code.
    Never(String, i32),
}

impl From<io::Error> for NotJoined {
    fn from(error: io::Error) -> NotJoined {
        NotJoined::Later(error.to_string())
    }
}

/// A connection to a front that the agent has joined.
#[derive(Debug)]
pub(super) struct Connection<S> {
    writer: WriteHalf<S>,
    /// What the front says; it ends when the connection is lost.
    pub(super) frames: Receiver<Frame>,
    reader: AbortHandle,
}

impl<S: AsyncRead + AsyncWrite + Send + 'static> Connection<S> {
    /// Joins the front at the other end of a stream.
    pub(super) async fn join(stream: S, join: &Join) -> Result<Connection<S>, NotJoined> {
        let (reader, mut writer) = tokio::io::split(stream);
        write(&mut writer, Kind::Join, join).await?;
        let mut reader = FrameReader::new(reader);
        let first = timeout(SILENCE, reader.next()).await.map_err(io::Error::from)??;
        match first {
            Some(Frame { kind: Kind::Joined, table, .. }) => {
                let joined: Result<Joined, _> = serde_json::from_slice(&table);
                tracing::debug!(?joined, "joined");
            }
            Some(Frame { kind: Kind::JoinRefused, table, .. }) => {
                let refused: JoinRefused = serde_json::from_slice(&table).map_err(io::Error::from)?;
                return Err(match refused.exit {
                    Some(code) => NotJoined::Never(refused.why, code),
                    None => NotJoined::Later(refused.why),
                });
            }
            _ => return Err(NotJoined::Later("the front closed the connection".into())),
        }
        let (frames, received) = channel(WAITING);
        let reading = tokio::spawn(async move {
            while let Ok(Ok(Some(frame))) = timeout(SILENCE, reader.next()).await {
                if frames.send(frame).await.is_err() {
                    return;
                }
            }
        });
        Ok(Connection { writer, frames: received, reader: reading.abort_handle() })
    }

    /// Sends a message.
    pub(super) async fn send(&mut self, kind: Kind, message: &impl Serialize) -> io::Result<()> {
        // A front that takes nothing for so long is lost, too.
        timeout(SILENCE, write(&mut self.writer, kind, message)).await.map_err(io::Error::from)?
    }
}

impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn write<W: AsyncWrite + Unpin>(writer: &mut W, kind: Kind, message: &impl Serialize) -> io::Result<()> {
    for piece in &frame(kind, message) {
        writer.write_all(piece).await?;
    }
    writer.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::Clock;
    use crate::link::agents::agent_link::MISCONFIGURED;
    use crate::link::front::agents::welcome;
    use tokio::sync::mpsc::unbounded_channel;

    #[tokio::test]
    async fn an_agent_of_another_version_does_not_try_again_and_both_ends_say_both_versions() {
        let (front, agent) = tokio::io::duplex(1 << 12);
        let (events, _reported) = unbounded_channel();
        let join = Join { version: "0.0.7".into(), ..Join::default() };
        let (welcomed, joined) =
            tokio::join!(welcome(front, "", Clock::default(), events), Connection::join(agent, &join));
        let Err(NotJoined::Never(why, MISCONFIGURED)) = joined else { panic!("it tries again") };
        assert!(why.contains("0.0.7") && why.contains(env!("CARGO_PKG_VERSION")), "{why}");
        assert_eq!(welcomed.unwrap_err(), why);
    }
}
