//! The task that makes spans of notes, keeps the last ones, and sends them. No request waits for it.

use crate::base::traces::messages::{ExportRequest, Resource, ResourceSpans, Scope, ScopeSpans, Span};
use crate::base::traces::notes::Finished;
use crate::base::traces::otlp::deliver::{deliver, try_out};
use crate::base::traces::otlp::spans::{Built, of_batch, of_request};
use crate::base::traces::otlp::store::{SCOPE, Store};
use crate::base::traces::settings::{Endpoint, TraceSettings};
use bytes::Bytes;
use prometheus::IntCounter;
use prost::Message;
use std::collections::VecDeque;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

/// Notes that are taken at once.
const AT_ONCE: usize = 64;
/// The task sleeps for this long when it has taken all notes: to be woken for each of them costs more than to read them.
const REST: Duration = Duration::from_millis(20);

/// How traces end, for the metrics.
#[derive(Clone, Debug)]
pub(crate) struct TraceCounts {
    pub(crate) sent: IntCounter,
    /// There was no room for them.
    pub(crate) dropped: IntCounter,
    /// The collector did not take them.
    pub(crate) failed: IntCounter,
}

/// A message on its way, and how many traces it has.
type Sending = Pin<Box<dyn Future<Output = (Result<(), String>, u64)> + Send>>;

/// What waits to be sent.
struct Exporter {
    settings: TraceSettings,
    counts: TraceCounts,
    store: Arc<Mutex<Store>>,
    queue: VecDeque<Arc<[Span]>>,
    queued_spans: usize,
    /// When the oldest of them is sent, however few there are.
    due: Option<Instant>,
    sending: Option<Sending>,
    /// Who waits until everything is sent.
    flushes: Vec<oneshot::Sender<()>>,
    is_ending: watch::Sender<bool>,
    /// The last message was not taken.
    has_failed: bool,
}

/// Runs until the tracer is dropped.
pub(crate) async fn run(
    mut finished: mpsc::Receiver<Finished>,
    settings: TraceSettings,
    counts: TraceCounts,
    store: Arc<Mutex<Store>>,
) {
    let mut exporter = Exporter {
        settings,
        counts,
        store,
        queue: VecDeque::new(),
        queued_spans: 0,
        due: None,
        sending: None,
        flushes: Vec::new(),
        is_ending: watch::Sender::new(false),
        has_failed: false,
    };
    if let Some(endpoint) = exporter.settings.endpoint.clone() {
        tokio::spawn(async move { try_out(&endpoint).await });
    } else {
        tracing::info!("traces are kept for GET /trace/ID, and sent nowhere");
    }
    let mut notes = Vec::with_capacity(AT_ONCE);
    let mut rest = None;
    loop {
        tokio::select! {
            count = finished.recv_many(&mut notes, AT_ONCE), if rest.is_none() => match count {
                0 => return,
                AT_ONCE => {}
                _ => rest = Some(Instant::now() + REST),
            },
            () = due(rest), if rest.is_some() => rest = None,
            (result, traces) = sent(&mut exporter.sending) => exporter.sent(result, traces),
            () = due(exporter.due), if exporter.sending.is_none() => exporter.due = Some(Instant::now()),
        }
        notes.drain(..).for_each(|note| exporter.take(note));
        exporter.send();
    }
}

async fn sent(sending: &mut Option<Sending>) -> (Result<(), String>, u64) {
    match sending {
        Some(future) => {
            let result = future.as_mut().await;
            *sending = None;
            result
        }
        None => pending().await,
    }
}

async fn due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

impl Exporter {
    fn take(&mut self, note: Finished) {
        match note {
            Finished::Request(request) => of_request(*request).into_iter().for_each(|built| self.add(built)),
            Finished::Batch(batch) => self.add(of_batch(*batch)),
            Finished::Flush(done) => {
                self.is_ending.send_replace(true);
                self.flushes.push(done);
            }
        }
    }

    fn add(&mut self, built: Built) {
        let Built { request_ids, spans, line } = built;
        line.iter().for_each(|line| tracing::warn!("{line}"));
        let spans: Arc<[Span]> = spans.into();
        self.store.lock().unwrap_or_else(PoisonError::into_inner).add(request_ids, spans.clone());
        if self.settings.endpoint.is_none() {
            return;
        }
        if self.queued_spans + spans.len() > self.settings.most_queued {
            return self.counts.dropped.inc();
        }
        self.queued_spans += spans.len();
        self.queue.push_back(spans);
        self.due.get_or_insert_with(|| Instant::now() + self.settings.delay);
    }

    /// Begins to send, if it is time.
    fn send(&mut self) {
        let is_flushing = !self.flushes.is_empty();
        let is_due = self.due.is_some_and(|due| due <= Instant::now());
        let is_full = self.queued_spans >= self.settings.most_at_once;
        if self.sending.is_none() && !self.queue.is_empty() && (is_flushing || is_due || is_full) {
            let Some(endpoint) = self.settings.endpoint.clone() else { return };
            let (message, traces) = self.message();
            self.due = (!self.queue.is_empty()).then(|| Instant::now() + self.settings.delay);
            self.sending = Some(sending(endpoint, message, traces, self.is_ending.subscribe()));
        }
        if self.sending.is_none() {
            self.flushes.drain(..).for_each(|done| {
                let _ = done.send(());
            });
        }
    }

    /// The next message, and how many traces it has. One trace stays together.
    fn message(&mut self) -> (Bytes, u64) {
        let (mut spans, mut traces) = (Vec::new(), 0);
        while let Some(next) = self.queue.front() {
            if traces > 0 && spans.len() + next.len() > self.settings.most_at_once {
                break;
            }
            spans.extend_from_slice(next);
            self.queued_spans -= next.len();
            self.queue.pop_front();
            traces += 1;
        }
        let attributes = self.store.lock().unwrap_or_else(PoisonError::into_inner).resource().to_vec();
        let scope = Some(Scope { name: SCOPE.0.into(), version: SCOPE.1.into() });
        let of_scope = ScopeSpans { scope, spans };
        let of_resource = ResourceSpans { resource: Some(Resource { attributes }), scope_spans: vec![of_scope] };
        let request = ExportRequest { resource_spans: vec![of_resource] };
        (request.encode_to_vec().into(), traces)
    }

    fn sent(&mut self, result: Result<(), String>, traces: u64) {
        match result {
            Ok(()) => {
                self.counts.sent.inc_by(traces);
                if std::mem::take(&mut self.has_failed) {
                    tracing::info!("the collector of traces takes them again");
                }
            }
            Err(why) => {
                self.counts.failed.inc_by(traces);
                // One line until it works again: the metric counts.
                if !std::mem::replace(&mut self.has_failed, true) {
                    tracing::warn!("{traces} traces are lost: the collector did not take them: {why}");
                }
            }
        }
    }
}

fn sending(endpoint: Endpoint, message: Bytes, traces: u64, is_ending: watch::Receiver<bool>) -> Sending {
    Box::pin(async move { (deliver(&endpoint, message, is_ending).await, traces) })
}
