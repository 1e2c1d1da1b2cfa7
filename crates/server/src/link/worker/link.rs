//! The handle by which a worker speaks with its front.

use crate::link::batch_end::BatchEnd;
use crate::link::batch_frame;
use crate::link::batch_frame::ReceivedBatch;
use crate::link::frame::header::{Segments, small_frame};
use crate::link::frame::kind::Kind;
use crate::link::frame::writer::widen;
use crate::link::worker::answers::AnswerListener;
use crate::link::worker::inbox::{Control, Delivered, Inbox, Taken};
use crate::link::worker::lease::{DialAgain, Identity, Lease};
use crate::link::worker::reading::Reading;
use crate::link::worker::stream::ByteStream;
use jitney_channel::{Address, Dialled, dial_worker};
use jitney_core::request::{BatchId, ItemId};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a worker on another machine keeps its model without its front.
const LEASE: Duration = Duration::from_secs(60);
/// A front on another machine that is silent for so long is lost, or the network to it. It pings every second.
const SILENT_FRONT: Duration = Duration::from_secs(10);

fn dial(address: &str) -> io::Result<Box<dyn ByteStream>> {
    let Address { host_and_port, pin } = address.parse()?;
    let pin = pin.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a worker dials tcp:HOST:PORT#PIN"))?;
    Ok(match dial_worker(&host_and_port, &pin)? {
        Dialled::Tls(stream) => Box::new(stream),
        Dialled::Plain(socket) => Box::new(socket),
    })
}

/// The worker's end; cheap to share.
#[derive(Clone, Debug)]
pub struct WorkerLink {
    reading: Arc<Reading>,
    /// The link that this handle sends over; `None`: the present one.
    number: Option<u64>,
}

impl WorkerLink {
    /// Connects to the front (`unix:PATH`, or `tcp:HOST:PORT#PIN` with the front's public key) and says hello, with a
    /// token that is valid once. When the front has ended, the thread that notices it calls `on_end`. On one machine the
    /// kernel reports the end of the front, so a front that is only stopped (SIGSTOP) does not count as ended. From another
    /// machine the worker dials again, once it has loaded its model (`keep`), until its lease is over.
    pub fn connect(
        address: &str,
        identity: Identity,
        on_end: impl FnOnce() + Send + 'static,
    ) -> io::Result<WorkerLink> {
        if let Some(path) = address.strip_prefix("unix:") {
            let stream = UnixStream::connect(path)?;
            widen(&stream);
            return WorkerLink::start(Box::new(stream), None, identity, None, on_end);
        }
        let (stream, address) = (dial(address)?, address.to_owned());
        let dial: DialAgain = Box::new(move || dial(&address));
        let lease = Lease { dial, length: LEASE };
        WorkerLink::start(stream, Some(SILENT_FRONT), identity, Some(lease), on_end)
    }

    /// Says hello over a connected stream and starts the link's own thread. A front that is silent for longer than
    /// `silence` counts as gone. With a lease the worker comes back to it.
    pub fn start(
        stream: Box<dyn ByteStream>,
        silence: Option<Duration>,
        identity: Identity,
        lease: Option<Lease>,
        on_end: impl FnOnce() + Send + 'static,
    ) -> io::Result<WorkerLink> {
        let hello = identity.hello();
        let reading = Arc::new(Reading::new(stream, silence, identity, lease, Box::new(on_end))?);
        reading.write(0, &[&hello])?;
        let own = reading.clone();
        std::thread::Builder::new().name("jitney-link".into()).spawn(move || own.stand_in())?;
        Ok(WorkerLink { reading, number: None })
    }

    /// A handle that sends over the link that this batch came over. After that link was lost, what is sent is dropped: the
    /// front has given the batch to another worker, and a new front has other batches with the same ids.
    #[must_use]
    pub fn of(&self, delivered: &Delivered) -> WorkerLink {
        self.over(delivered.link)
    }

    /// A handle that sends over the link with this number.
    pub(crate) fn over(&self, number: u64) -> WorkerLink {
        WorkerLink { reading: self.reading.clone(), number: Some(number) }
    }

    /// The number of the link that this handle sends over.
    pub(crate) fn number(&self) -> u64 {
        self.number.unwrap_or_else(|| self.reading.state().inbox.link)
    }

    /// From now on this worker comes back after its link was lost: it has loaded this (JSON), which its hello says then.
    pub fn keep(&self, loaded: serde_json::Value) {
        self.reading.state().identity.rejoin = Some(loaded);
    }

    /// Sends a control message.
    pub fn control(&self, kind: Kind, body: &[u8]) -> io::Result<()> {
        if kind == Kind::Manifest {
            self.reading.state().identity.manifest = Some(body.to_vec());
        }
        let frame = small_frame(kind, body);
        self.reading.write(self.number(), &[&frame[0]])
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

    /// From now on this gets the answers to what the model asks.
    pub fn listen(&self, asking: impl AnswerListener + 'static) {
        self.reading.listen(Box::new(asking));
    }

    /// The items for which the model asked something that has no answer yet.
    pub fn asking(&self) -> Vec<ItemId> {
        self.reading.asking()
    }

    /// Sends frames that are written already, in one write; an error if the link is lost.
    pub(crate) fn send(&self, frames: &[Segments]) -> io::Result<()> {
        let pieces: Vec<&[u8]> = frames.iter().flatten().map(|piece| &piece[..]).collect();
        self.reading.write_unless_lost(self.number(), &pieces)
    }

    /// Receives until `is_done`, or until the given instant, which it may miss by a second. `is_done` may only change by what
    /// arrives here.
    pub fn receive_until(&self, until: Instant, is_done: impl Fn() -> bool) {
        self.reading.wait_until(Some(until), |_| is_done().then_some(()));
    }

    /// Sends that `predict` begins.
    pub fn started(&self, batch: BatchId) -> io::Result<()> {
        let frame = small_frame(Kind::Started, &batch.0.to_le_bytes());
        self.reading.write(self.number(), &[&frame[0]])
    }

    /// Asks for the inputs of these items of a batch again, and waits for them; items that have ended are left out.
    pub fn inputs_again(&self, batch: BatchId, items: &[ItemId]) -> io::Result<ReceivedBatch> {
        let link = self.number();
        self.reading.write(link, &[&batch_frame::encode_ids(batch, items)[0]])?;
        self.reading.wait(|inbox| inbox.take_inputs(link, batch))
    }

    /// Sends a results frame: its head and the values in order. The batch has not ended; `items` have.
    pub fn results(&self, items: impl Iterator<Item = ItemId>, pieces: &[&[u8]]) -> io::Result<()> {
        let link = self.number();
        self.reading.state().inbox.forget(link, items);
        self.reading.write(link, pieces)
    }

    /// Sends the last results frame of a batch (`pieces`; none if all results were sent before) and its end, in one write.
    pub fn finish(&self, items: impl Iterator<Item = ItemId>, pieces: &[&[u8]], end: &BatchEnd) -> io::Result<()> {
        let end = end.encode();
        let pieces: Vec<&[u8]> = pieces.iter().copied().chain([&end[..]]).collect();
        self.results(items, &pieces)
    }
}
