//! An engine with its deployment, fake workers, and a test that plays the supervisor.

use bytes::Bytes;
use jitney_core::config::manifest::{DeploymentManifest, Input, InputKind, Output, serde_json_value};
use jitney_core::config::options::DeploymentOptions;
use jitney_core::config::rules::Rules;
use jitney_core::policy::batch_policy::CloseReason;
use jitney_core::replicas::loss_history::Loss;
use jitney_core::request::{BatchId, ItemId, ReplicaId};
use jitney_core::tables::metrics;
use jitney_core::tables::metrics::Gauge;
use jitney_core::tables::outcome::Outcome;
use jitney_server::base::clock::Clock;
use jitney_server::base::telemetry::Telemetry;
use jitney_server::engine::deployment::{Deployment, Inbound};
use jitney_server::engine::task::Engine;
use jitney_server::link::batch_end::{BatchEnd, Durations};
use jitney_server::link::batch_frame;
use jitney_server::link::batch_frame::ReceivedBatch;
use jitney_server::link::frame::header::small_frame;
use jitney_server::link::frame::kind::Kind;
use jitney_server::link::frame::reader::{Frame, FrameReader};
use jitney_server::link::front::receiver;
use jitney_server::link::front::worker_event::WorkerEvent;
use jitney_server::link::results_frame::ResultsWriter;
use jitney_server::values::answer::Answer;
use jitney_server::values::call::{Call, Encoding, Part};
use jitney_server::values::chunks::Chunks;
use jitney_server::values::tensor::Tag;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub(crate) const NAME: &str = "d";

fn manifest(tweak: impl FnOnce(&mut DeploymentOptions)) -> DeploymentManifest {
    let any = || serde_json_value::Value::Bool(true);
    let mut options = DeploymentOptions { max_batch_size: 8, batch_timeout_s: 100.0, ..DeploymentOptions::for_test() };
    tweak(&mut options);
    DeploymentManifest {
        name: NAME.into(),
        route: None,
        method: None,
        doc: String::new(),
        options,
        option_sources: BTreeMap::new(),
        init: std::collections::BTreeMap::default(),
        input: Input { kind: InputKind::Text, name: String::new(), arrays: vec![], schema: any() },
        output: Output { kind: "text".into(), arrays: vec![], schema: any(), part: None },
        task: None,
        group_by: vec![],
        cost: None,
        uses: vec![],
        use_targets: std::collections::BTreeMap::new(),
        composed: None,
        examples: vec![],
    }
}

pub(crate) struct Rig {
    pub(crate) deployment: Deployment,
    pub(crate) inbound: mpsc::UnboundedSender<Inbound>,
    reports: mpsc::UnboundedReceiver<WorkerEvent>,
    reports_tx: mpsc::UnboundedSender<WorkerEvent>,
    telemetry: Telemetry,
    clock: Clock,
    workers: u32,
    /// Until somebody takes it to run it.
    pub(crate) engine: Option<Engine>,
}

impl Rig {
    pub(crate) fn new(tweak: impl FnOnce(&mut DeploymentOptions)) -> Rig {
        let manifest = Arc::new(manifest(tweak));
        let (inbound, messages) = mpsc::unbounded_channel();
        let (reports_tx, reports) = mpsc::unbounded_channel();
        let (telemetry, clock) = (Telemetry::new(), Clock::default());
        let rules = Rules::new(&manifest.options).unwrap();
        let deployment = Deployment::new(manifest, inbound.clone(), &telemetry);
        let published = deployment.published.clone();
        let engine = Engine::new(NAME, rules, clock, messages, reports_tx.clone(), &telemetry, published);
        Rig { deployment, inbound, reports, reports_tx, telemetry, clock, workers: 0, engine: Some(engine) }
    }

    /// With an engine that runs.
    pub(crate) fn running(tweak: impl FnOnce(&mut DeploymentOptions)) -> Rig {
        let mut rig = Rig::new(tweak);
        tokio::spawn(rig.engine.take().unwrap().run());
        rig
    }

