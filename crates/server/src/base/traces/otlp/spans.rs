//! Spans, made of what was noted of a request or of a batch.

use crate::base::traces::context::{TraceContext, fresh};
use crate::base::traces::messages::{ERROR, Event, INTERNAL, KeyValue, SERVER, Span, Status, attribute};
use crate::base::traces::notes::{BatchLaunch, FinishedBatch, FinishedRequest, RequestEnded, Stages, Stay};
use crate::base::traces::why::facts::{FailureFacts, Lengths, Story, Usual};
use crate::base::traces::why::sentence::sentence;
use jitney_core::tables::outcome::Outcome;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// The spans of one trace, or of the part of it that this server knows.
#[derive(Debug)]
pub(crate) struct Built {
    /// The requests by whose ids it is found.
    pub(crate) request_ids: Vec<Arc<str>>,
    pub(crate) spans: Vec<Span>,
    /// A line for the log.
    pub(crate) line: Option<String>,
}

/// Turns instants into the time of day.
#[derive(Clone, Copy, Debug)]
struct Calendar {
    now: Instant,
    unix_ns: u64,
}

impl Calendar {
    fn new() -> Calendar {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Calendar { now: Instant::now(), unix_ns: u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX) }
    }

    fn ns(self, at: Instant) -> u64 {
        let ago = u64::try_from((self.now - at).as_nanos()).unwrap_or(u64::MAX);
        self.unix_ns.saturating_sub(ago)
    }
}

/// Makes spans of one trace.
struct Builder {
    calendar: Calendar,
    trace: TraceContext,
    state: String,
    spans: Vec<Span>,
}

impl Builder {
    fn queue(&mut self, parent: u64, times: (Instant, Instant), ahead: u64) {
        self.add("queue", fresh(), parent, times).attributes.push(attribute("jitney.ahead", ahead));
    }

    /// The part of a request in one batch.
    fn stay(&mut self, stay: &Stay, at_most: Instant) {
        let (calendar, ended) = (self.calendar, stay.batch.ended());
        let times = (stay.began, end_of(stay, at_most));
        let span = self.add("batch", stay.span, stay.parent, times);
        span.attributes = batch_attributes(stay.batch.facts());
        span.attributes.push(attribute("jitney.batch.position", stay.position));
        span.attributes.push(attribute("jitney.attempt", stay.attempt));
        span.attributes.push(attribute("jitney.items", stay.items));
        span.links.push(stay.batch.context.link());
        if let (Some(lost), None) = (ended.lost, stay.results) {
            let name = format!("worker lost: {lost}");
            let event = Event { time_unix_nano: calendar.ns(times.1), name: name.clone(), attributes: Vec::new() };
            span.events.push(event);
            span.status = Some(Status { message: name, code: ERROR });
        }
        let took = if stay.predict_took.is_zero() { times.1 - times.0 } else { stay.predict_took };
        let unknown = Stages { decode: Duration::ZERO, predict: took, encode: Duration::ZERO };
        self.stages(stay.span, stay.predict, times, ended.stages.unwrap_or(unknown));
    }

    fn new(trace: TraceContext, state: &str) -> Builder {
        Builder { calendar: Calendar::new(), trace, state: state.to_owned(), spans: Vec::with_capacity(8) }
    }

    fn add(&mut self, name: &str, id: u64, parent: u64, times: (Instant, Instant)) -> &mut Span {
        let (start, end) = times;
        self.spans.push(Span {
            trace_id: self.trace.trace.to_be_bytes().to_vec(),
            span_id: id.to_be_bytes().to_vec(),
            parent_span_id: if parent == 0 { Vec::new() } else { parent.to_be_bytes().to_vec() },
            trace_state: self.state.clone(),
            name: name.to_owned(),
            kind: INTERNAL,
            start_time_unix_nano: self.calendar.ns(start),
            end_time_unix_nano: self.calendar.ns(end.max(start)),
            flags: u32::from(self.trace.is_sampled),
            ..Span::default()
        });
        let last = self.spans.len() - 1;
        &mut self.spans[last]
    }

    /// The stages of a worker in this order. What they leave of the time is the link: half of it before them, half behind.
    fn stages(&mut self, parent: u64, predict: u64, times: (Instant, Instant), stages: Stages) {
        let (start, end) = times;
        let Stages { decode, predict: took, encode } = stages;
        let link = (end - start).saturating_sub(decode + took + encode);
        let mut at = start + link / 2;
        for (name, id, length) in [("decode", fresh(), decode), ("predict", predict, took), ("encode", fresh(), encode)]
        {
            // An item may have its result before the others of its batch.
            let until = (at + length).min(end);
            if !length.is_zero() || name == "predict" {
                self.add(name, id, parent, (at, until));
            }
            at = until;
        }
    }
}

