//! The worker's end of a link, blocking. A thread of its own receives, answers pings and notes cancels while the
//! model computes; it knows nothing of Python and waits for no lock that Python code holds for long.

use super::batch_frame::{self, ReceivedBatch};
use super::frame::{AT_ONCE, HEADER_LEN, Header, Kind, small_frame};
use jitney_core::request::{BatchId, ItemId};
use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use std::io::{self, BufReader, IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

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
}

#[derive(Debug)]
struct Shared {
    inbox: Mutex<Inbox>,
    arrived: Condvar,
    writer: Mutex<UnixStream>,
}

impl Shared {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, pieces: &[&[u8]]) -> io::Result<()> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        write_all_vectored(&mut *writer, pieces)
    }
}

/// The worker's end.
#[derive(Clone, Debug)]
pub struct WorkerLink {
    shared: Arc<Shared>,
}

impl WorkerLink {
    /// Dials the front (`unix:PATH`), says who this is and starts the receiving thread, which calls `on_end` when the
    /// front has gone away.
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
        let reader = stream.try_clone()?;
        let shared = Arc::new(Shared { inbox: Mutex::default(), arrived: Condvar::new(), writer: Mutex::new(stream) });
        let link = WorkerLink { shared };
        let hello = serde_json::json!({ "secret": secret, "worker": worker }).to_string();
        link.control(Kind::Hello, hello.as_bytes())?;
        let shared = link.shared.clone();
        std::thread::Builder::new().name("jitney-link".into()).spawn(move || {
            let end = receive(&shared, reader);
            if let Err(error) = end {
                tracing::debug!(%error, "the link broke");
            }
            shared.inbox().is_closed = true;
            shared.arrived.notify_all();
            on_end();
        })?;
        Ok(link)
    }

    /// Sends a control message.
    pub fn control(&self, kind: Kind, body: &[u8]) -> io::Result<()> {
        let frame = small_frame(kind, body);
        self.shared.write(&[&frame[0]])
    }

    /// Waits for a control message; `Shutdown` also when the front is gone.
    pub fn receive(&self) -> Control {
        let mut inbox = self.shared.inbox();
        loop {
            if let Some(control) = inbox.controls.pop_front() {
                return control;
            }
            if inbox.is_closed {
                return Control::Shutdown;
            }
            inbox = self.shared.arrived.wait(inbox).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for the next batch; `None` when it is time to end.
    pub fn next_batch(&self) -> Option<Delivered> {
        let mut inbox = self.shared.inbox();
        loop {
            if let Some(batch) = inbox.batches.pop_front() {
                return Some(batch);
            }
            if inbox.is_closed || inbox.controls.contains(&Control::Shutdown) {
                return None;
            }
            inbox = self.shared.arrived.wait(inbox).unwrap_or_else(PoisonError::into_inner);
        }
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

fn receive(shared: &Shared, stream: UnixStream) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(64 << 10, stream);
    loop {
        let mut header = [0; HEADER_LEN];
        match reader.read_exact(&mut header) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        }
        let header = Header::decode(&header)?;
        let table = read_exactly(&mut reader, header.table)?;
        let payload = read_exactly(&mut reader, header.payload)?;
        deliver(shared, header.kind, table, payload)?;
    }
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
            return Ok(());
        }
        Kind::Assign => shared.inbox().controls.push_back(Control::Assign(table)),
        Kind::Shutdown => shared.inbox().controls.push_back(Control::Shutdown),
        other => return Err(io::Error::other(format!("a front does not send {other:?}"))),
    }
    shared.arrived.notify_all();
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
