//! The last traces that were kept, for who asks without a collector.

use crate::base::traces::messages::{KeyValue, SERVER, Span, attribute};
use crate::base::traces::otlp::json;
use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use std::sync::Arc;

/// Traces that can be looked up.
const MOST: usize = 1000;
/// Spans that they have together: some 15 MB. A request of many items has some hundred.
const MOST_SPANS: usize = 20_000;
/// Requests that one answer shows. Clients may give the same id to all of their requests.
const MOST_REQUESTS: usize = 10;
/// Spans that one answer shows: some 1 MB. The newest request is shown whatever it has.
const MOST_WEIGHT: usize = 1000;
/// About so many links are as long as one span.
const LINKS_PER_SPAN: usize = 8;
/// Bytes of a span as JSON.
const SPAN_BYTES: usize = 1024;

/// Traces, the last one behind.
#[derive(Debug)]
pub(crate) struct Store {
    resource: Vec<KeyValue>,
    traces: VecDeque<Stored>,
    spans: usize,
}

#[derive(Debug)]
struct Stored {
    request_ids: Vec<Arc<str>>,
    spans: Arc<[Span]>,
    weight: usize,
}

/// The traces of one id, to be written without the store.
#[derive(Debug)]
pub(crate) struct Found {
    resource: Vec<KeyValue>,
    traces: Vec<Arc<[Span]>>,
    /// Traces of the same id that are not shown.
    left_out: usize,
    weight: usize,
}

impl Store {
    /// Without traces, of a process that has these attributes.
    pub(crate) fn new(resource: Vec<(String, String)>) -> Store {
        Store { resource: resource_attributes(resource), traces: VecDeque::new(), spans: 0 }
    }

    /// What is said of this process.
    pub(crate) fn resource(&self) -> &[KeyValue] {
        &self.resource
    }

    /// Adds a trace; the oldest ones make room.
    pub(crate) fn add(&mut self, request_ids: Vec<Arc<str>>, spans: Arc<[Span]>) {
        self.spans += spans.len();
        while self.traces.len() >= MOST || self.spans > MOST_SPANS {
            let Some(oldest) = self.traces.pop_front() else { break };
            self.spans -= oldest.spans.len();
        }
        self.traces.push_back(Stored { request_ids, weight: weight(&spans), spans });
    }

    /// The traces of the request that has this id, or else of all requests of the trace that has it; and of the batches that
    /// these were in. Only references are copied: the task that adds traces waits for the same lock.
    pub(crate) fn find(&self, id: &str) -> Option<Found> {
        self.of_requests(&FxHashSet::from_iter([id])).or_else(|| {
            let trace = trace_id(id)?;
            let is_of = |stored: &&Stored| stored.spans.iter().any(|span| span.trace_id == trace);
            let ids = self.traces.iter().filter(is_of).flat_map(|stored| &stored.request_ids);
            self.of_requests(&ids.map(|id| &**id).collect())
        })
    }

    fn of_requests(&self, ids: &FxHashSet<&str>) -> Option<Found> {
        let is_of = |stored: &&Stored| stored.request_ids.iter().any(|id| ids.contains(&**id));
        let all: Vec<&Stored> = self.traces.iter().filter(is_of).collect();
        all.last()?;
        let (mut weight, mut requests) = (0, 0);
        let mut is_shown = vec![false; all.len()];
        // Requests before batches: without a request its batches say little.
        for wants_requests in [true, false] {
            for (stored, is_shown) in all.iter().zip(&mut is_shown).rev() {
                let is_request = stored.is_request();
                let has_room = weight + stored.weight <= MOST_WEIGHT && (!is_request || requests < MOST_REQUESTS);
                if is_request == wants_requests && (has_room || weight == 0) {
                    *is_shown = true;
                    weight += stored.weight;
                    requests += usize::from(is_request);
                }
            }
        }
        let shown = all.iter().zip(&is_shown).filter(|(_, is_shown)| **is_shown);
        let traces: Vec<_> = shown.map(|(stored, _)| stored.spans.clone()).collect();
        Some(Found { resource: self.resource.clone(), left_out: all.len() - traces.len(), traces, weight })
    }
}

impl Stored {
    fn is_request(&self) -> bool {
        self.spans.first().is_some_and(|span| span.kind == SERVER)
    }
}

impl Found {
    /// About how many bytes the document has.
    pub(crate) fn bytes(&self) -> usize {
        self.weight * SPAN_BYTES
    }