/// The spans of a request.
pub(crate) fn of_request(request: FinishedRequest) -> Option<Built> {
    let FinishedRequest { context, parent, state, began, mut facts } = request;
    let ended = facts.ended.take()?;
    facts.stays.iter_mut().for_each(|stay| stay.began = stay.began.clamp(began, ended.at));
    // Notes are taken when an item ends.
    facts.stays.sort_by_key(|stay| stay.began);
    let own: Vec<&Stay> = facts.stays.iter().filter(|stay| stay.parent == context.span).collect();
    let entered = own.iter().filter_map(|stay| stay.arrival).min().or_else(|| own.first().map(|stay| stay.began));
    let passed = ended.passed;
    let answered = passed.answered.unwrap_or(ended.at);
    let entered = entered.or_else(|| answered.checked_sub(passed.lengths.total()));
    let entered = entered.unwrap_or(ended.at).clamp(began, ended.at);
    let results = own.iter().map(|stay| end_of(stay, ended.at)).max().or(passed.answered);
    let story = story(&ended, &own, [began, entered, results.unwrap_or(ended.at)], facts.ahead);
    let has_failed = ended.outcome.is_some_and(|outcome| outcome != Outcome::Ok);
    let why = (ended.is_logged || has_failed).then(|| sentence(&story));

    let mut builder = Builder::new(context, &state);
    let root = builder.add(&ended.description.name, context.span, parent, (began, ended.at));
    describe(root, &ended, why.as_deref(), own.len() as u64 + facts.left_out);
    builder.add("receive", fresh(), context.span, (began, entered));
    if own.is_empty() && !passed.lengths.total().is_zero() {
        let launched = entered + passed.lengths.queue;
        builder.queue(context.span, (entered, launched), facts.ahead);
        if launched < answered {
            // The batch was not noted: what is kept of it took too little time to explain the request.
            builder.add("batch", fresh(), context.span, (launched, answered));
        }
    }
    for stay in &facts.stays {
        // After a loss an item waits again.
        let is_before = |other: &&Stay| other.parent == stay.parent && other.attempt + 1 == stay.attempt;
        let is_own = stay.parent == context.span;
        let waits = match facts.stays.iter().rfind(is_before) {
            Some(before) => Some(end_of(before, ended.at)),
            None => stay.arrival.or(is_own.then_some(entered)),
        };
        if let Some(waits) = waits {
            builder.queue(stay.parent, (waits.clamp(began, stay.began), stay.began), facts.ahead);
        }
        builder.stay(stay, ended.at);
        stay.batch.keep(TraceContext { span: stay.span, ..context }.link(), &ended.description.request_id);
    }
    if let Some(results) = results {
        builder.add("render", fresh(), context.span, (results, ended.at));
    }
    let request_id = ended.description.request_id.clone();
    let whose = &ended.description.whose;
    let line = why.filter(|_| ended.is_logged).map(|why| format!("{whose}: {why} (request {request_id})"));
    Some(Built { request_ids: vec![request_id], spans: builder.spans, line })
}

/// What the span of a whole request says.
fn describe(root: &mut Span, ended: &RequestEnded, why: Option<&str>, batches: u64) {
    root.kind = SERVER;
    root.attributes.extend_from_slice(&ended.description.attributes);
    root.attributes.push(attribute("jitney.request_id", &*ended.description.request_id));
    root.attributes.push(attribute("jitney.kept", ended.kept.label()));
    root.attributes.push(attribute("jitney.batches", batches));
    if let Some(outcome) = ended.outcome {
        root.attributes.push(attribute("jitney.outcome", outcome.reason()));
        if outcome != Outcome::Ok {
            root.attributes.push(attribute("error.type", outcome.reason()));
        }
    }
    root.attributes.extend(why.map(|why| attribute("jitney.why", why)));
    if ended.description.is_error {
        root.status = Some(Status { message: String::new(), code: ERROR });
    }
}

/// When a batch was over for a request.
fn end_of(stay: &Stay, at_most: Instant) -> Instant {
    stay.results.or(stay.batch.ended().at).unwrap_or(at_most).clamp(stay.began, at_most.max(stay.began))
}

