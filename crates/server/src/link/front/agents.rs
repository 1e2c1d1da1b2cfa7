//! The front's end of the connection of an agent: one task reads, one writes.

use crate::base::clock::Clock;
use crate::link::agents::agent_link::{AgentEvent, AgentLink, ConnectionId, MISCONFIGURED, frame};
use crate::link::agents::messages::{Join, JoinRefused, Joined, Report};
use crate::link::frame::kind::Kind;
use crate::link::frame::reader::{Frame, FrameReader};
use crate::link::frame::writer::write_all;
use crate::link::front::worker_event::WorkerEvent;
use crate::link::liveness::{Life, Watched};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, mpsc};

/// Most bytes of what an agent says first.
const LONGEST_JOIN: usize = 1 << 20;
/// Most bytes of what it says later.
const LONGEST_REPORT: usize = 4 << 20;
/// Most bytes of what its workers print that wait for the supervisor. Then no more is read of it.
const MOST_OUTPUT: usize = 1 << 20;
/// Each piece counts as at least so many bytes.
const LEAST_OUTPUT: usize = 1 << 10;
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

/// Lets an agent join that has proven the secret. How long it may take is the matter of the caller. An error says why it is refused. The port at which it has joined says which
/// engine has started it (empty: none), and not the agent: each port has its own secret.
pub async fn welcome<S>(
    stream: S,
    engine: &'static str,
    clock: Clock,
    events: mpsc::UnboundedSender<WorkerEvent>,
) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (reader, mut writer) = tokio::io::split(stream);
    let mut reader = FrameReader::new(reader);
    let first = reader.next_within(LONGEST_JOIN).await;
    let first = first.map_err(|error| format!("the agent did not say what it has: {error}"))?;
    let join = match first {
        Some(Frame { kind: Kind::Join, table, .. }) => serde_json::from_slice::<serde_json::Value>(&table).ok(),
        _ => None,
    };
    let join = join.ok_or("the agent did not say what it has")?;
    match accepted(join) {
        Ok(mut join) => {
            engine.clone_into(&mut join.engine);
            start(reader, writer, join, clock, &events);
            Ok(())
        }
        Err(refused) => {
            let bytes = frame(Kind::JoinRefused, &refused);
            for piece in &bytes {
                let _ = writer.write_all(piece).await;
            }
            let _ = writer.shutdown().await;
            Err(refused.why)
        }
    }
}

/// Whether an agent of this version may join. The version is read first: the rest may have another shape in another version.
fn accepted(join: serde_json::Value) -> Result<Join, JoinRefused> {
    let own = env!("CARGO_PKG_VERSION");
    let version = join["version"].as_str().unwrap_or("unknown").to_owned();
    if version != own {
        let why = format!("the agent runs jitney {version}, the front {own}; install the same version for both");
        return Err(JoinRefused { why, exit: Some(MISCONFIGURED) });
    }
    serde_json::from_value(join).map_err(|error| JoinRefused {
        why: format!("the Join frame of the agent cannot be read: {error}"),
        exit: None,
    })
}

fn start<S>(
    reader: FrameReader<tokio::io::ReadHalf<S>>,
    writer: tokio::io::WriteHalf<S>,
    join: Join,
    clock: Clock,
    events: &mpsc::UnboundedSender<WorkerEvent>,
) where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let connection = ConnectionId(CONNECTIONS.fetch_add(1, Ordering::Relaxed));
    let (outgoing, queue) = mpsc::unbounded_channel();
    let life = Life::new(clock);
    let agent: Arc<str> = join.agent.as_str().into();
    let _ = outgoing.send(frame(Kind::Joined, &Joined { version: env!("CARGO_PKG_VERSION").into() }));
    tokio::spawn(write_all(Watched::new(writer, &life), queue));
    let mut reader = reader.map(|stream| Watched::new(stream, &life));
    let (reports, name) = (events.clone(), agent.clone());
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    let room = Arc::new(Semaphore::new(MOST_OUTPUT));
    let reading = tokio::spawn(async move {
        // What it says comes after the word that it has joined.
        let _ = gone.await;
        loop {
            let read = match reader.next_within(LONGEST_REPORT).await {
                Ok(frame) => report(frame, &room).await,
                Err(error) => Err(error),
            };
            let event = match read {
                Ok(Some(report)) => AgentEvent::Said(report),
                Ok(None) => continue,
                Err(error) => {
                    tracing::debug!(%error, "the connection of an agent ended");
                    AgentEvent::Lost
                }
            };
            let is_end = matches!(event, AgentEvent::Lost);
            if reports.send(WorkerEvent::Agent(name.clone(), connection, event)).is_err() || is_end {
                return;
            }
        }
    });
    let link = AgentLink { connection, outgoing, life, reader: reading.abort_handle() };
    let joined = AgentEvent::Joined(Box::new(join), link);
    let _ = events.send(WorkerEvent::Agent(agent, connection, joined));
    let _ = go.send(());
}

/// What a frame of an agent says; `None` for a pong.
async fn report(frame: Option<Frame>, room: &Arc<Semaphore>) -> io::Result<Option<Report>> {
    let Frame { kind, table, .. } = frame.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(Some(match kind {
        Kind::Pong => return Ok(None),
        Kind::WorkerStarted => Report::Started(serde_json::from_slice(&table)?),
        Kind::Exited => Report::Ended(serde_json::from_slice(&table)?),
        Kind::Output => {
            let bytes = table.len().clamp(LEAST_OUTPUT, MOST_OUTPUT) as u32;
            let taken = room.clone().acquire_many_owned(bytes).await.map_err(io::Error::other)?;
            Report::Output(serde_json::from_slice(&table)?, taken)
        }
        Kind::Stacks => Report::Stacks(serde_json::from_slice(&table)?),
        Kind::Leaving => Report::Leaving,
        other => return Err(io::Error::other(format!("an agent does not send {other:?}"))),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_workers_print_is_not_read_further_while_much_of_it_waits() {
        use crate::link::agents::messages::Output;
        let room = Arc::new(Semaphore::new(MOST_OUTPUT));
        let frame = || {
            let output = Output { id: "w".into(), is_stdout: true, lines: "x".repeat(MOST_OUTPUT) };
            let table = serde_json::to_vec(&output).unwrap().into();
            Some(Frame { kind: Kind::Output, table, payload: crate::link::frame::payload::Payload::default() })
        };
        let first = report(frame(), &room).await.unwrap();
        let mut second = Box::pin(report(frame(), &room));
        assert!(futures_util::FutureExt::now_or_never(&mut second).is_none());
        drop(first);
        assert!(second.await.unwrap().is_some());
    }

    #[test]
    fn an_agent_of_another_version_is_refused_with_both_versions() {
        let refused = accepted(serde_json::json!({ "version": "0.0.7", "shape": "unknown" })).unwrap_err();
        assert!(refused.why.contains("0.0.7") && refused.why.contains(env!("CARGO_PKG_VERSION")), "{}", refused.why);
        assert_eq!(refused.exit, Some(MISCONFIGURED));
        let own = serde_json::json!({ "version": env!("CARGO_PKG_VERSION") });
        assert_eq!(accepted(own).unwrap_err().exit, None, "a bug, which another front may not have");
    }
}
