//! Which requests are kept, and the way of the notes of those to the task that makes spans of them.

use crate::base::telemetry::Telemetry;
use crate::base::telemetry::exemplars::Exemplars;
use crate::base::traces::context::{TraceContext, fresh, passable};
use crate::base::traces::notes::{Finished, Keeper, Kept, RequestNotes, RequestTrace, Verdict};
use crate::base::traces::otlp::exporter;
use crate::base::traces::otlp::exporter::TraceCounts;
use crate::base::traces::otlp::store::{Found, Store};
use crate::base::traces::recent::RecentDurations;

use crate::base::traces::settings::TraceSettings;
use jitney_core::tables::metrics;
use jitney_core::tables::outcome::{Blame, Outcome};
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// Notes that may wait for the task that makes spans of them.
const MOST_FINISHED: usize = 2048;
/// Requests that are kept in a second because they are slow or failed.
const AFTERWARDS_PER_SECOND: u64 = 20;
/// At the end the last traces may take this long.
const LAST_TRACES: Duration = Duration::from_secs(5);

/// Decides, and takes notes.
#[derive(Debug)]
pub struct Tracer {
    settings: TraceSettings,
    started: Instant,
    finished: mpsc::Sender<Finished>,
    counts: TraceCounts,
    recent: RwLock<FxHashMap<Box<str>, Arc<RecentDurations>>>,
    /// The second in the upper half, and how many were kept afterwards in it.
    afterwards: AtomicU64,
    store: Arc<Mutex<Store>>,
    exemplars: Arc<Exemplars>,
    /// Microseconds; see `Keeper::least_slow`.
    least_slow: AtomicU64,
    /// The second in which that began anew.
    renewed: AtomicU64,
}

impl Tracer {
    /// Starts the task that makes spans and sends them. It ends with the runtime.
    pub fn start(settings: TraceSettings, telemetry: &Telemetry) -> Arc<Tracer> {
        let (finished, queue) = mpsc::channel(MOST_FINISHED);
        let count = |end| telemetry.counter(metrics::TRACES, &[end]);
        let counts = TraceCounts { sent: count("sent"), dropped: count("dropped"), failed: count("failed") };
        let store = Arc::new(Mutex::new(Store::new(settings.resource.clone())));
        tokio::spawn(exporter::run(queue, settings.clone(), counts.clone(), store.clone()));
        Arc::new(Tracer {
            settings,
            started: Instant::now(),
            finished,
            counts,
            recent: RwLock::default(),
            afterwards: AtomicU64::new(0),
            store,
            exemplars: telemetry.exemplars().clone(),
            least_slow: AtomicU64::new(u64::MAX),
            renewed: AtomicU64::new(0),
        })
    }

    /// Sends what has been kept so far, for a few seconds at most.
    pub async fn finish_all(&self) {
        let (done, all_sent) = oneshot::channel();
        let flushed = async {
            // The task ends after this one.
            let _ = self.finished.send(Finished::Flush(done)).await;
            let _ = all_sent.await;
        };
        if tokio::time::timeout(LAST_TRACES, flushed).await.is_err() {
            tracing::warn!("the last traces were not sent: the collector did not take them within 5 s");
        }
    }

    /// A deployment is served that has this latency target.
    pub fn add_deployment(&self, name: &str, target: Option<Duration>) {
        let mut recent = self.recent.write().unwrap_or_else(PoisonError::into_inner);
        recent.insert(name.into(), Arc::new(RecentDurations::new(target)));
    }

    /// The trace of a request that begins, whose head says this. `None` if it will not be kept, however it ends.
    pub(crate) fn begin(self: &Arc<Tracer>, parent: Option<TraceContext>, state: &str) -> Option<Arc<RequestTrace>> {
        let own = parent.map_or_else(TraceContext::root, |parent| TraceContext { span: fresh(), ..parent });
        let sampler = self.settings.sampler;
        let is_sampled = sampler.samples(own.trace, parent);
        // Who says that no traces are wanted is right, unless the server's own options ask for slow requests.
        let is_unwanted = match parent.filter(|_| sampler.is_parent_based) {
            Some(parent) => !parent.is_sampled,
            None => sampler.share <= 0.0,
        };
        let may_be_kept = !is_unwanted || self.settings.slow.is_some();
        (is_sampled || may_be_kept).then(|| {
            Arc::new(RequestTrace {
                keeper: self.clone(),
                context: TraceContext { is_sampled, ..own },
                parent: parent.map_or(0, |parent| parent.span),
                state: if parent.is_some() { passable(state).into() } else { Box::default() },
                may_be_kept,
                began: Instant::now(),
                facts: Mutex::new(RequestNotes::default()),
            })
        })
    }

    /// A request of some deployment is slow if it takes longer than `bound`.
    fn note_bound(&self, second: u64, bound: Option<Duration>) {
        // One half: a request is more than its time with the engine.
        let half = bound.map_or(u64::MAX, |bound| (bound / 2).as_micros() as u64);
        let is_new = self.renewed.load(Ordering::Relaxed) != second;
        if is_new || half < self.least_slow.load(Ordering::Relaxed) {
            self.renewed.store(second, Ordering::Relaxed);
            self.least_slow.store(half, Ordering::Relaxed);
        }
    }

    /// Whether one more of this second may be kept afterwards.
    fn may_keep(&self, second: u64) -> bool {
        let second = second << 32;
        let next = |seen: u64| if seen & !u64::from(u32::MAX) == second { seen + 1 } else { second + 1 };
        let seen = self.afterwards.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |seen| Some(next(seen)));
        next(seen.unwrap_or_default()) - second <= AFTERWARDS_PER_SECOND
    }

    /// The traces of the request that has this id, or of the trace that has it, among the last ones; `None` if there
    /// are none.
    pub(crate) fn find(&self, id: &str) -> Option<Found> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).find(id)
    }
}