    /// A worker that is loaded and whose batches come to the test.
    pub(crate) async fn worker(&mut self) -> Worker {
        self.workers += 1;
        let replica = ReplicaId(self.workers);
        let (front, worker) = tokio::io::duplex(1 << 20);
        let (reader, writer) = tokio::io::split(front);
        receiver::start(FrameReader::new(reader), writer, replica, self.clock, self.reports_tx.clone());
        let WorkerEvent::Connected(_, link) = self.report(|report| matches!(report, WorkerEvent::Connected(..))).await
        else {
            unreachable!("it was waited for")
        };
        link.attach(self.inbound.clone());
        self.inbound.send(Inbound::Up(replica, link)).unwrap();
        let (reader, writer) = tokio::io::split(worker);
        Worker { replica, reader: FrameReader::new(reader), writer }
    }

    /// The next report of a kind; others are passed over.
    pub(crate) async fn report(&mut self, fits: impl Fn(&WorkerEvent) -> bool) -> WorkerEvent {
        loop {
            let report = self.reports.recv().await.unwrap();
            if fits(&report) {
                return report;
            }
        }
    }

    /// The worker dies: its link ends, and then the supervisor reports it to the engine.
    pub(crate) async fn lose(&mut self, worker: Worker, loss: Loss) {
        let replica = worker.replica;
        drop(worker);
        self.report(|report| matches!(report, WorkerEvent::LinkLost(id) if *id == replica)).await;
        self.inbound.send(Inbound::Lost(replica, loss)).unwrap();
    }

    /// A call that runs by itself; aborting it is a client that goes away.
    pub(crate) fn call(&self, text: &str) -> JoinHandle<Answer> {
        self.call_within(text, None)
    }

    pub(crate) fn call_within(&self, text: &str, timeout: Option<Duration>) -> JoinHandle<Answer> {
        let deployment = self.deployment.clone();
        let call = Call { timeout, ..call(text) };
        tokio::spawn(async move { deployment.call(call).await })
    }

    pub(crate) fn ended(&self, outcome: Outcome) -> u64 {
        self.telemetry.counter(metrics::REQUESTS, &[NAME, outcome.reason()]).get()
    }

    pub(crate) fn batches(&self, reason: CloseReason) -> u64 {
        self.telemetry.counter(metrics::BATCHES, &[NAME, reason.label()]).get()
    }

    pub(crate) fn gauge(&self, metric: Gauge) -> i64 {
        self.telemetry.gauge(metric, &[NAME]).get()
    }

    /// Everything that was sent before has been acted upon.
    pub(crate) async fn settle(&self) {
        // All tasks share one thread and none waits for anything outside it: after this many turns each has come to rest.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    /// Nothing is left behind.
    pub(crate) async fn assert_empty(&self) {
        self.settle().await;
        for metric in [metrics::QUEUED_ITEMS, metrics::QUEUED_BYTES, metrics::LANES, metrics::RUNNING_ITEMS] {
            assert_eq!(self.gauge(metric), 0, "{}", metric.0.name);
        }
    }
}

pub(crate) fn call(text: &str) -> Call {
    let data = Chunks::from(Bytes::copy_from_slice(text.as_bytes()));
    let part = Part { tag: Tag::Text, tensor: None, data };
    Call::new(SmallVec::from_elem(part, 1), Encoding::Json)
}

pub(crate) fn text(answer: &Answer) -> &str {
    let parts = answer.result.as_ref().unwrap_or_else(|failure| panic!("{failure:?}"));
    std::str::from_utf8(&parts[0].data).unwrap()
}

pub(crate) fn outcome(answer: &Answer) -> Outcome {
    answer.result.as_ref().map_or_else(|failure| failure.outcome, |_| Outcome::Ok)
}

/// The right answer to a text.
pub(crate) fn right(text: &str) -> String {
    format!("{text}!")
}

/// A worker whose model is the test.
pub(crate) struct Worker {
    pub(crate) replica: ReplicaId,
    reader: FrameReader<ReadHalf<DuplexStream>>,
    writer: WriteHalf<DuplexStream>,
}

/// What a fake model says of one item; `None` is "left out".
pub(crate) type Said = (ItemId, Option<String>);

impl Worker {
    pub(crate) async fn frame(&mut self) -> Frame {
        // Time is paused in most tests: a frame that never comes fails the test at once.
        let frame = tokio::time::timeout(Duration::from_secs(3600), self.reader.next()).await;
        frame.expect("a frame comes").unwrap().expect("a frame before the end")
    }