/// The facts of a request. Its queue is what its batches leave of the time between entry and results. So an attempt that was
/// lost counts as queue, as on the live page.
fn story(ended: &RequestEnded, stays: &[&Stay], times: [Instant; 3], ahead: u64) -> Story<'static> {
    let [began, entered, results] = times;
    let longest = longest_stays(stays, ended.at);
    let passed = ended.passed.lengths;
    let whole = results - entered;
    let lengths = if stays.is_empty() {
        passed
    } else {
        let took = |stay: &Stay| end_of(stay, ended.at) - stay.began;
        let with_workers = longest.iter().map(|stay| took(stay)).sum::<Duration>().min(whole);
        let predict = longest.iter().map(|stay| stay.predict_took).sum::<Duration>().min(with_workers);
        Lengths { queue: whole.saturating_sub(with_workers), link: with_workers.saturating_sub(predict), predict }
    };
    let explains = longest.iter().max_by_key(|stay| stay.predict_took);
    let facts = explains.map(|stay| stay.batch.facts());
    let plain = ended.usual.map(|total| Usual { total, ..Usual::default() });
    let reason = ended.outcome.filter(|&outcome| outcome != Outcome::Ok).map(Outcome::reason);
    Story {
        receive: entered - began,
        lengths,
        render: ended.at - results,
        usual: facts
            .filter(|facts| facts.deployment == ended.description.whose)
            .and_then(|facts| facts.usual)
            .or(plain),
        failure: reason.map(|reason| FailureFacts { reason, detail: None }),
        ahead,
        bytes: explains.map_or(0, |stay| stay.bytes),
        cost: explains.map_or(0, |stay| stay.cost),
        returns: stays.iter().map(|stay| stay.attempt.saturating_sub(1)).max().unwrap_or(0),
        lost: stays.iter().filter(|stay| stay.results.is_none()).find_map(|stay| stay.batch.ended().lost),
        replicas: facts.map_or(0, |facts| facts.replicas),
        batch: facts.map(|facts| facts.batch),
    }
}

/// Of each deployment that computed a request, the batch that ended last: the stages of a chain follow each other, while
/// batches of one deployment may run side by side.
fn longest_stays<'s>(stays: &[&'s Stay], at_most: Instant) -> Vec<&'s Stay> {
    let mut found: Vec<&Stay> = Vec::new();
    for &stay in stays {
        let name = &stay.batch.facts().deployment;
        match found.iter_mut().find(|other| other.batch.facts().deployment == *name) {
            Some(other) if end_of(other, at_most) > end_of(stay, at_most) => {}
            Some(other) => *other = stay,
            None => found.push(stay),
        }
    }
    found
}

fn batch_attributes(facts: &BatchLaunch) -> Vec<KeyValue> {
    vec![
        attribute("jitney.deployment", facts.deployment.as_str()),
        attribute("jitney.batch.id", facts.number),
        attribute("jitney.batch.items", facts.batch.items as u64),
        attribute("jitney.batch.reason", facts.batch.reason.label()),
        attribute("jitney.batch.held_ms", facts.batch.held.as_secs_f64() * 1e3),
        attribute("jitney.batch.left_waiting", facts.left_waiting),
        attribute("jitney.batch.cost", facts.cost),
        attribute("jitney.batch.padded_cost", facts.padded_cost),
        attribute("jitney.replica", facts.replica),
    ]
}

/// The spans of a batch, of which a request was kept.
pub(crate) fn of_batch(batch: FinishedBatch) -> Built {
    let FinishedBatch { context, predict, facts, ended, riders } = batch;
    let mut builder = Builder::new(context, "");
    let times = (facts.launched, ended.at.unwrap_or_else(Instant::now).max(facts.launched));
    let root = builder.add(&format!("batch {}", facts.deployment), context.span, 0, times);
    root.attributes = batch_attributes(&facts);
    (root.links, root.dropped_links_count) = (riders.links, riders.dropped);
    if let Some(lost) = &ended.lost {
        root.status = Some(Status { message: format!("worker lost: {lost}"), code: ERROR });
    }
    let unknown = Stages { decode: Duration::ZERO, predict: times.1 - times.0, encode: Duration::ZERO };
    builder.stages(context.span, predict, times, ended.stages.unwrap_or(unknown));
    Built { request_ids: riders.request_ids, spans: builder.spans, line: None }
}