    /// The traces as JSON of OTLP. `jitneyTracesLeftOut` is not of OTLP, whose readers ignore what they do not know.
    pub(crate) fn document(&self) -> serde_json::Value {
        let mut document = json::document(&self.resource, SCOPE, self.traces.iter().flat_map(|spans| spans.iter()));
        if self.left_out > 0 {
            document["jitneyTracesLeftOut"] = self.left_out.into();
        }
        document
    }
}

/// The size of a trace in an answer, in spans.
fn weight(spans: &[Span]) -> usize {
    spans.iter().map(|span| 1 + span.links.len() / LINKS_PER_SPAN).sum()
}

/// The bytes of the id of a trace, which is 32 hex digits.
fn trace_id(text: &str) -> Option<[u8; 16]> {
    let is_id = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u128::from_str_radix(text, 16).ok().filter(|_| is_id).map(u128::to_be_bytes)
}

/// The name and version of what makes the spans.
pub(crate) const SCOPE: (&str, &str) = ("jitney", env!("CARGO_PKG_VERSION"));

fn resource_attributes(given: Vec<(String, String)>) -> Vec<KeyValue> {
    let own =
        [("telemetry.sdk.name", "jitney"), ("telemetry.sdk.language", "rust"), ("telemetry.sdk.version", SCOPE.1)];
    let given = given.into_iter().map(|(key, value)| attribute(&key, value));
    given.chain(own.map(|(key, value)| attribute(key, value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(store: &Store, id: &str) -> Option<(Vec<String>, u64)> {
        let document = store.find(id)?.document();
        assert_eq!(document["resourceSpans"][0]["resource"]["attributes"][0]["value"]["stringValue"], "m");
        let spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
        let names = spans.iter().map(|span| span["name"].as_str().unwrap().to_owned()).collect();
        Some((names, document["jitneyTracesLeftOut"].as_u64().unwrap_or_default()))
    }

    fn store() -> Store {
        Store::new(vec![("service.name".into(), "m".into())])
    }

    fn spans(count: usize, name: &str, kind: i32) -> Arc<[Span]> {
        (0..count).map(|_| Span { name: name.into(), kind, ..Span::default() }).collect()
    }

    #[test]
    fn the_last_thousand_are_found_by_their_requests() {
        let mut store = store();
        for number in 0..=MOST {
            let span = Span { name: number.to_string(), trace_id: vec![0xab; 2], ..Span::default() };
            store.add(vec![format!("r{number}").as_str().into(), "all".into()], [span].into());
        }
        assert_eq!(shown(&store, "r0"), None);
        assert_eq!(shown(&store, "r7"), Some((vec!["7".into()], 0)));
        assert_eq!(shown(&store, "all").unwrap().0.len(), MOST);
        store.add(vec!["r7".into()], [Span { trace_id: 0xab7u128.to_be_bytes().into(), ..Span::default() }].into());
        let (of_trace, _) = shown(&store, "00000000000000000000000000000AB7").unwrap();
        assert_eq!(of_trace.len(), 2, "with the other spans of its request");
        assert!(shown(&store, "00000000000000000000000000000ab8").is_none() && shown(&store, "ab7").is_none());
        store.add(vec!["many".into()], spans(MOST_SPANS, "", 0));
        assert!(shown(&store, "all").is_none() && shown(&store, "many").is_some());
    }

    #[test]
    fn of_an_id_that_many_requests_have_the_newest_are_shown() {
        let mut store = store();
        for number in 0..100 {
            store.add(vec!["same".into()], spans(2, &format!("r{number}"), SERVER));
            store.add(vec!["same".into()], spans(20, &format!("b{number}"), 1));
        }
        let (names, left_out) = shown(&store, "same").unwrap();
        assert_eq!(names.iter().filter(|name| name.starts_with('r')).count(), 2 * MOST_REQUESTS);
        assert_eq!((names.len(), left_out), (20 + 49 * 20, 200 - 10 - 49));
        assert_eq!((&*names[0], &*names[names.len() - 1]), ("b51", "b99"), "in their order");
        store.add(vec!["same".into()], spans(MOST_WEIGHT + 1, "long", SERVER));
        assert_eq!(shown(&store, "same"), Some((vec!["long".into(); MOST_WEIGHT + 1], 200)));
        let links = vec![crate::base::traces::messages::Link::default(); 128];
        let linked = Span { links, ..Span::default() };
        assert_eq!(weight(&[linked]), 17);
    }
}
