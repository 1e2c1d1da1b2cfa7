//! Decides which thread reads the socket. A thread that waits for a message reads the socket itself; further threads
//! that wait follow that thread. When no such thread reads, the link's own thread does: it receives frames, answers
//! pings and files cancels while the model computes. It uses no Python and waits for no lock that Python code holds for
//! long. It only watches the socket, and takes the stream when bytes have arrived. So the model's thread finds the
//! stream free.

use crate::link::frame::header::small_frame;
use crate::link::frame::kind::Kind;
use crate::link::frame::reader::Frame;
use crate::link::worker::answers::AnswerListener;
use crate::link::worker::inbox::Inbox;
use crate::link::worker::lease::{Absence, Identity, Lease};
use crate::link::worker::stream::{ByteStream, ReceivedFrame, receive, write_all_vectored};
use bytes::Bytes;
use jitney_core::request::ItemId;
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{self, BufReader, PipeReader, PipeWriter, Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The link's own thread watches the socket when no other thread has read for this long. A model that takes less time
/// pays for no switch of threads. While a model that takes more time computes, its next batch is received.
const TICK: Duration = Duration::from_millis(1);
/// After this many ticks in which another thread was reading, the link's own thread sleeps until it is woken.
const TICKS_AWAKE: u32 = 8;
/// A wait that ends when it is woken.
const NO_LIMIT: Duration = Duration::from_secs(3600);
/// Bytes of the buffer for small frames.
const BUFFER: usize = 64 << 10;

type Stream = BufReader<Box<dyn ByteStream>>;

/// What to do when the connection to the front has ended.
type OnEnd = Box<dyn FnOnce() + Send>;

#[derive(Debug)]
pub(super) struct State {
    pub(super) inbox: Inbox,
    /// Who this worker is, for the hello of the next connection.
    pub(super) identity: Identity,
    /// The link is lost and may come back.
    absence: Option<Absence>,
    /// Whether the link is lost: no stream until the link's own thread has connected again.
    is_lost: bool,
    /// Frames ever read.
    frames: u64,
    /// Threads that wait while another reads.
    followers: u32,
    /// The link's own thread watches the socket; a thread that begins to read ends that with the bell.
    is_watched: bool,
    /// The link's own thread sleeps until another thread has stopped reading and wakes it.
    is_asleep: bool,
    /// Where frames come from; a thread that reads takes it along.
    stream: Turn,
    /// The socket, to be watched.
    socket: Arc<dyn ByteStream>,
}

/// Where frames go, and the number of the link that it belongs to.
struct Writer {
    link: u64,
    stream: Box<dyn ByteStream>,
}

impl std::fmt::Debug for dyn ByteStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ByteStream")
    }
}

/// The right to read: the thread that reads has the stream.
#[derive(Default)]
struct Turn(Option<Stream>);

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "free" } else { "taken" })
    }
}

pub(super) struct Reading {
    state: Mutex<State>,
    /// For followers: a frame was read.
    arrived: Condvar,
    /// For the link's own thread.
    wake: Condvar,
    writer: Mutex<Writer>,
    lease: Option<Lease>,
    /// Longest silence of the front; `None` where the kernel reports its end.
    silence: Option<Duration>,
    /// A byte in this pipe wakes the link's own thread from its watch, because another thread reads now.
    bell: (PipeReader, PipeWriter),
    on_end: Mutex<Option<OnEnd>>,
    /// Gets the answers to what the model asks; not set if it asks nothing.
    asking: OnceLock<Box<dyn AnswerListener>>,
}

