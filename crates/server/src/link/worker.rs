//! The worker's end of a link, blocking. Whoever waits for a batch reads the socket itself, so that a batch need not be
//! handed from thread to thread. While the model computes a thread of the link's own stands in: it receives, answers
//! pings and notes cancels; it knows nothing of Python and waits for no lock that Python code holds for long. It only
//! watches the socket and takes the stream when something has come, so that the model's thread finds the stream free.

use super::batch_frame::{self, ReceivedBatch};
use super::frame::{AT_ONCE, HEADER_LEN, Header, Kind, small_frame};
use jitney_core::request::{BatchId, ItemId};
use rustc_hash::FxHashSet;
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::VecDeque;
use std::io::{self, BufReader, IoSlice, PipeReader, PipeWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The link's own thread watches when nobody else has read for so long. A model that takes less pays for no switch of
/// threads; one that takes more has its next batch received meanwhile.
const TICK: Duration = Duration::from_millis(1);
/// After so many ticks in which somebody else was reading, the link's own thread sleeps until it is told otherwise.
const TICKS_AWAKE: u32 = 8;

/// A control message from the front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// Which replica this worker is (JSON).
    Assign(Vec<u8>),
    /// Finish and end.
    Shutdown,
}

/// A batch that waits in the worker, with the instant at which it arrived.
#[derive(Debug)]
pub struct Delivered {
    /// The batch.
    pub batch: ReceivedBatch,
    /// When it arrived here: what was left of an item's time counts from then.
    pub arrived: Instant,
}

#[derive(Debug, Default)]
struct Inbox {
    controls: VecDeque<Control>,
    batches: VecDeque<Delivered>,
    /// Items of batches that are here, so that cancels of others leave no trace.
    here: FxHashSet<ItemId>,
    cancelled: FxHashSet<ItemId>,
    is_closed: bool,
    /// Where frames come from; whoever reads takes it along.
    stream: Option<BufReader<UnixStream>>,
    /// Frames ever read.
    frames: u64,
    /// Threads that wait while another reads.
    followers: u32,
    /// The link's own thread watches the socket; whoever begins to read ends that with the bell.
    is_watched: bool,
    /// The link's own thread waits to be told that nobody reads any more.
    is_asleep: bool,
}

/// What is to be done when the front has gone away.
type OnEnd = Box<dyn FnOnce() + Send>;

struct Shared {
    inbox: Mutex<Inbox>,
    /// For followers: a frame was read.
    arrived: Condvar,
    /// For the link's own thread.
    wake: Condvar,
    writer: Mutex<UnixStream>,
    /// The socket, to be watched.
    socket: UnixStream,
    /// A byte in this pipe tells the link's own thread that somebody reads.
    bell: (PipeReader, PipeWriter),
    on_end: Mutex<Option<OnEnd>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("inbox", &self.inbox).finish_non_exhaustive()
    }
}

