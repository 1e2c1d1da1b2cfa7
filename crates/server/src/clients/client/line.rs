//! One connection to a server, from dialling to its end.

use crate::base::clock::Clock;
use crate::clients::answer_frames;
use crate::clients::client::calls::{LATE, Line, Shared, Standing};
use crate::clients::client::outgoing::Outgoing;
use crate::clients::greeting::{Dial, Refused, Welcome};
use crate::link::frame::header::{FrameError, Segments, small_frame};
use crate::link::frame::kind::Kind;
use crate::link::frame::reader::{Frame, FrameReader};
use crate::link::frame::writer::{widen, write_all};
use crate::link::liveness::{Life, Watched};
use rustc_hash::FxHashSet;
use serde_json::Value;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, MissedTickBehavior};

/// A server must send its welcome within this time; it may still be loading models.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(600);
/// A host that does not answer at all is dialled again after this time, and not when the kernel gives up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often calls are searched for those that are late.
const LOOK: Duration = Duration::from_millis(500);
/// How often a server is asked for a sign of life.
const PING_EVERY: Duration = Duration::from_secs(2);
/// A server that is silent for this long counts as lost.
const SILENCE: Duration = Duration::from_secs(10);

/// Dials the server and speaks with it until one of the two ends the connection.
pub(super) async fn connect(shared: &Arc<Shared>) -> io::Result<()> {
    let place = &shared.address.address;
    if let Some(path) = place.strip_prefix("unix:") {
        let stream = UnixStream::connect(path).await?;
        widen(&stream);
        let (reader, writer) = stream.into_split();
        return talk(shared, reader, writer).await;
    }
    let host = place.strip_prefix("tcp:").ok_or_else(|| io::Error::other("a place is unix:PATH or tcp:HOST:PORT"))?;
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(host)).await??;
    stream.set_nodelay(true)?;
    let (reader, writer) = stream.into_split();
    talk(shared, reader, writer).await
}

/// Speaks with the server until one of the two ends it.
pub(super) async fn talk<R, W>(shared: &Arc<Shared>, reader: R, writer: W) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (outgoing, queue) = mpsc::unbounded_channel();
    let life = Life::new(Clock::default());
    let writing = tokio::spawn(write_all(Watched::new(writer, &life), queue));
    let mut reader = FrameReader::new(Watched::new(reader, &life));
    let dial = serde_json::to_vec(&Dial { key: shared.address.key.clone() })?;
    let _ = outgoing.send(small_frame(Kind::Dial, &dial));
    let said = "it is there and serves nobody yet: its models are loading. A model that calls others of its own server \
                must connect when it is first asked, not while it loads";
    shared.standing.send_if_modified(|standing| match standing {
        Standing::Dialling(why) => {
            said.clone_into(why);
            true
        }
        _ => false,
    });
    let first = tokio::time::timeout(WELCOME_TIMEOUT, reader.next()).await?;
    let frame = first.inspect_err(|error| {
        if let Some(why) = other_protocol(error) {
            shared.standing.send_replace(Standing::Refused(why));
        }
    })?;
    let frame = frame.ok_or(io::ErrorKind::UnexpectedEof)?;
    match frame.kind {
        Kind::Welcome => {
            let welcome: Welcome = serde_json::from_slice(&frame.table)?;
            let welcome = Arc::new(welcome);
            let places = Arc::new(Semaphore::new(welcome.max_requests as usize));
            let changed = changed(shared.first.get_or_init(|| welcome.clone()), &welcome);
            shared.calls().line = Some(Line { outgoing: Outgoing::Queue(outgoing.clone()), places, changed });
            shared.standing.send_replace(Standing::Connected(welcome));
        }
        Kind::Refused => {
            let refused: Refused = serde_json::from_slice(&frame.table)?;
            if refused.is_temporary {
                return Err(io::Error::other(refused.why));
            }
            shared.standing.send_replace(Standing::Refused(refused.why));
            // Not the end of a connection that worked: a refused program dials at growing intervals.
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        other => return Err(io::Error::other(format!("a server does not begin with {other:?}"))),
    }
    let result = listen(shared, &mut reader, &outgoing, &life).await;
    writing.abort();
    result
}

/// What answers there, if it is not a jitney server's address for programs.
fn other_protocol(error: &io::Error) -> Option<String> {
    /// How an answer in HTTP begins.
    const HTTP: u16 = u16::from_le_bytes(*b"HT");
    let error = error.get_ref()?.downcast_ref::<FrameError>()?;
    Some(match error {
        FrameError::Magic(HTTP) => "this is an HTTP server. Programs connect to an address of `listen_programs` (option \
                                    --listen-programs of `jitney serve`); the server's log names it: \"programs call at …\""
            .to_owned(),
        FrameError::Magic(_) => "what answers there is not a jitney server".to_owned(),
        FrameError::Version(_) => error.to_string(),
        _ => return None,
    })
}

async fn listen<R: AsyncRead + Unpin>(
    shared: &Shared,
    reader: &mut FrameReader<R>,
    outgoing: &mpsc::UnboundedSender<Segments>,
    life: &Life,
) -> io::Result<()> {
    let mut ping = tokio::time::interval(PING_EVERY);
    // A program that was stopped itself (Ctrl-Z, a frozen container) has heard nothing meanwhile, and asks first.
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut asked = Instant::now();
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // Polled to its end: what it has read of a frame would be lost with it.
        let next = reader.next();
        tokio::pin!(next);
        let frame = loop {
            tokio::select! {
                biased;
                frame = &mut next => break frame?,
                _ = ping.tick() => {
                    let was_away = std::mem::replace(&mut asked, Instant::now()).elapsed() > 2 * PING_EVERY;
                    if life.silence() > SILENCE && !was_away {
                        return Err(io::Error::other(format!("it has been silent for {} s", SILENCE.as_secs())));
                    }
                    let _ = outgoing.send(small_frame(Kind::Ping, b""));
                }
                // An answer may be on its way for long; then there are signs of it.
                _ = look.tick() => if life.silence() > LATE { shared.expire() },
            }
        };
        let Some(frame) = frame else { return Ok(()) };
        receive(shared, &frame)?;
    }
}

fn receive(shared: &Shared, frame: &Frame) -> io::Result<()> {
    match frame.kind {
        Kind::Pong => Ok(()),
        Kind::Answers | Kind::AnswerParts => {
            let (id, entries) = answer_frames::read(frame)?;
            shared.answered(id, entries, frame.kind == Kind::Answers)
        }
        other => Err(io::Error::other(format!("a server does not send {other:?}"))),
    }
}

/// Deployments of both servers whose values are of other kinds, as far as programs write and read them by it.
fn changed(first: &Welcome, now: &Welcome) -> FxHashSet<String> {
    let is_other = |known: &Value, found: &Value| {
        [("input", "kind"), ("input", "arrays"), ("output", "kind"), ("output", "arrays")]
            .iter()
            .any(|(side, part)| known[side][part] != found[side][part])
            || known["output"]["part"]["kind"] != found["output"]["part"]["kind"]
    };
    let both = now.deployments.iter().filter_map(|(name, found)| Some((name, first.deployments.get(name)?, found)));
    both.filter(|(_, known, found)| is_other(known, found)).map(|(name, ..)| name.clone()).collect()
}

#[cfg(test)]
mod tests;