    pub(crate) async fn batch(&mut self) -> ReceivedBatch {
        let frame = self.frame().await;
        assert_eq!(frame.kind, Kind::Batch);
        batch_frame::decode(&frame.table, frame.payload.to_bytes().to_vec()).unwrap()
    }

    pub(crate) async fn cancelled(&mut self) -> ItemId {
        let frame = self.frame().await;
        assert_eq!(frame.kind, Kind::Cancel);
        ItemId(u64::from_le_bytes(frame.table[..].try_into().unwrap()))
    }

    /// An item, and whether it is paused now.
    pub(crate) async fn pause(&mut self) -> (ItemId, bool) {
        let frame = self.frame().await;
        assert_eq!(frame.kind, Kind::Pause);
        (ItemId(u64::from_le_bytes(frame.table[..8].try_into().unwrap())), frame.table[8] == 1)
    }

    pub(crate) async fn ask_inputs(&mut self, batch: BatchId, items: &[ItemId]) {
        let numbers = std::iter::once(batch.0).chain(items.iter().map(|id| id.0));
        let table: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
        self.write(&small_frame(Kind::InputsAgain, &table).concat()).await;
    }

    pub(crate) async fn inputs(&mut self) -> Vec<(ItemId, String)> {
        let frame = self.frame().await;
        assert_eq!(frame.kind, Kind::Inputs);
        texts(&batch_frame::decode(&frame.table, frame.payload.to_bytes().to_vec()).unwrap())
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.writer.write_all(bytes).await.unwrap();
    }

    pub(crate) async fn started(&mut self, batch: &ReceivedBatch) {
        self.write(&small_frame(Kind::Started, &batch.id.0.to_le_bytes()).concat()).await;
    }

    pub(crate) async fn finish(&mut self, batch: BatchId, said: &[Said]) {
        self.write(&results(batch, said)).await;
    }

    /// Answers rightly.
    pub(crate) async fn answer(&mut self, batch: &ReceivedBatch) {
        let said: Vec<Said> = texts(batch).into_iter().map(|(id, text)| (id, Some(right(&text)))).collect();
        self.finish(batch.id, &said).await;
    }
}

pub(crate) fn texts(batch: &ReceivedBatch) -> Vec<(ItemId, String)> {
    let text = |part: &batch_frame::ReceivedPart| batch.payload[part.offset..part.offset + part.len].to_vec();
    batch.items.iter().map(|item| (item.id, String::from_utf8(text(&item.parts[0])).unwrap())).collect()
}

/// All results of a batch in one frame, and its end.
pub(crate) fn results(batch: BatchId, said: &[Said]) -> Vec<u8> {
    [some_results(batch, said), batch_end(batch)].concat()
}

/// Results of some items of a batch.
pub(crate) fn some_results(batch: BatchId, said: &[Said]) -> Vec<u8> {
    let mut table = ResultsWriter::new(batch, Duration::ZERO, said.len());
    for (id, text) in said {
        match text {
            Some(text) => {
                table.values(*id, 0, 1);
                table.value("", Tag::Text, None, "", text.len());
            }
            None => table.left_out(*id, 0),
        }
    }
    let values: String = said.iter().filter_map(|(_, text)| text.as_deref()).collect();
    [table.finish(), values.into_bytes()].concat()
}

/// A part of an item, or its end.
pub(crate) fn entry(batch: BatchId, id: ItemId, sequence: u32, text: &str, is_end: bool) -> Vec<u8> {
    let mut table = ResultsWriter::new(batch, Duration::ZERO, 1);
    if is_end {
        table.values(id, sequence, 1);
    } else {
        table.part(id, sequence, 1);
    }
    table.value("", Tag::Text, None, "", text.len());
    [&table.finish()[..], text.as_bytes()].concat()
}

/// The end of a batch that ran once and raised nothing.
pub(crate) fn batch_end(batch: BatchId) -> Vec<u8> {
    BatchEnd { batch, durations: Durations::default(), is_clean: true, is_out_of_memory: false }.encode()
}
