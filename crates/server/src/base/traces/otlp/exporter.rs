//! The task that makes spans of notes, keeps the last ones, and sends them. No request waits for it.

use crate::base::traces::messages::{ExportRequest, Resource, ResourceSpans, Scope, ScopeSpans, Span};
use crate::base::traces::notes::Finished;
use crate::base::traces::otlp::deliver::{Rejected, deliver, try_out};
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

/// How many traces and spans a message has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    traces: u64,
    spans: u64,
}

/// What became of a message.
type Sent = (Result<Option<Rejected>, String>, Size);

/// A message on its way.
type Sending = Pin<Box<dyn Future<Output = Sent> + Send>>;

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
    let mut exporter = Exporter::new(settings, counts, store);
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
            (result, size) = sent(&mut exporter.sending) => exporter.sent(result, size),
            () = due(exporter.due), if exporter.sending.is_none() => exporter.due = Some(Instant::now()),
        }
        notes.drain(..).for_each(|note| exporter.take(note));
        exporter.send();
    }
}

async fn sent(sending: &mut Option<Sending>) -> Sent {
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
    fn new(settings: TraceSettings, counts: TraceCounts, store: Arc<Mutex<Store>>) -> Exporter {
        Exporter {
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
        }
    }

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
            let (message, size) = self.message();
            self.due = (!self.queue.is_empty()).then(|| Instant::now() + self.settings.delay);
            self.sending = Some(sending(endpoint, message, size, self.is_ending.subscribe()));
        }
        if self.sending.is_none() {
            self.flushes.drain(..).for_each(|done| {
                let _ = done.send(());
            });
        }
    }

    /// The next message. One trace stays together.
    fn message(&mut self) -> (Bytes, Size) {
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
        let size = Size { traces, spans: spans.len() as u64 };
        let attributes = self.store.lock().unwrap_or_else(PoisonError::into_inner).resource().to_vec();
        let scope = Some(Scope { name: SCOPE.0.into(), version: SCOPE.1.into() });
        let of_scope = ScopeSpans { scope, spans };
        let of_resource = ResourceSpans { resource: Some(Resource { attributes }), scope_spans: vec![of_scope] };
        let request = ExportRequest { resource_spans: vec![of_resource] };
        (request.encode_to_vec().into(), size)
    }

    fn sent(&mut self, result: Result<Option<Rejected>, String>, size: Size) {
        let (lost, why) = match result {
            Ok(None) => (0, None),
            Ok(Some(Rejected { spans, why })) => {
                let why = format!("the collector rejected {spans} of their {} spans: {why:?}", size.spans);
                (size.share(spans), Some(why))
            }
            Err(why) => (size.traces, Some(format!("the collector did not take them: {why}"))),
        };
        self.counts.sent.inc_by(size.traces - lost);
        self.counts.failed.inc_by(lost);
        match &why {
            // One line until it works again: the metric counts.
            Some(why) if !self.has_failed => tracing::warn!("{lost} traces are lost: {why}"),
            None if self.has_failed => tracing::info!("the collector of traces takes them again"),
            _ => {}
        }
        self.has_failed = why.is_some();
    }
}

impl Size {
    /// How many traces are lost with so many spans. Which spans they are is not known, so it is the same share of the traces,
    /// and at least one.
    fn share(self, spans: u64) -> u64 {
        let spans = spans.min(self.spans);
        (self.traces * spans).div_ceil(self.spans.max(1)).min(self.traces)
    }
}

fn sending(endpoint: Endpoint, message: Bytes, size: Size, is_ending: watch::Receiver<bool>) -> Sending {
    Box::pin(async move { (deliver(&endpoint, message, is_ending).await, size) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::telemetry::Telemetry;
    use crate::base::traces::otlp::store::Store;
    use jitney_core::tables::metrics;

    #[tokio::test]
    async fn rejected_spans_are_counted_as_failed_traces() {
        let settings = TraceSettings::read(|_| None, Some(1.0)).0.unwrap();
        let telemetry = Telemetry::new();
        let count = |end| telemetry.counter(metrics::TRACES, &[end]);
        let counts = TraceCounts { sent: count("sent"), dropped: count("dropped"), failed: count("failed") };
        let mut exporter = Exporter::new(settings, counts, Arc::new(Mutex::new(Store::new(Vec::new()))));
        let size = Size { traces: 4, spans: 40 };
        for (rejected, failed, has_failed) in [(1, 1, true), (20, 3, true), (41, 7, true), (0, 7, false)] {
            let rejected = (rejected > 0).then(|| Rejected { spans: rejected, why: String::new() });
            exporter.sent(Ok(rejected), size);
            assert_eq!((exporter.counts.failed.get(), exporter.has_failed), (failed, has_failed));
        }
        exporter.sent(Err("it answered 400".to_owned()), size);
        assert_eq!((exporter.counts.sent.get(), exporter.counts.failed.get()), (16 - 7, 7 + 4));
    }
}