impl Keeper for Tracer {
    fn judge(
        &self,
        request: &RequestTrace,
        deployment: &str,
        outcome: Option<Outcome>,
        at: Instant,
        counted: Option<Duration>,
    ) -> Option<Verdict> {
        let (length, second) = (at - request.began, (at - self.started).as_secs());
        let all = self.recent.read().unwrap_or_else(PoisonError::into_inner);
        let recent = all.get(deployment);
        let is_fault = outcome.is_some_and(is_fault);
        let bound = self.settings.slow.or_else(|| recent.and_then(|recent| recent.slow(second)));
        self.note_bound(second, bound);
        let is_slow = bound.is_some_and(|bound| length >= bound);
        // Without a bound one of a hundred is slow in any case, and the log would be full of them.
        let has_bound = self.settings.slow.is_some() || recent.is_some_and(|recent| recent.target.is_some());
        let usual = recent.and_then(|recent| recent.usual(second));
        if outcome.is_none_or(|outcome| outcome == Outcome::Ok) {
            recent.into_iter().for_each(|recent| recent.add(second, length));
        }
        let is_noteworthy = request.may_be_kept && (is_fault || is_slow) && self.may_keep(second);
        let kept = if request.context.is_sampled {
            Kept::Sampled
        } else if is_noteworthy {
            if is_fault { Kept::Failed } else { Kept::Slow }
        } else {
            return None;
        };
        if let (Some(outcome), Some(counted)) = (outcome, counted) {
            self.exemplars.add(deployment, outcome.ending(), request.context.trace, counted);
        }
        Some(Verdict { kept, is_logged: is_noteworthy && is_slow && (is_fault || has_bound), usual })
    }

    fn least_slow(&self) -> Duration {
        let given = self.settings.slow.map(|slow| slow / 2);
        given.unwrap_or_else(|| Duration::from_micros(self.least_slow.load(Ordering::Relaxed)))
    }

    fn finish(&self, finished: Finished) {
        if self.finished.try_send(finished).is_err() {
            self.counts.dropped.inc();
        }
    }
}

/// Whether an outcome is the fault of the server or of the model.
fn is_fault(outcome: Outcome) -> bool {
    matches!(outcome.blame(), Blame::Model | Blame::Server)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracer(variables: &[(&str, &str)], slow_ms: Option<f64>) -> Arc<Tracer> {
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
        Tracer::start(TraceSettings::read(variable, slow_ms).0.unwrap(), &Telemetry::new())
    }

    const PARENT: TraceContext = TraceContext { trace: 7, span: 9, is_sampled: true };
    const UNSAMPLED: TraceContext = TraceContext { is_sampled: false, ..PARENT };
    const QUICK: Duration = Duration::from_millis(1);
    const LONG: Duration = Duration::from_secs(1);

    fn kept(tracer: &Arc<Tracer>, parent: Option<TraceContext>, outcome: Outcome, length: Duration) -> Option<Kept> {
        let request = tracer.begin(parent, "")?;
        tracer.judge(&request, "m", Some(outcome), request.began + length, None).map(|verdict| verdict.kept)
    }

    #[tokio::test]
    async fn a_request_is_kept_as_its_parent_says_or_because_it_is_slow_or_failed() {
        let never = [("OTEL_TRACES_SAMPLER", "parentbased_always_off")];
        let tracer_of = |slow| tracer(&never, slow);
        let (plain, slow) = (tracer_of(None), tracer_of(Some(500.0)));
        for (tracer, parent, outcome, length, expected) in [
            (&plain, Some(PARENT), Outcome::Ok, QUICK, Some(Kept::Sampled)),
            (&plain, Some(UNSAMPLED), Outcome::Internal, LONG, None),
            (&plain, None, Outcome::Internal, LONG, None),
            (&slow, Some(UNSAMPLED), Outcome::Ok, QUICK, None),
            (&slow, Some(UNSAMPLED), Outcome::Ok, LONG, Some(Kept::Slow)),
            (&slow, None, Outcome::Internal, QUICK, Some(Kept::Failed)),
            (&slow, None, Outcome::InvalidRequest, QUICK, None),
        ] {
            assert_eq!(kept(tracer, parent, outcome, length), expected, "{parent:?} {outcome:?} {length:?}");
        }
        let little = tracer(&[("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0.000001")], None);
        little.add_deployment("m", Some(LONG / 2));
        assert_eq!(kept(&little, None, Outcome::Ok, LONG), Some(Kept::Slow), "above the latency target");
    }

    #[tokio::test]
    async fn of_slow_requests_a_few_are_kept_each_second() {
        let tracer = tracer(&[], Some(0.0));
        let kept = (0..100).filter(|_| kept(&tracer, None, Outcome::Ok, LONG).is_some()).count();
        // The second may change once meanwhile.
        assert!(kept == 20 || kept == 40, "{kept}");
    }

    #[tokio::test]
    async fn a_request_goes_on_below_its_parent() {
        let tracer = tracer(&[("OTEL_TRACES_SAMPLER", "parentbased_always_off")], None);
        let request = tracer.begin(Some(PARENT), "a=1").unwrap();
        assert_eq!((request.context.trace, request.parent, &*request.state), (7, 9, "a=1"));
        assert!(request.context.span != 9 && request.context.is_sampled);
        assert!(tracer.begin(None, "").is_none(), "it would be kept in no case");
    }
}