impl std::fmt::Debug for Reading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reading").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Reading {
    pub(super) fn new(
        stream: Box<dyn ByteStream>,
        silence: Option<Duration>,
        identity: Identity,
        lease: Option<Lease>,
        on_end: OnEnd,
    ) -> io::Result<Reading> {
        if let Some(limit) = silence {
            stream.limit_silence(limit)?;
        }
        let state = State {
            inbox: Inbox::default(),
            identity,
            absence: None,
            is_lost: false,
            frames: 0,
            followers: 0,
            is_watched: false,
            is_asleep: false,
            stream: Turn(Some(BufReader::with_capacity(BUFFER, stream.duplicate()?))),
            socket: Arc::from(stream.duplicate()?),
        };
        Ok(Reading {
            state: Mutex::new(state),
            arrived: Condvar::new(),
            wake: Condvar::new(),
            silence,
            bell: io::pipe()?,
            writer: Mutex::new(Writer { link: 0, stream }),
            lease,
            on_end: Mutex::new(Some(on_end)),
            asking: OnceLock::new(),
        })
    }

    /// From now on this gets the answers to what the model asks.
    pub(super) fn listen(&self, asking: Box<dyn AnswerListener>) {
        // Called once, when the model is assigned.
        let _ = self.asking.set(asking);
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends over the link with this number; what belongs to a link that was lost is dropped.
    pub(super) fn write(&self, link: u64, pieces: &[&[u8]]) -> io::Result<()> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.link != link {
            return Ok(());
        }
        let written = write_all_vectored(&mut writer.stream, pieces);
        drop(writer);
        match written {
            Err(error) if self.lease.is_some() => {
                tracing::debug!(%error, "the link broke");
                drop(self.lose(self.state(), link));
                Ok(())
            }
            written => written,
        }
    }

    /// The items for which the model asked something that has no answer yet.
    pub(super) fn asking(&self) -> Vec<ItemId> {
        self.asking.get().map(|asking| asking.asking()).unwrap_or_default()
    }

    /// Sends over the link with this number; an error if it is lost.
    pub(super) fn write_unless_lost(&self, link: u64, pieces: &[&[u8]]) -> io::Result<()> {
        let state = self.state();
        if state.is_lost || state.inbox.link != link {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        drop(state);
        self.write(link, pieces)
    }

    /// Looks once, without waiting. What arrives is received by the link's own thread, which is awake after this.
    pub(super) fn look<T>(&self, take: impl Fn(&mut Inbox) -> T) -> T {
        let mut state = self.state();
        self.wake_own_thread(&mut state);
        take(&mut state.inbox)
    }

    /// Waits until `take` finds something: reads, or follows the thread that reads.
    pub(super) fn wait<T>(&self, take: impl Fn(&mut Inbox) -> Option<T>) -> T {
        self.wait_until(None, take).expect("it waits without end")
    }

    /// Waits until `take` finds something; `None` when it has found nothing until the given instant, or up to a second later:
    /// what wakes it is the next frame, and the front pings every second.
    pub(super) fn wait_until<T>(&self, until: Option<Instant>, take: impl Fn(&mut Inbox) -> Option<T>) -> Option<T> {
        let mut state = self.state();
        loop {
            let found = take(&mut state.inbox);
            if found.is_some() || until.is_some_and(|until| Instant::now() >= until) {
                self.wake_own_thread(&mut state);
                return found;
            }
            if let Some(stream) = state.stream.0.take() {
                if std::mem::take(&mut state.is_watched) {
                    // One byte into an empty pipe never waits, and the other end lives in `self`.
                    let _ = (&self.bell.1).write_all(&[1]);
                }
                state = self.read(state, stream);
            } else {
                // Without a link no frame of the front wakes it within a second.
                let limit = until.map_or(NO_LIMIT, |_| Duration::from_secs(1));
                state.followers += 1;
                state = self.arrived.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0;
                state.followers -= 1;
            }
        }
    }

    fn wake_own_thread(&self, state: &mut State) {
        if state.is_asleep && state.stream.0.is_some() {
            state.is_asleep = false;
            self.wake.notify_one();
        }
    }

    /// One frame, received without holding up the inbox.
    fn read<'a>(&'a self, state: MutexGuard<'a, State>, mut stream: Stream) -> MutexGuard<'a, State> {
        let link = state.inbox.link;
        drop(state);
        let received = self.receive(link, &mut stream);
        let mut state = self.state();
        state.frames += 1;
        if state.inbox.link == link && matches!(received, Ok(true)) {
            state.stream.0 = Some(stream);
            state.absence = None;
        } else {
            if let Err(error) = received {
                tracing::debug!(%error, "the link broke");
            }
            state = self.lose(state, link);
        }
        // A wake is a system call even if no thread listens.
        if state.followers > 0 {
            self.arrived.notify_all();
        }
        state
    }

    /// Receives and files one frame; false at the end of the stream.
    fn receive(&self, link: u64, stream: &mut Stream) -> io::Result<bool> {
        let Some(frame) = receive(stream)? else { return Ok(false) };
        if matches!(frame.kind, Kind::Answered | Kind::AnswerParts) {
            let ReceivedFrame { kind, table, payload, .. } = frame;
            let frame = Frame { kind, table: table.into(), payload: Bytes::from(payload).into() };
            let asking = self.asking.get().ok_or_else(|| io::Error::other("an answer to nothing"))?;
            return asking.answered(&frame).map(|()| true);
        }
        let mut state = self.state();
        if state.inbox.link != link {
            return Ok(false);
        }
        let is_ping = state.inbox.deliver(frame)?;
        drop(state);
        if is_ping {
            self.write(link, &[&small_frame(Kind::Pong, b"")[0]])?;
        }
        Ok(true)
    }

    /// The link with this number is lost. A worker that has a lease and a model ends what it had from it, and its own thread
    /// connects again; any other ends.
    fn lose<'a>(&'a self, mut state: MutexGuard<'a, State>, link: u64) -> MutexGuard<'a, State> {
        if state.inbox.link != link || state.is_lost {
            return state;
        }
        let may_return = self.lease.is_some() && state.identity.rejoin.is_some();
        if !may_return || !state.inbox.cut() {
            return self.end(state);
        }
        tracing::debug!("the link to the front is lost; the worker keeps its model and dials again");
        state.is_lost = true;
        let next = state.inbox.link;
        self.asking.get().into_iter().for_each(|asking| asking.lost(Some(next)));
        state.stream.0 = None;
        state.absence.get_or_insert_with(Absence::begin);
        // A thread that reads or writes, or watches, returns.
        state.socket.close();
        state.is_asleep = false;
        self.wake.notify_one();
        if state.followers > 0 {
            self.arrived.notify_all();
        }
        state
    }

    /// Connects again once, after a pause; the end when the lease is over.
    fn dial_again<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let Some(lease) = &self.lease else { return self.end(state) };
        if let Some(token) = state.inbox.token.take() {
            state.identity.token = token;
        }
        let (identity, link) = (state.identity.clone(), state.inbox.link);
        let mut absence = state.absence.take().unwrap_or_else(Absence::begin);
        drop(state);
        let dialled = absence.try_again(lease, &identity);
        let installed = dialled.map(|dialled| dialled.and_then(|stream| self.install(link, stream)));
        let mut state = self.state();
        state.absence = Some(absence);
        match installed {
            None => return self.end(state),
            Some(Err(error)) => tracing::debug!(%error, "the front cannot be reached"),
            Some(Ok((stream, socket))) => {
                (state.stream.0, state.socket, state.is_lost) = (Some(stream), socket, false);
                if state.followers > 0 {
                    self.arrived.notify_all();
                }
            }
        }
        state
    }

    fn install(&self, link: u64, stream: Box<dyn ByteStream>) -> io::Result<(Stream, Arc<dyn ByteStream>)> {
        if let Some(limit) = self.silence {
            stream.limit_silence(limit)?;
        }
        let reader = BufReader::with_capacity(BUFFER, stream.duplicate()?);
        let socket = Arc::from(stream.duplicate()?);
        *self.writer.lock().unwrap_or_else(PoisonError::into_inner) = Writer { link, stream };
        Ok((reader, socket))
    }

    /// Notes that the connection to the front has ended. The thread that notices it calls this immediately, before the
    /// worker can end for another reason.
    fn end<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.inbox.is_closed = true;
        self.wake.notify_one();
        if state.followers > 0 {
            self.arrived.notify_all();
        }
        self.asking.get().into_iter().for_each(|asking| asking.lost(None));
        let on_end = self.on_end.lock().unwrap_or_else(PoisonError::into_inner).take();
        on_end.into_iter().for_each(|on_end| on_end());
        state
    }

    /// Waits until bytes have arrived that no thread reads (true), or until another thread reads (false). The stream
    /// stays free during the wait: a thread that waited in `read` would have to hand over the batch that it reads.
    fn watch<'a>(&'a self, mut state: MutexGuard<'a, State>) -> (MutexGuard<'a, State>, bool) {
        let has_bytes = |stream: &Stream| !stream.buffer().is_empty() || stream.get_ref().has_buffered();
        if state.stream.0.as_ref().is_some_and(has_bytes) {
            return (state, true);
        }
        state.is_watched = true;
        let (link, socket) = (state.inbox.link, state.socket.clone());
        drop(state);
        let mut watched = [PollFd::new(&socket, PollFlags::IN), PollFd::new(&self.bell.0, PollFlags::IN)];
        let limit = self.silence.and_then(|limit| limit.try_into().ok());
        // A signal may end it, too: then nothing has come, and the caller looks again.
        let is_silent = poll(&mut watched, limit.as_ref()) == Ok(0);
        let has_come = !watched[0].revents().is_empty();
        let mut state = self.state();
        let is_rung = !std::mem::take(&mut state.is_watched);
        if is_rung {
            // The byte was written under the lock.
            let _ = (&self.bell.0).read_exact(&mut [0]);
        } else if is_silent {
            tracing::debug!("the front is silent");
            state = self.lose(state, link);
        }
        (state, has_come && !is_rung)
    }

    /// What the link's own thread runs: it reads while no other thread does, until the connection to the front has
    /// ended.
    pub(super) fn stand_in(&self) {
        let mut state = self.state();
        let (mut frames, mut ticks) = (0, 0);
        while !state.inbox.is_closed {
            if state.is_lost {
                state = self.dial_again(state);
                continue;
            }
            let is_read = state.stream.0.is_none();
            if !is_read && state.frames == frames {
                let (found, has_come) = self.watch(state);
                state = found;
                if let Some(stream) = state.stream.0.take_if(|_| has_come) {
                    state = self.read(state, stream);
                    if state.followers == 0 {
                        frames = state.frames;
                        continue;
                    }
                }
            }
            frames = state.frames;
            ticks = if is_read { ticks + 1 } else { 0 };
            if ticks < TICKS_AWAKE {
                state = self.wake.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0;
            } else {
                ticks = 0;
                state.is_asleep = true;
                while state.is_asleep && !state.inbox.is_closed && !state.is_lost {
                    state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}