impl Shared {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, pieces: &[&[u8]]) -> io::Result<()> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        write_all_vectored(&mut *writer, pieces)
    }

    /// Until `take` finds something: reads, or follows who reads.
    fn wait<T>(&self, take: impl Fn(&mut Inbox) -> Option<T>) -> T {
        let mut inbox = self.inbox();
        loop {
            if let Some(found) = take(&mut inbox) {
                if inbox.is_asleep && inbox.stream.is_some() {
                    inbox.is_asleep = false;
                    self.wake.notify_one();
                }
                return found;
            }
            if let Some(stream) = inbox.stream.take() {
                if std::mem::take(&mut inbox.is_watched) {
                    // One byte into an empty pipe never waits, and the other end lives in `self`.
                    let _ = (&self.bell.1).write_all(&[1]);
                }
                inbox = self.read(inbox, stream);
            } else {
                inbox.followers += 1;
                inbox = self.arrived.wait(inbox).unwrap_or_else(PoisonError::into_inner);
                inbox.followers -= 1;
            }
        }
    }

    /// One frame, received without holding up the inbox.
    fn read<'a>(&'a self, inbox: MutexGuard<'a, Inbox>, mut stream: BufReader<UnixStream>) -> MutexGuard<'a, Inbox> {
        drop(inbox);
        let received = receive(self, &mut stream);
        let mut inbox = self.inbox();
        inbox.frames += 1;
        if let Ok(true) = received {
            inbox.stream = Some(stream);
        } else {
            if let Err(error) = received {
                tracing::debug!(%error, "the link broke");
            }
            inbox.is_closed = true;
            self.wake.notify_one();
            // By whoever sees the end: nothing may come before it, such as a worker that ends of its own accord.
            let on_end = self.on_end.lock().unwrap_or_else(PoisonError::into_inner).take();
            on_end.into_iter().for_each(|on_end| on_end());
        }
        // A wake is a system call even if nobody listens.
        if inbox.followers > 0 {
            self.arrived.notify_all();
        }
        inbox
    }

    /// Waits until something has come that nobody reads (true), or somebody else reads (false). The stream stays free
    /// meanwhile: a thread that waited in `read` would have to hand over the batch that it reads.
    fn watch<'a>(&'a self, mut inbox: MutexGuard<'a, Inbox>) -> (MutexGuard<'a, Inbox>, bool) {
        if inbox.stream.as_ref().is_some_and(|stream| !stream.buffer().is_empty()) {
            return (inbox, true);
        }
        inbox.is_watched = true;
        drop(inbox);
        let mut watched = [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&self.bell.0, PollFlags::IN)];
        // A signal may end it, too: then nothing has come, and the caller looks again.
        let _ = poll(&mut watched, None);
        let has_come = !watched[0].revents().is_empty();
        let mut inbox = self.inbox();
        let is_rung = !std::mem::take(&mut inbox.is_watched);
        if is_rung {
            // The byte was written under the lock.
            let _ = (&self.bell.0).read_exact(&mut [0]);
        }
        (inbox, has_come && !is_rung)
    }

    /// The life of the link's own thread: reads whenever nobody else does, until the front has gone.
    fn stand_in(&self) {
        let mut inbox = self.inbox();
        let (mut frames, mut ticks) = (0, 0);
        while !inbox.is_closed {
            let is_read = inbox.stream.is_none();
            if !is_read && inbox.frames == frames {
                let (found, has_come) = self.watch(inbox);
                inbox = found;
                if let Some(stream) = inbox.stream.take_if(|_| has_come) {
                    inbox = self.read(inbox, stream);
                    if inbox.followers == 0 {
                        frames = inbox.frames;
                        continue;
                    }
                }
            }
            frames = inbox.frames;
            ticks = if is_read { ticks + 1 } else { 0 };
            if ticks < TICKS_AWAKE {
                inbox = self.wake.wait_timeout(inbox, TICK).unwrap_or_else(PoisonError::into_inner).0;
            } else {
                ticks = 0;
                inbox.is_asleep = true;
                while inbox.is_asleep && !inbox.is_closed {
                    inbox = self.wake.wait(inbox).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

/// The worker's end.
#[derive(Clone, Debug)]
pub struct WorkerLink {
    shared: Arc<Shared>,
}

impl WorkerLink {
    /// Dials the front (`unix:PATH`), says who this is and starts the link's own thread. When the front has gone away,
    /// `on_end` is called by the thread that notices.
    pub fn connect(
        address: &str,
        secret: &str,
        worker: u32,
        on_end: impl FnOnce() + Send + 'static,
    ) -> io::Result<WorkerLink> {
        let path = address.strip_prefix("unix:").ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{address}: a worker dials unix:PATH"))
        })?;
        let stream = UnixStream::connect(path)?;
        super::frame::widen(&stream);
        let reader = BufReader::with_capacity(64 << 10, stream.try_clone()?);
        let shared = Arc::new(Shared {
            inbox: Mutex::new(Inbox { stream: Some(reader), ..Inbox::default() }),
            arrived: Condvar::new(),
            wake: Condvar::new(),
            socket: stream.try_clone()?,
            bell: io::pipe()?,
            writer: Mutex::new(stream),
            on_end: Mutex::new(Some(Box::new(on_end))),
        });
        let link = WorkerLink { shared };
        let hello = serde_json::json!({ "secret": secret, "worker": worker }).to_string();
        link.control(Kind::Hello, hello.as_bytes())?;
        let shared = link.shared.clone();
        std::thread::Builder::new().name("jitney-link".into()).spawn(move || shared.stand_in())?;
        Ok(link)
    }

    /// Sends a control message.
    pub fn control(&self, kind: Kind, body: &[u8]) -> io::Result<()> {
        let frame = small_frame(kind, body);
        self.shared.write(&[&frame[0]])
    }

    /// Waits for a control message; `Shutdown` also when the front is gone.
    pub fn receive(&self) -> Control {
        self.shared.wait(|inbox| {
            let control = inbox.controls.pop_front();
            control.or_else(|| inbox.is_closed.then_some(Control::Shutdown))
        })
    }

    /// Waits for the next batch; `None` when it is time to end.
    pub fn next_batch(&self) -> Option<Delivered> {
        self.shared.wait(|inbox| {
            let batch = inbox.batches.pop_front();
            let has_ended = || inbox.is_closed || inbox.controls.contains(&Control::Shutdown);
            batch.map(Some).or_else(|| has_ended().then_some(None))
        })
    }

    /// Whether somebody still waits for each item.
    pub fn wanted(&self, delivered: &Delivered) -> Vec<bool> {
        let inbox = self.shared.inbox();
        let elapsed = delivered.arrived.elapsed();
        let items = delivered.batch.items.iter();
        items.map(|item| item.remaining > elapsed && !inbox.cancelled.contains(&item.id)).collect()
    }

    /// Says that `predict` begins.
    pub fn started(&self, batch: BatchId) -> io::Result<()> {
        let frame = small_frame(Kind::Started, &batch.0.to_le_bytes());
        self.shared.write(&[&frame[0]])
    }

    /// Sends a results frame: its head and the values in order. The batch is no longer here afterwards.
    pub fn finish(&self, items: impl Iterator<Item = ItemId>, pieces: &[&[u8]]) -> io::Result<()> {
        let mut inbox = self.shared.inbox();
        for id in items {
            inbox.here.remove(&id);
            inbox.cancelled.remove(&id);
        }
        drop(inbox);
        self.shared.write(pieces)
    }
}

/// Receives one frame; false at the end of the stream.
fn receive(shared: &Shared, reader: &mut BufReader<UnixStream>) -> io::Result<bool> {
    let mut header = [0; HEADER_LEN];
    match reader.read_exact(&mut header) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        other => other?,
    }
    let header = Header::decode(&header)?;
    let table = read_exactly(reader, header.table)?;
    let payload = read_exactly(reader, header.payload)?;
    deliver(shared, header.kind, table, payload)?;
    Ok(true)
}

/// Reads into fresh memory, which is not cleared before; what is huge gets its memory as it comes.
fn read_exactly(reader: &mut impl Read, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(len.min(AT_ONCE));
    reader.take(len as u64).read_to_end(&mut bytes)?;
    if bytes.len() < len { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
}

fn deliver(shared: &Shared, kind: Kind, table: Vec<u8>, payload: Vec<u8>) -> io::Result<()> {
    match kind {
        Kind::Ping => return shared.write(&[&small_frame(Kind::Pong, b"")[0]]),
        Kind::Batch => {
            let batch = batch_frame::decode(&table, payload)?;
            let mut inbox = shared.inbox();
            inbox.here.extend(batch.items.iter().map(|item| item.id));
            inbox.batches.push_back(Delivered { batch, arrived: Instant::now() });
        }
        Kind::Cancel => {
            let id = table.as_slice().try_into().map_err(|_| io::Error::other("an item id has 8 bytes"))?;
            let id = ItemId(u64::from_le_bytes(id));
            let mut inbox = shared.inbox();
            if inbox.here.contains(&id) {
                inbox.cancelled.insert(id);
            }
        }
        Kind::Assign => shared.inbox().controls.push_back(Control::Assign(table)),
        Kind::Shutdown => shared.inbox().controls.push_back(Control::Shutdown),
        other => return Err(io::Error::other(format!("a front does not send {other:?}"))),
    }
    Ok(())
}

/// Writes all pieces, as few system calls as the kernel allows.
fn write_all_vectored(writer: &mut impl Write, pieces: &[&[u8]]) -> io::Result<()> {
    /// The kernel takes at most this many pieces at once (`IOV_MAX`).
    const MOST: usize = 1024;
    let mut slices: Vec<IoSlice> = pieces.iter().filter(|p| !p.is_empty()).map(|p| IoSlice::new(p)).collect();
    let mut rest = &mut slices[..];
    while !rest.is_empty() {
        let most = rest.len().min(MOST);
        match writer.write_vectored(&rest[..most]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut rest, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
