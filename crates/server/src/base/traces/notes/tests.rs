use super::*;
use crate::base::traces::otlp::spans;
use jitney_core::policy::batch_policy::CloseReason;

#[derive(Debug, Default)]
struct KeepsAll(Mutex<Vec<Finished>>);

impl Keeper for KeepsAll {
    fn judge(&self, _: &RequestTrace, _: &str, _: Option<Outcome>, _: Instant, _: Option<Duration>) -> Option<Verdict> {
        Some(Verdict { kept: Kept::Sampled, is_logged: true, usual: None })
    }

    fn least_slow(&self) -> Duration {
        Duration::ZERO
    }

    fn finish(&self, finished: Finished) {
        self.0.lock().unwrap().push(finished);
    }
}

fn note(keeper: &Arc<KeepsAll>) -> TraceNote {
    TraceNote::new(Arc::new(RequestTrace {
        keeper: keeper.clone(),
        context: TraceContext::root(),
        parent: 0,
        state: "a=1".into(),
        may_be_kept: true,
        began: Instant::now(),
        facts: Mutex::default(),
    }))
}

fn batch(keeper: &Arc<KeepsAll>) -> Arc<BatchTrace> {
    let launch = BatchLaunch {
        deployment: "m".into(),
        number: 1,
        replica: 0,
        batch: BatchFacts {
            items: 130,
            most_items: 130,
            reason: CloseReason::Full,
            held: Duration::ZERO,
            largest_cost: 1,
            largest_bytes: 1,
            bytes: 130,
            replica: 0,
            factor: 1.0,
        },
        usual: None,
        cost: 130,
        padded_cost: 130,
        left_waiting: 0,
        replicas: 1,
        launched: Instant::now(),
    };
    BatchTrace::new(keeper.clone(), true, launch)
}

fn stay(batch: &Arc<BatchTrace>, position: u32) -> ItemStay<'_> {
    let (began, predict_took) = (Instant::now(), Duration::ZERO);
    let (arrival, results) = (Some(began), Some(began));
    ItemStay { batch, ahead: 3, position, attempt: 1, bytes: 1, cost: 1, arrival, began, results, predict_took }
}

fn end(note: &TraceNote) {
    let description = Description {
        request_id: "r".into(),
        whose: "m".into(),
        name: "POST /m".into(),
        attributes: Vec::new(),
        is_error: false,
    };
    note.request.end("m", Some(Outcome::Ok), Passed::default(), || description);
}

fn taken(keeper: &KeepsAll) -> Vec<Finished> {
    std::mem::take(&mut *keeper.0.lock().unwrap())
}

#[test]
fn a_batch_is_finished_after_its_requests_and_has_a_bounded_number_of_links() {
    let keeper = Arc::new(KeepsAll::default());
    let batch = batch(&keeper);
    let notes: Vec<TraceNote> = (0..130).map(|_| note(&keeper)).collect();
    for (position, note) in (0..).zip(&notes) {
        note.stayed(&stay(&batch, position));
        end(note);
    }
    batch.end(Instant::now(), None);
    drop(batch);
    assert!(taken(&keeper).is_empty(), "its requests are still referred to");
    drop(notes);
    let requests = taken(&keeper);
    assert_eq!(requests.len(), 130);
    for finished in requests {
        let Finished::Request(request) = finished else { panic!("a request") };
        let built = spans::of_request(*request).unwrap();
        assert_eq!(built.spans[0].trace_state, "a=1");
        assert!(built.line.unwrap().ends_with("(request r)"));
    }
    let [Finished::Batch(batch)] = &taken(&keeper)[..] else { panic!("the batch") };
    assert_eq!((batch.riders.links.len(), batch.riders.dropped), (MOST_LINKS, 2));
}

#[test]
fn a_request_of_many_batches_notes_some_and_counts_the_others() {
    let keeper = Arc::new(KeepsAll::default());
    let note = note(&keeper);
    let batches: Vec<_> = (0..MOST_STAYS + 5).map(|_| batch(&keeper)).collect();
    batches.iter().for_each(|batch| note.stayed(&stay(batch, 7)));
    // Items of one request in one batch share a span.
    note.stayed(&stay(&batches[3], 1));
    end(&note);
    drop(note);
    let [Finished::Request(request)] = &taken(&keeper)[..] else { panic!("the request") };
    let notes = &request.facts;
    assert_eq!((notes.stays.len(), notes.left_out, notes.ahead), (MOST_STAYS, 5, 3));
    assert_eq!((notes.stays[3].items, notes.stays[3].position), (2, 1));
}

#[test]
fn a_request_that_is_not_over_is_not_kept() {
    let keeper = Arc::new(KeepsAll::default());
    drop(note(&keeper));
    assert!(taken(&keeper).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_batch_was_not_noted_says_whose_it_is_and_where_its_time_went() {
    let keeper = Arc::new(KeepsAll::default());
    let note = note(&keeper);
    let ms = Duration::from_millis;
    tokio::time::advance(ms(10)).await;
    let lengths = Lengths { queue: ms(1), link: ms(2), predict: ms(5) };
    let passed = Passed { lengths, answered: Some(Instant::now()), counted: None };
    tokio::time::advance(ms(200)).await;
    let description = Description {
        request_id: "r".into(),
        whose: "m".into(),
        name: String::new(),
        attributes: Vec::new(),
        is_error: false,
    };
    note.request.end("m", Some(Outcome::Ok), passed, || description);
    drop(note);
    let Some(Finished::Request(request)) = taken(&keeper).pop() else { panic!("the request") };
    let built = spans::of_request(*request).unwrap();
    let says = "m: 210 ms: 200 until its answer was written and taken by the client (request r)";
    assert_eq!(built.line.as_deref(), Some(says));
    let names: Vec<&str> = built.spans.iter().map(|span| &*span.name).collect();
    assert_eq!(names[1..], ["receive", "queue", "batch", "render"]);
}
