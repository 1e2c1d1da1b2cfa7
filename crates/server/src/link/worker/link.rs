//! The handle by which a worker speaks with its front.

use crate::link::batch_end::BatchEnd;
use crate::link::batch_frame;
use crate::link::batch_frame::ReceivedBatch;
use crate::link::frame::header::small_frame;
use crate::link::frame::kind::Kind;
use crate::link::frame::writer::widen;
use crate::link::worker::inbox::{Control, Delivered, Inbox, Taken};
use crate::link::worker::reading::Reading;
use crate::link::worker::stream::ByteStream;
use jitney_core::request::{BatchId, ItemId};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a worker says first: its version, its token, its machine, and the devices that its environment names.
fn hello(token: &str) -> serde_json::Value {
    let visible = ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"].iter().find_map(|name| std::env::var(name).ok());
    let devices: Vec<&str> =
        visible.as_deref().unwrap_or_default().split(',').filter(|name| !name.is_empty()).collect();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    serde_json::json!({ "version": env!("CARGO_PKG_VERSION"), "token": token, "host": host, "devices": devices })
}

/// The worker's end; cheap to share.
#[derive(Clone, Debug)]
pub struct WorkerLink {
    reading: Arc<Reading>,
}

impl WorkerLink {
    /// Connects to the front (`unix:PATH`) and says hello, with a token that is valid once. When the front has ended,
    /// the thread that notices it calls `on_end`. On one machine the kernel reports the end of the front, so a front
    /// that is only stopped (SIGSTOP) does not count as ended.
    pub fn connect(address: &str, token: &str, on_end: impl FnOnce() + Send + 'static) -> io::Result<WorkerLink> {
        let path = address.strip_prefix("unix:").ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{address}: a worker dials unix:PATH"))
        })?;
        let stream = UnixStream::connect(path)?;
        widen(&stream);
        WorkerLink::start(Box::new(stream), None, token, on_end)
    }

    /// Says hello over a connected stream and starts the link's own thread. A front that is silent for longer than
    /// `silence` counts as gone.
    pub fn start(
        stream: Box<dyn ByteStream>,
        silence: Option<Duration>,
        token: &str,
        on_end: impl FnOnce() + Send + 'static,
    ) -> io::Result<WorkerLink> {
        let link = WorkerLink { reading: Arc::new(Reading::new(stream, silence, Box::new(on_end))?) };
        link.control(Kind::Hello, hello(token).to_string().as_bytes())?;
        let reading = link.reading.clone();
        std::thread::Builder::new().name("jitney-link".into()).spawn(move || reading.stand_in())?;
        Ok(link)
    }

    /// Sends a control message.
    pub fn control(&self, kind: Kind, body: &[u8]) -> io::Result<()> {
        let frame = small_frame(kind, body);
        self.reading.write(&[&frame[0]])
    }

    /// Waits for a control message; `Shutdown` also after the connection to the front has ended.
    pub fn receive(&self) -> Control {
        self.reading.wait(Inbox::control)
    }

    /// Waits for the next batch; `None` when it is time to exit.
    pub fn next_batch(&self) -> Option<Delivered> {
        match self.next_batch_until(None) {
            Taken::Batch(delivered) => Some(delivered),
            Taken::Ended | Taken::Nothing => None,
        }
    }

    /// Waits for the next batch, or until the given instant, which it may miss by a second.
    pub fn next_batch_until(&self, until: Option<Instant>) -> Taken {
        let taken = self.reading.wait_until(until, |inbox| match inbox.take() {
            Taken::Nothing => None,
            taken => Some(taken),
        });
        taken.unwrap_or(Taken::Nothing)
    }

    /// The next batch if one has arrived; does not wait.
    pub fn take(&self) -> Taken {
        self.reading.look(Inbox::take)
    }

    /// Per item of a batch: neither cancelled nor expired.
    pub fn wanted(&self, delivered: &Delivered) -> Vec<bool> {
        self.reading.state().inbox.wanted(delivered)
    }

    /// Per item of a batch: whether the front has cancelled it. The first part of an answer moves its deadline, which the front
    /// alone knows then: it cancels the item.
    pub fn cancelled(&self, delivered: &Delivered) -> Vec<bool> {
        self.reading.state().inbox.cancelled(delivered)
    }

    /// The items of which no further part is to be made, because their clients do not read.
    pub fn paused(&self) -> Vec<ItemId> {
        self.reading.state().inbox.paused.iter().copied().collect()
    }

    /// A number that grows with each message that may change what is to be computed.
    pub fn changes(&self) -> u64 {
        self.reading.state().inbox.changes
    }

    /// Waits until `changes` is another number than this, or until the given instant, which it may miss by a second.
    pub fn wait_for_change(&self, changes: u64, until: Instant) {
        let has_changed = |inbox: &mut Inbox| (inbox.is_closed || inbox.changes != changes).then_some(());
        self.reading.wait_until(Some(until), has_changed);
    }

    /// Sends that `predict` begins.
    pub fn started(&self, batch: BatchId) -> io::Result<()> {
        let frame = small_frame(Kind::Started, &batch.0.to_le_bytes());
        self.reading.write(&[&frame[0]])
    }

    /// Asks for the inputs of these items of a batch again, and waits for them; items that have ended are left out.
    pub fn inputs_again(&self, batch: BatchId, items: &[ItemId]) -> io::Result<ReceivedBatch> {
        self.reading.write(&[&batch_frame::encode_ids(batch, items)[0]])?;
        self.reading.wait(|inbox| inbox.take_inputs(batch))
    }

    /// Sends a results frame: its head and the values in order. The batch has not ended; `items` have.
    pub fn results(&self, items: impl Iterator<Item = ItemId>, pieces: &[&[u8]]) -> io::Result<()> {
        self.reading.state().inbox.forget(items);
        self.reading.write(pieces)
    }

    /// Sends the last results frame of a batch (`pieces`; none if all results were sent before) and its end, in one write.
    pub fn finish(&self, items: impl Iterator<Item = ItemId>, pieces: &[&[u8]], end: &BatchEnd) -> io::Result<()> {
        let end = end.encode();
        let pieces: Vec<&[u8]> = pieces.iter().copied().chain([&end[..]]).collect();
        self.results(items, &pieces)
    }
}
